//! A process that is watched and signalled by a handle, never by its id, which may be another process's by then.

use std::{io, os::fd::OwnedFd, time::Duration};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::{
    io::unix::AsyncFd,
    time::{sleep, timeout},
};

use super::proc;
use crate::descriptor::watched;

#[derive(Debug)]
pub(super) struct Process {
    id: u32,
    handle: AsyncFd<OwnedFd>,
}

impl Process {
    /// The process that has this id now.
    pub(super) fn open(id: u32) -> io::Result<Self> {
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
        let handle = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        Ok(Self { id, handle: watched(handle)? })
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Returns once it has ended, at once if that is long ago.
    pub(super) async fn ended(&self) {
        // The handle never stops being readable, and an error means that it is of no use any more.
        drop(self.handle.readable().await);
    }

    pub(super) async fn ends_within(&self, time: Duration) -> bool {
        timeout(time, self.ended()).await.is_ok()
    }

    /// A process that has ended needs no signal, so that is no error.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.handle, signal) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    /// Kills it and waits until it does nothing more. Until it has ended the kernel may need tens of
    /// milliseconds, in which it closes the sockets.
    pub(super) async fn kill(&self) -> io::Result<()> {
        self.signal(Signal::KILL)?;
        let done = async {
            while !proc::is_exiting(self.id) {
                sleep(KILL_INTERVAL).await;
            }
        };
        let killed = async {
            tokio::select! {
                () = self.ended() => {}
                () = done => {}
            }
        };
        Ok(timeout(KILL_DEADLINE, killed).await?)
    }
}

/// A process that waits for a broken device cannot be killed.
const KILL_DEADLINE: Duration = Duration::from_secs(2);
const KILL_INTERVAL: Duration = Duration::from_millis(1);
