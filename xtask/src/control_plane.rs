//! `cargo xtask control-plane`: runs the testkit's control plane for people.

use std::io;
use std::time::Instant;

use clap::Subcommand;
use landfall_testkit::{Assets, ControlPlane, Program};
use tokio::signal::unix::{SignalKind, signal};

use crate::output::{Output, seconds};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build the binaries unless they are cached
    Build,
    /// Run a control plane until Ctrl-C
    Up {
        /// Run the controllers that need no nodes as well
        #[arg(long)]
        controller_manager: bool,
    },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Testkit(#[from] landfall_testkit::Error),
    #[error("starting the async runtime")]
    Runtime(#[source] io::Error),
    #[error("listening for signals")]
    Signal(#[source] io::Error),
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<(), Error> {
    match args.command {
        Command::Build => build(output),
        Command::Up { controller_manager } => {
            let runtime = tokio::runtime::Runtime::new().map_err(Error::Runtime)?;
            runtime.block_on(up(controller_manager, output))
        }
    }
}

/// Builds missing binaries and prints where they are.
pub(crate) fn build(output: &Output) -> Result<(), Error> {
    let begin = Instant::now();
    let assets = Assets::prepare(&Program::ALL, &|line| output.say(line))?;
    for program in Program::ALL {
        output.say(assets.path(program).display());
    }
    output.say(format_args!("control plane binaries ready in {}", seconds(begin.elapsed())));
    Ok(())
}

async fn up(controller_manager: bool, output: &Output) -> Result<(), Error> {
    // Both are caught from the beginning: a control plane, even a half-started one, ends gracefully only by
    // being dropped.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signal)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signal)?;
    let begin = Instant::now();
    let plane = tokio::select! {
        plane = ControlPlane::builder().with_controller_manager(controller_manager).start() => plane?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    let kubectl = plane.assets().path(Program::Kubectl);
    output.say(format_args!("control plane at {} in {}", plane.url(), seconds(begin.elapsed())));
    output.data(format_args!("export KUBECONFIG={}", plane.admin_kubeconfig().display()));
    output.data(format_args!("# {} get namespaces", kubectl.display()));
    output.say("Ctrl-C ends it and removes its data");
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    output.say("ending the control plane");
    Ok(())
}
