//! The metrics of the allocator. Label values are bounded: closed lists, and pool names.

use std::{collections::BTreeMap, fmt, time::Duration};

use landfall_api::Finding;
use landfall_ipam::{Family as AddressFamily, Reason};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use super::plan::Planner;
use crate::{cluster::Cluster, leadership::Leadership, ledger::Ledger};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pending {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FindingKind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolState {
    pool: String,
    family: &'static str,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolWaiting {
    pool: String,
}

/// The allocator's metrics; clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    pending: Family<Pending, Gauge>,
    pools: Family<PoolState, Gauge<f64, std::sync::atomic::AtomicU64>>,
    waiting: Family<PoolWaiting, Gauge>,
    allocating: Histogram,
    findings: Family<FindingKind, Counter>,
    open_findings: Family<FindingKind, Gauge>,
    collected: Counter,
    /// The counts before this allocator started, because it counts from zero.
    findings_before: BTreeMap<Finding, u64>,
    collected_before: u64,
}

impl Metrics {
    /// Creates the metrics and registers them.
    pub fn register(registry: &mut Registry, leadership: &Leadership) -> Self {
        let metrics = Self {
            pending: Family::default(),
            pools: Family::default(),
            waiting: Family::default(),
            allocating: Histogram::new(exponential_buckets(0.005, 2.0, 14)),
            findings: Family::default(),
            open_findings: Family::default(),
            collected: Counter::default(),
            findings_before: BTreeMap::new(),
            collected_before: 0,
        };
        registry.register_with_unit(
            "landfall_allocation",
            "Time from the creation of a Service until its first address is published",
            Unit::Seconds,
            metrics.allocating.clone(),
        );
        registry.register(
            "landfall_repair_findings",
            "Findings of repair, by kind",
            metrics.findings.clone(),
        );
        registry.register(
            "landfall_claims_collected",
            "Claims released because the Service they named did not come back",
            metrics.collected.clone(),
        );
        let state = State { leadership: leadership.clone(), metrics: metrics.clone() };
        registry.register_collector(Box::new(state));
        metrics
    }

    /// The same metrics for an allocator that starts now.
    #[must_use]
    pub fn since_now(&self) -> Self {
        let count = |finding: Finding| {
            let label = FindingKind { kind: finding.as_str() };
            (finding, self.findings.get_or_create(&label).get())
        };
        Self {
            findings_before: Finding::ALL.into_iter().map(count).collect(),
            collected_before: self.collected.get(),
            ..self.clone()
        }
    }

    pub(super) fn allocated(&self, took: Duration) {
        self.allocating.observe(took.as_secs_f64());
    }

    /// Updates the gauges from the planner's state.
    pub(super) fn show(&self, planner: &Planner, cluster: &Cluster, ledger: &Ledger) {
        let pending = planner.pending();
        for reason in Reason::ALL {
            let count = pending.get(&reason).copied().unwrap_or_default();
            let gauge = self.pending.get_or_create(&Pending { reason: reason.as_str() });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        for finding in Finding::ALL {
            let label = FindingKind { kind: finding.as_str() };
            let open = i64::try_from(planner.open(finding)).unwrap_or(i64::MAX);
            self.open_findings.get_or_create(&label).set(open);
            let counter = self.findings.get_or_create(&label);
            let counts = [planner.counted(), &self.findings_before].map(|of| of.get(&finding));
            let counted: u64 = counts.into_iter().flatten().sum();
            counter.inc_by(counted.saturating_sub(counter.get()));
        }
        let collected = planner.collected().saturating_add(self.collected_before);
        self.collected.inc_by(collected.saturating_sub(self.collected.get()));
        self.pools.clear();
        self.waiting.clear();
        for view in cluster.pools_in_order() {
            let pool = view.name.to_string();
            for family in AddressFamily::BOTH {
                let count = ledger.book.count_of(&view.name, family);
                for (state, value) in
                    [("capacity", count.capacity), ("used", count.used), ("free", count.free)]
                {
                    let labels = PoolState { pool: pool.clone(), family: family.as_str(), state };
                    self.pools.get_or_create(&labels).set(approximate(value));
                }
            }
            let waiting = i64::try_from(planner.waiting_for(&view.name)).unwrap_or(i64::MAX);
            self.waiting.get_or_create(&PoolWaiting { pool }).set(waiting);
        }
    }
}

/// The gauges of the planner's state, which only the leader reports: a standby or deposed leader may be
/// long out of date. Leadership is checked at each scrape, because a process that slept past its lease
/// may be scraped before anything else happens in it.
#[derive(Debug)]
struct State {
    leadership: Leadership,
    metrics: Metrics,
}

impl Collector for State {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if !self.leadership.is_leader() {
            return Ok(());
        }
        let Metrics { pending, pools, waiting, open_findings, .. } = &self.metrics;
        let gauges: [(_, _, &dyn EncodeMetric); 4] = [
            ("landfall_services_pending", "Services that wait for an address, by reason", pending),
            (
                "landfall_pool_addresses",
                "Addresses of a pool, by family and state: capacity, used, free",
                pools,
            ),
            (
                "landfall_pool_services_waiting",
                "Services that would be served by a pool and wait for it",
                waiting,
            ),
            (
                "landfall_repair_open",
                "Findings of the last round of repair, by kind",
                open_findings,
            ),
        ];
        for (name, help, gauge) in gauges {
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float; a /64 is known to 16 digits")]
fn approximate(value: u128) -> f64 {
    value as f64
}
