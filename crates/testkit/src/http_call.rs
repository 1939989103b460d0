use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::{Error, Result};

/// One plain-HTTP GET on a connection of its own, for etcd's health and the operator's admin port.
pub(crate) async fn get(url: &str) -> Result<(StatusCode, String)> {
    call(Method::GET, url, String::new()).await
}

/// One plain-HTTP POST of JSON, for etcd's gateway.
pub(crate) async fn post(url: &str, json: String) -> Result<(StatusCode, String)> {
    call(Method::POST, url, json).await
}

async fn call(method: Method, url: &str, body: String) -> Result<(StatusCode, String)> {
    let failed = |reason: String| Error::Http { url: url.to_owned(), reason };
    let request = Request::builder()
        .method(method)
        .uri(url)
        .body(Full::<Bytes>::from(body))
        .map_err(|error| failed(error.to_string()))?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(request).await.map_err(|error| failed(error.to_string()))?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|error| failed(error.to_string()))?;
    Ok((status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
}
