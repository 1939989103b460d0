//! The metrics of the engine, for every controller. Label values come from closed lists.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    controller: &'static str,
    effect: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

/// The engine's metrics; clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    calls: Family<Call, Counter>,
    planning: Family<Controller, Histogram>,
    dropped_events: Counter,
}

impl Metrics {
    /// Creates the metrics and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            calls: Family::default(),
            planning: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.000_01, 2.0, 12))
            }),
            dropped_events: Counter::default(),
        };
        registry.register(
            "landfall_calls",
            "Calls by controller, effect and result",
            metrics.calls.clone(),
        );
        registry.register_with_unit(
            "landfall_plan",
            "Time of one round of planning",
            Unit::Seconds,
            metrics.planning.clone(),
        );
        registry.register(
            "landfall_events_dropped",
            "Kubernetes events that were not sent because too many waited",
            metrics.dropped_events.clone(),
        );
        metrics
    }

    pub(super) fn called(
        &self,
        controller: &'static str,
        effect: &'static str,
        result: &'static str,
    ) {
        self.calls.get_or_create(&Call { controller, effect, result }).inc();
    }

    pub(super) fn planned(&self, controller: &'static str, took: Duration) {
        self.planning.get_or_create(&Controller { controller }).observe(took.as_secs_f64());
    }

    pub(super) fn dropped(&self, events: u64) {
        self.dropped_events.inc_by(events);
    }
}
