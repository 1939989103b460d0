//! The client for the cluster, and where its configuration comes from.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::header::RETRY_AFTER;
use axum::http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use kube::client::{ClientBuilder, DynBody};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use serde_json::json;
use tower::BoxError;
use tower::util::MapResponseLayer;

/// Long enough for a slow TLS handshake, short enough to try again within a renew deadline.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("using kubeconfig {}", path.display())]
    File { path: PathBuf, source: Box<KubeconfigError> },
    #[error("using the kubeconfig that KUBECONFIG names")]
    Variable(#[source] Box<KubeconfigError>),
    #[error("using the service account of the pod, since no kubeconfig was named")]
    Pod(#[source] Box<InClusterError>),
    #[error("making a client for {url} from {origin}")]
    Client { url: String, origin: String, source: Box<kube::Error> },
}

impl Error {
    /// The most likely fix.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::File { .. } => "check --kubeconfig or LANDFALL_KUBECONFIG",
            Self::Variable(_) => "check KUBECONFIG, or name a file with --kubeconfig",
            Self::Pod(_) => {
                "outside of a cluster name a file with --kubeconfig or KUBECONFIG; in a pod, \
                 check that its service account token is mounted"
            }
            Self::Client { .. } => "check the certificates and credentials it names",
        }
    }
}

/// A cluster we know how to reach.
#[derive(Clone, Debug)]
pub struct Cluster {
    config: Config,
    namespace: Option<String>,
    origin: String,
}

impl Cluster {
    /// Uses the given file, else the one that `KUBECONFIG` names, else the Pod's service account.
    ///
    /// Not `~/.kube/config`: an operator that finds nothing should say so, not act on whatever
    /// cluster its user looked at last.
    pub async fn load(kubeconfig: Option<&Path>) -> Result<Self, Error> {
        if let Some(path) = kubeconfig {
            let named = |source| Error::File { path: path.to_owned(), source: Box::new(source) };
            let read = Kubeconfig::read_from(path).map_err(named)?;
            return Self::from_kubeconfig(read, path.display().to_string()).await.map_err(named);
        }
        let named = |source| Error::Variable(Box::new(source));
        if let Some(read) = Kubeconfig::from_env().map_err(named)? {
            return Self::from_kubeconfig(read, "KUBECONFIG".to_owned()).await.map_err(named);
        }
        let config = Config::incluster().map_err(|source| Error::Pod(Box::new(source)))?;
        let namespace = Some(config.default_namespace.clone());
        Ok(Self::new(config, namespace, "service account".to_owned()))
    }

    async fn from_kubeconfig(read: Kubeconfig, origin: String) -> Result<Self, KubeconfigError> {
        let namespace = context_namespace(&read);
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        Ok(Self::new(config, namespace, origin))
    }

    fn new(mut config: Config, namespace: Option<String>, origin: String) -> Self {
        // Callers know better than a client whether a call is worth repeating; 15 silent retries
        // would outlive every deadline.
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        Self { config, namespace, origin }
    }

    /// A new client with connections of its own.
    pub fn client(&self) -> Result<Client, Error> {
        let builder = ClientBuilder::try_from(self.config.clone());
        let client = builder
            .map(|builder| builder.with_layer(&MapResponseLayer::new(with_time_to_wait)).build());
        client.map_err(|source| Error::Client {
            url: self.url(),
            origin: self.origin.clone(),
            source: Box::new(source),
        })
    }

    /// The namespace of the kubeconfig's context or the Pod; `None` if the context names none.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Address of the API server.
    pub fn url(&self) -> String {
        self.config.cluster_url.to_string()
    }

    /// The source of this configuration, for the log.
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

/// Puts the time to wait where kube looks for it: the API server's flow control sends it in a header, beside
/// a text that is not a `Status`.
fn with_time_to_wait(response: Response<Box<DynBody>>) -> Response<Box<DynBody>> {
    let told =
        response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let Some(retry_after_seconds): Option<u32> =
        told.filter(|_| response.status() == StatusCode::TOO_MANY_REQUESTS)
    else {
        return response;
    };
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "too many requests",
        "reason": "TooManyRequests",
        "code": response.status().as_u16(),
        "details": {"retryAfterSeconds": retry_after_seconds},
    });
    let body = Full::from(status.to_string()).map_err(BoxError::from);
    response.map(|_| Box::new(body) as Box<DynBody>)
}

/// kube answers "default" for a context without a namespace, which no user meant.
fn context_namespace(read: &Kubeconfig) -> Option<String> {
    let current = read.current_context.as_deref()?;
    let named = read.contexts.iter().find(|context| context.name == current)?;
    named.context.as_ref()?.namespace.clone().filter(|namespace| !namespace.is_empty())
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::report;

    fn kubeconfig(context: &str) -> tempfile::NamedTempFile {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
             clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:1'}}}}]\n\
             users: [{{name: a, user: {{}}}}]\n\
             contexts: [{{name: a, context: {context}}}]\n"
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[tokio::test]
    async fn the_namespace_comes_from_the_context_or_not_at_all() {
        for (context, expected) in [
            ("{cluster: a, user: a, namespace: net}", Some("net")),
            ("{cluster: a, user: a, namespace: default}", Some("default")),
            ("{cluster: a, user: a}", None),
        ] {
            let cluster = Cluster::load(Some(kubeconfig(context).path())).await.unwrap();
            assert_eq!(cluster.namespace(), expected, "{context}");
        }
    }

    #[tokio::test]
    async fn clients_do_not_retry_by_themselves() {
        let file = kubeconfig("{cluster: a, user: a}");
        let cluster = Cluster::load(Some(file.path())).await.unwrap();
        assert!(!cluster.config.default_retry);
        assert_eq!(cluster.config.connect_timeout, Some(CONNECT_TIMEOUT));
        cluster.client().unwrap();
    }

    #[tokio::test]
    async fn a_throttled_call_tells_how_long_to_wait() {
        for (status, header, expected) in [
            (429, Some("7"), Some(7)),
            (429, None, None),
            (429, Some("tomorrow"), None),
            (503, Some("7"), None),
        ] {
            let mut response = Response::builder().status(status);
            if let Some(header) = header {
                response = response.header(RETRY_AFTER, header);
            }
            let body = Full::from("Too many requests").map_err(BoxError::from);
            let body: Box<DynBody> = Box::new(body);
            let given = with_time_to_wait(response.body(body).unwrap());
            assert_eq!(given.status().as_u16(), status);
            let text = given.into_body().collect().await.unwrap().to_bytes();
            let read: Option<Status> = serde_json::from_slice(&text).ok();
            let told = read.and_then(|read| Some(read.details?.retry_after_seconds));
            assert_eq!(told, expected, "{status} {header:?}");
        }
    }

    #[tokio::test]
    async fn a_bad_kubeconfig_is_named_with_the_reason() {
        let error = Cluster::load(Some(Path::new("/nonexistent/k"))).await.unwrap_err();
        let text = report::chain(&error);
        assert!(text.starts_with("using kubeconfig /nonexistent/k: "), "{text}");
        assert!(text.contains("No such file"), "{text}");
        assert!(error.hint().contains("--kubeconfig"));

        let file = kubeconfig("{cluster: b, user: a}");
        let error = Cluster::load(Some(file.path())).await.unwrap_err();
        let text = report::chain(&error);
        assert!(text.contains("failed to load the cluster of context"), "{text}");
    }
}
