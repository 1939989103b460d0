//! Which pools a Service may ask, in which order, and the verdict of each.

use std::{collections::BTreeSet, net::IpAddr};

use landfall_ipam::Reason;

use super::{
    acts::{Name, Rank},
    reference::{Model, No, Pool, split},
};

/// How near a pool came to a "yes", and the reason for its "no".
pub(super) type Verdict = (u8, Reason);
pub(super) const NOT_ASKED: Verdict = (0, Reason::NotSelected);
pub(super) const MISSING: Verdict = (1, Reason::PoolUnknown);
const OTHER_CLASS: Verdict = (2, Reason::ClassUnknown);
const OF_OTHERS: Verdict = (3, Reason::NotSelected);
pub(super) const NOT_SELECTED: Verdict = (4, Reason::NotSelected);
pub(super) const NO_FAMILY: Verdict = (5, Reason::FamilyMissing);
const BROKEN: Verdict = (6, Reason::PoolInvalid);
pub(super) const HELD_BACK: Verdict = (7, Reason::Excluded);
pub(super) const DRAINING: Verdict = (8, Reason::Draining);
pub(super) const OVER_QUOTA: Verdict = (9, Reason::QuotaExceeded);
pub(super) const FULL: Verdict = (10, Reason::Exhausted);
/// From here on the pool would serve the Service, if it could.
const WOULD_SERVE: u8 = NO_FAMILY.0;

/// An address for a Service, and the pool that gives it if the Service does not have it yet.
pub(super) type Given = (IpAddr, Option<Name>);

impl Model {
    /// Whether a pool is meant for a Service.
    pub(super) fn serves(&self, pool: &Pool, name: Name) -> Result<(), Verdict> {
        let service = &self.services[name];
        if pool.class != service.class {
            return Err(OTHER_CLASS);
        }
        if pool.is_of_others(split(name).0) {
            return Err(OF_OTHERS);
        }
        if pool.some_namespaces && !self.labelled_namespaces.contains(split(name).0) {
            return Err(NOT_SELECTED);
        }
        if pool.some_services && !service.labelled {
            return Err(NOT_SELECTED);
        }
        if pool.broken { Err(BROKEN) } else { Ok(()) }
    }

    /// Whether the namespace of a Service may hold no more of a pool, except an address that it holds
    /// already. Addresses that the Service is about to get count.
    pub(super) fn over_quota(
        &self,
        pool_name: Name,
        name: Name,
        addr: Option<IpAddr>,
        also: &[Given],
    ) -> bool {
        let namespace = split(name).0;
        let Some(limit) = self.pools[pool_name].limit(namespace) else { return false };
        let mut held = BTreeSet::new();
        for (addr, claim) in &self.claims {
            let retained = claim.reserved.as_ref().filter(|kept| kept.retained);
            let here = claim.holders.iter().any(|holder| split(holder.name).0 == namespace)
                || (claim.holders.is_empty()
                    && retained.is_some_and(|kept| kept.namespace == namespace));
            if here && claim.pool == Some(pool_name) {
                held.insert(*addr);
            }
        }
        let about = also.iter().filter(|(addr, pool)| {
            let recorded = self.claims.get(addr).and_then(|claim| claim.pool);
            recorded.or(*pool) == Some(pool_name)
        });
        held.extend(about.map(|(addr, _)| *addr));
        !addr.is_some_and(|addr| held.contains(&addr)) && held.len() >= limit as usize
    }

    /// The address of a pool that has been retained longest for a deleted Service of the same namespace, if
    /// the namespace could have another in its place.
    pub(super) fn retained_to_free(&self, pool_name: Name, name: Name) -> Option<IpAddr> {
        let namespace = split(name).0;
        let limit = self.pools[pool_name].limit(namespace)?;
        let of_pool = self.claims.iter().filter(|(_, claim)| claim.pool == Some(pool_name));
        let (mut held, mut retained) = (0, Vec::new());
        for (addr, claim) in of_pool {
            let kept = claim.reserved.as_ref().filter(|_| claim.holders.is_empty());
            let kept = kept.filter(|kept| kept.retained && kept.namespace == namespace);
            retained.extend(kept.map(|kept| (kept.ends, *addr)));
            held += u32::from(claim.holders.iter().any(|holder| split(holder.name).0 == namespace));
        }
        retained.into_iter().min().map(|(_, addr)| addr).filter(|_| held < limit)
    }

    /// Lowest priority first, then by name; invalid ones last.
    fn pools_by_priority(&self) -> Vec<Name> {
        let mut all: Vec<_> = self.pools.iter().collect();
        all.sort_by_key(|(name, pool)| {
            (pool.broken, if pool.broken { 0 } else { pool.priority }, **name)
        });
        all.into_iter().map(|(name, _)| *name).collect()
    }

