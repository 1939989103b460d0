//! `landfall agent`: builds the keeper's settings; decides nothing.

use std::env;
use std::ffi::OsString;
use std::io;
use std::process::{self, ExitCode};
use std::time::Duration;

use landfall_agent::keeper::{self, Settings};
use landfall_agent::session::{self, Parent};
use landfall_agent::{RunDir, init};
use tracing::info;

use crate::args::{Agent, AgentProbe, Global, Session};

/// keepalived's program, looked for where programs are.
pub(crate) const KEEPALIVED: &str = "keepalived";

/// The id of the first process of a container.
const FIRST: u32 = 1;
/// Less than the kubelet waits for a probe.
const PROBE_DEADLINE: Duration = Duration::from_secs(5);

/// Why the agent did not start, or ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("finding out which program this is")]
    Program(#[source] io::Error),
    #[error("keeping the keeper running")]
    Init(#[source] io::Error),
    #[error("keeping keepalived running")]
    Keeper(#[from] keeper::Error),
}

impl Error {
    /// The most likely fix, if one is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Keeper(keeper::Error::Folder { .. } | keeper::Error::Used(_)) => {
                Some("choose another with --run-dir")
            }
            Self::Keeper(keeper::Error::Keepalived { .. }) => Some("install keepalived"),
            Self::Keeper(keeper::Error::NoJson(_)) => {
                Some("install a keepalived that was built with --enable-json")
            }
            Self::Keeper(keeper::Error::Start(_)) | Self::Program(_) | Self::Init(_) => None,
        }
    }
}

/// Runs until a signal.
pub fn run(global: &Global, args: &Agent) -> Result<ExitCode, Error> {
    let own = OsString::from(env::current_exe().map_err(Error::Program)?);
    if process::id() == FIRST {
        let mut line = vec![own, "agent".into()];
        line.extend(args.line(global));
        return Ok(ExitCode::from(init::run(&line).map_err(Error::Init)?));
    }
    info!(
        version = env!("CARGO_PKG_VERSION"),
        group = args.group,
        node = args.node,
        "starting the agent"
    );
    let launcher = vec![own.clone(), "agent-session".into()];
    let mut worker = launcher.clone();
    worker.extend(["--needs-parent".into(), own, "agent-worker".into()]);
    worker.extend(args.line(global));
    let settings = Settings {
        run_dir: RunDir::new(&args.run_dir),
        worker,
        launcher,
        keepalived: KEEPALIVED.into(),
    };
    keeper::run(&settings)?;
    Ok(ExitCode::SUCCESS)
}

/// Asks an agent whether it is alive.
pub(crate) fn probe(args: &AgentProbe) -> io::Result<()> {
    landfall_agent::probe(&RunDir::new(&args.run_dir), PROBE_DEADLINE)
}

/// Becomes a program in a session of its own. Returns only if that fails.
pub(crate) fn begin_session(session: &Session) -> io::Error {
    let parent = if session.needs_parent { Parent::Needed } else { Parent::Optional };
    session::become_program(&session.line, parent)
}
