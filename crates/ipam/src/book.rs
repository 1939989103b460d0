//! All pools and every taken address, with what is left.

use alloc::{collections::BTreeMap, vec::Vec};
use core::net::IpAddr;

use crate::{AddrSet, Family, Pool, PoolName, Refusal, Verdict};

/// What one pool has and has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCount {
    /// Addresses it could give if none were taken.
    pub capacity: u128,
    /// Addresses inside its ranges that somebody holds, through this pool or another.
    pub used: u128,
    /// Addresses it can still give.
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
}

#[derive(Clone, Debug)]
struct Shelf {
    pool: Pool,
    usable: AddrSet,
    free: AddrSet,
    /// Taken addresses inside its ranges, by family.
    used: BTreeMap<Family, u128>,
}

impl Book {
    /// An empty book.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces all pools. What is taken stays taken, also where no pool covers it any more.
    pub fn replace_pools(&mut self, pools: impl IntoIterator<Item = Pool>) {
        let pools: Vec<Pool> = pools.into_iter().collect();
        // An exclusion in any pool that covers the address holds for all of them: whoever wrote it
        // meant the address, not the door.
        let excluded = pools
            .iter()
            .map(|pool| pool.excluded().intersection(pool.ranges()))
            .fold(AddrSet::new(), |all, one| all.union(&one));
        let mut order: Vec<_> =
            pools.iter().map(|pool| (pool.priority, pool.name.clone())).collect();
        order.sort_unstable();
        self.order = order.into_iter().map(|(_, name)| name).collect();
        self.shelves = pools
            .into_iter()
            .map(|pool| {
                let usable = pool.ranges().difference(&excluded).difference(pool.held_back());
                let free = usable.difference(&self.taken);
                let taken = pool.ranges().intersection(&self.taken);
                let used = Family::BOTH.map(|family| (family, taken.len_of(family))).into();
                (pool.name.clone(), Shelf { pool, usable, free, used })
            })
            .collect();
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

    /// Marks an address as taken, whether a pool covers it or not; `false` if it was already.
    pub fn take(&mut self, addr: IpAddr) -> bool {
        let new = self.taken.insert(addr);
        if new {
            for shelf in self.shelves.values_mut() {
                shelf.free.remove(addr);
                if shelf.pool.contains(addr) {
                    let used = shelf.used.entry(Family::of(addr)).or_default();
                    *used = used.saturating_add(1);
                }
            }
        }
        new
    }

    /// Marks an address as free again; `false` if it was free.
    pub fn release(&mut self, addr: IpAddr) -> bool {
        let was_taken = self.taken.remove(addr);
        if was_taken {
            for shelf in self.shelves.values_mut() {
                if shelf.usable.contains(addr) {
                    shelf.free.insert(addr);
                }
                if shelf.pool.contains(addr) {
                    let used = shelf.used.entry(Family::of(addr)).or_default();
                    *used = used.saturating_sub(1);
                }
            }
        }
        was_taken
    }

    /// Whether somebody has the address.
    pub fn is_taken(&self, addr: IpAddr) -> bool {
        self.taken.contains(addr)
    }

    /// The first address of a family, in the pool's own order, that it can give now, or why it
    /// gives none.
    ///
    /// Rules about who is served come before this; `drain` is judged here, and `auto_assign` unless
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

    /// Whether the pool can give exactly this address now, apart from who asks.
    ///
    /// `holder` names whoever has the address, for the refusal's text.
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

    /// Whether the pool would give exactly this address if nobody had it: what whoever would share
    /// it with its holders must know.
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

    /// Why nobody may have this address, if a pool that covers it excludes it.
    pub fn never_given(&self, addr: IpAddr) -> Option<Refusal> {
        self.pools()
            .find(|pool| pool.contains(addr) && pool.excluded().contains(addr))
            .map(|pool| Refusal::Excluded(addr, pool.name.clone()))
    }

    /// What a pool has and has left.
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

    /// What a pool has and has left of a family.
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
