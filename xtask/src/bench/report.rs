//! The figures of a run, as a table for people and as JSON for comparisons.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use serde_json::{Value, json};

use super::bars::{self, Bar};
use super::limits::Limits;
use super::neighbours::NOTABLE;
use super::subject::{Calls, Usage};

/// Statistics of many times, relative to the scenario's own starting point.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Spread {
    pub(super) first: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) last: f64,
}

impl Spread {
    /// `None` for no times at all.
    pub(super) fn of(times: impl IntoIterator<Item = Duration>) -> Option<Self> {
        let mut times: Vec<_> = times.into_iter().map(|time| time.as_secs_f64()).collect();
        times.sort_by(f64::total_cmp);
        let at = |percent: usize| times.get((times.len() * percent).div_ceil(100).max(1) - 1);
        Some(Self { first: *times.first()?, p50: *at(50)?, p99: *at(99)?, last: *times.last()? })
    }

    /// Each time since one moment; earlier ones count as zero.
    pub(super) fn since(begin: Instant, times: &[Instant]) -> Option<Self> {
        Self::of(times.iter().map(|time| time.saturating_duration_since(begin)))
    }
}

/// One scenario's figures. A figure that was not measured is absent, and printed as `-`.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    pub(super) scenario: String,
    pub(super) services: u32,
    pub(super) seconds: Option<Spread>,
    /// Addresses per second.
    pub(super) rate: Option<f64>,
    /// The same as a part of the limit that applies.
    pub(super) of_limit: Option<f64>,
    /// How many allocations `calls` were for.
    pub(super) allocations: u32,
    pub(super) calls: Option<Calls>,
    pub(super) usage: Option<Usage>,
    pub(super) changed: usize,
    pub(super) doubled: usize,
    pub(super) violations: Vec<String>,
    /// The part of the machine that other processes used meanwhile.
    pub(super) others: Option<f64>,
    /// Figures only this scenario has.
    pub(super) more: BTreeMap<&'static str, Value>,
    /// Printed beside the figures.
    pub(super) remark: String,
    /// Why there are no figures.
    pub(super) failed: Option<String>,
}

impl Row {
    pub(super) fn new(scenario: &str, services: u32) -> Self {
        Self { scenario: scenario.to_owned(), services, ..Self::default() }
    }

    /// Writes of claims and Services for each address given.
    pub(super) fn writes_per_allocation(&self) -> Option<f64> {
        let calls = self.calls.as_ref().filter(|_| self.allocations > 0)?;
        Some(ratio(calls.writes_for_services(), self.allocations))
    }

    pub(super) fn is_harmed(&self) -> bool {
        self.changed > 0 || self.doubled > 0 || !self.violations.is_empty()
    }

    /// Violations, in words.
    pub(super) fn trouble(&self) -> Option<String> {
        if let Some(failed) = &self.failed {
            return Some(format!("{}: {failed}", self.scenario));
        }
        self.is_harmed().then(|| {
            let some = self.violations.iter().take(3).cloned().collect::<Vec<_>>().join("; ");
            format!(
                "{}: {} addresses changed, {} doubled, {} violations {some}",
                self.scenario,
                self.changed,
                self.doubled,
                self.violations.len()
            )
        })
    }
}

/// All results of one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) operator: String,
    pub(super) account: String,
    pub(super) services: u32,
    /// Claims in the ledger that no scenario uses.
    pub(super) ledger: u32,
    pub(super) binary_mb: Option<f64>,
    pub(super) limits: Vec<Limits>,
    pub(super) rows: Vec<Row>,
}

impl Report {
    pub(super) fn two_writes(&self) -> f64 {
        mean(self.limits.iter().map(Limits::best_two_writes))
    }

    pub(super) fn creates(&self) -> f64 {
        mean(self.limits.iter().map(|limits| limits.best_create().per_second))
    }

