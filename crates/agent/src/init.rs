//! The first process of a container: starts the keeper, and again whenever that dies.
//!
//! With the first process of a container the kernel kills all others. If that were the keeper, its death would be the
//! death of keepalived, whose addresses would stay on the node. So the first process does next to nothing: it has no
//! runtime and opens nothing. It passes on the signals by which the container is stopped, and reaps what ends.

use std::{
    ffi::OsString,
    io,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        signal::{SigSet, Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use tracing::{error, info, warn};

/// Before a keeper that did not last so long is started again, as much time passes.
const PAUSE: Duration = Duration::from_secs(1);
/// How often a keeper that dies while it stops is started again, to sweep in the place of the one that died.
const STOPS: u8 = 3;
/// How a Rust program ends by a panic. Any other code is the keeper's own.
const PANICKED: i32 = 101;

/// Runs a keeper with this command line until it has ended by itself, and returns its exit code.
///
/// The process must have no other threads, which would take the signals.
pub fn run(line: &[OsString]) -> io::Result<u8> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD] {
        signals.add(signal);
    }
    signals.thread_block()?;
    let mut keeper = Keeper::start(line)?;
    let mut is_first = true;
    let mut stop = None;
    let mut stops = 0;
    loop {
        let signal = signals.wait()?;
        if signal != Signal::SIGCHLD {
            info!(%signal, "stopping");
            stop = Some(signal);
            keeper.signal(signal);
            continue;
        }
        let Some(end) = reap(keeper.id) else { continue };
        match end {
            // One that could not even begin says why. If there was one before, keepalived may run.
            End::Exited(code) if code == 0 || is_first && code != PANICKED => {
                return Ok(code.try_into().unwrap_or(u8::MAX));
            }
            End::Exited(_) | End::Killed if stop.is_some() && stops == STOPS => {
                error!("the keeper keeps dying while it stops");
                return Ok(1);
            }
            End::Exited(_) | End::Killed => {
                warn!(?end, "the keeper has died, and is started again");
            }
        }
        is_first = false;
        keeper = keeper.again(line);
        if let Some(signal) = stop {
            stops += 1;
            keeper.signal(signal);
        }
    }
}

/// How a keeper ended.
#[derive(Clone, Copy, Debug)]
enum End {
    Exited(i32),
    Killed,
}

struct Keeper {
    id: Pid,
    started: Instant,
}

impl Keeper {
    /// It is born with the signals blocked that are blocked here, and lets them come when it is ready for them.
    fn start(line: &[OsString]) -> io::Result<Self> {
        let (program, args) = line.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let child = Command::new(program).args(args).stdin(Stdio::null()).spawn()?;
        let id = child.id().try_into().map_err(io::Error::other)?;
        Ok(Self { id: Pid::from_raw(id), started: Instant::now() })
    }

    /// Starts another one in its place, however long it takes.
    fn again(&self, line: &[OsString]) -> Self {
        if self.started.elapsed() < PAUSE {
            sleep(PAUSE);
        }
        loop {
            match Self::start(line) {
                Ok(keeper) => return keeper,
                Err(error) => error!(%error, "the keeper cannot be started"),
            }
            sleep(PAUSE);
        }
    }

    /// It has not been reaped, so the id is still its own.
    fn signal(&self, signal: Signal) {
        if let Err(error) = kill(self.id, signal) {
            error!(%error, %signal, "the keeper cannot be signalled");
        }
    }
}

/// Reaps every process that has ended, and returns how the keeper did if it is among them.
fn reap(keeper: Pid) -> Option<End> {
    let mut end = None;
    loop {
        match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(id, code)) if id == keeper => end = Some(End::Exited(code)),
            Ok(WaitStatus::Signaled(id, ..)) if id == keeper => end = Some(End::Killed),
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return end,
            // An orphan, or a wait that was interrupted.
            Ok(_) | Err(_) => {}
        }
    }
}
