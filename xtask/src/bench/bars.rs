//! Compares a run's figures with the project's aims; misses are reported, never enforced.

use serde::Serialize;
use serde_json::Value;

use super::report::{Report, Row, duration, mean, percent, rounded};

/// The part of the two-write limit that a burst must reach.
const BURST: f64 = 0.8;
/// The writes that an allocation needs: the claim and the Service's status.
const WRITES_PER_ALLOCATION: f64 = 2.0;
/// Writes until a freed address is in use again: the deletion of the old claim, and then the same two.
const WRITES_PER_FREED: f64 = 3.0;
/// How much longer the last tenth of a pool may take than the first, to allow for the machine.
const TAIL: f64 = 1.1;
/// How many times the duration of one write a single new Service may take.
const SINGLE: f64 = 2.2;
/// Seconds that a restart may take beyond those of the lists.
const BEYOND_LISTS: f64 = 1.0;
/// Seconds after the death of its leader within which a standby must serve.
const STANDBY: f64 = 6.0;
/// How many times the duration of as many creates a take-over may need to complete the ledger.
const TAKE_OVER: f64 = 1.2;
const MEMORY_MB: f64 = 60.0;
/// The number of Services for which that much memory must be enough.
const MEMORY_SERVICES: u32 = 10_000;
const BINARY_MB: f64 = 20.0;

/// An aim, with the measured figure.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Bar {
    pub(super) aim: &'static str,
    pub(super) measured: String,
    pub(super) met: bool,
}

/// Every aim for which the run has a figure.
pub(super) fn of(report: &Report) -> Vec<Bar> {
    let bars = [
        burst(report),
        writes(report),
        fill(report),
        single(report),
        starved(report),
        restart_ready(report),
        none(report, "restart", "writes", "restart: no writes but the lease"),
        restart_serves(report),
        standby_serves(report),
        none(
            report,
            "pool-edit",
            "writes_of_exclusion",
            "pool edit: an exclusion writes no Service",
        ),
        none(report, "idle", "requests", "idle: no requests but lease and watches"),
        take_over(report),
        none(report, "take-over", "services_written", "take-over: no Service is written"),
        memory(report),
        binary(report),
    ];
    bars.into_iter().flatten().collect()
}

fn rows<'a>(report: &'a Report, name: &'a str) -> impl Iterator<Item = &'a Row> {
    report.rows.iter().filter(move |row| row.scenario == name)
}

/// A figure that only one scenario has; of several runs the last one's.
fn figure(report: &Report, name: &str, key: &str) -> Option<f64> {
    rows(report, name).filter_map(|row| row.more.get(key)?.as_f64()).last()
}

fn burst(report: &Report) -> Option<Bar> {
    let bursts: Vec<_> = rows(report, "burst").filter_map(|row| row.of_limit).collect();
    let ratio = (!bursts.is_empty()).then(|| mean(bursts))?;
    let aim = "burst at 80 % of the two-write limit or more";
    Some(Bar { aim, measured: percent(ratio), met: ratio >= BURST })
}

/// Without interference and releases, each allocation costs exactly its two writes.
fn writes(report: &Report) -> Option<Bar> {
    let names = ["burst", "steady", "single", "pool-edit", "fill"];
    let each: Vec<_> = names
        .into_iter()
        .flat_map(|name| rows(report, name))
        .filter_map(|row| Some((row.scenario.as_str(), row.writes_per_allocation()?)))
        .collect();
    let met = each.iter().all(|(_, writes)| (writes - WRITES_PER_ALLOCATION).abs() < 1e-9);
    let measured: Vec<_> =
        each.iter().map(|(name, writes)| format!("{name} {}", rounded(*writes))).collect();
    let aim = "exactly 2 writes per allocation, events and pool status apart";
    (!each.is_empty()).then(|| Bar { aim, measured: measured.join(", "), met })
}

