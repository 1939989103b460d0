//! The scenarios: what each sets up, times, and checks afterwards.

mod burst;
mod pool_edit;
mod restart;
mod single;
mod standing;
mod starved;
mod take_over;

use std::time::{Duration, Instant};

use clap::ValueEnum;
use tokio::time::sleep;

use super::error::{Error, Result};
use super::limits::{self, Limits};
use super::report::Row;
use super::stage::{Created, Stage};
use super::subject::{Running, Subject};
use super::watch::{Known, Watch};
use crate::output::Output;

/// How long claims of deleted Services may take to be released.
const SETTLE_DEADLINE: Duration = Duration::from_secs(30);
/// How long a single address may take.
const WAKE_DEADLINE: Duration = Duration::from_mins(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Scenario {
    /// Services exist, then the operator starts
    Burst,
    /// The same with two operators that both work
    TwoOperators,
    /// Services are created while the operator runs
    Steady,
    /// One Service is created, again and again
    Single,
    /// One Service goes and one comes, again and again
    Churn,
    /// The operator is killed while some Services wait, and starts again
    Restart,
    /// A pool with Services that wait is made larger
    PoolEdit,
    /// Nothing happens
    Idle,
    /// A pool is filled to its last address
    Fill,
    /// A full pool, and an address becomes free
    Starved,
    /// Services have addresses that another allocator gave, then the operator starts
    TakeOver,
}

impl Scenario {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::TwoOperators => "two-operators",
            Self::Steady => "steady",
            Self::Single => "single",
            Self::Churn => "churn",
            Self::Restart => "restart",
            Self::PoolEdit => "pool-edit",
            Self::Idle => "idle",
            Self::Fill => "fill",
            Self::Starved => "starved",
            Self::TakeOver => "take-over",
        }
    }

    /// Whether it neither resizes a pool nor relies on a certain number of addresses.
    pub(super) fn needs_only_addresses(self) -> bool {
        matches!(
            self,
            Self::Burst
                | Self::TwoOperators
                | Self::Steady
                | Self::Single
                | Self::Churn
                | Self::Idle
        )
    }

    /// Whether its rate is compared with a limit.
    pub(super) fn has_limit(self) -> bool {
        matches!(self, Self::Burst | Self::TwoOperators | Self::Steady | Self::Fill)
    }
}

/// What all scenarios work with.
pub(super) struct Bench<'a> {
    pub(super) stage: Stage,
    pub(super) subject: Subject,
    pub(super) services: u32,
    pub(super) limits: Vec<Limits>,
    pub(super) output: &'a Output,
    opened: u32,
}

impl<'a> Bench<'a> {
    pub(super) fn new(stage: Stage, subject: Subject, services: u32, output: &'a Output) -> Self {
        Self { stage, subject, services, limits: Vec::new(), output, opened: 0 }
    }

    /// A new namespace, with a pool of that name and size.
    async fn open(&mut self, what: &str, size: u32) -> Result<String> {
        self.opened += 1;
        let namespace = format!("bench-{what}-{}", self.opened);
        self.stage.open(&namespace, Some(size)).await?;
        Ok(namespace)
    }

    /// Cleans up, whatever the outcome of a scenario: leftovers would disturb the next one.
    async fn closed<T>(&self, namespace: &str, outcome: Result<T>) -> Result<T> {
        let closed = self.stage.close(namespace).await;
        let value = outcome?;
        closed.map(|()| value)
    }

    /// Measures both limits, now.
    pub(super) async fn measure_limits(&mut self) -> Result<()> {
        let services = self.services.min(limits::MOST_SERVICES);
        self.output.heading(format_args!("limits ({services} Services)"));
        self.opened += 1;
        let namespace = format!("bench-limit-{}", self.opened);
        let limits = limits::measure(&self.stage, &namespace, services, self.output).await?;
        self.limits.push(limits);
        Ok(())
    }

    fn watch(&self, namespace: &str) -> Watch {
        Watch::start(self.stage.admin.clone(), namespace, self.stage.address_in.clone())
    }

    /// Generous: a scenario that needs all of it has failed, and the figure says by how much.
    fn deadline(&self) -> Duration {
        Duration::from_mins(2) + Duration::from_millis(50) * self.services
    }

    /// Services created at once: the width that served the API server best.
    fn width(&self) -> usize {
        self.limits.first().map_or(32, |limits| limits.best_create().width)
    }

    async fn start(&self) -> Result<Running> {
        self.subject.start(&self.stage.kubeconfig(None).await?).await
    }

    /// Starts the operator and waits until it has served one Service and is idle.
    async fn start_working(&self, namespace: &str, watch: &Watch) -> Result<Running> {
        let running = self.start().await?;
        running.ready_after().await?;
        let probe = self.stage.create_one(namespace, "probe").await?;
        let what = "the first address";
        self.wait_for(running.death(), watch, what, WAKE_DEADLINE, |known| {
            known.has_address(&probe.name)
        })
        .await?;
        running.quiet().await?;
        Ok(running)
    }

    /// Waits for a condition of the watch, but no longer than the operator lives.
    async fn wait_for(
        &self,
        death: impl Future<Output = Error>,
        watch: &Watch,
        what: &str,
        deadline: Duration,
        done: impl FnMut(&Known) -> bool,
    ) -> Result<()> {
        tokio::select! {
            outcome = watch.until(what, deadline, done) => outcome,
            error = death => Err(error),
        }
    }

    /// Checks Services and claims once they have come to rest, and records what is wrong.
    async fn audit(&self, row: &mut Row, namespace: &str, watch: &Watch) -> Result<()> {
        let end = Instant::now() + SETTLE_DEADLINE;
        let audit = loop {
            let audit = self.stage.audit(namespace).await?;
            if audit.violations.is_empty() || Instant::now() >= end {
                break audit;
            }
            sleep(Duration::from_millis(500)).await;
        };
        row.changed = watch.new_changes();
        row.doubled = audit.doubled;
        row.violations = audit.violations;
        Ok(())
    }
}

fn as_usize(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn sorted_times(known: &Known) -> Vec<Instant> {
    let mut times: Vec<_> = known.services.values().filter_map(|track| track.first).collect();
    times.sort_unstable();
    times
}

/// From the answer to the create until the address was seen; zero if it was seen before the answer.
fn latencies(created: &[Created], known: &Known) -> Vec<Duration> {
    let times = created.iter().filter_map(|one| {
        let first = known.services.get(&one.name)?.first?;
        Some(first.saturating_duration_since(one.at))
    });
    times.collect()
}

/// The waiters, the oldest first; equal ages go by name.
fn pending_by_age(known: &Known) -> Vec<String> {
    let waiting = known.services.iter().filter(|(_, track)| track.address.is_none());
    let mut waiting: Vec<_> = waiting.map(|(name, track)| (&track.created, name)).collect();
    waiting.sort_unstable();
    waiting.into_iter().map(|(_, name)| name.clone()).collect()
}
