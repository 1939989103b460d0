//! The processes of the machine, those on nodes among them, so that tests can end or freeze each of them.

use std::fs;
use std::path::Path;

use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::process::{Signal, until_suspended};
use crate::{Error, Result};

/// A process. Between two looks it may end, and then its id is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    pub pid: u32,
    pub parent: u32,
    /// Its command line: nothing if it has ended and waits for its parent to notice.
    pub words: Vec<String>,
}

impl Running {
    /// All processes of the machine, each with the id that it has here, in whichever process namespace it is.
    pub fn all() -> Result<Vec<Self>> {
        let entries = fs::read_dir("/proc").map_err(Error::io("listing processes"))?;
        let pids = entries.flatten().filter_map(|it| it.file_name().to_str()?.parse().ok());
        Ok(pids.filter_map(look).collect())
    }

    /// Those that run a program and have a path as a word of their command lines, such as that of a file in the
    /// directory of a node, which no other process of the machine has. Parents come before their children.
    pub fn of(program: &str, path: &Path) -> Result<Vec<Self>> {
        let mut found = Self::all()?;
        found.retain(|it| it.is_program(program) && it.names(path));
        let pids: Vec<_> = found.iter().map(|it| it.pid).collect();
        found.sort_by_key(|it| pids.contains(&it.parent));
        Ok(found)
    }

    fn is_program(&self, name: &str) -> bool {
        let program = self.words.first().map(Path::new);
        program.is_some_and(|program| program.file_name().is_some_and(|file| file == name))
    }

    fn names(&self, path: &Path) -> bool {
        self.words.iter().any(|word| Path::new(word) == path)
    }

    /// That it has gone meanwhile is no error.
    pub fn signal(&self, name: Signal) -> Result<()> {
        signal(self.pid, name)
    }

    /// Freezes processes, and returns once all are frozen. The first ones may start others, and come first.
    pub fn suspend(processes: &[Self]) -> Result<()> {
        for process in processes {
            process.signal(Signal::SIGSTOP)?;
            until_suspended(process.pid, || is_alive(process.pid))?;
        }
        Ok(())
    }

    /// Kills processes at once, so that none sees the end of another.
    pub fn kill_at_once(processes: &[Self]) -> Result<()> {
        Self::suspend(processes)?;
        processes.iter().try_for_each(|process| process.signal(Signal::SIGKILL))
    }
}

/// Sends a signal to a process whose parent is alive or frozen; that it has gone meanwhile is no error.
pub(super) fn signal(pid: u32, signal: Signal) -> Result<()> {
    match kill(Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX)), signal) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(errno) => Err(Error::io(format!("sending {signal} to process {pid}"))(errno.into())),
    }
}

pub(super) fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn look(pid: u32) -> Option<Running> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(|it| String::from_utf8_lossy(it).into_owned()).collect();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, in parentheses, come its state and its parent.
    let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
    Some(Running { pid, parent, words })
}