fn fill(report: &Report) -> Option<Bar> {
    let first = figure(report, "fill", "first_tenth_seconds")?;
    let last = figure(report, "fill", "last_tenth_seconds")?;
    let measured = format!("{} after {}", duration(last), duration(first));
    let aim = "fill: the last 10 % within 1.1 times the time of the first 10 %";
    Some(Bar { aim, measured, met: last <= first * TAIL })
}

fn single(report: &Report) -> Option<Bar> {
    let row = rows(report, "single").last()?;
    let write = row.more.get("one_write_seconds")?.get("p50").and_then(Value::as_f64)?;
    let ratio = row.seconds?.p50 / write;
    let aim = "single: one new Service (p50) in 2.2 times the time of one write or less";
    Some(Bar { aim, measured: format!("{} times", rounded(ratio)), met: ratio <= SINGLE })
}

fn starved(report: &Report) -> Option<Bar> {
    let writes = rows(report, "starved").filter_map(Row::writes_per_allocation).last()?;
    let aim = "starved: a freed address serves the oldest in 3 writes or less";
    let row = rows(report, "starved").last()?;
    let in_order = row.more.get("oldest_first").and_then(Value::as_bool).unwrap_or_default();
    let measured = rounded(writes) + if in_order { "" } else { ", NOT the oldest" };
    Some(Bar { aim, measured, met: in_order && writes <= WRITES_PER_FREED })
}

fn take_over(report: &Report) -> Option<Bar> {
    let ledger = figure(report, "take-over", "ledger_seconds")?;
    let creates = figure(report, "take-over", "creates_seconds")?;
    let measured = format!("{} times", rounded(ledger / creates));
    let aim = "take-over: the ledger complete in 1.2 times the time of that many creates or less";
    Some(Bar { aim, measured, met: ledger <= creates * TAKE_OVER })
}

fn restart_ready(report: &Report) -> Option<Bar> {
    let lists = figure(report, "restart", "list_seconds")?;
    let ready = rows(report, "restart").filter_map(|row| row.seconds).last()?.last;
    let measured = format!("{}, the lists {}", duration(ready), duration(lists));
    let aim = "restart: ready within the time of the lists and 1 s";
    Some(Bar { aim, measured, met: ready <= lists + BEYOND_LISTS })
}

fn restart_serves(report: &Report) -> Option<Bar> {
    let lists = figure(report, "restart", "list_seconds")?;
    let served = figure(report, "restart", "served_after_restart_seconds")?;
    let measured = format!("{}, the lists {}", duration(served), duration(lists));
    let aim = "restart: a Service served within the time of the lists and 1 s after the kill";
    Some(Bar { aim, measured, met: served <= lists + BEYOND_LISTS })
}

fn standby_serves(report: &Report) -> Option<Bar> {
    let served = figure(report, "restart", "served_by_standby_seconds")?;
    let aim = "restart: a standby serves within 6 s of its leader's death";
    Some(Bar { aim, measured: duration(served), met: served <= STANDBY })
}

/// A figure that must be zero.
fn none(report: &Report, name: &str, key: &str, aim: &'static str) -> Option<Bar> {
    let count = rows(report, name).filter_map(|row| row.more.get(key)?.as_u64()).last()?;
    Some(Bar { aim, measured: count.to_string(), met: count == 0 })
}

fn memory(report: &Report) -> Option<Bar> {
    if report.services != MEMORY_SERVICES || report.ledger > 0 {
        return None;
    }
    let each = report.rows.iter().filter_map(|row| Some((row.usage?.resident_mb, &row.scenario)));
    let (most, scenario) = each.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let measured = format!("{most:.1} MB ({scenario})");
    let aim = "resident memory of 60 MB or less at 10,000 Services";
    Some(Bar { aim, measured, met: most <= MEMORY_MB })
}

