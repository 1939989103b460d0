//! The book: all pools, every taken address, and how many addresses each pool has left.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::net::IpAddr;

use crate::{AddrSet, Family, Never, Pool, PoolName, Refusal, Verdict};

/// How many addresses one pool has and has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCount {
    /// Addresses it could give if none were taken.
    pub capacity: u128,
    /// Taken addresses inside its ranges that count for this pool, see [`Book::count_for`].
    pub used: u128,
    /// Addresses it can still give. Another pool may give them as well.
    pub free: u128,
}

/// The allocator's memory: pools, and which addresses are taken.
///
/// One address is taken at most once over all pools, so pools may overlap. Taking and releasing
/// cost `O(pools × log intervals)`; replacing the pools costs a pass over all intervals.
#[derive(Clone, Debug, Default)]
pub struct Book {
    shelves: BTreeMap<PoolName, Shelf>,
    /// Pool names by priority, then name: the order in which pools are asked.
    order: Vec<PoolName>,
    taken: AddrSet,
    /// Ranges from which the cluster gives addresses by itself.
    cluster_ips: AddrSet,
    /// The pool that a taken address counts for, where that is not the first pool that covers it.
    counted_elsewhere: BTreeMap<IpAddr, PoolName>,
}

#[derive(Clone, Debug)]
struct Shelf {
    pool: Pool,
    usable: AddrSet,
    free: AddrSet,
    /// Taken addresses inside its ranges that count for it, by family.
    used: BTreeMap<Family, u128>,
}

impl Shelf {
    fn count(&mut self, addr: IpAddr, change: impl Fn(u128, u128) -> u128) {
        let used = self.used.entry(Family::of(addr)).or_default();
        *used = change(*used, 1);
    }
}

impl Book {
    /// An empty book.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces all pools. A taken address stays taken, even if no pool covers it any more, and counts for
    /// the first pool that covers it until [`Book::count_for`] says otherwise.
    pub fn replace_pools(&mut self, pools: impl IntoIterator<Item = Pool>) {
        let mut pools: Vec<Pool> = pools.into_iter().collect();
        pools.sort_unstable_by(|a, b| (a.priority, &a.name).cmp(&(b.priority, &b.name)));
        // An exclusion in any pool that covers the address holds for all pools: its author meant the address,
        // not the pool.
        let excluded = pools
            .iter()
            .map(|pool| pool.excluded().intersection(pool.ranges()))
            .fold(AddrSet::new(), |all, one| all.union(&one));
        let special: AddrSet = Never::special().map(|(_, range)| range).collect();
        let never = excluded.union(&special).union(&self.cluster_ips);
        self.order = pools.iter().map(|pool| pool.name.clone()).collect();
        self.counted_elsewhere.clear();
        let mut uncounted = self.taken.clone();
        self.shelves = pools
            .into_iter()
            .map(|pool| {
                let usable = pool.ranges().difference(&never).difference(pool.held_back());
                let free = usable.difference(&self.taken);
                let taken = pool.ranges().intersection(&uncounted);
                uncounted = uncounted.difference(&taken);
                let used = Family::BOTH.map(|family| (family, taken.len_of(family))).into();
                (pool.name.clone(), Shelf { pool, usable, free, used })
            })
            .collect();
    }

    /// Sets the ranges from which the cluster gives addresses by itself: no pool gives these addresses.
    pub fn set_cluster_ips(&mut self, ranges: AddrSet) {
        self.cluster_ips = ranges;
        let shelves = core::mem::take(&mut self.shelves);
        self.replace_pools(shelves.into_values().map(|shelf| shelf.pool));
    }

    /// The ranges from which the cluster gives addresses by itself.
    pub const fn cluster_ips(&self) -> &AddrSet {
        &self.cluster_ips
    }

    /// The pools that have addresses in common with others, each with those others.
    pub fn overlaps(&self) -> BTreeMap<PoolName, BTreeSet<PoolName>> {
        let mut ranges: Vec<_> = self
            .shelves
            .iter()
            .flat_map(|(name, shelf)| shelf.pool.ranges().ranges().map(move |range| (range, name)))
            .collect();
        ranges.sort_unstable();
        let mut overlaps: BTreeMap<PoolName, BTreeSet<PoolName>> = BTreeMap::new();
        let mut open: Vec<(IpAddr, &PoolName)> = Vec::new();
        for (range, name) in ranges {
            open.retain(|(last, _)| *last >= range.first());
            // The ranges of one pool never meet, so every open range is another pool's.
            for (_, other) in &open {
                overlaps.entry(name.clone()).or_default().insert((*other).clone());
                overlaps.entry((*other).clone()).or_default().insert(name.clone());
            }
            open.push((range.last(), name));
        }
        overlaps
    }

