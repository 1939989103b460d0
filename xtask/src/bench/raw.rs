//! Sends requests whose bodies were made beforehand, many of them at once.

use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request, header};
use kube::Client;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::error::{Error, Result};

/// A request that only has to be sent.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Vec<u8>,
}

impl Call {
    pub(super) fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), body: Vec::new() }
    }

    pub(super) fn create(path: impl Into<String>, body: Vec<u8>) -> Self {
        Self { method: Method::POST, path: path.into(), body }
    }

    pub(super) fn merge(path: impl Into<String>, body: Vec<u8>) -> Self {
        Self { method: Method::PATCH, path: path.into(), body }
    }

    pub(super) fn put(path: impl Into<String>, body: Vec<u8>) -> Self {
        Self { method: Method::PUT, path: path.into(), body }
    }

    pub(super) fn delete(path: impl Into<String>) -> Self {
        Self { method: Method::DELETE, path: path.into(), body: Vec::new() }
    }

    pub(super) fn request(self) -> Result<Request<Vec<u8>>> {
        let content = if self.method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        Request::builder()
            .method(self.method)
            .uri(self.path.as_str())
            .header(header::CONTENT_TYPE, content)
            .header(header::ACCEPT, "application/json")
            .body(self.body)
            .map_err(|source| Error::Request { path: self.path, source })
    }

    /// Sends it and reads the whole answer.
    pub(super) async fn send(self, client: &Client) -> Result<String> {
        let what = format!("{} {}", self.method, self.path);
        client.request_text(self.request()?).await.map_err(Error::kube(what))
    }

    /// Sends it and parses the answer.
    pub(super) async fn ask<T: DeserializeOwned>(self, client: &Client) -> Result<T> {
        let what = self.path.clone();
        let answer = self.send(client).await?;
        serde_json::from_str(&answer).map_err(Error::json(what))
    }

    /// Sends it; an object that is gone already is not an error.
    pub(super) async fn send_unless_gone(self, client: &Client) -> Result<()> {
        let what = format!("{} {}", self.method, self.path);
        match client.request_text(self.request()?).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            outcome => outcome.map(drop).map_err(Error::kube(what)),
        }
    }
}

/// Does `work` for every item, `width` at a time on all threads, and ends with the first error.
///
/// The results come in no particular order.
pub(super) async fn spread<T, R, W, F>(width: usize, items: Vec<T>, work: W) -> Result<Vec<R>>
where
    T: Send + 'static,
    R: Send + 'static,
    W: Fn(T) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<R>> + Send,
{
    let items = Arc::new(Mutex::new(items.into_iter()));
    let mut workers: JoinSet<Result<Vec<R>>> = JoinSet::new();
    for _ in 0..width {
        let (items, work) = (Arc::clone(&items), work.clone());
        workers.spawn(async move {
            let mut results = Vec::new();
            loop {
                let next = items.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(item) = next else { return Ok(results) };
                results.push(work(item).await?);
            }
        });
    }
    let mut all = Vec::new();
    while let Some(done) = workers.join_next().await {
        all.extend(done??);
    }
    Ok(all)
}
