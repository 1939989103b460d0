//! `cargo xtask chaos`: attacks on the operator, round after round, decided by a seed.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use landfall_testkit::chaos::{Chaos, Report, Round, Setting};

use crate::cargo::{self, repository};
use crate::output::{Output, seconds};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long to begin new rounds; the last one is played to its end
    #[arg(long, value_name = "N", default_value_t = 5)]
    minutes: u64,

    /// What tells the rounds; a new one each time when left out
    #[arg(long, value_name = "S")]
    seed: Option<u64>,

    /// The number of the first round, to play one of an earlier attack first
    #[arg(long, value_name = "N", default_value_t = 0)]
    first_round: u64,

    /// Run the optimised build
    #[arg(long)]
    release: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Testkit(#[from] landfall_testkit::Error),
    #[error(transparent)]
    Cargo(#[from] cargo::Error),
    #[error("starting the async runtime")]
    Runtime(#[source] io::Error),
    #[error("{0} violations; their stories are named above")]
    Violations(usize),
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<(), Error> {
    let binary = cargo::build_operator(args.release)?;
    let seed = args.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let runtime = tokio::runtime::Runtime::new().map_err(Error::Runtime)?;
    let report = runtime.block_on(attack(args, seed, &binary, output))?;
    output.data(&report);
    if report.is_clean() { Ok(()) } else { Err(Error::Violations(report.violations.len())) }
}

/// Plays rounds until the time is over or one fails: later rounds would only blur the failure.
async fn attack(args: &Args, seed: u64, binary: &Path, output: &Output) -> Result<Report, Error> {
    output.heading(format_args!("attacking with --seed {seed}"));
    // Beside what was built: target/debug/landfall, target/chaos.
    let stories = binary.with_file_name("../chaos");
    let deploy = repository().join("deploy");
    let mut chaos =
        Chaos::start(Setting { binary: binary.to_owned(), deploy, seed, stories }).await?;
    let (begin, time) = (Instant::now(), Duration::from_mins(args.minutes));
    let mut number = args.first_round;
    while begin.elapsed() < time && chaos.report().is_clean() {
        let round = Round::of(seed, number);
        let start = Instant::now();
        output.say(format_args!("round {number}: {round}"));
        tokio::select! {
            played = chaos.round(round) => played?,
            _ = tokio::signal::ctrl_c() => break,
        }
        output.say(format_args!("  {}", seconds(start.elapsed())));
        number += 1;
    }
    Ok(chaos.report().clone())
}
