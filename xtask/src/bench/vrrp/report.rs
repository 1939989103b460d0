//! The figures of the nodes, as tables for people and as JSON for comparisons.

use comfy_table::{CellAlignment, Table, presets};
use landfall_testkit::bed::Record;
use serde::Serialize;
use serde_json::{Value, json};

use super::event::Event;
use crate::bench::report::{Spread, duration, percent, rounded};

/// How many adverts two nodes may hold an address together: on a busy machine two backups may be due at once.
const DOUBLED_ADVERTS: f64 = 1.5;
/// Seconds from an address on a Service to its announcement, in 99 of 100 cases.
pub(super) const INGRESS: f64 = 0.3;
/// How much longer that may take with many addresses in the group.
pub(super) const INGRESS_MANY: f64 = 1.2;
const RESIDENT_MB: f64 = 20.0;
/// Of one processor.
const IDLE_CPU: f64 = 0.01;

/// The figures of one event, again and again.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) event: String,
    pub(super) advert_millis: u32,
    pub(super) runs: usize,
    /// The time that VRRP itself may take.
    pub(super) protocol_seconds: Option<f64>,
    pub(super) seconds: Option<Spread>,
    /// The time that 99 of 100 runs should take at most.
    pub(super) bar_seconds: f64,
    /// Samples in which two nodes held an address, and the longest time from the first to the last in a row.
    pub(super) doubled_samples: usize,
    pub(super) doubled_seconds: f64,
    /// Runs in which another node took the address than the next in order.
    pub(super) by_another: u32,
    /// The part of the machine that was busy meanwhile, with everything that ran on it.
    pub(super) busy: f64,
    pub(super) failed: Option<String>,
}

impl Row {
    pub(super) fn takeover(event: Event, advert_millis: u32) -> Self {
        let advert = f64::from(advert_millis) / 1000.0;
        Self {
            event: event.name().to_owned(),
            advert_millis,
            protocol_seconds: Some(event.protocol(advert, 3)),
            bar_seconds: event.bar(advert),
            ..Self::default()
        }
    }

    /// Adds what was seen in one run.
    pub(super) fn count_doubles(&mut self, record: &Record, names: &[&str]) {
        for doubled in record.all_doubled(names).values() {
            self.doubled_samples += doubled.samples;
            self.doubled_seconds = self.doubled_seconds.max(doubled.longest.as_secs_f64());
        }
    }

    fn meets_bar(&self) -> Option<bool> {
        Some(self.seconds?.p99 <= self.bar_seconds)
    }

    /// What is wrong, apart from times.
    fn trouble(&self) -> Option<String> {
        let about = format!("{}, adverts of {} ms", self.event, self.advert_millis);
        if let Some(failed) = &self.failed {
            return Some(format!("{about}: {failed}"));
        }
        let most = DOUBLED_ADVERTS * f64::from(self.advert_millis) / 1000.0;
        let longest = duration(self.doubled_seconds);
        (self.doubled_seconds > most)
            .then(|| format!("{about}: two nodes held an address for {longest}"))
    }

    /// The figures in one line.
    pub(super) fn line(&self) -> String {
        let cells = self.cells();
        let pairs = HEADER.iter().zip(&cells).skip(2).filter(|(head, _)| !head.is_empty());
        let words: Vec<_> = pairs.map(|(head, cell)| format!("{head} {cell}")).collect();
        words.join(", ")
    }

    fn cells(&self) -> [String; 12] {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let time =
            |pick: fn(&Spread) -> f64| or_dash(self.seconds.as_ref().map(pick).map(duration));
        let of_protocol = self.protocol_seconds.zip(self.seconds);
        let of_protocol = of_protocol.map(|(own, times)| rounded(times.p50 / own));
        let remark = match (&self.failed, self.by_another) {
            (Some(failed), _) => failed.clone(),
            (None, 0) => String::new(),
            (None, count) => format!("{count} not by the next in order"),
        };
        [
            self.event.clone(),
            duration(f64::from(self.advert_millis) / 1000.0),
            self.runs.to_string(),
            or_dash(self.protocol_seconds.map(duration)),
            time(|spread| spread.p50),
            time(|spread| spread.p99),
            time(|spread| spread.last),
            or_dash(of_protocol),
            format!("{} {}", mark(self.meets_bar()), duration(self.bar_seconds)),
            self.doubled_samples.to_string(),
            percent(self.busy),
            remark,
        ]
    }
}

