//! The commands that developers and CI run: every step of CI is a subcommand of the same name.

mod bench;
mod cargo;
mod chaos;
mod control_plane;
mod demo;
mod fuzz;
mod generate;
mod output;
mod test;
mod tools;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use output::Output;

/// Landfall's own tools.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure how fast addresses are given, against the API server's own limits
    Bench(Box<bench::Args>),
    /// Attack the operator on a real control plane, as long as you like
    Chaos(chaos::Args),
    /// Build or run a real Kubernetes control plane on this machine
    ControlPlane(control_plane::Args),
    /// Start a cluster with the operator and sample Services, and show what they get
    Demo(demo::Args),
    /// Let random texts and objects loose on everything that reads what users write
    Fuzz(fuzz::Args),
    /// Write what is derived from the code: CRDs, RBAC and the reference pages
    Generate {
        /// Write nothing, and fail if anything is out of date
        #[arg(long)]
        check: bool,
    },
    /// Install what the tests need and run every check and test
    Test,
}

fn main() -> ExitCode {
    let output = Output::new();
    match run(Args::parse().command, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output.error(&*error);
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command, output: &Output) -> Result<(), Box<dyn Error>> {
    match command {
        Command::Bench(args) => bench::run(&args, output)?,
        Command::Chaos(args) => chaos::run(&args, output)?,
        Command::ControlPlane(args) => control_plane::run(&args, output)?,
        Command::Demo(args) => demo::run(&args, output)?,
        Command::Fuzz(args) => fuzz::run(&args, output)?,
        Command::Generate { check } => generate::run(check)?,
        Command::Test => test::run(output)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_understood_as_documents_quote_them() {
        for (line, is_understood) in [
            ("bench", true),
            ("bench --services 5000 --scenario burst --bursts 3", true),
            ("bench vrrp", true),
            ("bench vrrp --runs 3 --scenario node-dead,sigterm", true),
            ("bench vrrp --json -", true),
            ("bench vrrp --runs 0", false),
            ("bench --services 5000 vrrp", false),
            ("demo --once", true),
        ] {
            let words = ["xtask"].into_iter().chain(line.split(' '));
            assert_eq!(Args::try_parse_from(words).is_ok(), is_understood, "{line}");
        }
    }
}
