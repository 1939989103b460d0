//! `cargo xtask demo`: a cluster, the operator and sample Services, to look at and to play with.

mod cluster;
mod local;
mod nodes;
mod samples;
mod screen;
mod show;
mod watch;

use std::env;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use landfall_testkit::{ControlPlane, bed};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cargo;
use crate::output::{Output, seconds};

/// Not a measurement: a shared machine may be slow, and a wrong answer stays wrong.
const DEADLINE: Duration = Duration::from_mins(2);
/// How long threads may take to end when all their work is over.
const THREADS_GRACE: Duration = Duration::from_secs(1);
/// The API server delays creations of a kind that is younger than this, in case another server does not know
/// it yet. Waiting that long keeps the delay out of the times we show.
const NEW_KIND: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// End when every sample has what it should have, and fail if one has not
    #[arg(long)]
    once: bool,
    /// Start no control plane: run the samples on the cluster of this kubeconfig, in namespaces and
    /// pools of their own, and remove them at the end
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Run the optimised build
    #[arg(long)]
    release: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Testkit(#[from] landfall_testkit::Error),
    #[error("starting the async runtime")]
    Runtime(#[source] io::Error),
    #[error("listening for signals")]
    Signal(#[source] io::Error),
    #[error("running a blocking call")]
    Thread(#[source] io::Error),
    #[error(transparent)]
    Cargo(#[from] cargo::Error),
    #[error(transparent)]
    Samples(#[from] samples::Error),
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    #[error("the operator ended ({status}); the end of its log:\n{tail}")]
    OperatorEnded { status: String, tail: String },
    #[error("the watch of {what} ended")]
    WatchEnded { what: &'static str },
    #[error("after {} not every sample has what it should have:\n{}", seconds(DEADLINE), .0.join("\n"))]
    Late(Vec<String>),
    #[error(
        "IPGroup {0} appeared, which is not the demo's: the operator of the demo would serve it, so \
         the demo ends"
    )]
    OtherPool(String),
}

/// Why the demo ends without an error.
enum End {
    /// Ctrl-C, or a termination signal.
    Asked,
    /// Every sample has what it should have, and nothing is left to show.
    Done,
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<(), Error> {
    if args.kubeconfig.is_none() {
        enter(output);
    }
    let runtime = tokio::runtime::Runtime::new().map_err(Error::Runtime)?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::new()?;
        // Boxed: everything in flight together makes large futures.
        if let Some(file) = &args.kubeconfig {
            return Box::pin(cluster::run(args, file, &mut signals, output)).await;
        }
        let played = signals.unless_received(Box::pin(local::run(args, output))).await?;
        Ok(played.unwrap_or(End::Asked))
    });
    // A build may still be running on its own thread; its processes end with ours.
    runtime.shutdown_timeout(THREADS_GRACE);
    match ended? {
        End::Asked if args.kubeconfig.is_some() => {
            output.say("ended: what the demo created is removed");
        }
        End::Asked => output.say("\nended: operator, control plane and all data are gone"),
        End::Done => output.say("every sample has what it should have"),
    }
    Ok(())
}

/// Becomes a process that may make nodes, if this one may not and such a process can be made.
fn enter(output: &Output) {
    let (Ok(Some(mut again)), Ok(own)) = (bed::privileged(), env::current_exe()) else { return };
    // Only returns if it could not become that process.
    let error = again.arg(own).args(env::args_os().skip(1)).exec();
    output.say(format_args!("starting again in a user namespace: {error}"));
}

/// Both are caught from the beginning: the running demo ends gracefully only by being dropped.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self, Error> {
        let listen = |kind| signal(kind).map_err(Error::Signal);
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// The result of the work, or `None` if a signal comes before that.
    async fn unless_received<T>(
        &mut self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<Option<T>, Error> {
        tokio::select! {
            // First: Ctrl-C also ends a running build, and that is not an error then.
            biased;
            () = self.received() => Ok(None),
            done = work => done.map(Some),
        }
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Applies a file, or all files of a folder.
async fn apply(plane: &ControlPlane, path: &Path) -> Result<(), Error> {
    plane.kubectl(&["apply", "--server-side", "-f", &path.to_string_lossy()]).await?;
    Ok(())
}

async fn build_operator(release: bool) -> Result<PathBuf, Error> {
    blocking(move || {
        Output::new().heading("cargo build --package landfall");
        Ok(cargo::build_operator(release)?)
    })
    .await
}

/// Runs a function that takes minutes on another thread, so that Ctrl-C is still noticed.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Thread(error.into()))?
}
