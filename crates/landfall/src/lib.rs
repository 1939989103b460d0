//! The runtime of Landfall: arguments, telemetry, lease, admin endpoints and supervision.
//!
//! A library so that tests can run its parts; the binary only calls [`run`].

pub mod admin;
pub mod args;
pub mod client;
pub mod elector;
pub mod metrics;
pub mod operator;
pub mod permissions;
pub mod report;
pub mod supervise;
pub mod telemetry;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use tracing::error;

use crate::args::{Cli, Command};
use crate::elector::Timing;

/// How long threads may take to end when all their work is over.
const THREADS_GRACE: Duration = Duration::from_secs(1);

/// Runs one command line; the exit code is 2 for a wrong command line, 1 for a failure.
pub fn run(line: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (cli, timing) = match understood(line) {
        Ok(understood) => understood,
        Err(error) => {
            // A failure to print to a closed stderr cannot be reported. `--help` comes here as well.
            error.print().ok();
            return u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    if let Err(error) = telemetry::init(&cli.global) {
        // Without a log, clap's printer is the only way to stderr.
        Cli::command().error(ErrorKind::Io, report::chain(&error)).print().ok();
        return ExitCode::FAILURE;
    }
    // Fails only if there is a provider already, and then that one serves.
    rustls::crypto::ring::default_provider().install_default().ok();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            error!(cause = report::chain(&error), "no runtime");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(execute(&cli, timing));
    runtime.shutdown_timeout(THREADS_GRACE);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(cause = report::chain(&error), hint = error.hint(), "failed");
            ExitCode::FAILURE
        }
    }
}

/// Parses the command line and checks the flags that depend on each other.
fn understood(line: impl IntoIterator<Item = OsString>) -> Result<(Cli, Timing), clap::Error> {
    let cli = Cli::try_parse_from(line)?;
    let Command::Operator(args) = &cli.command;
    let timing = args.timing()?;
    Ok((cli, timing))
}

async fn execute(cli: &Cli, timing: Timing) -> Result<(), operator::Error> {
    let kubeconfig = cli.global.kubeconfig.as_deref();
    match &cli.command {
        Command::Operator(args) => operator::run(kubeconfig, args, timing).await,
    }
}
