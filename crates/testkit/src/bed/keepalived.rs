//! The real keepalived on a node, run by hand with a configuration of the test's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::processes::{is_alive, signal};
use super::{Node, Program};
use crate::process::{Process, Signal, until_suspended};
use crate::wait;
use crate::{Error, Result};

/// Longer than any machine is busy.
const DEADLINE: Duration = Duration::from_mins(1);

/// How long to wait for the answer to a signal before it is sent again.
const AGAIN: Duration = Duration::from_secs(1);

const PROGRAM: &str = "keepalived";

/// Where keepalived 2.2 writes its JSON, whatever it is told.
const DUMP: &str = "tmp/keepalived.json";

/// The state of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Init,
    Backup,
    Master,
    Fault,
}

impl State {
    fn from_number(number: u64) -> Option<Self> {
        [Self::Init, Self::Backup, Self::Master, Self::Fault]
            .get(usize::try_from(number).ok()?)
            .copied()
    }
}

/// A running keepalived, with the rights that an agent gives it and no others. It is killed on drop.
#[derive(Debug)]
pub struct Keepalived {
    process: Arc<Process>,
    config: PathBuf,
    dump_signal: String,
}

impl Keepalived {
    /// Starts it and waits until it can be signalled; `name` tells several on one node apart, and their
    /// configurations and logs.
    ///
    /// Its `--config-id` is the name of the node.
    pub async fn start(node: &Node, name: &str, config: &str) -> Result<Self> {
        let path = write(node, name, config)?;
        let mut command = Command::new(PROGRAM);
        command
            .args(["--vrrp", "--dont-fork", "--log-console", "--no-syslog", "--log-detail"])
            .args(["--config-id", node.name(), "--use-file"])
            .arg(&path)
            .args(["--pid", "/run/keepalived.pid", "--vrrp_pid", "/run/vrrp.pid"]);
        let mut signum = Command::new(PROGRAM);
        // The C library decides it.
        signum.arg("--signum=JSON");
        let dump_signal = node.output(signum)?.trim().to_owned();
        let process = node.run(Program::new(command).confined(), &format!("{name}.log"))?;
        let daemon = Self { process, config: path, dump_signal };
        daemon
            .process
            .ready("keepalived to listen to signals", DEADLINE, async || daemon.listens())
            .await?;
        Ok(daemon)
    }

