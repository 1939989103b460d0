//! What counts for whom: for the quota of a namespace, and as an address to share.

use std::net::IpAddr;

use jiff::Timestamp;
use landfall_ipam::PoolName;

use super::{HolderView, Planner, Reservation};

impl Planner {
    /// Counts an address for a holder.
    pub(super) fn count(&mut self, pool: Option<&PoolName>, holder: &HolderView, addr: IpAddr) {
        if !self.world.count(pool, holder, addr) {
            return;
        }
        // The namespace may hold no more: those of it that wait for the pool have that to say.
        self.wake(self.waiting.in_namespace(holder.key.namespace()));
    }

    /// Counts an address that waits for a deleted Service for the namespace that had it.
    pub(super) fn retain(
        &mut self,
        pool: Option<&PoolName>,
        reservation: &Reservation,
        addr: IpAddr,
    ) {
        if let (Some((quota, end)), Some(pool)) = (retained(pool, reservation), pool) {
            self.world.retained.insert(quota, (end, addr));
            self.world.give(pool, &reservation.namespace, addr);
        }
    }

    /// Counts it no more.
    pub(super) fn unretain(
        &mut self,
        pool: Option<&PoolName>,
        reservation: &Reservation,
        addr: IpAddr,
    ) {
        if let (Some((quota, end)), Some(pool)) = (retained(pool, reservation), pool) {
            self.world.retained.remove(&quota, &(end, addr));
            self.ungive(pool, &reservation.namespace, addr);
        }
    }

    /// A namespace holds one address of a pool less: those that wait for that have their turn.
    pub(super) fn ungive(&mut self, pool: &PoolName, namespace: &str, addr: IpAddr) {
        let Some(quota) = self.world.ungive(pool, namespace, addr) else { return };
        if self.world.limit_of(pool, namespace).is_none() {
            return;
        }
        // All of them: the oldest may be unable to use it for another reason. To those who could share
        // no pool says that a quota is in the way.
        self.wake(self.waiting.under_quota(&quota));
        self.wake(self.waiting.sharing_in_namespace(namespace));
    }

    /// An address that a write did not bring counts no more, unless that is still open.
    pub(super) fn uncount_unless(
        &mut self,
        open: bool,
        pool: Option<&PoolName>,
        holder: &HolderView,
        addr: IpAddr,
    ) {
        let claim = self.world.claim(addr).filter(|claim| claim.pool.as_ref() == pool);
        if open || claim.is_some_and(|claim| claim.holders().contains(holder)) {
            return;
        }
        if let Some(pool) = pool {
            self.ungive(pool, holder.key.namespace(), addr);
        }
        let key = holder.terms.as_ref().and_then(|terms| terms.key.as_deref());
        self.world.unoffer(key.unwrap_or_default(), addr);
        self.recount(addr);
    }

    /// Counts an address for nobody, whatever was under way about it.
    pub(super) fn ungive_everywhere(&mut self, addr: IpAddr) {
        let quotas = self.world.given.keys_with(&addr);
        for (pool, namespace) in quotas {
            self.ungive(&pool, &namespace, addr);
        }
        for key in self.world.sharing.keys_with(&addr) {
            self.world.unoffer(&key, addr);
        }
    }

    /// Counts an address as its claim says, after what was under way about it counts no more.
    pub(super) fn recount(&mut self, addr: IpAddr) {
        let Some(claim) = self.world.claim(addr) else { return };
        let (pool, holders) = (claim.pool.clone(), claim.holders().to_vec());
        let waits_for = claim.waits_for().cloned();
        for holder in holders {
            self.count(pool.as_ref(), &holder, addr);
        }
        if let Some(reservation) = waits_for {
            self.retain(pool.as_ref(), &reservation, addr);
        }
    }
}

/// For which quota an address counts that waits for a deleted Service, and until when.
fn retained(
    pool: Option<&PoolName>,
    reservation: &Reservation,
) -> Option<((PoolName, String), Timestamp)> {
    let end = reservation.expires.filter(|_| reservation.retained)?;
    Some(((pool?.clone(), reservation.namespace.clone()), end))
}
