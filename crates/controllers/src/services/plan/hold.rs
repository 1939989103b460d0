//! Addresses held for a waiting Service while its status write is in flight.
//!
//! A Service that waits says why, and the write that says so may be in flight when an address becomes
//! free. The address is held for it, so that no younger Service gets it for being answered faster.

use std::{collections::BTreeMap, net::IpAddr};

use landfall_ipam::PoolName;

use super::{
    Decision, HolderView, Now, Planner,
    decide::{self, with_terms},
};
use crate::object::ObjectKey;

/// Addresses to take for a Service once its call has ended, each with its pool and the holder to enter.
pub(super) type Holds = BTreeMap<ObjectKey, Vec<(IpAddr, Option<PoolName>, HolderView)>>;

impl Planner {
    /// Holds what a waiting Service would take now, were no call about it in flight.
    pub(super) fn hold_for(&mut self, key: &ObjectKey, now: Now) {
        let is_delayed = self.service_delays.get(key).is_some_and(|(delay, _)| delay.holds(now));
        let waits = self.waiting.contains(key) && !is_delayed;
        let service = if waits { self.world.service(key) } else { None };
        let Some(service) = service.filter(|service| !service.deleting) else {
            self.drop_hold(key);
            return;
        };
        let kept = self.holds.get(key).and_then(|kept| kept.first());
        if kept.is_some_and(|(.., holder)| holder.seen == Some(service.version)) {
            return;
        }
        self.drop_hold(key);
        let service = with_terms(&self.world, service);
        let Decision::Take(takes) = decide::decide(&self.world, &service) else { return };
        // An address with a claim is kept by the claim.
        let takes = takes.into_iter().filter(|(addr, _)| self.world.claim(*addr).is_none());
        let takes: Vec<_> = takes.collect();
        let mut kept = Vec::new();
        for (addr, pool) in takes {
            let holder = self.count_as_taken(&service, addr, pool.as_ref());
            kept.push((addr, pool, holder));
        }
        if !kept.is_empty() {
            self.holds.insert(key.clone(), kept);
        }
    }

    /// The addresses that are held for a Service until its call has ended.
    pub(super) fn held_until_its_call_ends(&self, key: &ObjectKey) -> Vec<IpAddr> {
        self.holds.get(key).into_iter().flatten().map(|(addr, ..)| *addr).collect()
    }

    /// Holds nothing for a Service any more: it takes what it wants, or no longer wants it.
    pub(super) fn drop_hold(&mut self, key: &ObjectKey) {
        for (addr, pool, holder) in self.holds.remove(key).unwrap_or_default() {
            self.unbusy(addr);
            self.uncount_unless(false, pool.as_ref(), &holder, addr);
        }
    }
}
