//! The runtime of Landfall: arguments, telemetry, lease, admin endpoints and supervision.
//!
//! A library so that tests can run its parts; the binary only calls [`run`].

pub mod admin;
pub mod agent;
pub mod args;
pub mod client;
pub mod elector;
pub mod metrics;
pub mod operator;
pub mod permissions;
pub mod report;
pub mod supervise;
pub mod telemetry;
mod worker;

use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use landfall_agent::Output;
use tokio::runtime::Builder;
use tracing::error;

use crate::args::{Agent, AgentProbe, Cli, Command, Global, Operator, Session};
use crate::elector::Timing;

/// How long threads may take to end when all their work is over.
const THREADS_GRACE: Duration = Duration::from_secs(1);

/// Runs one command line; the exit code is 2 for a wrong command line, 1 for a failure.
pub fn run(line: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (global, task) = match understood(line) {
        Ok(understood) => understood,
        Err(error) => {
            // A failure to print to a closed stderr cannot be reported. `--help` comes here as well.
            error.print().ok();
            return u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    let logs = match &task {
        // Addresses are more important than lines about them.
        Task::Agent(_) | Task::Worker(_) => {
            let output = Output::stderr();
            telemetry::init(&global, move || output.clone())
        }
        Task::Operator(..) | Task::Probe(_) | Task::Session(_) => {
            telemetry::init(&global, io::stderr)
        }
    };
    if let Err(error) = logs {
        // Without a log, clap's printer is the only way to stderr.
        Cli::command().error(ErrorKind::Io, report::chain(&error)).print().ok();
        return ExitCode::FAILURE;
    }
    let kubeconfig = global.kubeconfig.as_deref();
    match task {
        Task::Operator(args, timing) => {
            let work = operator::run(kubeconfig, &args, timing);
            in_runtime(Builder::new_multi_thread(), work, operator::Error::hint)
        }
        Task::Worker(args) => {
            let work = worker::run(kubeconfig, &args);
            in_runtime(Builder::new_current_thread(), work, worker::Error::hint)
        }
        Task::Agent(args) => {
            let ended = agent::run(&global, &args);
            ended.unwrap_or_else(|error| failed(&error, error.hint()))
        }
        Task::Probe(args) => match agent::probe(&args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error, None),
        },
        Task::Session(session) => failed(&agent::begin_session(&session), None),
    }
}

/// What a command line asks for.
enum Task {
    Operator(Box<Operator>, Timing),
    Agent(Agent),
    Worker(Agent),
    Probe(AgentProbe),
    Session(Session),
}

/// Parses the command line and checks the flags that depend on each other.
fn understood(line: impl IntoIterator<Item = OsString>) -> Result<(Global, Task), clap::Error> {
    let Cli { global, command } = Cli::try_parse_from(line)?;
    let task = match command {
        Command::Operator(args) => {
            let timing = args.timing()?;
            Task::Operator(args, timing)
        }
        Command::Agent(args) => Task::Agent(args),
        Command::AgentWorker(args) => Task::Worker(args),
        Command::AgentProbe(args) => Task::Probe(args),
        Command::AgentSession(session) => Task::Session(session),
    };
    Ok((global, task))
}

/// Does asynchronous work that speaks to a cluster.
fn in_runtime<E: Error>(
    mut runtime: Builder,
    work: impl Future<Output = Result<(), E>>,
    hint: impl Fn(&E) -> Option<&'static str>,
) -> ExitCode {
    // Fails only if there is a provider already, and then that one serves.
    rustls::crypto::ring::default_provider().install_default().ok();
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error, None),
    };
    let ended = runtime.block_on(work);
    runtime.shutdown_timeout(THREADS_GRACE);
    ended.map_or_else(|error| failed(&error, hint(&error)), |()| ExitCode::SUCCESS)
}

fn failed(error: &dyn Error, hint: Option<&str>) -> ExitCode {
    error!(cause = report::chain(error), hint, "failed");
    ExitCode::FAILURE
}
