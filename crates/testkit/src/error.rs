use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::wait::TimedOut;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong while a test is being set up.
///
/// `Debug` prints the chain of messages with their line breaks, because a test that unwraps must print a log
/// tail that a person can read, not an escaped string.
#[derive(thiserror::Error)]
pub enum Error {
    #[error("{what}")]
    Io { what: String, source: io::Error },
    #[error(
        "`go` is not on the PATH, and {missing} must be built from source; install Go {required} \
         or newer (https://go.dev/dl/), or point KUBEBUILDER_ASSETS at a folder that has it"
    )]
    GoMissing { missing: &'static str, required: &'static str },
    #[error("building {program} failed; the end of what `go build` said:\n{tail}")]
    Build { program: &'static str, tail: String },
    #[error("no home directory to cache the control plane in")]
    NoHome,
    #[error("tools/control-plane/go.mod does not require k8s.io/kubernetes")]
    NoVersion,
    #[error("making certificates")]
    Certificate(#[from] rcgen::Error),
    #[error("{program} ended ({status}) before it was ready; the end of {}:\n{tail}", log.display())]
    Exited { program: String, status: String, log: PathBuf, tail: String },
    #[error("{program} did not become ready; the end of {}:\n{tail}", log.display())]
    NotReady { program: String, log: PathBuf, tail: String, source: Box<TimedOut> },
    #[error("{what}")]
    Kube { what: String, source: Box<kube::Error> },
    #[error("reading kubeconfig {}", path.display())]
    Kubeconfig { path: PathBuf, source: Box<kube::config::KubeconfigError> },
    #[error("`kubectl {args}` failed: {stderr}")]
    Kubectl { args: String, stderr: String },
    #[error("the API server answered the token request for {account} without a token")]
    NoToken { account: String },
    #[error(transparent)]
    TimedOut(#[from] TimedOut),
    #[error("{url}: {reason}")]
    Http { url: String, reason: String },
    #[error("no free port between {first} and {last}")]
    NoPort { first: u16, last: u16 },
    #[error("reading a recording: {0}")]
    Recording(String),
    #[error("reading a manifest: {0}")]
    Manifest(String),
    #[error("`{command}` failed: {output}")]
    Command { command: String, output: String },
    #[error("no bed can be made here: {0}")]
    NoBed(String),
    #[error("{0} is switched off")]
    NodeOff(String),
    #[error("the thread `{0}`, which works for the others, is gone")]
    WorkerGone(&'static str),
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

    /// Whether a start failed only because another process took the port between probing and binding.
    pub(crate) fn is_port_conflict(&self) -> bool {
        matches!(self, Self::Exited { tail, .. } if tail.contains("address already in use"))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            write!(f, "\n  because: {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
