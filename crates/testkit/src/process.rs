//! Child processes that never outlive the test that started them, not even one killed with -9.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

pub use nix::sys::signal::Signal;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::wait::{self, TimedOut};
use crate::worker::Worker;
use crate::{Error, Result};

/// How long a process may take to be suspended: longer than any machine is busy.
const SUSPEND_DEADLINE: Duration = Duration::from_secs(30);
const SUSPEND_INTERVAL: Duration = Duration::from_millis(1);

/// The one thread that starts every process that needs no namespaces of its own.
///
/// The kernel sends the parent-death signal when the *thread* that forked ends. Tests start
/// processes from short-lived threads, so this one, which ends only with the process, does it.
static SPAWNER: OnceLock<Worker> = OnceLock::new();

/// A running program whose output goes to a log file, killed and reaped on drop.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: u32,
    log: PathBuf,
    child: Mutex<Child>,
}

impl Process {
    /// Starts `command` with both outputs appended to `log`.
    ///
    /// It goes through `setpriv --pdeathsig`, which sets the signal and then becomes the program,
    /// because setting it ourselves between fork and exec would need `unsafe`. It gets a process
    /// group of its own so that Ctrl-C in a terminal reaches only us, and we end it in order.
    pub fn spawn(command: &Command, log: &Path) -> Result<Self> {
        let spawner = SPAWNER.get_or_init(|| Worker::start("spawner"));
        Self::spawn_on(spawner, command, name_of(command), log)
    }

    /// The same in the namespaces of another thread; the process ends with that thread at the latest.
    pub(crate) fn spawn_on(
        worker: &Worker,
        command: &Command,
        name: String,
        log: &Path,
    ) -> Result<Self> {
        let program = command.get_program();
        let out = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .map_err(Error::io(format!("opening log {}", log.display())))?;
        let err = out.try_clone().map_err(Error::io("sharing the log between two outputs"))?;

        let mut wrapped = Command::new("setpriv");
        wrapped.args(["--pdeathsig", "KILL", "--"]).arg(program).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(key, value),
                None => wrapped.env_remove(key),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            wrapped.current_dir(dir);
        }
        wrapped.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);

        let child = worker
            .run(move || wrapped.spawn())?
            .map_err(Error::io(format!("starting {name} through setpriv (package util-linux)")))?;
        Ok(Self { name, pid: child.id(), log: log.to_owned(), child: Mutex::new(child) })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        // After a panic elsewhere the handle of a process is still valid.
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its exit status, or `None` while it runs.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.child().try_wait().ok().flatten()
    }

    pub fn is_running(&self) -> bool {
        self.exit_status().is_none()
    }

    /// Sends a signal; a process that ended already is left alone.
    ///
    /// The lock is held meanwhile: until we reap the process, no other can have its id.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let mut child = self.child();
        if child.try_wait().map_err(Error::io(format!("looking at {}", self.name)))?.is_some() {
            return Ok(());
        }
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
        kill(pid, signal).map_err(|errno| Error::Io {
            what: format!("sending {signal} to {}", self.name),
            source: errno.into(),
        })
    }

    /// Suspends it, and returns once it is suspended: the signal alone leaves a busy process time to finish
    /// a request or a write.
    pub fn suspend(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        until_suspended(self.pid, || self.is_running())
    }

    /// Lets a suspended process go on.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Kills it, as a crash would, and reaps it.
    pub fn kill(&self) -> Result<ExitStatus> {
        let mut child = self.child();
        child.kill().map_err(Error::io(format!("killing {}", self.name)))?;
        child.wait().map_err(Error::io(format!("reaping {}", self.name)))
    }

    /// Asks it to end and waits until it has.
    pub async fn terminate(&self, deadline: Duration) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM)?;
        self.ended(deadline).await.map_err(|source| self.not_ready(source))
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&self, deadline: Duration) -> std::result::Result<ExitStatus, TimedOut> {
        wait::until(format!("the end of {}", self.name), deadline, async || self.exit_status())
            .await
    }

    /// The last `lines` lines of its log, or why there are none.
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.log, lines).unwrap_or_else(|error| format!("(no log: {error})"))
    }

    pub(crate) fn exited(&self, status: ExitStatus) -> Error {
        Error::Exited {
            program: self.name.clone(),
            status: status.to_string(),
            log: self.log.clone(),
            tail: self.log_tail(25),
        }
    }

    pub(crate) fn not_ready(&self, source: TimedOut) -> Error {
        Error::NotReady {
            program: self.name.clone(),
            log: self.log.clone(),
            tail: self.log_tail(25),
            source: Box::new(source),
        }
    }

    /// Waits for a sign of readiness, and stops waiting as soon as the process is dead.
    pub(crate) async fn ready<T>(
        &self,
        what: &str,
        deadline: Duration,
        mut look: impl AsyncFnMut() -> Result<T, String>,
    ) -> Result<T> {
        wait::until(what, deadline, async || match self.exit_status() {
            Some(status) => Ok(Err(self.exited(status))),
            None => look().await.map(Ok),
        })
        .await
        .map_err(|source| self.not_ready(source))?
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A failure means that it is gone already, which is what we want.
        drop(self.kill());
    }
}

/// What messages call the program of a command.
pub(crate) fn name_of(command: &Command) -> String {
    let program = Path::new(command.get_program());
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}

/// Waits until a process that was told to stop has stopped, or runs no more.
pub(crate) fn until_suspended(pid: u32, is_running: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + SUSPEND_DEADLINE;
    while is_running() && !is_suspended(pid)? {
        if Instant::now() > deadline {
            let source = io::Error::from(io::ErrorKind::TimedOut);
            return Err(Error::Io { what: format!("suspending process {pid}"), source });
        }
        thread::sleep(SUSPEND_INTERVAL);
    }
    Ok(())
}

/// Whether the kernel has stopped every thread of a process.
fn is_suspended(pid: u32) -> Result<bool> {
    let tasks = format!("/proc/{pid}/task");
    let doing = || Error::io(format!("reading {tasks}"));
    for task in fs::read_dir(&tasks).map_err(doing())? {
        let stat = task.map_err(doing())?.path().join("stat");
        // A thread may end meanwhile. Its name, in parentheses, may hold anything.
        let Ok(stat) = fs::read_to_string(stat) else { continue };
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if state.is_some_and(|state| !"TtZX".contains(state)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads only the end: the log of a long run is far larger than anyone wants to see.
pub(crate) fn tail(path: &Path, lines: usize) -> io::Result<String> {
    const AT_MOST: u64 = 64 * 1024;
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(AT_MOST)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<_> = text.lines().collect();
    Ok(all[all.len().saturating_sub(lines)..].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_busy_process_is_suspended_at_once_and_goes_on_when_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut busy = Command::new("sh");
        busy.args(["-c", "while :; do :; done"]);
        let process = Process::spawn(&busy, &dir.path().join("log")).unwrap();
        for _ in 0..20 {
            process.suspend().unwrap();
            assert!(is_suspended(process.pid()).unwrap());
            process.resume().unwrap();
            wait::until("it to go on", Duration::from_secs(30), async || {
                if is_suspended(process.pid()).unwrap() { Err("suspended") } else { Ok(()) }
            })
            .await
            .unwrap();
        }
        process.kill().unwrap();
        process.suspend().unwrap();
    }
}
