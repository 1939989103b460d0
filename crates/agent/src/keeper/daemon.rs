//! A running keepalived: its parent process and its VRRP process.

use std::{ffi::OsString, fs, io, path::Path, time::Duration};

use rustix::process::Signal;
use tokio::{
    join,
    time::{Instant, timeout},
};
use tracing::{error, warn};

use super::{
    launch, log,
    proc::{self, Ours},
    process::Process,
};
use crate::RunDir;

#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) parent: Process,
    /// `None` while the parent process starts it.
    pub(super) child: Option<Process>,
    pub(super) started: Instant,
    /// A predecessor of the keeper started it.
    pub(super) is_adopted: bool,
}

impl Daemon {
    pub(super) fn start(
        launcher: &[OsString],
        program: &Path,
        run_dir: &RunDir,
    ) -> io::Result<Self> {
        // A pid file that names a running process, whichever it is, would keep it from starting.
        for file in [run_dir.pid_file(), run_dir.vrrp_pid_file()] {
            match fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let mut line = launcher.to_vec();
        line.push(program.into());
        let flags = ["--vrrp", "--dont-fork", "--log-console", "--no-syslog"];
        line.extend(flags.map(Into::into));
        for (flag, path) in [
            ("--use-file", run_dir.configuration()),
            ("--pid", run_dir.pid_file()),
            ("--vrrp_pid", run_dir.vrrp_pid_file()),
        ] {
            line.extend([flag.into(), path.into()]);
        }
        let parent = launch::spawn_logging(&line, &log::pipe(&log::path(run_dir))?)?;
        Ok(Self { parent, child: None, started: Instant::now(), is_adopted: false })
    }

    /// The one that a predecessor of the keeper left running.
    pub(super) fn adopt(run_dir: &RunDir, ours: &Ours) -> Option<Self> {
        let parent = open(proc::pid_file(&run_dir.pid_file())?, ours)?;
        let mut daemon = Self { parent, child: None, started: Instant::now(), is_adopted: true };
        daemon.find_child(run_dir, ours);
        Some(daemon)
    }

    /// Looks for its VRRP process, whose id it writes down before it reads the configuration.
    pub(super) fn find_child(&mut self, run_dir: &RunDir, ours: &Ours) {
        let id = proc::pid_file(&run_dir.vrrp_pid_file());
        let own = id.filter(|id| proc::parent(*id) == Some(self.parent.id()));
        self.child = own.and_then(|id| open(id, ours));
    }

    /// Returns once the VRRP process has ended, and never if there is none.
    pub(super) async fn child_ended(&self) {
        match &self.child {
            Some(child) => child.ended().await,
            None => std::future::pending().await,
        }
    }

    /// Ends it in order, so that it says goodbye itself. Returns whether it did.
    pub(super) async fn stop(&self, deadline: Duration) -> bool {
        if let Err(error) = self.parent.signal(Signal::TERM) {
            warn!(%error, "keepalived cannot be told to stop");
            return false;
        }
        self.ended(deadline).await
    }

    /// Waits until all of it has ended, and returns whether it did in time.
    pub(super) async fn ended(&self, deadline: Duration) -> bool {
        let child = async {
            if let Some(child) = &self.child {
                child.ended().await;
            }
        };
        timeout(deadline, async { join!(self.parent.ended(), child) }).await.is_ok()
    }

    /// Kills what is left of it.
    pub(super) async fn kill(&self) {
        let child = async {
            match &self.child {
                Some(child) => child.kill().await,
                None => Ok(()),
            }
        };
        let (parent, child) = join!(self.parent.kill(), child);
        if let Err(error) = parent.and(child) {
            error!(%error, "keepalived cannot be killed");
        }
    }
}

/// Kills every keepalived of ours, and returns whether there was one.
pub(super) async fn kill_all(ours: &Ours) -> bool {
    let mut found = false;
    for process in ours.all().into_iter().filter_map(|id| open(id, ours)) {
        warn!(pid = process.id(), "a process of keepalived was left over, and is killed");
        found = true;
        if let Err(error) = process.kill().await {
            error!(%error, pid = process.id(), "it cannot be killed");
        }
    }
    found
}

/// Only if it is a keepalived of ours.
fn open(id: u32, ours: &Ours) -> Option<Process> {
    let process = Process::open(id).ok()?;
    // Looked at after it was opened: from then on the id cannot become another process's.
    ours.is(id).then_some(process)
}
