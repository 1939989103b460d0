//! Work that only the clock triggers: retries after failures, and live reads.

use std::time::Duration;

use super::{Effect, Planner, Round};

/// The Service that probes on behalf of all waits no longer than after this many tries.
pub(super) const PROBE_TRIES: u32 = 3;

impl Planner {
    /// The uptime at which [`Planner::plan`] has something to do even without news.
    pub(in crate::services) fn next_due(&self) -> Option<Duration> {
        let announced = (!self.announced.is_empty()).then_some(Duration::ZERO);
        let progress = self.progress.next_due().into_iter();
        progress
            .chain(announced)
            .chain(self.absent.next_due())
            .chain(self.reminders.next_due())
            .chain(self.statuses.next_due())
            .chain([self.repair.next_due()])
            .min()
    }
}

impl Round<'_> {
    pub(super) fn wake_delayed(&mut self) {
        let mut woken = self.own.progress.end_delays(self.now);
        woken.extend(self.own.absent.end_grace(self.now));
        for key in woken {
            self.mark(&key);
        }
    }

    pub(super) fn plan_looks(&mut self) {
        for key in self.own.progress.take_reads(self.now) {
            let known = self.cluster.services.get(&key).map(|view| view.version);
            self.out.effects.push(Effect::LookAtService { key, known });
        }
    }
}
