//! Becomes another program in a session of its own.
//!
//! A signal to the session or the terminal of the keeper then reaches neither the worker nor keepalived. A
//! program of its own does this because nothing but `unsafe` code may run between fork and exec.

use std::{
    ffi::OsString,
    io,
    os::unix::process::{CommandExt as _, parent_id},
    process::Command,
};

use nix::{
    sys::{prctl::set_pdeathsig, signal::Signal},
    unistd::setsid,
};

/// What happens to the program when the process that started it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// It is killed.
    Needed,
    /// It lives on.
    Optional,
}

/// Replaces this process with a program. Returns only if that fails.
pub fn become_program(line: &[OsString], parent: Parent) -> io::Error {
    let Some((program, args)) = line.split_first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "no program is named");
    };
    match prepare(parent) {
        Ok(()) => Command::new(program).args(args).exec(),
        Err(error) => error,
    }
}

fn prepare(parent: Parent) -> io::Result<()> {
    let before = parent_id();
    setsid()?;
    if parent == Parent::Needed {
        set_pdeathsig(Signal::SIGKILL)?;
        // It may have died before the kernel was told.
        if parent_id() != before {
            return Err(io::Error::other("the process that started this one has died"));
        }
    }
    Ok(())
}
