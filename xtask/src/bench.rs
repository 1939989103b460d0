//! `cargo xtask bench`: measures how fast addresses are given, against the API server's own limits; and with
//! `vrrp` how fast nodes take addresses over.
//!
//! One control plane serves the limits and every scenario, so that the compared figures come from the same
//! machine in the same minutes.

mod bars;
mod crew;
mod error;
mod limits;
mod neighbours;
mod raw;
mod report;
mod scenarios;
mod stage;
mod subject;
mod vrrp;
mod watch;

use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use landfall_api::keys;
use serde_json::Value;

use crate::cargo;
use crate::output::Output;
pub(crate) use error::{Error, Result};
use report::{Report, Row};
use scenarios::{Bench, Scenario};
use stage::{Account, FLOW_CONTROL, RBAC, Stage};
use subject::Subject;
use watch::AddressIn;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    instead: Option<Instead>,

    /// Services in each scenario
    #[arg(long, value_name = "N", default_value_t = 2000,
        value_parser = clap::value_parser!(u32).range(100..=60_000))]
    services: u32,

    /// Scenarios to run
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "burst,two-operators,steady,single,churn,restart,pool-edit,idle,fill,starved,take-over"
    )]
    scenario: Vec<Scenario>,

    /// Claims to put into the ledger before anything is measured, beside those of the scenarios
    #[arg(long, value_name = "N", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=500_000))]
    ledger: u32,

    /// Times to run the burst, each between two measurements of the limits
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=20))]
    bursts: u32,

    /// Write the figures as JSON to this file, `-` for stdout
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Measure kube-vip's pools and annotation instead of our pools and the status; scenarios that
    /// edit pools or count on their size are left out
    #[arg(long, conflicts_with = "operator_cmd")]
    kube_vip: bool,

    /// Run this `landfall` instead of building one, such as that of an older commit
    #[arg(long, value_name = "FILE", conflicts_with = "operator_cmd")]
    operator_binary: Option<PathBuf>,

    /// Run this allocator in place of ours; it finds KUBECONFIG in its environment
    #[arg(long, value_name = "COMMAND")]
    operator_cmd: Option<String>,

    /// Apply this file first, such as the other allocator's CRDs or pools; may be repeated
    #[arg(long, value_name = "FILE", requires = "operator_cmd")]
    operator_manifest: Vec<PathBuf>,

    /// Where the other allocator shows addresses: `status` or `annotation:KEY`
    #[arg(long, value_name = "PLACE", default_value_t = AddressIn::Status, requires = "operator_cmd")]
    address_in: AddressIn,

    /// Addresses in the other allocator's pool, without which `fill` and `starved` are left out
    #[arg(long, value_name = "N", requires = "operator_cmd")]
    operator_pool_size: Option<u32>,

    /// What to call the allocator in the table
    #[arg(long, value_name = "NAME")]
    operator_name: Option<String>,
}

/// What is measured in place of addresses given.
#[derive(Debug, clap::Subcommand)]
enum Instead {
    /// Measure how fast the nodes of a keepalived group take addresses over
    Vrrp(vrrp::Args),
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<()> {
    // The client that measures the limits must not be the slow part.
    if cfg!(debug_assertions) {
        return run_in_release(output);
    }
    if let Some(Instead::Vrrp(args)) = &args.instead {
        return run_vrrp(args, output);
    }
    let binary = match &args.operator_binary {
        Some(binary) => binary.clone(),
        None if args.operator_cmd.is_some() => PathBuf::new(),
        None => build(output)?,
    };
    let report = runtime()?.block_on(bench(args, binary, output))?;
    tell(args.json.as_deref(), &report.text(), &report.json(), output)?;
    judge(&report.rows.iter().filter_map(Row::trouble).collect::<Vec<_>>())
}

fn run_vrrp(args: &vrrp::Args, output: &Output) -> Result<()> {
    vrrp::enter()?;
    let binary = match &args.operator_binary {
        Some(binary) => binary.clone(),
        None => build(output)?,
    };
    let report = runtime()?.block_on(vrrp::measure(args, &binary, output))?;
    tell(args.json.as_deref(), &report.text(), &report.json(), output)?;
    judge(&report.troubles())
}

fn build(output: &Output) -> Result<PathBuf> {
    output.say("building landfall for release");
    Ok(cargo::build_operator(true)?)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Runtime::new().map_err(Error::io("starting the async runtime"))
}

fn judge(troubles: &[String]) -> Result<()> {
    if troubles.is_empty() { Ok(()) } else { Err(Error::Harm(troubles.join("\n"))) }
}

fn tell(file: Option<&Path>, text: &str, json: &Value, output: &Output) -> Result<()> {
    let Some(file) = file else {
        output.data(text);
        return Ok(());
    };
    let json = format!("{json:#}");
    if file == Path::new("-") {
        output.say(text);
        output.data(json);
    } else {
        output.data(text);
        fs::write(file, json + "\n").map_err(Error::io(format!("writing {}", file.display())))?;
    }
    Ok(())
}

async fn bench(args: &Args, binary: PathBuf, output: &Output) -> Result<Report> {
    let root = cargo::repository();
    let ours = args.operator_cmd.is_none();
    output.say("starting the control plane");
    let address_in = if args.kube_vip {
        AddressIn::Annotation(keys::ANNOTATION_KUBE_VIP_ADDRESSES.to_owned())
    } else {
        args.address_in.clone()
    };
    let stage = Stage::start(root, address_in, ours).await?;
    for manifest in &args.operator_manifest {
        let path = manifest.to_string_lossy();
        stage.plane.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &path]).await?;
    }
    let subject = match &args.operator_cmd {
        None => Subject::Landfall { binary, namespace: stage.account.namespace.clone() },
        Some(command) => {
            Subject::Other { command: command.clone(), log: stage.plane.dir().join("operator.log") }
        }
    };
    let Account { namespace, name } = &stage.account;
    let account = format!("{namespace}/{name} with {RBAC} and {FLOW_CONTROL}");
    let account = if ours { account } else { "admin".to_owned() };
    let name = args.operator_name.clone();
    let name = name.unwrap_or_else(|| if ours { "landfall" } else { "other" }.to_owned());
    if args.ledger > 0 {
        output.heading(format_args!("filling the ledger ({} claims)", args.ledger));
        stage.fill_ledger(args.ledger).await?;
    }
    let binary_mb = subject.binary_mb()?;
    let mut bench = Bench::new(stage, subject, args.services, output);
    let rows = scenarios(args, &mut bench).await?;
    let mut report = Report {
        operator: name,
        account,
        services: args.services,
        ledger: args.ledger,
        binary_mb,
        limits: bench.limits,
        rows,
    };
    report.relate();
    Ok(report)
}

