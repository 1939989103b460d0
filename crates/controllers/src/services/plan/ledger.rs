//! Takes in changes of the ledger and marks the Services they concern.

use std::net::IpAddr;

use super::{Claim, Planner};
use crate::ledger::Change;

impl Planner {
    /// Takes in the changes of the ledger.
    pub(super) fn on_ledger_changes(&mut self) {
        for change in self.world.ledger.take_changes() {
            match change {
                Change::Claim(addr, before) => self.claim_changed(addr, before.as_ref()),
                Change::Given(pool, namespace) => {
                    self.world.externals.recheck(&namespace);
                    let limit = self.world.limit_of(&pool, &namespace);
                    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
                    // The namespace has reached its quota: its Services that wait for the pool must say
                    // so.
                    if limit.is_some_and(|limit| limit <= self.world.count_of(&pool, &namespace)) {
                        self.wake(self.waiting.in_namespace(&namespace));
                    }
                }
                Change::Returned(pool, namespace) => {
                    self.world.externals.recheck(&namespace);
                    if self.world.limit_of(&pool, &namespace).is_some() {
                        // All, because the oldest may be unable to use it for another reason. Services
                        // that could share are not listed under the quota.
                        self.wake(self.waiting.sharing_in_namespace(&namespace));
                        self.wake(self.waiting.under_quota(&(pool, namespace)));
                    }
                }
                Change::Ended(addr) => self.mark_holders(addr),
                Change::Freed(addr) => drop(self.freed.insert(addr)),
                Change::Settled(addr) => self.settled(addr),
            }
        }
    }

    /// A claim was created, changed or deleted: its holders are decided about again, and so are the
    /// Services that wait for the address.
    fn claim_changed(&mut self, addr: IpAddr, before: Option<&Claim>) {
        let now = self.world.claim(addr);
        let is_gone = now.is_none();
        let holders = [before, now].into_iter().flatten().flat_map(Claim::services);
        let keys: Vec<_> = holders.map(|holder| holder.key.clone()).collect();
        for key in keys {
            self.repair.recheck(&key);
            self.mark(&key);
            // The record of a missing Service is useless once no claim names it.
            if !self.world.ledger.has_service(&key) {
                self.absent.forget(&key);
            }
        }
        self.wake_about(addr);
        self.repair.recheck_claim(addr);
        if is_gone {
            // A Service that shows the address without a claim can have one now.
            let showing: Vec<_> = self.world.ledger.shown.of(&addr).cloned().collect();
            for key in showing {
                self.mark(&key);
            }
        }
    }

    /// The state of an address changed. A Service that waits for it is told; one that it is reserved
    /// for, or that waits with the sharing key of a holder, may be able to have it now.
    pub(super) fn wake_about(&mut self, addr: IpAddr) {
        let mut turns = self.waiting.for_address(addr);
        if let Some(claim) = self.world.claim(addr) {
            for holder in claim.services() {
                let key = holder.terms.as_ref().and_then(|terms| terms.key.as_deref());
                turns.extend(key.into_iter().flat_map(|key| self.waiting.under_key(key)));
            }
            if let Some(reservation) = claim.waits_for() {
                let waiting = self.waiting.in_namespace(&reservation.namespace);
                let for_these = waiting.into_iter();
                turns.extend(for_these.filter(|(_, key)| reservation.is_for_service(key)));
            }
        }
        self.wake(turns);
    }

    fn settled(&mut self, addr: IpAddr) {
        self.status_dirty = true;
        self.claims_changed = true;
        if !self.world.is_in_flight(addr) {
            for key in self.progress.take_awaiting() {
                self.mark(&key);
            }
        }
    }

    /// Updates the book with what is known of one address.
    pub(super) fn settle(&mut self, addr: IpAddr) {
        self.world.ledger.settle(addr);
        self.on_ledger_changes();
    }

    /// Marks the holders of an address for decision.
    pub(super) fn mark_holders(&mut self, addr: IpAddr) {
        let holders = self.world.claim(addr).map(Claim::services).unwrap_or_default();
        let keys: Vec<_> = holders.iter().map(|holder| holder.key.clone()).collect();
        for key in keys {
            self.mark(&key);
        }
    }
}
