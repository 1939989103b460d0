//! Services of type `LoadBalancer` and their addresses: decide, plan, apply.
//!
//! The planner's memory is what the engine lends, and its own writes that are in flight.

use std::time::Duration;

#[cfg(any(test, feature = "fuzzing"))]
pub use self::tests::fuzzing;
#[cfg(feature = "bench")]
pub use self::tests::rig;
use self::{effect::Effect, plan::Planner, world::KINDS};
pub use self::{
    metrics::Metrics,
    plan::{KubeVip, RepairMode, Settings},
    world::{AnnotatedServices, Tenancy},
};
pub use crate::cluster::classes::Classes;
use crate::{
    cluster::{Change, Cluster, Kind},
    engine::{self, AnyPlanner, Lent, Plan, Report},
    ledger::Ledger,
};

mod annotate;
mod apply;
mod audience;
mod decide;
mod effect;
pub mod explain;
mod holding;
mod metrics;
pub mod permissions;
pub(crate) mod plan;
mod repair;
mod status;
#[cfg(any(test, feature = "bench", feature = "fuzzing"))]
mod tests;
mod waiting;
mod wish;
mod world;

/// The planner with its metrics.
struct Allocator {
    planner: Planner,
    metrics: Metrics,
}

/// An allocator that reads all changes of this ledger from now on.
pub(crate) fn planner(
    settings: Settings,
    metrics: Metrics,
    ledger: &mut Ledger,
) -> Box<dyn AnyPlanner> {
    Box::new(Allocator { planner: Planner::new(settings, ledger.reader()), metrics })
}

impl engine::Planner for Allocator {
    const NAME: &'static str = "services";
    const KINDS: &'static [Kind] = KINDS;
    type Effect = Effect;

    fn changed(&mut self, lent: Lent<'_>, change: &Change) {
        self.planner.changed(lent, change);
    }

    fn catch_up(&mut self, lent: Lent<'_>, out: &mut Plan<Effect>) {
        self.planner.catch_up(lent, out);
    }

    fn reported(&mut self, lent: Lent<'_>, report: Report<Effect>, out: &mut Plan<Effect>) {
        if report.result.is_ok()
            && let Effect::Publish { key, ingress: Some(_), first: true, .. }
            | Effect::Annotate { key, addrs: Some(_), first: true, .. } = &report.effect
            && let Some(service) = lent.cluster.balancer(key)
        {
            let took = lent.now.wall.duration_since(service.created);
            self.metrics.allocated(took.try_into().unwrap_or_default());
        }
        self.planner.reported(lent, report, out);
    }

    fn reconsider_all(&mut self, lent: Lent<'_>) {
        self.planner.reconsider_all(lent);
    }

    fn plan(&mut self, lent: Lent<'_>, out: &mut Plan<Effect>) {
        self.planner.plan(lent, out);
    }

    fn next_due(&self, _: &Cluster, _: &Ledger) -> Option<Duration> {
        self.planner.next_due()
    }

    fn show(&self, cluster: &Cluster, ledger: &Ledger) {
        self.metrics.show(&self.planner, cluster, ledger);
    }
}
