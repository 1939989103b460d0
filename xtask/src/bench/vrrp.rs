//! `cargo xtask bench vrrp`: measures how fast the nodes of a keepalived group take addresses over.
//!
//! The nodes are those of a bed. Most rows write the plan of the group by hand, so that they measure the agents and
//! keepalived alone; the way from a Service to the network is measured with the operator.

mod event;
mod idle;
mod ingress;
mod load;
mod report;
mod takeover;

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use landfall_testkit::bed::{self, Group, SERVICE_RANGES};
use landfall_testkit::{Bed, ControlPlane};

use super::error::{Error, Result};
use super::neighbours::Moment;
use crate::cargo::repository;
use crate::output::Output;
use event::Event;
use report::{Report, Row};

/// Generous: an address that needs all of it has been lost.
const DEADLINE: Duration = Duration::from_mins(2);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often to let each thing happen; large loads happen ten times at most
    #[arg(long, value_name = "N", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,

    /// Scenarios to run
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "node-dead,link-down,killed,sigterm,fault,ingress,load,idle"
    )]
    scenario: Vec<Scenario>,

    /// Write the figures as JSON to this file, `-` for stdout
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,

    /// Run this `landfall` instead of building one, such as that of an older commit
    #[arg(long, value_name = "FILE")]
    pub(super) operator_binary: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// The holder's power goes, with adverts of four speeds
    NodeDead,
    /// The holder's link goes down
    LinkDown,
    /// All processes of the holder's keepalived are killed at once
    Killed,
    /// The holder's agent is told to end
    Sigterm,
    /// The holder learns that it is not healthy
    Fault,
    /// A Service gets an address, with 1 and with 500 addresses in the group
    Ingress,
    /// A plan with 500 and with 2,000 addresses, and the death of their holder
    Load,
    /// Nothing happens
    Idle,
}

impl Scenario {
    /// What happens and the times between adverts in milliseconds, for scenarios that are a take-over.
    fn takeovers(self) -> Option<(Event, &'static [u32])> {
        match self {
            Self::NodeDead => Some((Event::NodeDead, &[100, 1000, 50, 30])),
            Self::LinkDown => Some((Event::LinkDown, &[100])),
            Self::Killed => Some((Event::KeepalivedKilled, &[100])),
            Self::Sigterm => Some((Event::AgentTerminated, &[100])),
            Self::Fault => Some((Event::HealthFault, &[100])),
            Self::Ingress | Self::Load | Self::Idle => None,
        }
    }
}

/// Becomes a process that may make beds, if this one may not.
pub(super) fn enter() -> Result<()> {
    let Some(mut again) = bed::privileged().map_err(landfall_testkit::Error::NoBed)? else {
        return Ok(());
    };
    let own = env::current_exe().map_err(Error::io("finding this program"))?;
    // Only returns if it could not become that process.
    Err(Error::io("starting again in a user namespace")(
        again.arg(own).args(env::args_os().skip(1)).exec(),
    ))
}

/// Runs the scenarios that were asked for.
pub(super) async fn measure(args: &Args, binary: &Path, output: &Output) -> Result<Report> {
    let site = Site { binary, runs: args.runs, output };
    let mut report = Report::default();
    for scenario in &args.scenario {
        if let Some((event, adverts)) = scenario.takeovers() {
            for advert in adverts {
                let name = event.name();
                output.heading(format_args!("{name}, adverts of {advert} ms"));
                let row = Row::takeover(event, *advert);
                let outcome = site
                    .watched(row, async |row| takeover::measure(&site, event, *advert, row).await);
                report.rows.push(outcome.await?);
            }
            continue;
        }
        match scenario {
            Scenario::Ingress => {
                output.heading("a Service gets an address");
                report.rows.extend(ingress::measure(&site).await?);
            }
            Scenario::Load => {
                for addresses in [500, 2000] {
                    output.heading(format_args!("{addresses} addresses"));
                    report.loads.push(load::measure(&site, addresses).await?);
                }
            }
            Scenario::Idle => {
                output.heading("idle");
                report.idle = Some(idle::measure(&site).await?);
            }
            Scenario::NodeDead
            | Scenario::LinkDown
            | Scenario::Killed
            | Scenario::Sigterm
            | Scenario::Fault => {}
        }
    }
    Ok(report)
}

/// What all scenarios work with.
struct Site<'a> {
    binary: &'a Path,
    runs: u32,
    output: &'a Output,
}

impl Site<'_> {
    /// A bed and a control plane with our kinds.
    async fn build(&self) -> Result<(Bed, ControlPlane)> {
        let bed = Bed::new().await?;
        let plane = ControlPlane::builder().apiserver_arg(SERVICE_RANGES).start().await?;
        plane.install_crds(&repository().join("deploy/crds")).await?;
        Ok((bed, plane))
    }

    /// A group whose plan is written by hand, with an agent on every node. The control plane must outlive it.
    async fn group(&self) -> Result<(Group, ControlPlane)> {
        let (bed, plane) = self.build().await?;
        let mut group = Group::new(bed, &plane, "bench", self.binary).await?;
        for name in ["n1", "n2", "n3"] {
            group.start(name)?;
        }
        Ok((group, plane))
    }

    /// Fills in a row. A row that fails is one as well: the others may still be useful.
    async fn watched(
        &self,
        mut row: Row,
        work: impl AsyncFnOnce(&mut Row) -> Result<()>,
    ) -> Result<Row> {
        let begin = Moment::now(&[])?;
        if let Err(error) = work(&mut row).await {
            self.output.error(&error);
            row.failed = Some(error.to_string());
        }
        row.busy = begin.busy_until(&Moment::now(&[])?);
        self.output.say(row.line());
        Ok(row)
    }
}