const HEADER: [&str; 12] = [
    "event",
    "adverts",
    "runs",
    "protocol",
    "p50",
    "p99",
    "max",
    "p50/protocol",
    "bar, p99",
    "doubled",
    "busy",
    "",
];

/// A plan with many addresses, and the death of their holder.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Load {
    pub(super) addresses: u16,
    pub(super) runs: usize,
    /// Making a node's configuration and having keepalived check it.
    pub(super) check_seconds: Option<Spread>,
    /// From writing a plan with all addresses until the last of them is announced.
    pub(super) plan_seconds: f64,
    /// The most that any node reloaded because of it.
    pub(super) reloads: u64,
    /// From the first address on the new holder until all are there and announced.
    pub(super) spread_seconds: Option<Spread>,
    pub(super) doubled_samples: usize,
    pub(super) busy: f64,
}

/// What an agent uses when nothing happens.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Idle {
    pub(super) slots: u8,
    pub(super) advert_millis: u32,
    pub(super) seconds: f64,
    /// Of the node that uses most; memory that both processes of an agent share counts once.
    pub(super) resident_mb: f64,
    /// The same with shared memory counted for each.
    pub(super) summed_mb: f64,
    pub(super) agent_cpu: f64,
    pub(super) keepalived_cpu: f64,
    pub(super) busy: f64,
}

/// An aim, with the measured figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Bar {
    aim: String,
    measured: String,
    met: bool,
}

impl Bar {
    fn at_most(aim: &str, measured: f64, most: f64, text: fn(f64) -> String) -> Self {
        let aim = format!("{aim} {} or less", text(most));
        Self { aim, measured: text(measured), met: measured <= most }
    }
}

/// All results of one run.
#[derive(Clone, Debug, Default)]
pub(in crate::bench) struct Report {
    pub(super) rows: Vec<Row>,
    pub(super) loads: Vec<Load>,
    pub(super) idle: Option<Idle>,
}

impl Report {
    /// What is wrong, apart from times.
    pub(in crate::bench) fn troubles(&self) -> Vec<String> {
        self.rows.iter().filter_map(Row::trouble).collect()
    }

    pub(in crate::bench) fn json(&self) -> Value {
        json!({
            "rows": self.rows,
            "loads": self.loads,
            "idle": self.idle,
            "bars": self.bars(),
        })
    }

    /// Those of rows are in the table.
    fn bars(&self) -> Vec<Bar> {
        let mut bars = Vec::new();
        let ingress: Vec<_> =
            self.rows.iter().filter(|row| row.protocol_seconds.is_none()).collect();
        if let [one, many] = ingress[..]
            && let (Some(one), Some(many)) = (one.seconds, many.seconds)
        {
            let aim = "address on a Service: p50 with 500 addresses by that with 1:";
            bars.push(Bar::at_most(aim, many.p50 / one.p50, INGRESS_MANY, rounded));
        }
        for load in &self.loads {
            let (check, spread) = load.bars();
            let about = |what: &str| format!("{} addresses: {what}", load.addresses);
            if let Some((times, most)) = load.check_seconds.zip(check) {
                let aim = about("configuration made and checked (p99) in");
                bars.push(Bar::at_most(&aim, times.p99, most, duration));
            }
            if let Some(times) = load.spread_seconds {
                let aim = about("from the first to the last on the new holder (p99)");
                bars.push(Bar::at_most(&aim, times.p99, spread, duration));
            }
            let aim = about("one reload for all");
            bars.push(Bar { aim, measured: load.reloads.to_string(), met: load.reloads == 1 });
        }
        if let Some(idle) = &self.idle {
            let megabytes = |size: f64| format!("{size:.1} MB");
            bars.push(Bar::at_most(
                "idle: memory of an agent",
                idle.resident_mb,
                RESIDENT_MB,
                megabytes,
            ));
            let share = |share: f64| format!("{:.2} % of a processor", share * 100.0);
            bars.push(Bar::at_most("idle: an agent uses", idle.agent_cpu, IDLE_CPU, share));
        }
        bars
    }

    pub(in crate::bench) fn text(&self) -> String {
        let mut parts = Vec::new();
        if !self.rows.is_empty() {
            let mut table = Table::new();
            table.load_style(presets::UTF8_BORDERS_ONLY).set_header(HEADER);
            for row in &self.rows {
                table.add_row(row.cells());
            }
            for column in table.column_iter_mut().skip(1).take(10) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            parts.push(table.to_string());
        }
        parts.extend(self.loads.iter().map(Load::text));
        parts.extend(self.idle.iter().map(Idle::text));
        let bars = self.bars();
        let bars = bars.iter().map(|Bar { aim, measured, met }| {
            [mark(Some(*met)), " ", aim, ": ", measured].concat()
        });
        parts.extend(bars);
        parts.join("\n")
    }
}

