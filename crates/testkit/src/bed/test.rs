//! How a test gets a bed: as root at once, as an ordinary user in a process of its own, or not at all.

use std::env;
use std::io::{self, Write};
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::Bed;
use crate::process::Process;
use crate::scratch::Scratch;
use crate::{Error, Result, tools};

/// Longer than any test of a bed lasts.
const DEADLINE: Duration = Duration::from_mins(30);

/// Namespaces in which an ordinary user is root, with a loopback device for the control plane.
const ROOTLESS: [&str; 6] =
    ["--user", "--map-root-user", "--net", "--mount", "--propagation", "private"];
/// What a bed makes for its nodes. A container may refuse only the last, to mount a `/proc`.
const NODE: [&str; 5] = ["--net", "--mount", "--pid", "--fork", "--mount-proc"];

/// What a machine allows.
enum Rights {
    /// To make beds in this process.
    Root,
    /// To make them in a process that is root in a namespace of its own.
    Rootless,
}

fn rights() -> Result<Rights, String> {
    let missing: Vec<_> = tools::missing(tools::BED)
        .iter()
        .map(|tool| format!("{} (package {})", tool.program, tool.package))
        .collect();
    if !missing.is_empty() {
        return Err(format!("not installed: {}", missing.join(", ")));
    }
    let (flags, rights) = if nix::unistd::geteuid().is_root() {
        (&[][..], Rights::Root)
    } else {
        (&ROOTLESS[..], Rights::Rootless)
    };
    let mut unshare = Command::new("unshare");
    unshare.args(flags.iter().chain(&NODE)).arg("true").env("PATH", tools::path());
    let output = unshare.output().map_err(|error| format!("unshare does not run: {error}"))?;
    if output.status.success() {
        Ok(rights)
    } else {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(format!("namespaces are refused: {reason}"))
    }
}

impl Bed {
    /// Whether a test can have a bed on this machine, or why not.
    pub fn possible() -> Result<(), String> {
        rights().map(drop)
    }

    /// The bed of a test, or `None` if there is nothing left to do for it: because the machine does not allow
    /// beds, which is said on standard error, or because the test has run in a process of its own meanwhile.
    ///
    /// An ordinary user can make beds only as root of a user namespace, which a process with threads cannot
    /// enter; hence the second case, in which a failure of that process is an error here. With `CI=true` a
    /// machine that does not allow beds is an error as well.
    ///
    /// To be called first in the test, from its own thread: that has the name of the test.
    pub async fn for_test() -> Result<Option<Self>> {
        match rights() {
            Ok(Rights::Root) => Self::new().await.map(Some),
            Ok(Rights::Rootless) => rerun().await.map(|()| None),
            Err(reason) if tools::may_skip() => {
                let test = thread::current().name().unwrap_or_default().to_owned();
                // Without standard error there is nowhere else to say it.
                drop(writeln!(
                    io::stderr(),
                    "{test} is skipped: no bed can be made here: {reason}"
                ));
                Ok(None)
            }
            Err(reason) => Err(Error::NoBed(reason)),
        }
    }
}

/// How a program that is no test gets the right to make beds: `None` if it has it, or a command line to which its
/// own is to be appended, as which it should start again. Or why there are none here.
///
/// The network stays that of the machine, so that others on it reach what the program serves.
pub fn privileged() -> Result<Option<Command>, String> {
    Ok(match rights()? {
        Rights::Root => None,
        Rights::Rootless => {
            let mut unshare = Command::new("unshare");
            unshare.args(ROOTLESS.into_iter().filter(|flag| *flag != "--net")).arg("--");
            tools::add_path(&mut unshare);
            Some(unshare)
        }
    })
}

/// Runs the calling test once more, as root of a user namespace.
async fn rerun() -> Result<()> {
    let thread = thread::current();
    let Some(test) = thread.name().filter(|name| *name != "main") else {
        let reason = "an ordinary user needs tests on threads of their own (--test-threads 2)";
        return Err(Error::NoBed(reason.into()));
    };
    let program = env::current_exe().map_err(Error::io("finding the program of the test"))?;
    let dir = Scratch::new("landfall-bed-test-")?;
    let mut command = Command::new("unshare");
    command.args(ROOTLESS).args(["--", "sh", "-c", r#"ip link set lo up && exec "$@""#, "test"]);
    command.arg(program).args([test, "--exact", "--nocapture"]);
    tools::add_path(&mut command);
    let process = Process::spawn(&command, &dir.path().join("log"))?;
    let status = process.ended(DEADLINE).await?;
    // Neither a test that failed nor one that was not found is a success.
    if status.success() && process.log_tail(10).contains("1 passed") {
        return Ok(());
    }
    Err(Error::Command {
        command: format!("{test}, as an ordinary user"),
        output: process.log_tail(200),
    })
}