    /// Compares rates with the limits: a burst with those before and after it, the others with the mean of
    /// all.
    pub(super) fn relate(&mut self) {
        let (two_writes, creates) = (self.two_writes(), self.creates());
        let mut around = self.limits.windows(2);
        for row in &mut self.rows {
            let limit = match row.scenario.as_str() {
                "burst" => {
                    mean(around.next().unwrap_or_default().iter().map(Limits::best_two_writes))
                }
                "fill" | "two-operators" => two_writes,
                "steady" => creates,
                _ => continue,
            };
            if limit <= 0.0 {
                continue;
            }
            row.of_limit = row.rate.map(|rate| rate / limit);
            let from_start = row.more.get("rate_from_start").and_then(Value::as_f64);
            if let Some(rate) = from_start.filter(|_| row.scenario == "burst") {
                row.remark = format!("{} ({})", row.remark, percent(rate / limit));
            }
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "operator": self.operator,
            "account": self.account,
            "services": self.services,
            "ledger": self.ledger,
            "binaryMb": self.binary_mb,
            "limits": {
                "twoWritesPerSecond": self.two_writes(),
                "createsPerSecond": self.creates(),
                "measurements": self.limits,
            },
            "scenarios": self.rows,
            "bars": bars::of(self),
        })
    }

    fn limits_text(&self) -> String {
        if self.limits.is_empty() {
            return String::new();
        }
        let each = |rate: &dyn Fn(&Limits) -> f64| {
            let rates = self.limits.iter().map(|limits| format!("{:.0}", rate(limits)));
            rates.collect::<Vec<_>>().join(", ")
        };
        format!(
            "\ntwo-write limit {:.0}/s (measured {})\n\
             limit of creating Services {:.0}/s (measured {})",
            self.two_writes(),
            each(&Limits::best_two_writes),
            self.creates(),
            each(&|limits| limits.best_create().per_second),
        )
    }

    pub(super) fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY).set_header([
            "scenario",
            "first",
            "p50",
            "p99",
            "last",
            "rate/s",
            "of limit",
            "calls/alloc",
            "CPU s",
            "RSS MB",
            "peak MB",
            "changed",
            "doubled",
            "",
        ]);
        for row in &self.rows {
            table.add_row(cells(row));
        }
        for column in table.column_iter_mut().skip(1).take(12) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let beside = match self.ledger {
            0 => String::new(),
            claims => format!(" and {claims} claims beside theirs"),
        };
        let mut text = format!(
            "{} as {}, {} Services{beside}{}\n{table}",
            self.operator,
            self.account,
            self.services,
            self.limits_text(),
        );
        let others = self.limits.iter().map(|limits| limits.others);
        let others = others.chain(self.rows.iter().filter_map(|row| row.others));
        let most = others.fold(0.0, f64::max);
        if most > NOTABLE {
            let warning = "other programs used up to {} of the machine: rates and ratios are rough";
            text.push('\n');
            text.push_str(&warning.replace("{}", &percent(most)));
        }
        for Bar { aim, measured, met } in bars::of(self) {
            let mark = if met { "✓" } else { "✗" };
            text.push('\n');
            text.push_str(&[mark, " ", aim, ": ", &measured].concat());
        }
        text
    }
}

fn cells(row: &Row) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let time = |pick: fn(&Spread) -> f64| or_dash(row.seconds.as_ref().map(pick).map(duration));
    let per = |count: u64| rounded(ratio(count, row.allocations));
    let calls = row.calls.as_ref().filter(|_| row.allocations > 0).map(|calls| {
        let events = calls.events();
        let told = if events > 0 { format!(" + {} events", per(events)) } else { String::new() };
        format!("{}{told}", per(calls.but_events()))
    });
    vec![
        row.scenario.clone(),
        time(|spread| spread.first),
        time(|spread| spread.p50),
        time(|spread| spread.p99),
        time(|spread| spread.last),
        or_dash(row.rate.map(|rate| format!("{rate:.0}"))),
        or_dash(row.of_limit.map(percent)),
        or_dash(calls),
        or_dash(row.usage.map(|usage| rounded(usage.cpu_seconds))),
        or_dash(row.usage.map(|usage| format!("{:.1}", usage.resident_mb))),
        or_dash(row.usage.map(|usage| format!("{:.1}", usage.peak_mb))),
        row.changed.to_string(),
        row.doubled.to_string(),
        row.failed.clone().unwrap_or_else(|| row.remark.clone()),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "counts of calls stay far below 2^52")]
pub(super) fn ratio(count: u64, of: u32) -> f64 {
    count as f64 / f64::from(of)
}

pub(super) fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

pub(super) fn rounded(value: f64) -> String {
    format!("{value:.2}")
}

/// Milliseconds where seconds would need leading zeros.
pub(super) fn duration(seconds: f64) -> String {
    if seconds < 0.1 {
        format!("{:.1} ms", seconds * 1000.0)
    } else if seconds < 1.0 {
        format!("{:.0} ms", seconds * 1000.0)
    } else {
        format!("{seconds:.2} s")
    }
}

pub(super) fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0_u32);
    for value in values {
        sum += value;
        count += 1;
    }
    sum / f64::from(count.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let spread = Spread::of((1..=200).rev().map(Duration::from_secs)).unwrap();
        let figures = [spread.first, spread.p50, spread.p99, spread.last];
        assert_eq!(figures.map(|seconds| format!("{seconds}")), ["1", "100", "198", "200"]);
        assert!(Spread::of([]).is_none());
        let one = Spread::of([Duration::from_secs(3)]).unwrap();
        assert!((one.p50 - 3.0).abs() < 1e-9 && (one.p99 - 3.0).abs() < 1e-9);
    }

    #[test]
    fn doubled_addresses_and_failures_are_trouble() {
        let mut row = Row::new("burst", 10);
        assert_eq!(row.trouble(), None);
        row.doubled = 1;
        assert!(row.trouble().is_some_and(|text| text.contains("1 doubled")));
        row.failed = Some("never finished".into());
        assert_eq!(row.trouble().as_deref(), Some("burst: never finished"));
    }
}