impl Load {
    /// The seconds for making and checking a configuration, if there is an aim, and for all addresses to follow the
    /// first.
    fn bars(&self) -> (Option<f64>, f64) {
        if self.addresses > 500 { (None, 0.15) } else { (Some(0.3), 0.03) }
    }

    fn text(&self) -> String {
        let times = |times: Option<Spread>| match times {
            Some(times) => format!("{} / {}", duration(times.p50), duration(times.last)),
            None => "-".to_owned(),
        };
        format!(
            "{} addresses in one slot, {} runs: configuration made and checked in {} (p50 / max); \
             plan written to last announced {}, {} reload(s); holder dead, first to last on the new \
             one {} (p50 / max), doubled {}; busy {}",
            self.addresses,
            self.runs,
            times(self.check_seconds),
            duration(self.plan_seconds),
            self.reloads,
            times(self.spread_seconds),
            self.doubled_samples,
            percent(self.busy),
        )
    }
}

impl Idle {
    fn text(&self) -> String {
        format!(
            "idle for {:.0} s, {} slots, adverts of {} ms: agent and worker {:.1} MB resident \
             ({:.1} MB if what both share counts twice), {:.2} % of a processor; keepalived \
             {:.2} %; busy {}",
            self.seconds,
            self.slots,
            self.advert_millis,
            self.resident_mb,
            self.summed_mb,
            self.agent_cpu * 100.0,
            self.keepalived_cpu * 100.0,
            percent(self.busy),
        )
    }
}

fn mark(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "✓",
        Some(false) => "✗",
        None => "-",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn spread(millis: &[u64]) -> Option<Spread> {
        Spread::of(millis.iter().copied().map(Duration::from_millis))
    }

    #[test]
    fn times_are_held_against_bars_and_never_are_trouble() {
        let mut row = Row::takeover(Event::NodeDead, 100);
        assert_eq!(row.meets_bar(), None);
        for (times, met) in [(&[280, 300, 399][..], true), (&[280, 300, 401], false)] {
            row.seconds = spread(times);
            assert_eq!((row.meets_bar(), row.trouble()), (Some(met), None));
            assert!(row.line().contains("p50/protocol 0.86"), "{}", row.line());
        }
    }

    #[test]
    fn an_address_on_two_nodes_is_trouble_when_it_lasts() {
        let mut row = Row::takeover(Event::LinkDown, 100);
        for (seconds, is_trouble) in [(0.0, false), (0.14, false), (0.16, true)] {
            row.doubled_seconds = seconds;
            assert_eq!(row.trouble().is_some(), is_trouble, "{seconds}");
        }
        row.doubled_seconds = 0.0;
        row.failed = Some("no holder".to_owned());
        let report = Report { rows: vec![row], ..Report::default() };
        assert_eq!(report.troubles(), ["link down, adverts of 100 ms: no holder"]);
        assert!(report.text().contains("no holder"), "{}", report.text());
    }

    #[test]
    fn bars_speak_only_of_what_was_measured() {
        assert!(Report::default().bars().is_empty());
        let ingress = |millis: u64| Row { seconds: spread(&[millis]), ..Row::default() };
        let load = |addresses, millis, reloads| Load {
            addresses,
            check_seconds: spread(&[millis]),
            spread_seconds: spread(&[millis]),
            reloads,
            ..Load::default()
        };
        let idle = Idle { resident_mb: 20.5, agent_cpu: 0.004, ..Idle::default() };
        let report = Report {
            rows: vec![ingress(100), ingress(130)],
            loads: vec![load(500, 29, 1), load(2000, 151, 2)],
            idle: Some(idle),
        };
        let bars = report.bars();
        let found: Vec<_> = bars.iter().map(|bar| (bar.measured.as_str(), bar.met)).collect();
        assert_eq!(
            found,
            [
                ("1.30", false),
                ("29.0 ms", true),
                ("29.0 ms", true),
                ("1", true),
                ("151 ms", false),
                ("2", false),
                ("20.5 MB", false),
                ("0.40 % of a processor", true),
            ]
        );
        assert_eq!(report.json()["bars"][0]["met"], false);
    }
}
