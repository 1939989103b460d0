//! The keeper: the process that looks after worker and keepalived.
//!
//! It speaks to no API server and decides nothing, so that there is little in it that can fail. Whatever
//! happens to keepalived, it takes keepalived's addresses off the node and says goodbye in its place. Whatever
//! happens to the keeper itself, keepalived goes on, and the next keeper goes on with the same keepalived.
//! In a container the first process is another one, see [`crate::init`].

mod addresses;
mod backoff;
mod daemon;
mod dump;
mod files;
mod goodbye;
mod keepalived;
mod known;
mod launch;
mod link_local;
mod log;
mod notices;
mod proc;
mod process;
mod pulse;
mod socket;
mod worker;

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, Permissions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use landfall_vrrp::render::notify_fifo;
use nix::sys::signal::SigSet;
use rustix::process::Signal;
use rustix_libc_wrappers::process::SignalExt as _;
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
};
use tracing::{error, info};

use self::{
    daemon::Daemon, files::Files, keepalived::Keeping, known::Known, log::Log, notices::Notices,
};
use crate::RunDir;

/// What a keeper needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    pub run_dir: RunDir,
    /// The command line of the worker.
    pub worker: Vec<OsString>,
    /// A program and its first arguments, which becomes the program that the other arguments name, in a
    /// session of its own. keepalived is started by it.
    pub launcher: Vec<OsString>,
    /// keepalived's program file.
    pub keepalived: PathBuf,
}

/// Why a keeper cannot work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("preparing {}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("another agent uses {}", .0.display())]
    Used(PathBuf),
    #[error("running {}", path.display())]
    Keepalived { path: PathBuf, source: io::Error },
    #[error("{} cannot dump its state as JSON", .0.display())]
    NoJson(PathBuf),
    #[error("starting to watch and to listen")]
    Start(#[source] io::Error),
}

/// Runs until a signal tells it to stop.
pub fn run(settings: &Settings) -> Result<(), Error> {
    let _lock = prepare(&settings.run_dir)?;
    let runtime =
        runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Start)?;
    runtime.block_on(async {
        let (known, adopted) = keepalived::begin(settings).await;
        let ask = dump_signal(&settings.keepalived)?;
        work(settings, ask, known, adopted).await.map_err(Error::Start)
    })
}

async fn work(
    settings: &Settings,
    ask: Signal,
    known: Known,
    adopted: Option<Daemon>,
) -> io::Result<()> {
    let (stopper, stop) = watch::channel(false);
    let (worker_stopper, worker_stop) = watch::channel(false);
    let (calls, inbox) = mpsc::channel(1);
    let run_dir = settings.run_dir.path().to_string_lossy();
    let pipe = PathBuf::from(notify_fifo(&run_dir));
    let notices = Notices::open(&pipe)?;
    let files = Files::watch(&pipe, &settings.run_dir.pid_file())?;
    let log = Log::open(&log::path(&settings.run_dir))?;
    let listener = socket::listen(&settings.run_dir.socket())?;
    let mut children = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // The process that started this one may have held them back until now.
    SigSet::all().thread_unblock()?;

    let keeping = Keeping::new(settings, ask, (notices, files), inbox, known, stop);
    let kept = async {
        keeping.run(adopted).await;
        // Only now, so that its last report can say that this node holds nothing.
        worker_stopper.send_replace(true);
    };
    let kept = async {
        tokio::join!(kept, worker::keep(&settings.worker, worker_stop));
    };
    tokio::pin!(kept);
    let served = socket::serve(&listener, &calls);
    tokio::pin!(served);
    let passed_on = async {
        let error = log.pass_on().await;
        error!(%error, "keepalived's log is lost");
        std::future::pending::<()>().await;
    };
    tokio::pin!(passed_on);
    loop {
        tokio::select! {
            biased;
            () = &mut kept => break,
            _ = terminate.recv() => drop(stopper.send(true)),
            _ = interrupt.recv() => drop(stopper.send(true)),
            _ = children.recv() => launch::reap(),
            () = &mut served => {}
            () = &mut passed_on => {}
        }
    }
    launch::reap();
    info!("stopped");
    Ok(())
}

/// Makes the folder, readable by its owner alone, and keeps every other keeper out of it.
fn prepare(run_dir: &RunDir) -> Result<File, Error> {
    let path = run_dir.path();
    let failed = |source| Error::Folder { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    // The kubelet may have made it for everybody to read.
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed)?;
    let lock = fs::OpenOptions::new();
    let lock = { lock }
        .write(true)
        .create(true)
        .truncate(false)
        .open(path.join("lock"))
        .map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Error::Used(path.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// The signal at which keepalived dumps its state: it depends on the C library that it was built with.
fn dump_signal(keepalived: &Path) -> Result<Signal, Error> {
    let output = Command::new(keepalived).arg("--signum=JSON").output();
    let output =
        output.map_err(|source| Error::Keepalived { path: keepalived.to_owned(), source })?;
    let number = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
    number.and_then(Signal::from_raw).ok_or_else(|| Error::NoJson(keepalived.to_owned()))
}

/// Returns once the agent is to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Without a sender nothing is left to keep running for.
    drop(stop.wait_for(|stop| *stop).await);
}
