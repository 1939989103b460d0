//! What is looked at before it is acted on, because our memory of it may be older than the cluster.
//!
//! Guards catch a write whose object has changed. They do not catch one that is right for its object
//! and wrong because of another: these two rules do.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use landfall_ipam::Family;

use super::{Claim, Planner, ServiceView};
use crate::object::{ObjectKey, Version};

/// What was looked at, and why.
#[derive(Debug, Default)]
pub(super) struct PendingReads {
    /// Services that wait for a look at the claim on an address they show, each at a version.
    confirming: BTreeMap<IpAddr, BTreeMap<ObjectKey, Version>>,
    /// Addresses that a Service showed at a version, and whose claims were read after that.
    confirmed: BTreeMap<ObjectKey, (Version, BTreeSet<IpAddr>)>,
    /// What a claim says it has seen of a Service that we know at an older version only.
    seen: BTreeMap<ObjectKey, Version>,
    /// The same after a look, with the version that was found.
    looked: BTreeMap<ObjectKey, (Version, Version)>,
}

impl PendingReads {
    /// A Service is at another version, or gone.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.confirmed.remove(key);
        self.looked.remove(key);
    }
}

impl Planner {
    /// Whether it is certain that addresses which a Service is to show no longer, though its user
    /// asked for no others, are not rightly its own.
    ///
    /// The mirror image of a release: the version of the Service is known, then the claim is read, and
    /// the withdrawal holds only for that version. If not, the look is asked for here.
    pub(super) fn is_withdrawal_confirmed(
        &mut self,
        service: &ServiceView,
        addrs: &[IpAddr],
    ) -> bool {
        let asked_for_another =
            |family: Family| service.request.of(family).is_some_and(|asked| addrs.contains(&asked));
        let confirmed = self.pending_reads.confirmed.get(&service.key);
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
            if !self.world.is_in_flight(*addr) {
                let waiting = self.pending_reads.confirming.entry(*addr).or_default();
                waiting.insert(service.key.clone(), service.version);
                self.world.ledger.read_at(*addr, Duration::ZERO, None);
                self.on_ledger_changes();
            }
            self.progress.await_address(&service.key);
        }
        open.is_empty()
    }

    /// The claim on an address was read.
    pub(super) fn confirm(&mut self, addr: IpAddr) {
        for (key, version) in self.pending_reads.confirming.remove(&addr).unwrap_or_default() {
            let (at, seen) = self.pending_reads.confirmed.entry(key.clone()).or_default();
            if *at != version {
                (*at, *seen) = (version, BTreeSet::new());
            }
            seen.insert(addr);
            self.mark(&key);
        }
    }

    /// Whether the Service is known at least as well here as to whoever wrote the claim last. If not,
    /// a look is asked for: what a claim says of a Service never goes back.
    pub(super) fn is_no_older_than(&mut self, service: &ServiceView, claim: &Claim) -> bool {
        let of_name = claim.services().iter().filter(|holder| holder.key == service.key);
        let Some(seen) = of_name.filter_map(|holder| holder.seen).max() else { return true };
        let key = &service.key;
        // In a cluster that was restored from a backup all versions are lower than the claims say.
        let looked = self.pending_reads.looked.get(key) == Some(&(service.version, seen));
        if seen <= service.version || looked {
            return true;
        }
        self.pending_reads.seen.insert(key.clone(), seen);
        self.progress.read_at(key, Duration::ZERO);
        false
    }

    /// A Service was read.
    pub(super) fn looked_at(&mut self, key: &ObjectKey) {
        let Some(seen) = self.pending_reads.seen.remove(key) else { return };
        match self.world.services.get(key) {
            Some(service) => self.pending_reads.looked.insert(key.clone(), (service.version, seen)),
            None => self.pending_reads.looked.remove(key),
        };
    }
}
