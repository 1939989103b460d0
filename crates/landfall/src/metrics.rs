//! Metrics of the runtime itself; those of the controllers are registered beside them.

use std::fmt;

use landfall_controllers::history::History;
use landfall_controllers::leadership::Leadership;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// Registers `landfall_build_info`, `landfall_leader` and `landfall_history_rewinds_total`.
pub fn register(registry: &mut Registry, leadership: &Leadership, history: &History) {
    // The encoder adds `_info`.
    let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("landfall_build", "The running version of Landfall", build);
    registry.register_collector(Box::new(Leader(leadership.clone())));
    registry.register_collector(Box::new(Rewinds(history.clone())));
}

/// Read at each scrape: a stored value would be old in a process that slept past its lease.
#[derive(Debug)]
struct Leader(Leadership);

impl Collector for Leader {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Whether this process leads (1) or stands by (0)";
        let metric = encoder.encode_descriptor("landfall_leader", help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::from(self.0.is_leader())).encode(metric)
    }
}

#[derive(Debug)]
struct Rewinds(History);

impl Collector for Rewinds {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help =
            "How often the cluster's history went back, as when etcd is restored from a snapshot";
        let name = "landfall_history_rewinds";
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(self.0.rewinds()).encode(metric)
    }
}
