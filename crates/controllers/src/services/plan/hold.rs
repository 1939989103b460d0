//! Addresses held for a waiting Service while its status write is in flight.
//!
//! The write of the condition that says why a Service waits may be in flight when an address becomes
//! free. The address is held for it, so that no younger Service gets it for being answered faster.

use std::net::IpAddr;

use super::{
    Decision, Round,
    decide::{self, with_terms},
};
use crate::object::ObjectKey;

impl Round<'_> {
    /// Holds the addresses that a waiting Service would take if no call about it were in flight.
    pub(super) fn hold_for(&mut self, key: &ObjectKey) {
        let is_delayed = self.own.progress.is_delayed(key, self.now);
        let waits = self.own.waiting.contains(key) && !is_delayed;
        let service = if waits { self.world().service(key) } else { None };
        let Some(service) = service.filter(|service| !service.deleting) else {
            self.drop_hold(key);
            return;
        };
        if self.own.progress.held(key).is_some_and(|(version, _)| *version == service.version) {
            return;
        }
        self.drop_hold(key);
        let service = with_terms(self.world(), service);
        let Decision::Take(takes) = decide::decide(self.world(), &service) else { return };
        // An address with a claim needs no hold.
        let takes = takes.into_iter().filter(|(addr, _)| self.ledger.claim(*addr).is_none());
        let takes: Vec<_> = takes.collect();
        let mut held = Vec::new();
        for (addr, pool) in takes {
            let claim = self.claim_for(&service, addr, pool);
            self.ledger.hold(claim);
            self.on_ledger_changes();
            held.push(addr);
        }
        if !held.is_empty() {
            self.own.progress.set_held(key, Some((service.version, held)));
        }
    }

    /// The addresses that are held for a Service until its call has ended.
    pub(super) fn held_until_its_call_ends(&self, key: &ObjectKey) -> Vec<IpAddr> {
        self.own.progress.held(key).map(|(_, held)| held.clone()).unwrap_or_default()
    }

    /// Ends all holds of a Service: it takes the addresses, or no longer wants them.
    pub(super) fn drop_hold(&mut self, key: &ObjectKey) {
        for addr in self.own.progress.set_held(key, None) {
            self.ledger.drop_hold(addr);
            self.on_ledger_changes();
        }
    }
}
