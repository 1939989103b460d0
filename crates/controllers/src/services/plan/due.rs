//! What is due by the clock alone: tries after a failure, live reads, reservations that end.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use jiff::Timestamp;
use landfall_ipam::PoolName;

use super::{Busy, ClaimView, Effect, Now, Planner};
use crate::{backoff::Backoff, call::Failure, object::ObjectKey};

/// How often in a row calls failed that are tried again by themselves.
#[derive(Debug, Default)]
pub(super) struct Tries {
    /// Calls about a claim, since something newer was learned of it.
    pub(super) claims: BTreeMap<IpAddr, u32>,
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
        let claim_looks = self.claim_looks.values().copied();
        let services = self.service_delays.values().filter_map(|(delay, _)| delay.until);
        let clean_ups = self.clean_up_delays.values().filter_map(|delay| delay.until);
        let releases = self.release_delays.values().filter_map(|delay| delay.until);
        looks
            .chain(claim_looks)
            .chain(services)
            .chain(clean_ups)
            .chain(releases)
            .chain(self.absent.next_due())
            .chain(self.reminders.next_due())
            .chain(self.status_at)
            .chain(self.expiry_at)
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
        for (addr, delay) in &mut self.release_delays {
            if delay.end(now) {
                let claim = self.world.claims.get(addr);
                let holders = claim.map(ClaimView::holders).unwrap_or_default();
                woken.extend(holders.iter().map(|holder| holder.key.clone()));
            }
        }
        woken.extend(self.absent.give_up(now));
        for key in woken {
            self.mark(&key);
        }
    }

    pub(super) fn plan_looks(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.claim_looks.retain(|addr, at| {
            let due = *at <= now.uptime;
            if due {
                let known = self.world.claims.get(addr).map(|claim| claim.version);
                effects.push(Effect::LookAtClaim { addr: *addr, known });
            }
            !due
        });
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
        let over = |(expires, _): &&(Timestamp, IpAddr)| *expires <= now.wall;
        let next = self.expiries.iter().find(|entry| !over(entry));
        self.expiry_at = next.map(|(expires, _)| {
            let left = expires.duration_since(now.wall).try_into().unwrap_or_default();
            now.uptime.saturating_add(left)
        });
        let due: Vec<_> = self.expiries.iter().take_while(over).map(|(_, addr)| *addr).collect();
        for addr in due {
            let Some(claim) = self.world.claims.get(&addr) else { continue };
            let delayed = self.release_delays.get(&addr).is_some_and(|delay| delay.holds(now));
            if delayed || self.world.is_busy(addr) {
                continue; // its report or the end of the delay brings us back
            }
            let (uid, version) = (claim.uid.clone(), claim.version);
            effects.push(Effect::Expire { addr, uid, version });
            self.world.busy.insert(addr, Busy::Writing(None));
        }
    }

    /// Looks at a claim when it has had time to change: a write of it did not hold. That may happen
    /// to anybody once. Where nothing newer comes to light and the next write does not hold either,
    /// there is more and more time in between.
    pub(super) fn look_after_conflict(&mut self, addr: IpAddr, now: Now) {
        let tries = self.tries.claims.entry(addr).or_default();
        let at = tries.checked_sub(1).and_then(|again| Backoff::after(again, now).until);
        *tries = tries.saturating_add(1);
        self.look_at_claim(addr, at.unwrap_or(now.uptime), None);
    }

    /// Looks at a claim a while after a call about it failed, and later each time.
    pub(super) fn look_at_claim_later(
        &mut self,
        addr: IpAddr,
        failure: &Failure,
        for_whom: Option<ObjectKey>,
        now: Now,
    ) {
        let tries = self.tries.claims.entry(addr).or_default();
        let delay = Backoff::after(*tries, now).at_least(failure.asked_to_wait(), now);
        *tries = delay.tries;
        self.look_at_claim(addr, delay.until.unwrap_or(now.uptime), for_whom);
    }

    /// Looks at a Service a while after a call about it failed, and later each time.
    pub(super) fn look_at_service_later(&mut self, key: &ObjectKey, failure: &Failure, now: Now) {
        let tries = self.tries.looks.entry(key.clone()).or_default();
        let delay = Backoff::after(*tries, now).at_least(failure.asked_to_wait(), now);
        *tries = delay.tries;
        self.looks.insert(key.clone(), delay.until.unwrap_or(now.uptime));
    }

    pub(super) fn look_at_claim(
        &mut self,
        addr: IpAddr,
        at: Duration,
        for_whom: Option<ObjectKey>,
    ) {
        self.world.busy.insert(addr, Busy::Looking { for_whom });
        self.claim_looks.insert(addr, at);
        self.settle(addr);
    }
}
