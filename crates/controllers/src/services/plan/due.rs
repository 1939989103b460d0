//! What is due by the clock alone: tries after a failure, live reads, reservations that end.

use std::{collections::BTreeMap, time::Duration};

use landfall_ipam::PoolName;

use super::{Effect, Now, Planner};
use crate::{backoff::Backoff, call::Failure, object::ObjectKey};

/// How often in a row calls failed that are tried again by themselves.
#[derive(Debug, Default)]
pub(super) struct Tries {
    /// Looks at a Service, since one went through.
    pub(super) looks: BTreeMap<ObjectKey, u32>,
    /// Writes of a pool's status, since one went through.
    pub(super) pools: BTreeMap<PoolName, u32>,
}

/// Whoever tries on behalf of all waits no longer than after so many tries.
pub(super) const PROBE_TRIES: u32 = 3;

impl Planner {
    /// The uptime at which [`Planner::plan`] has something to do even without news.
    pub(in crate::services) fn next_due(&self) -> Option<Duration> {
        let looks = self.looks.values().copied();
        let services = self.service_delays.values().filter_map(|(delay, _)| delay.until);
        let clean_ups = self.clean_up_delays.values().filter_map(|delay| delay.until);
        looks
            .chain(services)
            .chain(clean_ups)
            .chain(self.world.ledger.next_due())
            .chain(self.absent.next_due())
            .chain(self.reminders.next_due())
            .chain(self.status_at)
            .chain(self.world.has_listed().then(|| self.repair.next_due()))
            .min()
    }

    pub(super) fn wake_delayed(&mut self, now: Now) {
        let mut woken = Vec::new();
        for (key, (delay, refused)) in &mut self.service_delays {
            if delay.end(now) {
                // What was refused is forgotten, so that it is tried again.
                *refused = None;
                woken.push(key.clone());
            }
        }
        for (key, delay) in &mut self.clean_up_delays {
            if delay.end(now) {
                woken.push(key.clone());
            }
        }
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
        let due: Vec<_> = self
            .looks
            .iter()
            .filter(|(key, at)| **at <= now.uptime && !self.calls.contains_key(*key))
            .map(|(key, _)| key.clone())
            .collect();
        for key in due {
            self.looks.remove(&key);
            self.begin_call(&key);
            let known = self.world.services.get(&key).map(|service| service.version);
            effects.push(Effect::LookAtService { key, known });
        }
    }

    /// Ends reservations whose time is over.
    pub(super) fn plan_expiries(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let writes = self.world.ledger.expire_due(now).into_iter();
        effects.extend(writes.map(|write| Effect::Claim { write, service: None }));
        self.on_ledger_changes();
    }

    /// Looks at a Service a while after a call about it failed, and later each time.
    pub(super) fn look_at_service_later(&mut self, key: &ObjectKey, failure: &Failure, now: Now) {
        let tries = self.tries.looks.entry(key.clone()).or_default();
        let delay = Backoff::after(*tries, now).at_least(failure.asked_to_wait(), now);
        *tries = delay.tries;
        self.looks.insert(key.clone(), delay.until.unwrap_or(now.uptime));
    }
}