fn binary(report: &Report) -> Option<Bar> {
    let size = report.binary_mb?;
    let aim = "release binary of 20 MB or less";
    Some(Bar { aim, measured: format!("{size:.1} MB"), met: size <= BINARY_MB })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bench::report::Spread;
    use crate::bench::subject::{Calls, Usage};

    fn report(rows: Vec<Row>) -> Report {
        Report {
            operator: "landfall".into(),
            account: "admin".into(),
            services: 10,
            ledger: 0,
            binary_mb: None,
            limits: Vec::new(),
            rows,
        }
    }

    fn verdicts(report: &Report) -> Vec<(String, bool)> {
        of(report).into_iter().map(|bar| (bar.measured, bar.met)).collect()
    }

    #[test]
    fn bars_speak_only_of_what_was_measured() {
        let mut report = report(vec![Row::new("burst", 10), Row::new("idle", 10)]);
        assert!(of(&report).is_empty());
        report.rows[0].of_limit = Some(0.81);
        report.rows[1].more.insert("requests", json!(2));
        assert_eq!(verdicts(&report), [("81 %".into(), true), ("2".into(), false)]);
        assert!(report.text().contains("✗ idle"));
    }

    #[test]
    fn an_allocation_of_more_or_less_than_two_writes_is_told() {
        let row = |name: &str, takes: u32| {
            let metrics = format!("landfall_calls_total{{effect=\"take\"}} {takes}\n");
            let mut row = Row::new(name, 10);
            row.allocations = 10;
            row.calls = Some(Calls::parse(&metrics));
            row
        };
        for (takes, measured, met) in
            [(20, "burst 2.00", true), (21, "burst 2.10", false), (19, "burst 1.90", false)]
        {
            assert_eq!(verdicts(&report(vec![row("burst", takes)])), [(measured.into(), met)]);
        }
        let mut starved = row("starved", 30);
        starved.more.insert("oldest_first", json!(true));
        assert_eq!(verdicts(&report(vec![starved.clone()])), [("3.00".into(), true)]);
        starved.more.insert("oldest_first", json!(false));
        assert_eq!(verdicts(&report(vec![starved])), [("3.00, NOT the oldest".into(), false)]);
    }

    #[test]
    fn times_are_held_against_those_of_the_same_run() {
        let spread = |p50| Spread { first: p50, p50, p99: p50, last: p50 };
        let mut single = Row::new("single", 10);
        single.seconds = Some(spread(0.008));
        single.more.insert("one_write_seconds", json!(spread(0.004)));
        let mut restart = Row::new("restart", 10);
        restart.seconds = Some(spread(1.3));
        restart.more.insert("list_seconds", json!(0.2));
        restart.more.insert("served_after_restart_seconds", json!(1.1));
        restart.more.insert("served_by_standby_seconds", json!(6.5));
        let mut fill = Row::new("fill", 10);
        fill.more.insert("first_tenth_seconds", json!(2.0));
        fill.more.insert("last_tenth_seconds", json!(2.1));
        assert_eq!(
            verdicts(&report(vec![single, restart, fill])),
            [
                ("2.10 s after 2.00 s".into(), true),
                ("2.00 times".into(), true),
                ("1.30 s, the lists 200 ms".into(), false),
                ("1.10 s, the lists 200 ms".into(), true),
                ("6.50 s".into(), false),
            ]
        );
    }

    #[test]
    fn memory_is_judged_for_the_number_of_services_it_was_set_for() {
        let mut row = Row::new("idle", MEMORY_SERVICES);
        row.usage = Some(Usage { cpu_seconds: 1.0, resident_mb: 61.0, peak_mb: 70.0 });
        let mut report = report(vec![row]);
        assert!(of(&report).is_empty());
        report.services = MEMORY_SERVICES;
        assert_eq!(verdicts(&report), [("61.0 MB (idle)".into(), false)]);
        report.ledger = 50_000;
        assert!(of(&report).is_empty());
        report.binary_mb = Some(15.0);
        assert_eq!(verdicts(&report), [("15.0 MB".into(), true)]);
    }
}
