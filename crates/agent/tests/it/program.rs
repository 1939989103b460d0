//! The program that tests start as keeper: this very file, in another role.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use landfall_agent::keeper::{self, Settings};
use landfall_agent::session::{Parent, become_program};
use landfall_agent::{Output, RunDir};

const ROLE: &str = "LANDFALL_TEST_ROLE";

/// A command that runs a keeper with this worker.
pub(crate) fn keeper(run_dir: &Path, worker: &[&str]) -> Command {
    let line = in_role("keeper");
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]).arg(run_dir).args(worker);
    command
}

/// The beginning of a command line.
fn in_role(role: &str) -> Vec<OsString> {
    let mut line: Vec<OsString> = vec!["env".into(), format!("{ROLE}={role}").into()];
    line.push(env::current_exe().unwrap().into());
    // What follows the dashes is for the role; the test harness takes it for names of tests.
    let flags = ["--ignored", "--exact", "--nocapture", "--test-threads=1", "program::role", "--"];
    line.extend(flags.map(Into::into));
    line
}

/// Does nothing if a person asks for ignored tests.
#[test]
#[ignore = "no test, but the program that tests start"]
fn role() {
    let Some(role) = env::var_os(ROLE) else { return };
    let line: Vec<_> = env::args_os().skip_while(|word| word != "--").skip(1).collect();
    match role.to_str().unwrap() {
        "keeper" => {
            tracing_subscriber::fmt().with_ansi(false).with_writer(Output::stderr).init();
            let (run_dir, worker) = line.split_first().unwrap();
            let settings = Settings {
                run_dir: RunDir::new(run_dir),
                worker: in_role("tied-session").into_iter().chain(worker.iter().cloned()).collect(),
                launcher: in_role("session"),
                keepalived: "keepalived".into(),
            };
            keeper::run(&settings).unwrap_or_else(|error| panic!("{error}"));
        }
        "session" => panic!("{}", become_program(&line, Parent::Optional)),
        "tied-session" => panic!("{}", become_program(&line, Parent::Needed)),
        other => panic!("{other} is no role"),
    }
}
