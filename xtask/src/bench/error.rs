use std::io;

use super::subject::Kind;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no figure, or why a figure is bad.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Testkit(#[from] landfall_testkit::Error),
    #[error("{what}")]
    Kube { what: String, source: Box<kube::Error> },
    #[error("{what}")]
    Io { what: String, source: io::Error },
    #[error("making the request for {path}")]
    Request { path: String, source: http::Error },
    #[error("reading or writing JSON of {what}")]
    Json { what: String, source: serde_json::Error },
    #[error(transparent)]
    Cargo(#[from] crate::cargo::Error),
    #[error("{path} names no ServiceAccount for the operator")]
    NoAccount { path: &'static str },
    #[error("never finished: {what} after {seconds} s; {missing}")]
    Never { what: String, seconds: u64, missing: String },
    #[error("the task that watches Services has ended")]
    WatchEnded,
    #[error("a task of the bench died")]
    Died(#[from] tokio::task::JoinError),
    #[error("{kind} ended by itself; the end of its log:\n{tail}")]
    SubjectEnded { kind: Kind, tail: String },
    #[error("{0}; the figures above are worth nothing until that is explained")]
    Harm(String),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub(crate) fn kube(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Kube { what, source: Box::new(source) }
    }

    pub(crate) fn json(what: impl Into<String>) -> impl FnOnce(serde_json::Error) -> Self {
        let what = what.into();
        move |source| Self::Json { what, source }
    }
}
