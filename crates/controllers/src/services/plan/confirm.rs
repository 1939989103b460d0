//! Live reads that must happen before a decision, because our memory may be older than the cluster.
//!
//! Guards catch a write whose object has changed. They do not catch one that is right for its object
//! and wrong because of another object; these two rules do.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use landfall_ipam::Family;

use super::{Balancer, Claim, Round};
use crate::object::{ObjectKey, Version};

/// The live reads that decisions wait for, and those that are done.
#[derive(Debug, Default)]
pub(super) struct PendingReads {
    /// Services that wait for a live read of the claim on an address they show, each at a version.
    confirming: BTreeMap<IpAddr, BTreeMap<ObjectKey, Version>>,
    /// Addresses that a Service showed at a version, and whose claims were read after that.
    confirmed: BTreeMap<ObjectKey, (Version, BTreeSet<IpAddr>)>,
    /// The newer version of a Service that a claim says it has seen.
    seen: BTreeMap<ObjectKey, Version>,
    /// The same after a live read, with the version that it found.
    looked: BTreeMap<ObjectKey, (Version, Version)>,
}

impl PendingReads {
    /// A Service has a new version, or is gone.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.confirmed.remove(key);
        self.looked.remove(key);
    }
}

impl Round<'_> {
    /// Whether a live read has confirmed that addresses to be withdrawn from a Service, though its user
    /// asked for no others, are not rightly its own.
    ///
    /// The mirror image of a release: the Service's version is known, then the claim is read, and the
    /// withdrawal succeeds only at that version. If the read is missing, it is scheduled here.
    pub(super) fn is_withdrawal_confirmed(&mut self, service: &Balancer, addrs: &[IpAddr]) -> bool {
        let asked_for_another =
            |family: Family| service.request.of(family).is_some_and(|asked| addrs.contains(&asked));
        let confirmed = self.own.pending_reads.confirmed.get(&service.key);
        let is_confirmed = |addr: &IpAddr| {
            confirmed.is_some_and(|(at, seen)| *at == service.version && seen.contains(addr))
        };
        let open: Vec<_> = service
            .shows
            .iter()
            .copied()
            .filter(|addr| !addrs.contains(addr) && !asked_for_another(Family::of(*addr)))
            .filter(|addr| !is_confirmed(addr))
            .collect();
        for addr in &open {
            if !self.ledger.is_in_flight(*addr) {
                let waiting = self.own.pending_reads.confirming.entry(*addr).or_default();
                waiting.insert(service.key.clone(), service.version);
                self.ledger.read_at(*addr, Duration::ZERO, None);
                self.on_ledger_changes();
            }
            self.own.progress.await_address(&service.key);
        }
        open.is_empty()
    }

    /// The claim on an address was read.
    pub(super) fn confirm(&mut self, addr: IpAddr) {
        for (key, version) in self.own.pending_reads.confirming.remove(&addr).unwrap_or_default() {
            let (at, seen) = self.own.pending_reads.confirmed.entry(key.clone()).or_default();
            if *at != version {
                (*at, *seen) = (version, BTreeSet::new());
            }
            seen.insert(addr);
            self.mark(&key);
        }
    }

    /// Whether our view of the Service is at least as new as that of the last writer of the claim. If
    /// not, a live read is scheduled: the version that a claim records never goes back.
    pub(super) fn is_no_older_than(&mut self, service: &Balancer, claim: &Claim) -> bool {
        let of_name = claim.services().iter().filter(|holder| holder.key == service.key);
        let Some(seen) = of_name.filter_map(|holder| holder.seen).max() else { return true };
        let key = &service.key;
        // After a restore from a backup all versions are lower than the claims say.
        let looked = self.own.pending_reads.looked.get(key) == Some(&(service.version, seen));
        if seen <= service.version || looked {
            return true;
        }
        self.own.pending_reads.seen.insert(key.clone(), seen);
        self.own.progress.read_at(key, Duration::ZERO);
        false
    }

    /// A live read of a Service has ended.
    pub(super) fn looked_at(&mut self, key: &ObjectKey) {
        let Some(seen) = self.own.pending_reads.seen.remove(key) else { return };
        match self.cluster.balancer(key) {
            Some(service) => {
                self.own.pending_reads.looked.insert(key.clone(), (service.version, seen))
            }
            None => self.own.pending_reads.looked.remove(key),
        };
    }
}
