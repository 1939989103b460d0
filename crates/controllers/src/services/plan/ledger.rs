//! Takes in changes of the ledger and marks the Services they concern.

use std::{net::IpAddr, time::Duration};

use landfall_api::HolderKind;

use super::{Claim, Round, status};
use crate::ledger::{Change, HolderRef, Lister};

/// The reason of an event about addresses in `spec.externalIPs` that do not count as taken.
const EXTERNAL_IGNORED: &str = "ExternalIPIgnored";
/// Addresses that such an event names.
const TOLD: usize = 3;

impl Round<'_> {
    /// Takes in the changes of the ledger.
    pub(super) fn on_ledger_changes(&mut self) {
        for change in self.ledger.take_changes(self.own.reader) {
            match &*change {
                Change::Claim(addr, before) => self.claim_changed(*addr, before.as_ref()),
                Change::Given(pool, namespace) => {
                    let limit = self.cluster.limit_of(pool, namespace);
                    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
                    let count = || self.ledger.count_with_external(pool, namespace);
                    // The namespace has reached its quota: its Services that wait for the pool must say
                    // so.
                    if limit.is_some_and(|limit| limit <= count()) {
                        self.wake(self.own.waiting.in_namespace(namespace));
                    }
                }
                Change::Returned(pool, namespace) => {
                    if self.cluster.limit_of(pool, namespace).is_some() {
                        // All, because the oldest may be unable to use it for another reason. Services
                        // that could share are not listed under the quota.
                        self.wake(self.own.waiting.sharing_in_namespace(namespace));
                        let quota = (pool.clone(), namespace.clone());
                        self.wake(self.own.waiting.under_quota(&quota));
                    }
                }
                Change::Ended(addr) | Change::Shown(addr) | Change::ReleaseDue(addr) => {
                    self.mark_holders(*addr);
                }
                Change::Freed(addr) => drop(self.own.freed.insert(*addr)),
                Change::Settled(addr) => self.settled(*addr),
                Change::Read(addr, for_whom) => self.claim_read(*addr, for_whom.as_ref()),
                Change::Outside(addr) => {
                    self.wake_about(*addr);
                    // A VirtualIP may have kept a claim that no Service wants.
                    self.mark_holders(*addr);
                }
                Change::ExternalIgnored(lister, addrs) => self.external_ignored(lister, addrs),
                Change::ExternalRelieved => self.own.repair.recheck_all(),
                Change::Blocked => self.own.statuses.dirty = true,
                Change::Unblocked => {
                    self.own.probe = None;
                    self.own.progress.retry_writes();
                    self.own.statuses.dirty = true;
                }
            }
        }
    }

    /// A live read of a claim has ended. A holder may have waited for it.
    fn claim_read(&mut self, addr: IpAddr, for_whom: Option<&HolderRef>) {
        self.confirm(addr);
        let Some(waiter) = for_whom.filter(|waiter| waiter.kind == HolderKind::Service) else {
            return;
        };
        self.own.progress.end_call(&waiter.key);
        if self.ledger.claim(addr).is_none() {
            // The take did not happen. An immediate retry could hammer a server in trouble.
            self.delay_service(&waiter.key, None, Duration::ZERO);
        }
        self.mark(&waiter.key);
    }

    /// Addresses in `spec.externalIPs` of a Service do not count as taken.
    fn external_ignored(&mut self, (key, uid): &Lister, addrs: &[IpAddr]) {
        self.own.repair.recheck_all();
        let listed: Vec<_> = addrs.iter().take(TOLD).map(ToString::to_string).collect();
        let more = addrs.len().saturating_sub(TOLD);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let message = format!(
            "{}{more} in spec.externalIPs: a pool has it, and this namespace has no right to so many \
             of its addresses, by its selector or its quota. It does not count as taken and may be \
             given to another Service.",
            listed.join(", ")
        );
        let event = status::service_event(key, uid, true, EXTERNAL_IGNORED, message);
        self.out.events.push(event);
    }

    /// A claim was created, changed or deleted: its holders are decided about again, and so are the
    /// Services that wait for the address.
    fn claim_changed(&mut self, addr: IpAddr, before: Option<&Claim>) {
        let now = self.ledger.claim(addr);
        let is_gone = now.is_none();
        let holders = [before, now].into_iter().flatten().flat_map(Claim::services);
        let keys: Vec<_> = holders.map(|holder| holder.key.clone()).collect();
        for key in keys {
            self.own.repair.recheck(&key);
            self.mark(&key);
            // The record of a missing Service is useless once no claim names it.
            if !self.ledger.has_service(&key) {
                self.own.absent.forget(&key);
            }
        }
        self.wake_about(addr);
        self.own.repair.recheck_claim(addr);
        if is_gone {
            // A Service that shows the address without a claim can have one now.
            let showing: Vec<_> = self.ledger.shown.of(&addr).cloned().collect();
            for key in showing {
                self.mark(&key);
            }
        }
    }

    /// The state of an address changed. A Service that waits for it is told; one that it is reserved
    /// for, or that waits with the sharing key of a holder, may be able to have it now.
    pub(super) fn wake_about(&mut self, addr: IpAddr) {
        let mut turns = self.own.waiting.for_address(addr);
        if let Some(claim) = self.ledger.claim(addr) {
            for holder in claim.services() {
                let key = holder.terms.as_ref().and_then(|terms| terms.key.as_deref());
                turns.extend(key.into_iter().flat_map(|key| self.own.waiting.under_key(key)));
            }
            if let Some(reservation) = claim.waits_for() {
                let waiting = self.own.waiting.in_namespace(&reservation.namespace);
                let for_these = waiting.into_iter();
                turns.extend(for_these.filter(|(_, key)| claim.is_reserved_for(key)));
            }
        }
        self.wake(turns);
    }

    fn settled(&mut self, addr: IpAddr) {
        self.own.statuses.dirty = true;
        self.own.claims_changed = true;
        if !self.ledger.is_in_flight(addr) {
            // The address is free now, and these Services may take it before a younger one does.
            let awaiting = self.own.progress.take_awaiting();
            self.wake(awaiting.iter().map(|key| self.turn(key)).collect());
        }
    }

    /// Marks the holders of an address for decision.
    pub(super) fn mark_holders(&mut self, addr: IpAddr) {
        let holders = self.ledger.claim(addr).map(Claim::services).unwrap_or_default();
        let keys: Vec<_> = holders.iter().map(|holder| holder.key.clone()).collect();
        for key in keys {
            self.mark(&key);
        }
    }
}
