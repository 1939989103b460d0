//! Whose turn it is while a call about him is under way.
//!
//! Whoever waits says why, and a call that writes that may be under way when there is something for
//! him. Nobody younger gets it for being answered faster.

use std::{collections::BTreeMap, net::IpAddr};

use landfall_ipam::PoolName;

use super::{
    Decision, HolderView, Now, Planner,
    decide::{self, with_terms},
};
use crate::object::ObjectKey;

/// What will be taken for a Service as soon as it can be, each with whom it would be taken for.
pub(super) type Turns = BTreeMap<ObjectKey, Vec<(IpAddr, Option<PoolName>, HolderView)>>;

impl Planner {
    /// Keeps what somebody who waits would take now, were it not for a call about him.
    pub(super) fn keep_turn(&mut self, key: &ObjectKey, now: Now) {
        let is_delayed = self.service_delays.get(key).is_some_and(|(delay, _)| delay.holds(now));
        let waits = self.waiting.contains(key) && !is_delayed;
        let service = if waits { self.world.service(key) } else { None };
        let Some(service) = service.filter(|service| !service.deleting) else {
            self.give_back(key);
            return;
        };
        let kept = self.turns.get(key).and_then(|kept| kept.first());
        if kept.is_some_and(|(.., holder)| holder.seen == Some(service.version)) {
            return;
        }
        self.give_back(key);
        let service = with_terms(&self.world, service);
        let Decision::Take(takes) = decide::decide(&self.world, &service) else { return };
        // What there is a claim on is kept by that.
        let takes = takes.into_iter().filter(|(addr, _)| self.world.claim(*addr).is_none());
        let takes: Vec<_> = takes.collect();
        let mut kept = Vec::new();
        for (addr, pool) in takes {
            let holder = self.count_as_taken(&service, addr, pool.as_ref());
            kept.push((addr, pool, holder));
        }
        if !kept.is_empty() {
            self.turns.insert(key.clone(), kept);
        }
    }

    /// The addresses that are kept for a Service until its call has ended.
    pub(super) fn kept_until_its_turn(&self, key: &ObjectKey) -> Vec<IpAddr> {
        self.turns.get(key).into_iter().flatten().map(|(addr, ..)| *addr).collect()
    }

    /// Keeps nothing for a Service any more: it takes what it wants, or wants it no more.
    pub(super) fn give_back(&mut self, key: &ObjectKey) {
        for (addr, pool, holder) in self.turns.remove(key).unwrap_or_default() {
            self.unbusy(addr);
            self.uncount_unless(false, pool.as_ref(), &holder, addr);
        }
    }
}