    /// The same, rank by rank.
    pub(super) fn pools_in_order(&self) -> Vec<Name> {
        let mut all = self.pools_by_priority();
        all.sort_by_key(|name| self.pools[name].rank);
        all
    }

    /// The pools that a Service asks for, in its order. Without any, those up to the rank of the first that
    /// is meant for it, and then, if that one falls back, those of the later ranks.
    pub(super) fn turns(&self, name: Name) -> [Vec<Name>; 2] {
        let service = &self.services[name];
        if !service.pools.is_empty() {
            return [service.pools.clone(), Vec::new()];
        }
        let first = self.meant_for(name);
        let mut pools: Vec<_> =
            self.pools_in_order().into_iter().map(|pool| (pool, &self.pools[pool])).collect();
        let last_rank = first.map_or(Rank::OnRequest, |first| self.pools[first].rank);
        // A verdict of another namespace's pool would be of no use.
        pools.retain(|(_, pool)| match pool.rank {
            Rank::OfNamespace => self.serves(pool, name) != Err(OF_OTHERS),
            Rank::Usual | Rank::Rest => true,
            Rank::OnRequest => self.serves(pool, name).is_ok(),
        });
        let (now, mut later): (Vec<_>, Vec<_>) =
            pools.into_iter().partition(|(_, pool)| pool.rank <= last_rank);
        let helped = first.is_some_and(|first| self.pools[first].falls_back);
        later.retain(|(_, pool)| helped && pool.rank != Rank::OnRequest);
        [now, later].map(|turn| turn.into_iter().map(|(pool, _)| pool).collect())
    }

    /// The first pool that is meant for a Service, even if it has no address for it.
    pub(super) fn meant_for(&self, name: Name) -> Option<Name> {
        let named = &self.services[name].pools;
        let pools = if named.is_empty() { self.pools_in_order() } else { named.clone() };
        pools.into_iter().find(|pool| {
            self.pools.get(pool).is_some_and(|pool| match self.serves(pool, name) {
                Ok(()) => !named.is_empty() || pool.gives_unasked(),
                Err(why) => why == BROKEN && (!named.is_empty() || pool.rank != Rank::OnRequest),
            })
        })
    }

    /// The first pool that covers an address.
    pub(super) fn first_pool(&self, addr: IpAddr) -> Option<Name> {
        self.pools_by_priority().into_iter().find(|name| self.pools[name].covers().contains(&addr))
    }

    /// The pool on which a Service that waits for an address waits: the first that covers the address and is
    /// meant for the Service, else the first that covers it.
    pub(super) fn awaited(&self, name: Name, addr: IpAddr) -> Option<Name> {
        let asked = &self.services[name].pools;
        let would_serve = self.pools_in_order().into_iter().find(|pool_name| {
            let pool = &self.pools[pool_name];
            let asked = asked.is_empty() || asked.contains(pool_name);
            asked && pool.covers().contains(&addr) && self.serves(pool, name).is_ok()
        });
        would_serve.or_else(|| self.first_pool(addr))
    }

    /// The first pool that covers an address and excludes it.
    pub(super) fn excluded_by(&self, addr: IpAddr) -> Option<Name> {
        self.pools_by_priority().into_iter().find(|name| {
            let pool = &self.pools[name];
            pool.covers().contains(&addr) && pool.excluded.contains(&addr)
        })
    }

    pub(super) fn is_foreign_address(&self, addr: IpAddr) -> bool {
        self.nodes.values().any(|addrs| addrs.contains(&addr))
    }
}

/// The refusal by the pool that came nearest to a "yes".
pub(super) fn nearest(verdicts: &[(Name, Verdict)], without_pools: Reason, asked: bool) -> No {
    let levels = verdicts.iter().map(|(_, verdict)| *verdict);
    let nearest = levels.max_by_key(|(level, _)| *level);
    let would_serve = |verdict: Verdict| verdict != HELD_BACK && verdict.0 >= WOULD_SERVE;
    let mut pools: BTreeSet<Name> = verdicts
        .iter()
        .filter(|(_, verdict)| would_serve(*verdict))
        .map(|(pool, _)| *pool)
        .collect();
    if nearest == Some(HELD_BACK) {
        // One of them is enough.
        let first = verdicts.iter().find(|(_, verdict)| *verdict == HELD_BACK);
        pools.extend(first.map(|(pool, _)| *pool));
    }
    No { reason: nearest.map_or(without_pools, |(_, reason)| reason), pools, asked }
}
