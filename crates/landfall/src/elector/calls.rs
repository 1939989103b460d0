//! The calls of the election, behind a trait so that tests can lose and delay them.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use landfall_controllers::history::{History, Known, Line};
use tracing::info;

/// The outcome of a guarded write that was answered.
#[derive(Debug)]
pub enum Written {
    /// It succeeded; the object as stored.
    Done(Box<Lease>),
    /// Another client wrote first: read again.
    Refused,
}

/// Why a call gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("no answer in time")]
    Late,
    #[error("calling the API server")]
    Api(#[source] Box<kube::Error>),
}

impl CallError {
    /// What a person can do about it.
    pub fn hint(&self) -> &'static str {
        if let Self::Api(error) = self
            && let kube::Error::Api(status) = &**error
        {
            if status.is_forbidden() {
                return "allow get, create and update on leases in this namespace";
            }
            if status.is_not_found() {
                return "create the namespace, or name another one with --namespace";
            }
        }
        "check that the API server is reachable from here"
    }
}

/// The three calls the elector makes; it puts a deadline on each.
pub trait Leases: Send + Sync {
    /// The lease as stored, never from a cache.
    fn read(&self) -> impl Future<Output = Result<Option<Lease>, CallError>> + Send;
    /// Creates the lease, unless it exists.
    fn create(&self, lease: &Lease) -> impl Future<Output = Result<Written, CallError>> + Send;
    /// Replaces exactly the version that `lease` carries.
    fn update(&self, lease: &Lease) -> impl Future<Output = Result<Written, CallError>> + Send;
}

/// One lease on a real API server.
#[derive(Clone, Debug)]
pub struct KubeLeases {
    api: Api<Lease>,
    name: String,
    /// The namespaces API and the namespace to create if it is missing.
    own_namespace: Option<(Api<Namespace>, String)>,
    /// Every answer has a version, and none may be older than the one before it.
    line: Arc<Line>,
}

impl KubeLeases {
    /// Give it a client of its own: behind a burst of allocations a renewal would come late.
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        let api = Api::namespaced(client, namespace);
        let line = Arc::new(Line::new(History::default(), "lease"));
        Self { api, name: name.to_owned(), own_namespace: None, line }
    }

    /// Tells `history` the versions of the lease.
    #[must_use]
    pub fn telling(self, history: History) -> Self {
        Self { line: Arc::new(Line::new(history, "lease")), ..self }
    }

    /// Like [`new`](Self::new), and creates the namespace if it is missing.
    ///
    /// Only for the default namespace: in a bare cluster `landfall operator` has to work from a shell, but a
    /// mistyped `--namespace` must not leave a namespace behind.
    pub fn in_own_namespace(client: Client, namespace: &str, name: &str) -> Self {
        let own_namespace = Some((Api::all(client.clone()), namespace.to_owned()));
        Self { own_namespace, ..Self::new(client, namespace, name) }
    }

    fn took_in(&self, known: Known, lease: &Lease) {
        self.line.after(known, lease.metadata.resource_version.as_deref());
    }

    async fn make_namespace(api: &Api<Namespace>, name: &str) -> Result<Written, CallError> {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        match api.create(&PostParams::default(), &namespace).await {
            Ok(_) => {
                info!(namespace = name, "namespace created");
                Ok(Written::Refused)
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Written::Refused),
            Err(error) => Err(CallError::Api(Box::new(error))),
        }
    }
}

impl Leases for KubeLeases {
    async fn read(&self) -> Result<Option<Lease>, CallError> {
        let known = self.line.before();
        let read = self.api.get_opt(&self.name).await;
        let lease = read.map_err(|error| CallError::Api(Box::new(error)))?;
        if let Some(lease) = &lease {
            self.took_in(known, lease);
        }
        Ok(lease)
    }

    async fn create(&self, lease: &Lease) -> Result<Written, CallError> {
        let mut lease = lease.clone();
        lease.metadata.name = Some(self.name.clone());
        let known = self.line.before();
        match self.api.create(&PostParams::default(), &lease).await {
            Ok(stored) => {
                self.took_in(known, &stored);
                Ok(Written::Done(Box::new(stored)))
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Written::Refused),
            Err(error) => match (&self.own_namespace, &error) {
                (Some((api, name)), kube::Error::Api(status)) if status.is_not_found() => {
                    Self::make_namespace(api, name).await
                }
                _ => Err(CallError::Api(Box::new(error))),
            },
        }
    }

    async fn update(&self, lease: &Lease) -> Result<Written, CallError> {
        let known = self.line.before();
        match self.api.replace(&self.name, &PostParams::default(), lease).await {
            Ok(stored) => {
                self.took_in(known, &stored);
                Ok(Written::Done(Box::new(stored)))
            }
            // Not found: deleted since we read it.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                Ok(Written::Refused)
            }
            Err(error) => Err(CallError::Api(Box::new(error))),
        }
    }
}
