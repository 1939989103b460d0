//! Measures how much of the machine other processes used: on a busy machine no rate means much.

use std::fs;

use super::error::{Error, Result};
use super::subject::Usage;

/// If other processes used more than this, the report says so.
pub(super) const NOTABLE: f64 = 0.1;

/// Times of the whole machine and of our own processes, at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    busy: f64,
    total: f64,
    own: f64,
}

impl Moment {
    /// Reads the times of the machine, of this process and of `pids`; an ended process counts as zero.
    pub(super) fn now(pids: &[u32]) -> Result<Self> {
        let path = "/proc/stat";
        let stat = fs::read_to_string(path).map_err(Error::io(format!("reading {path}")))?;
        let (busy, total) = machine(&stat);
        let own = pids.iter().copied().chain([std::process::id()]);
        let own = own.filter_map(|pid| Usage::of(pid).ok()).map(|usage| usage.cpu_seconds).sum();
        Ok(Self { busy, total, own })
    }

    /// The part of the machine that other processes used since then.
    pub(super) fn others_until(&self, later: &Self) -> f64 {
        let others = (later.busy - self.busy) - (later.own - self.own);
        self.part_until(later, others)
    }

    /// The part of the machine that was used since then, by whichever process.
    pub(super) fn busy_until(&self, later: &Self) -> f64 {
        self.part_until(later, later.busy - self.busy)
    }

    fn part_until(&self, later: &Self, used: f64) -> f64 {
        let total = later.total - self.total;
        if total > 0.0 { (used / total).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Seconds all processors were busy, and seconds in total. Time that a hypervisor takes counts as busy.
fn machine(stat: &str) -> (f64, f64) {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    // user nice system idle iowait irq softirq steal; what follows is part of user and nice.
    let ticks: Vec<f64> =
        line.split_whitespace().take(8).filter_map(|field| field.parse().ok()).collect();
    let total: f64 = ticks.iter().sum();
    let idle: f64 = ticks.iter().skip(3).take(2).sum();
    ((total - idle) / Usage::TICKS_PER_SECOND, total / Usage::TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_is_busy_and_not_ours_counts_for_others() {
        let (busy, total) = machine("cpu  100 0 50 700 100 10 20 20 5 5\ncpu0 1 2 3\n");
        assert!((busy - 2.0).abs() < 1e-9 && (total - 10.0).abs() < 1e-9, "{busy} {total}");
        let before = Moment { busy, total, own: 1.0 };
        let after = Moment { busy: busy + 6.0, total: total + 10.0, own: 5.0 };
        assert!((before.others_until(&after) - 0.2).abs() < 1e-9);
        assert!((before.busy_until(&after) - 0.6).abs() < 1e-9);
        assert!(before.others_until(&before).abs() < 1e-9);
    }

    #[test]
    fn this_machine_has_a_moment() {
        let now = Moment::now(&[]).unwrap();
        assert!(now.total >= now.busy && now.busy > 0.0, "{now:?}");
    }
}
