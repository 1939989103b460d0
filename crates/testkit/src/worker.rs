//! Threads that last as long as their owner: one that runs the jobs it is given, one after the other, and one
//! that does its own work until it is stopped.

use std::io;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use crate::{Error, Result, tools};

type Job = Box<dyn FnOnce() + Send>;

/// A running worker; dropping it ends the thread once the job it is at is done.
#[derive(Debug)]
pub(crate) struct Worker {
    name: &'static str,
    /// `None` only while it is dropped.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(crate) fn start(name: &'static str) -> Self {
        let (jobs, inbox) = channel::<Job>();
        let thread = thread::spawn(move || {
            for job in inbox {
                job();
            }
        });
        Self { name, jobs: Some(jobs), thread: Some(thread) }
    }

    /// Runs a job on the thread and returns its result.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let gone = || Error::WorkerGone(self.name);
        let (reply, answer) = sync_channel(1);
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        // A caller that gave up no longer needs the answer.
        jobs.send(Box::new(move || drop(reply.send(job())))).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())
    }

    /// Runs a program that ends soon, from the thread, and returns what it wrote; its failure is an error.
    pub(crate) fn output(&self, mut command: Command, input: &str) -> Result<String> {
        let line = format!("{command:?}");
        tools::add_path(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let input = input.to_owned();
        let output = self
            .run(move || -> io::Result<Output> {
                let mut child = command.spawn()?;
                if let Some(mut stdin) = child.stdin.take() {
                    // A program that ends before it has read everything says why in its own words.
                    drop(stdin.write_all(input.as_bytes()));
                }
                child.wait_with_output()
            })?
            .map_err(Error::io(format!("running {line}")))?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        if output.status.success() {
            return Ok(stdout.into_owned());
        }
        let said =
            format!("{}; {}{stdout}", output.status, String::from_utf8_lossy(&output.stderr));
        Err(Error::Command { command: line, output: said.trim_end().to_owned() })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been printed by the thread itself.
            drop(thread.join());
        }
    }
}

/// A thread that ends when something it waits for is dropped, such as the writing end of a pipe.
#[derive(Debug)]
pub(crate) struct Background<Stop> {
    /// `None` only while it is dropped.
    stop: Option<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl<Stop> Background<Stop> {
    pub(crate) fn new(stop: Stop, thread: JoinHandle<()>) -> Self {
        Self { stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl<Stop> Drop for Background<Stop> {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been printed by the thread itself.
            drop(thread.join());
        }
    }
}
