//! Starts programs, and reaps whatever ends.

use std::{
    ffi::OsString,
    fs::File,
    io,
    process::{Command, Stdio},
};

use nix::{
    sys::wait::{WaitPidFlag, WaitStatus, waitpid},
    unistd::Pid,
};
use tracing::{debug, info};

use super::process::Process;

/// Starts a program with our own outputs, so that it can write to them even when we are gone.
pub(super) fn spawn(line: &[OsString]) -> io::Result<Process> {
    start(&mut command(line)?)
}

/// As [`spawn`], with another file for both outputs.
pub(super) fn spawn_logging(line: &[OsString], log: &File) -> io::Result<Process> {
    start(command(line)?.stdout(log.try_clone()?).stderr(log.try_clone()?))
}

fn command(line: &[OsString]) -> io::Result<Command> {
    let (program, args) = line.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    Ok(command)
}

fn start(command: &mut Command) -> io::Result<Process> {
    let child = command.spawn()?;
    // Nothing has been reaped since, so the id is still its own.
    Process::open(child.id())
}

/// Reaps every child that has ended, among them orphans of others, which the first process of a container gets.
pub(super) fn reap() {
    loop {
        match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, status)) => info!(%pid, status, "a process has ended"),
            Ok(WaitStatus::Signaled(pid, signal, _)) => {
                info!(%pid, %signal, "a process was killed");
            }
            // Nothing has ended, or there are no children at all.
            Ok(WaitStatus::StillAlive) | Err(_) => return,
            Ok(other) => debug!(?other, "a process has changed"),
        }
    }
}