    /// Whether keepalived accepts a configuration on this node without a word.
    pub fn check(node: &Node, config: &str) -> Result<(), String> {
        let check = || -> Result<String> {
            let path = write(node, "check", config)?;
            let mut command = Command::new("sh");
            // With all that it says in one stream.
            command.args(["-c", r#"exec "$@" 2>&1"#, "check", PROGRAM, "--vrrp"]);
            command.args(["--config-id", node.name(), "--config-test", "--use-file"]).arg(path);
            node.output(command)
        };
        match check() {
            Ok(said) if said.trim().is_empty() => Ok(()),
            Ok(said) => Err(said),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The parent of its processes.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The child that speaks VRRP, once it runs.
    pub fn child(&self) -> Option<u32> {
        children(self.process.pid()).first().copied()
    }

    /// Replaces its configuration and makes it read that. It takes effect within milliseconds; wait for it.
    pub fn reload(&self, config: &str) -> Result<()> {
        replace(&self.config, config)?;
        self.process.signal(Signal::SIGHUP)
    }

    /// Everything that it tells about its instances as JSON. Without an instance it tells nothing, and this
    /// waits until its deadline.
    pub async fn dump(&self) -> Result<Vec<Value>> {
        let path = PathBuf::from(format!("/proc/{}/root", self.process.pid())).join(DUMP);
        // It writes in place: a file that parses is a whole one only if none was there before.
        drop(fs::remove_file(&path));
        let mut signalled: Option<Instant> = None;
        self.process
            .ready("keepalived's JSON", DEADLINE, async || {
                // A child that is just being started misses the signal.
                if signalled.is_none_or(|at| at.elapsed() > AGAIN) {
                    self.ask_for_dump()?;
                    signalled = Some(Instant::now());
                }
                let text = fs::read(&path).map_err(|error| error.to_string())?;
                serde_json::from_slice(&text).map_err(|error| error.to_string())
            })
            .await
    }

    fn ask_for_dump(&self) -> Result<(), String> {
        self.listens()?;
        // A number, because real-time signals have no names in the library we have.
        let mut signal = Command::new("sh");
        signal.args(["-c", r#"kill -s "$1" "$2""#, "kill", &self.dump_signal]);
        signal.arg(self.process.pid().to_string());
        let sent = signal.status().map_err(|error| error.to_string())?;
        if sent.success() { Ok(()) } else { Err("it is gone".into()) }
    }

    /// Whether it takes its signals; before, they would kill it.
    fn listens(&self) -> Result<(), String> {
        let signal: u32 = self.dump_signal.parse().map_err(|_| "no number of a signal")?;
        let child = self.child().ok_or("no child")?;
        for pid in [self.process.pid(), child] {
            let status = fs::read_to_string(format!("/proc/{pid}/status"));
            let status = status.map_err(|error| error.to_string())?;
            let field = |name: &str| {
                let value = status.lines().find_map(|line| line.strip_prefix(name));
                value.unwrap_or_default().trim()
            };
            let has = |mask: &str| {
                let mask = u64::from_str_radix(field(mask), 16).unwrap_or_default();
                mask >> (signal - 1) & 1 == 1
            };
            // It reads its signals from a descriptor, for which they have to be blocked. What makes its
            // surroundings is a shell that blocks signals at times.
            if !field("Name:").starts_with(PROGRAM) || !has("SigBlk:") && !has("SigCgt:") {
                return Err(format!("process {pid} does not take signal {signal} yet"));
            }
        }
        Ok(())
    }

    /// The state of each instance, by name.
    pub async fn states(&self) -> Result<BTreeMap<String, State>> {
        let state = |instance: &Value| {
            let data = instance.get("data")?;
            let state = State::from_number(data.get("state")?.as_u64()?)?;
            Some((data.get("iname")?.as_str()?.to_owned(), state))
        };
        Ok(self.dump().await?.iter().filter_map(state).collect())
    }

    /// Waits until an instance is in a state.
    pub async fn reaches(&self, instance: &str, state: State, deadline: Duration) -> Result<()> {
        let what = format!("{instance} to be {state:?}");
        wait::until(what, deadline, async || {
            let states = self.states().await.map_err(|error| error.to_string())?;
            if states.get(instance) == Some(&state) { Ok(()) } else { Err(format!("{states:?}")) }
        })
        .await
        .map_err(|source| self.process.not_ready(source))
    }

    /// Ends it in order: it gives up what it holds.
    pub async fn terminate(&self) -> Result<()> {
        self.process.terminate(DEADLINE).await.map(drop)
    }

    /// Kills its parent. The child notices, gives up what it holds and ends.
    pub fn kill_parent(&self) -> Result<()> {
        self.process.kill().map(drop)
    }

    /// Kills its child, which the parent starts again.
    pub fn kill_child(&self) -> Result<()> {
        self.child().map_or(Ok(()), |child| signal(child, Signal::SIGKILL))
    }

    /// Kills all of it at once, so that it gives nothing up and its addresses stay on the device. To kill one
    /// process after the other would let the second say goodbye; hence they are stopped first.
    pub fn kill_at_once(&self) -> Result<()> {
        self.suspend()?;
        let all = children(self.process.pid());
        for child in all {
            signal(child, Signal::SIGKILL)?;
        }
        self.kill_parent()
    }

    /// Freezes all of it.
    pub fn suspend(&self) -> Result<()> {
        // First the parent, which starts others.
        self.process.suspend()?;
        for child in children(self.process.pid()) {
            signal(child, Signal::SIGSTOP)?;
            until_suspended(child, || is_alive(child))?;
        }
        Ok(())
    }

    /// Lets a frozen one go on.
    pub fn resume(&self) -> Result<()> {
        for child in children(self.process.pid()) {
            signal(child, Signal::SIGCONT)?;
        }
        self.process.resume()
    }
}

fn write(node: &Node, name: &str, config: &str) -> Result<PathBuf> {
    let path = node.dir().join(format!("{name}.conf"));
    replace(&path, config)?;
    Ok(path)
}

/// In one step: a daemon may read it at any time.
fn replace(path: &Path, config: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, config)
        .and_then(|()| fs::rename(&new, path))
        .map_err(Error::io(format!("writing {}", path.display())))
}

/// The children of a process; none if it is gone.
fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}