    /// Pools in the order in which they are asked.
    pub fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.order.iter().filter_map(|name| self.pool(name))
    }

    /// One pool by name.
    pub fn pool(&self, name: &PoolName) -> Option<&Pool> {
        self.shelves.get(name).map(|shelf| &shelf.pool)
    }

    /// The first pool, in order, that covers the address.
    pub fn pool_of(&self, addr: IpAddr) -> Option<&Pool> {
        self.pools().find(|pool| pool.contains(addr))
    }

    /// Marks an address as taken, whether a pool covers it or not; `false` if it was already. It
    /// counts for the first pool that covers it.
    pub fn take(&mut self, addr: IpAddr) -> bool {
        let new = self.taken.insert(addr);
        if new {
            for shelf in self.shelves.values_mut() {
                shelf.free.remove(addr);
            }
            self.recount(addr, u128::saturating_add);
        }
        new
    }

    /// Marks an address as free again; `false` if it was free already.
    pub fn release(&mut self, addr: IpAddr) -> bool {
        let was_taken = self.taken.remove(addr);
        if was_taken {
            for shelf in self.shelves.values_mut() {
                if shelf.usable.contains(addr) {
                    shelf.free.insert(addr);
                }
            }
            self.recount(addr, u128::saturating_sub);
            self.counted_elsewhere.remove(&addr);
        }
        was_taken
    }

    /// Counts a taken address for the pool that gave it, as long as that pool covers it; otherwise for the
    /// first pool that does.
    pub fn count_for(&mut self, addr: IpAddr, giver: Option<&PoolName>) {
        let covers = |name: &&PoolName| self.pool(name).is_some_and(|pool| pool.contains(addr));
        let giver = giver.filter(covers).cloned();
        let first = self.pool_of(addr).map(|pool| pool.name.clone());
        let elsewhere = giver.filter(|giver| Some(giver) != first.as_ref());
        if !self.is_taken(addr) || self.counted_elsewhere.get(&addr) == elsewhere.as_ref() {
            return;
        }
        self.recount(addr, u128::saturating_sub);
        match elsewhere {
            Some(giver) => drop(self.counted_elsewhere.insert(addr, giver)),
            None => drop(self.counted_elsewhere.remove(&addr)),
        }
        self.recount(addr, u128::saturating_add);
    }

    /// Changes the count of the pool that an address counts for.
    fn recount(&mut self, addr: IpAddr, change: impl Fn(u128, u128) -> u128) {
        let first = || self.pool_of(addr).map(|pool| &pool.name);
        let name = self.counted_elsewhere.get(&addr).or_else(first).cloned();
        if let Some(shelf) = name.and_then(|name| self.shelves.get_mut(&name)) {
            shelf.count(addr, change);
        }
    }

    /// Whether the address has a holder.
    pub fn is_taken(&self, addr: IpAddr) -> bool {
        self.taken.contains(addr)
    }

    /// The first address of a family, in the pool's own order, that it can give now, or why it
    /// gives none.
    ///
    /// Rules about which holders are served come before this; `drain` is judged here, and `auto_assign` unless
    /// the pool was `asked` for by name.
    pub fn first_free(
        &self,
        name: &PoolName,
        family: Family,
        asked: bool,
    ) -> Result<IpAddr, Verdict> {
        let shelf = self.shelves.get(name).ok_or(Verdict::Invalid)?;
        if !shelf.pool.ranges().has_family(family) {
            return Err(Verdict::NoFamily(family));
        }
        if !shelf.pool.auto_assign && !asked {
            return Err(Verdict::OnRequestOnly);
        }
        if shelf.pool.drain {
            return Err(Verdict::Draining);
        }
        let first =
            if shelf.pool.descending { shelf.free.last(family) } else { shelf.free.first(family) };
        first.ok_or(Verdict::Full(family))
    }

    /// Whether the pool can give exactly this address now, whichever holder asks.
    ///
    /// `holder` names the holder of the address, for the refusal.
    pub fn can_give(
        &self,
        name: &PoolName,
        addr: IpAddr,
        holder: impl FnOnce() -> alloc::string::String,
    ) -> Result<(), Refusal> {
        if self.is_taken(addr) {
            return Err(Refusal::TakenBy(addr, holder()));
        }
        self.offers(name, addr)
    }

    /// Whether the pool would give exactly this address if it had no holder: a newcomer that would share the
    /// address asks this.
    pub fn offers(&self, name: &PoolName, addr: IpAddr) -> Result<(), Refusal> {
        self.never_given(addr).map_or(Ok(()), Err)?;
        let Some(shelf) = self.shelves.get(name).filter(|shelf| shelf.pool.contains(addr)) else {
            return Err(Refusal::OutsideEveryPool(addr));
        };
        if shelf.pool.held_back().contains(addr) {
            return Err(Refusal::HeldBack(addr, name.clone()));
        }
        if shelf.pool.drain {
            return Err(Refusal::NotServed(addr, [(name.clone(), Verdict::Draining)].into()));
        }
        Ok(())
    }

    /// Why no holder may have this address: no pool gives it, or one that covers it excludes it.
    pub fn never_given(&self, addr: IpAddr) -> Option<Refusal> {
        let excluding =
            || self.pools().find(|pool| pool.contains(addr) && pool.excluded().contains(addr));
        let excluded = || excluding().map(|pool| Refusal::Excluded(addr, pool.name.clone()));
        self.unusable(addr).map(|why| Refusal::NeverGiven(addr, why)).or_else(excluded)
    }

    /// Why no holder can have this address, whatever the pools say.
    pub fn unusable(&self, addr: IpAddr) -> Option<Never> {
        let cluster_ip = self.cluster_ips.contains(addr).then_some(Never::ClusterIps);
        Never::of(addr).or(cluster_ip)
    }

    /// How many addresses a pool has and has left.
    pub fn count(&self, name: &PoolName) -> PoolCount {
        Family::BOTH.iter().map(|family| self.count_of(name, *family)).fold(
            PoolCount::default(),
            |all, one| PoolCount {
                capacity: all.capacity.saturating_add(one.capacity),
                used: all.used.saturating_add(one.used),
                free: all.free.saturating_add(one.free),
            },
        )
    }

    /// How many addresses of a family a pool has and has left.
    pub fn count_of(&self, name: &PoolName, family: Family) -> PoolCount {
        self.shelves.get(name).map_or_else(PoolCount::default, |shelf| PoolCount {
            capacity: shelf.usable.len_of(family),
            used: shelf.used.get(&family).copied().unwrap_or_default(),
            free: shelf.free.len_of(family),
        })
    }
}

#[cfg(test)]
mod tests;
