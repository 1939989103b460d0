//! `docs/reference/metrics.md`: the metrics that operators and agents serve.
//!
//! Names and help come from the real registry. A registry shows neither the type nor the labels of a metric
//! that has no value yet, so those are listed here; a metric that is missing here, or is only here, fails the
//! generator.

use std::collections::BTreeMap;
use std::time::Duration;

use landfall_agent::worker::{Description, descriptions};
use landfall_api::Finding;
use landfall_controllers::blind::Checks;
use landfall_controllers::history::History;
use landfall_controllers::leadership::Leadership;
use landfall_ipam::Reason;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use super::{Error, File, NOTICE, cell};

const PATH: &str = "docs/reference/metrics.md";

const HEAD: &str = "# Metrics

`landfall operator` serves these metrics in the OpenMetrics text format under `/metrics` of its admin address.
Labels take values from closed lists and names of pools, so the number of series is bounded.

Only the leader plans and calls, and only the leader shows the gauges of pools, of Services that wait and
of open findings. An operator that stands by shows `landfall_leader 0` and counters that do not grow. When the
lead changes hands, two may show the gauges between one scrape and the next, so queries aggregate them as
in the [guide](../guides/watch-pools.md).

| metric | type | labels | meaning |
| --- | --- | --- | --- |";

const AGENT_HEAD: &str = "
## Of agents

`landfall agent` serves these under `/metrics` of its own address, port 9650 of each node of a [keepalived group](../guides/announce-services.md),
in the older text format: dashboards know the counters of keepalived by these names. `keepalived_up` and those without an instance have no
labels; all others have `name` (the VRRP instance), `intf` and `vrid`, and keepalived's counters also `state`.

| metric | type | meaning |
| --- | --- | --- |";

/// Facts that the registry does not show before there is a value.
struct Metric {
    /// As registered.
    name: &'static str,
    /// The suffix that the text format adds, as it is written in a query.
    suffix: &'static str,
    kind: &'static str,
    labels: &'static str,
}

const METRICS: &[Metric] = &[
    Metric { name: "landfall_build", suffix: "_info", kind: "info", labels: "`version`" },
    Metric { name: "landfall_leader", suffix: "", kind: "gauge", labels: "" },
    Metric { name: "landfall_history_rewinds", suffix: "_total", kind: "counter", labels: "" },
    Metric {
        name: "landfall_watches_blind",
        suffix: "_total",
        kind: "counter",
        labels: "`kind`: `ips`, `services`, `ipgroups`, `configmaps`, `namespaces`, `nodes`, `endpointslices`, `servicecidrs`, `virtualips`, \
                 `groupsegmentmappings`, `keepalivedgroups`, `endpoints`, `daemonsets`, `serviceaccounts`, `roles`, `rolebindings`, `podmonitors`, \
                 `virtualips.paas.org`, `groupsegmentmappings.paas.org`, `keepalivedgroups.redhatcop.redhat.io`, `podmonitors.monitoring.coreos.com`",
    },
    Metric {
        name: "landfall_calls",
        suffix: "_total",
        kind: "counter",
        labels: "`controller`: `services`, `migration`, `keepalived`, `ledger`; \
                 `effect` of `services`: `take`, `touch`, `publish`, `annotate`, `clean_up`, `set_conditions`, `release`, `expire`, `look`, `pool_status`, \
                 of `migration`: `look`, `status`, `finalizers`, `take`, `pass`, `end_reservation`, `release`, `copy`, `align`, `drop_copy`, `convert`, `stop_asking`, \
                 of `keepalived`: `group_status`, `create`, `align`, `look_at_secret`, \
                 of `ledger`: `look`, `expire`, `place`, \
                 of all but `ledger`: `event`; \
                 `result`: `done`, `exists`, `conflict`, `not_found`, `refused`, `blocked`, `throttled`, `unknown`, `not_sent`",
    },
    Metric {
        name: "landfall_services_pending",
        suffix: "",
        kind: "gauge",
        labels: "`reason`: {reasons}",
    },
    Metric {
        name: "landfall_pool_addresses",
        suffix: "",
        kind: "gauge",
        labels: "`pool`: kind and name such as `IPGroup/dmz`; `family`: `IPv4`, `IPv6`; `state`: `capacity`, `used`, `free`",
    },
    Metric { name: "landfall_pool_services_waiting", suffix: "", kind: "gauge", labels: "`pool`" },
    Metric {
        name: "landfall_plan",
        suffix: "_seconds",
        kind: "histogram",
        labels: "`controller`: `services`, `migration`, `keepalived`, `ledger`",
    },
    Metric { name: "landfall_allocation", suffix: "_seconds", kind: "histogram", labels: "" },
    Metric { name: "landfall_events_dropped", suffix: "_total", kind: "counter", labels: "" },
    Metric {
        name: "landfall_repair_findings",
        suffix: "_total",
        kind: "counter",
        labels: "`kind`: {findings}",
    },
    Metric {
        name: "landfall_repair_open",
        suffix: "",
        kind: "gauge",
        labels: "`kind`: {findings}",
    },
    Metric { name: "landfall_claims_collected", suffix: "_total", kind: "counter", labels: "" },
];