/// Runs the requested scenarios. Each burst runs between two measurements of the limits it is compared with,
/// because a shared machine is not the same a minute later. A scenario without a limit needs none.
async fn scenarios(args: &Args, bench: &mut Bench<'_>) -> Result<Vec<Row>> {
    let possible = |scenario: &Scenario| !args.kube_vip || scenario.needs_only_addresses();
    let all: Vec<_> = args.scenario.iter().copied().filter(possible).collect();
    let asked = |scenario| all.contains(&scenario);
    let limited = all.iter().any(|scenario| scenario.has_limit());
    let mut rows = Vec::new();
    if limited {
        bench.measure_limits().await?;
    }
    if asked(Scenario::Burst) {
        for _ in 0..args.bursts {
            let outcome = bench.burst(Scenario::Burst).await;
            rows.push(row_of(Scenario::Burst, bench, outcome));
            bench.measure_limits().await?;
        }
    }
    if asked(Scenario::TwoOperators) {
        let row = if bench.subject.is_ours() {
            let outcome = bench.burst(Scenario::TwoOperators).await;
            row_of(Scenario::TwoOperators, bench, outcome)
        } else {
            left_out(Scenario::TwoOperators, bench, "left out: another may not stand two")
        };
        rows.push(row);
    }
    let standing = [
        Scenario::Steady,
        Scenario::Single,
        Scenario::Churn,
        Scenario::Restart,
        Scenario::PoolEdit,
        Scenario::Idle,
    ];
    if let Some(first) = standing.into_iter().find(|scenario| asked(*scenario)) {
        match bench.standing(&all).await {
            Ok(more) => rows.extend(more),
            Err(error) => rows.push(failed(first, bench, &error)),
        }
    }
    if asked(Scenario::PoolEdit) && !bench.subject.is_ours() {
        rows.push(left_out(Scenario::PoolEdit, bench, "left out: its pools are not ours to edit"));
    }
    let size = args.operator_pool_size;
    if asked(Scenario::Fill) {
        let fits = bench.subject.is_ours() || size == Some(args.services);
        let row = if fits {
            let outcome = bench.fill().await;
            row_of(Scenario::Fill, bench, outcome)
        } else {
            left_out(Scenario::Fill, bench, "left out: needs --operator-pool-size like --services")
        };
        rows.push(row);
    }
    if asked(Scenario::Starved) {
        let row = if bench.subject.is_ours() || size.is_some() {
            let outcome = bench.starved(size).await;
            row_of(Scenario::Starved, bench, outcome)
        } else {
            left_out(Scenario::Starved, bench, "left out: needs --operator-pool-size")
        };
        rows.push(row);
    }
    if asked(Scenario::TakeOver) {
        let row = if bench.subject.is_ours() {
            let outcome = bench.take_over().await;
            row_of(Scenario::TakeOver, bench, outcome)
        } else {
            left_out(Scenario::TakeOver, bench, "left out: another has no ledger")
        };
        rows.push(row);
    }
    if limited && !asked(Scenario::Burst) {
        bench.measure_limits().await?;
    }
    Ok(rows)
}

fn left_out(scenario: Scenario, bench: &Bench<'_>, why: &str) -> Row {
    let mut row = Row::new(scenario.name(), bench.services);
    why.clone_into(&mut row.remark);
    row
}

/// A scenario that failed is a row as well: the others may still be useful.
fn row_of(scenario: Scenario, bench: &Bench<'_>, outcome: Result<Row>) -> Row {
    outcome.unwrap_or_else(|error| failed(scenario, bench, &error))
}

fn failed(scenario: Scenario, bench: &Bench<'_>, error: &Error) -> Row {
    bench.output.error(error);
    let mut row = Row::new(scenario.name(), bench.services);
    row.failed = Some(error.to_string());
    row
}

fn run_in_release(output: &Output) -> Result<()> {
    output.say("building the bench for release");
    let mut command = cargo::command();
    command.args(["run", "--release", "-p", "xtask", "--"]).args(env::args_os().skip(1));
    // Only returns if it could not become that process.
    Err(Error::io("running the release build of the bench")(command.exec()))
}
