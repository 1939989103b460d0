//! Work that only the clock triggers: retries after failures, live reads, expiring reservations.

use std::time::Duration;

use super::{Effect, Now, Planner};

/// The Service that probes on behalf of all waits no longer than after this many tries.
pub(super) const PROBE_TRIES: u32 = 3;

impl Planner {
    /// The uptime at which [`Planner::plan`] has something to do even without news.
    pub(in crate::services) fn next_due(&self) -> Option<Duration> {
        let progress = self.progress.next_due().into_iter();
        progress
            .chain(self.world.ledger.next_due())
            .chain(self.absent.next_due())
            .chain(self.reminders.next_due())
            .chain(self.status_at)
            .chain(self.world.has_listed().then(|| self.repair.next_due()))
            .min()
    }

    pub(super) fn wake_delayed(&mut self, now: Now) {
        let mut woken = self.progress.end_delays(now);
        for addr in self.world.ledger.end_release_delays(now) {
            self.mark_holders(addr);
        }
        woken.extend(self.absent.give_up(now));
        for key in woken {
            self.mark(&key);
        }
    }

    pub(super) fn plan_looks(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let reads = self.world.ledger.read_due(now).into_iter();
        effects.extend(reads.map(|write| Effect::Claim { write, service: None }));
        for key in self.progress.take_reads(now) {
            let known = self.world.services.get(&key).map(|service| service.version);
            effects.push(Effect::LookAtService { key, known });
        }
    }

    /// Ends reservations that have expired.
    pub(super) fn plan_expiries(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let writes = self.world.ledger.expire_due(now).into_iter();
        effects.extend(writes.map(|write| Effect::Claim { write, service: None }));
        self.on_ledger_changes();
    }
}