pub(super) fn files() -> Result<Vec<File>, Error> {
    let mut registered = registered();
    let reasons = Reason::ALL.map(|reason| format!("`{reason}`")).join(", ");
    let findings = Finding::ALL.map(|finding| format!("`{finding}`")).join(", ");
    let mut page = vec![format!("<!-- {NOTICE} -->\n{HEAD}")];
    let mut wrong = Vec::new();
    for Metric { name, suffix, kind, labels } in METRICS {
        let Some(help) = registered.remove(*name) else {
            wrong.push(format!("{name} is described but not registered"));
            continue;
        };
        let labels = labels.replace("{reasons}", &reasons).replace("{findings}", &findings);
        let labels = cell(&labels);
        let help = cell(help.trim_end_matches('.'));
        page.push(format!("| `{name}{suffix}` | {kind} | {labels} | {help}. |"));
    }
    wrong.extend(registered.keys().map(|name| format!("{name} is registered but not described")));
    if wrong.is_empty() {
        page.push(AGENT_HEAD.to_owned());
        page.extend(descriptions().map(|Description { name, kind, help }| {
            format!("| `{name}` | {kind} | {}. |", cell(help))
        }));
        page.push(String::new());
        Ok(vec![File { path: PATH.to_owned(), text: page.join("\n") }])
    } else {
        Err(Error::Metrics(wrong))
    }
}

/// Help by name of everything the operator registers.
fn registered() -> BTreeMap<String, String> {
    let mut registry = Registry::default();
    Checks::register(Duration::ZERO, &mut registry);
    let leadership = Leadership::always();
    landfall::metrics::register(&mut registry, &leadership, &History::default());
    landfall_controllers::Metrics::register(&mut registry);
    landfall_controllers::services::Metrics::register(&mut registry, &leadership);
    let mut found = from_descriptors(&format!("{registry:?}"));
    let mut encoded = String::new();
    // Writing to a string fails only if a metric does; then it is missing, and the caller says so.
    if text::encode(&mut encoded, &registry).is_ok() {
        // Only the text adds units, so a name that begins like a descriptor's is known already.
        for (name, help) in from_text(&encoded) {
            if !found.keys().any(|known| name.starts_with(known.as_str())) {
                found.insert(name, help);
            }
        }
    }
    found
}

/// The registry shows its descriptors only through `Debug`; metrics without a value appear nowhere else.
fn from_descriptors(debug: &str) -> BTreeMap<String, String> {
    let quoted = |text: &str| text.split_once('"').map(|(value, _)| value.to_owned());
    debug
        .split("name: \"")
        .skip(1)
        .filter_map(|rest| {
            let name = quoted(rest)?;
            let help = quoted(rest.split_once("help: \"")?.1)?;
            name.starts_with("landfall_").then_some((name, help))
        })
        .collect()
}

/// `# HELP name words` lines; collectors appear only here.
fn from_text(encoded: &str) -> impl Iterator<Item = (String, String)> {
    encoded.lines().filter_map(|line| {
        let (name, help) = line.strip_prefix("# HELP ")?.split_once(' ')?;
        Some((name.to_owned(), help.to_owned()))
    })
}
