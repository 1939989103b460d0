//! One machine of a bed: a thread in namespaces of its own, and everything that was started from it.
//!
//! The thread lives in a network, a mount and a process namespace. Whatever it opens belongs to that network
//! for good, whichever thread uses it later, and whatever it starts runs in all three. Nothing has a name on
//! the host: when the test process dies, however it dies, the thread and the first process of the process
//! namespace die, with the latter the kernel kills all others in there, and the network is gone with its last
//! user.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, setns, unshare};

use super::program::Program;
use crate::process::{Process, Signal};
use crate::worker::Worker;
use crate::{Error, Result, tools};

/// The first process of a machine, which the kernel makes the parent of orphans. That it ignores the end of
/// its children makes the kernel reap them.
const FIRST_PROCESS: &str = r#"trap "" CHLD; exec sleep infinity"#;
/// Without a `/proc` of its own, every process would look at the wrong ones.
const OWN_PROC: &str = "mount --make-rprivate / && mount -t proc proc /proc";

#[derive(Debug)]
pub(super) struct Home {
    worker: Worker,
    net: Arc<OwnedFd>,
    first: Process,
    programs: Mutex<Vec<Weak<Process>>>,
}

impl Home {
    /// A machine with a network namespace of its own, in which there is nothing but a `lo` that is down, or
    /// with the one that another machine had.
    pub(super) fn new(dir: &Path, net: Option<Arc<OwnedFd>>) -> Result<Self> {
        let worker = Worker::start("home of a node");
        let net = worker.run(move || enter_new(net))?.map_err(Error::io("making namespaces"))?;
        let mut first = Command::new("sh");
        first.args(["-c", FIRST_PROCESS]);
        let (name, log) = ("first process".to_owned(), dir.join("first-process.log"));
        let first = Process::spawn_on(&worker, &first, name, &log)?;
        let home = Self { worker, net, first, programs: Mutex::default() };
        let mut mount = Command::new("sh");
        mount.args(["-c", OWN_PROC]);
        home.output(mount, "")?;
        Ok(home)
    }

    /// The id of its first process, by which `nsenter` enters it.
    pub(super) fn pid(&self) -> u32 {
        self.first.pid()
    }

    pub(super) fn net(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.net)
    }

    /// Runs a short job in it, such as making a socket.
    pub(super) fn inside<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        self.worker.run(job)
    }

    /// Starts a thread that is in its network.
    pub(super) fn thread(&self, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
        let net = self.net();
        let (report, entered) = sync_channel(1);
        let thread = thread::spawn(move || {
            let outcome = setns(&*net, CloneFlags::CLONE_NEWNET);
            drop(net);
            let is_in = outcome.is_ok();
            if report.send(outcome).is_ok() && is_in {
                work();
            }
        });
        entered
            .recv()
            .map_err(|_| Error::WorkerGone("thread in a node"))?
            .map_err(|errno| Error::io("entering the network of a node")(errno.into()))?;
        Ok(thread)
    }

    /// Runs a program that ends soon.
    pub(super) fn output(&self, command: Command, input: &str) -> Result<String> {
        self.worker.output(command, input)
    }

    /// Starts a program with its log and its container in a directory.
    pub(super) fn spawn(&self, program: &Program, dir: &Path, log: &str) -> Result<Arc<Process>> {
        let mut command = program.wrapped(dir)?;
        tools::add_path(&mut command);
        // Held while it starts, so that none starts unseen while all are killed.
        let mut programs = self.programs();
        let process =
            Arc::new(Process::spawn_on(&self.worker, &command, program.name(), &dir.join(log))?);
        programs.retain(|program| program.strong_count() > 0);
        programs.push(Arc::downgrade(&process));
        Ok(process)
    }

    /// Kills every process at the same instant, so that none sees the end of another, and waits until all
    /// are gone.
    pub(super) fn kill(&self) -> Result<()> {
        let programs = self.programs();
        // With its first process the kernel kills the others before any of them can run again.
        self.first.signal(Signal::SIGKILL)?;
        for program in programs.iter().filter_map(Weak::upgrade) {
            program.kill()?;
        }
        // It ends when the others have been reaped.
        self.first.kill().map(drop)
    }

    fn programs(&self) -> MutexGuard<'_, Vec<Weak<Process>>> {
        // After a panic elsewhere the list is still valid.
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // A failure means that all are gone already.
        drop(self.kill());
    }
}

/// Moves the calling thread; its children will be in a process namespace of their own.
fn enter_new(net: Option<Arc<OwnedFd>>) -> io::Result<Arc<OwnedFd>> {
    let others = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID;
    if let Some(net) = net {
        setns(&*net, CloneFlags::CLONE_NEWNET)?;
        unshare(others)?;
        return Ok(net);
    }
    unshare(others | CloneFlags::CLONE_NEWNET)?;
    // Now, for in the `/proc` that is mounted next this thread does not exist.
    Ok(Arc::new(File::open("/proc/thread-self/ns/net")?.into()))
}
