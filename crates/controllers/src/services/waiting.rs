//! Waiting Services by what they wait for, so that a freed address finds the oldest without a scan.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use jiff::Timestamp;
use landfall_ipam::{Family, PoolName, Reason, Verdict};

use crate::cluster::service::Balancer;
use crate::object::ObjectKey;

/// The oldest Service is served first; equal ages go by name.
pub(super) type Turn = (Timestamp, ObjectKey);

/// What one Service waits for.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    pub created: Timestamp,
    pub reason: Reason,
    /// Exactly these addresses.
    pub addrs: Vec<IpAddr>,
    /// Any address of the family in the pool.
    pub pools: Vec<(PoolName, Family)>,
    /// Its namespace to hold one address of the pool less.
    pub quotas: Vec<(PoolName, String)>,
    /// The pools that would serve it, each with the reason why it does not.
    pub verdicts: Vec<(PoolName, Reason)>,
    /// An address of a holder with this sharing key.
    pub sharing_key: Option<String>,
    /// Whether it takes nothing unless it can have everything.
    pub all_or_nothing: bool,
}

impl Wait {
    /// A Service that waits for nothing yet.
    pub(super) fn of(service: &Balancer, reason: Reason) -> Self {
        Self {
            created: service.created,
            reason,
            addrs: Vec::new(),
            pools: Vec::new(),
            quotas: Vec::new(),
            verdicts: Vec::new(),
            sharing_key: service.terms.as_ref().and_then(|terms| terms.key.clone()),
            all_or_nothing: service.require_all,
        }
    }

    /// Waits for a change of a pool's verdict, and for the pool if it would serve.
    pub(super) fn add(&mut self, pool: &PoolName, verdict: Verdict, namespace: &str) {
        match verdict {
            Verdict::Full(family) => self.pools.push((pool.clone(), family)),
            Verdict::OverQuota(_) => self.quotas.push((pool.clone(), namespace.to_owned())),
            Verdict::NoFamily(_) | Verdict::Invalid | Verdict::Draining => {}
            // The pool is not meant for this Service.
            Verdict::NotAsked
            | Verdict::Missing
            | Verdict::OtherClass
            | Verdict::OfOtherNamespaces
            | Verdict::OtherNamespaces
            | Verdict::Ignored
            | Verdict::OtherHolders
            | Verdict::OnRequestOnly => return,
        }
        self.verdicts.push((pool.clone(), verdict.reason()));
    }
}

/// All waiting Services.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Whether a wait was added, removed or changed since this was last read.
    changed: bool,
    waits: BTreeMap<ObjectKey, Wait>,
    by_addr: BTreeMap<IpAddr, BTreeSet<Turn>>,
    by_pool: BTreeMap<(PoolName, Family), BTreeSet<Turn>>,
    by_quota: BTreeMap<(PoolName, String), BTreeSet<Turn>>,
    by_key: BTreeMap<String, BTreeSet<Turn>>,
    all_or_nothing: BTreeSet<Turn>,
    /// The Services that a pool could serve, and why it does not.
    refused_by: BTreeMap<PoolName, BTreeMap<Turn, Reason>>,
}

impl Waiting {
    pub(super) fn set(&mut self, key: &ObjectKey, wait: Wait) {
        self.clear(key);
        let turn = (wait.created, key.clone());
        for addr in &wait.addrs {
            self.by_addr.entry(*addr).or_default().insert(turn.clone());
        }
        for pool in &wait.pools {
            self.by_pool.entry(pool.clone()).or_default().insert(turn.clone());
        }
        for quota in &wait.quotas {
            self.by_quota.entry(quota.clone()).or_default().insert(turn.clone());
        }
        for (pool, reason) in &wait.verdicts {
            self.refused_by.entry(pool.clone()).or_default().insert(turn.clone(), *reason);
        }
        if wait.all_or_nothing {
            self.all_or_nothing.insert(turn.clone());
        }
        if let Some(sharing_key) = &wait.sharing_key {
            self.by_key.entry(sharing_key.clone()).or_default().insert(turn);
        }
        self.changed = true;
        self.waits.insert(key.clone(), wait);
    }

    pub(super) fn clear(&mut self, key: &ObjectKey) {
        let Some(wait) = self.waits.remove(key) else { return };
        self.changed = true;
        let turn = (wait.created, key.clone());
        for addr in wait.addrs {
            leave(&mut self.by_addr, &addr, &turn);
        }
        for pool in wait.pools {
            leave(&mut self.by_pool, &pool, &turn);
        }
        for quota in wait.quotas {
            leave(&mut self.by_quota, &quota, &turn);
        }
        for (pool, _) in wait.verdicts {
            if let Some(turns) = self.refused_by.get_mut(&pool) {
                turns.remove(&turn);
                if turns.is_empty() {
                    self.refused_by.remove(&pool);
                }
            }
        }
        self.all_or_nothing.remove(&turn);
        if let Some(sharing_key) = wait.sharing_key {
            leave(&mut self.by_key, &sharing_key, &turn);
        }
    }

    pub(super) fn contains(&self, key: &ObjectKey) -> bool {
        self.waits.contains_key(key)
    }

    /// Whether anything changed since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// All waiting Services of a namespace.
    pub(super) fn in_namespace(&self, namespace: &str) -> Vec<Turn> {
        self.of_namespace(namespace).map(|(key, wait)| (wait.created, key.clone())).collect()
    }

    /// Those of them that could share an address.
    pub(super) fn sharing_in_namespace(&self, namespace: &str) -> Vec<Turn> {
        let sharing = self.of_namespace(namespace).filter(|(_, wait)| wait.sharing_key.is_some());
        sharing.map(|(key, wait)| (wait.created, key.clone())).collect()
    }

    fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = (&ObjectKey, &Wait)> {
        let from = ObjectKey::new(namespace, "");
        self.waits.range(from..).take_while(move |(key, _)| key.namespace() == namespace)
    }

    /// How many Services wait, by reason.
    pub(super) fn by_reason(&self) -> BTreeMap<Reason, usize> {
        let mut counts = BTreeMap::new();
        for wait in self.waits.values() {
            let count: &mut usize = counts.entry(wait.reason).or_default();
            *count = count.saturating_add(1);
        }
        counts
    }

    /// All Services that wait for exactly this address.
    pub(super) fn for_address(&self, addr: IpAddr) -> Vec<Turn> {
        self.by_addr.get(&addr).into_iter().flatten().cloned().collect()
    }

    /// All Services that wait for their namespace to hold one address of a pool less.
    pub(super) fn under_quota(&self, quota: &(PoolName, String)) -> Vec<Turn> {
        self.by_quota.get(quota).into_iter().flatten().cloned().collect()
    }

    /// How many Services wait for a pool.
    pub(super) fn count_for(&self, pool: &PoolName) -> usize {
        self.refused_by.get(pool).map_or(0, BTreeMap::len)
    }

    /// The Services that wait for a pool and why, oldest first.
    pub(super) fn longest_for(
        &self,
        pool: &PoolName,
    ) -> impl Iterator<Item = (&ObjectKey, Reason)> {
        let turns = self.refused_by.get(pool).into_iter().flatten();
        turns.map(|((_, key), reason)| (key, *reason))
    }

    /// All waiting Services with this sharing key.
    pub(super) fn under_key(&self, key: &str) -> Vec<Turn> {
        self.by_key.get(key).into_iter().flatten().cloned().collect()
    }

    /// All waiting Services that take nothing unless they can have everything, oldest first.
    pub(super) fn all_or_nothing(&self) -> Vec<ObjectKey> {
        self.all_or_nothing.iter().map(|(_, key)| key.clone()).collect()
    }

    /// The oldest Service after `last` that waits for exactly this address.
    pub(super) fn next_for(&self, addr: IpAddr, last: Option<&Turn>) -> Option<&Turn> {
        after(self.by_addr.get(&addr)?, last)
    }

    /// The oldest Service after `last` that waits for any address of the family in the pool.
    pub(super) fn next_for_pool(
        &self,
        pool: &(PoolName, Family),
        last: Option<&Turn>,
    ) -> Option<&Turn> {
        after(self.by_pool.get(pool)?, last)
    }

    /// Whether a Service waits for exactly this address.
    pub(super) fn is_awaited(&self, addr: IpAddr) -> bool {
        self.by_addr.contains_key(&addr)
    }
}

fn after<'a>(turns: &'a BTreeSet<Turn>, last: Option<&Turn>) -> Option<&'a Turn> {
    use std::ops::Bound::{Excluded, Unbounded};
    match last {
        None => turns.first(),
        Some(last) => turns.range((Excluded(last), Unbounded)).next(),
    }
}

fn leave<K: Ord>(index: &mut BTreeMap<K, BTreeSet<Turn>>, key: &K, turn: &Turn) {
    if let Some(turns) = index.get_mut(key) {
        turns.remove(turn);
        if turns.is_empty() {
            index.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(age: i64, addrs: &[&str], pools: &[&str]) -> Wait {
        Wait {
            created: Timestamp::from_second(age).unwrap(),
            reason: Reason::Exhausted,
            addrs: addrs.iter().map(|addr| addr.parse().unwrap()).collect(),
            pools: pools.iter().map(|pool| (PoolName::new(pool), Family::V4)).collect(),
            quotas: Vec::new(),
            verdicts: pools.iter().map(|pool| (PoolName::new(pool), Reason::Draining)).collect(),
            sharing_key: Some("k".to_owned()),
            all_or_nothing: true,
        }
    }

    #[test]
    fn waiting_services_are_found_oldest_first_by_each_thing_they_wait_for() {
        let mut waiting = Waiting::default();
        let key = |name: &str| ObjectKey::new("shop", name);
        waiting.set(&key("young"), wait(30, &["10.0.0.1"], &[]));
        waiting.set(&key("old"), wait(10, &[], &["a"]));
        waiting.set(&key("middle"), wait(20, &[], &["a", "b"]));
        waiting.set(&key("elsewhere"), wait(1, &[], &["c"]));
        let in_order = |next: &dyn Fn(Option<&Turn>) -> Option<Turn>| {
            std::iter::successors(next(None), |last| next(Some(last)))
                .map(|(_, key)| key.name().to_owned())
                .collect::<Vec<_>>()
        };
        let pools = [PoolName::new("a"), PoolName::new("b")];
        let addr = "10.0.0.1".parse().unwrap();
        let of_pool = (pools[0].clone(), Family::V4);
        assert_eq!(in_order(&|last| waiting.next_for(addr, last).cloned()), ["young"]);
        assert_eq!(
            in_order(&|last| waiting.next_for_pool(&of_pool, last).cloned()),
            ["old", "middle"]
        );
        assert_eq!(waiting.under_key("k").len(), 4);
        assert_eq!((waiting.count_for(&pools[0]), waiting.count_for(&pools[1])), (2, 1));
        let longest: Vec<_> = waiting.longest_for(&pools[0]).collect();
        let (old, middle) = (key("old"), key("middle"));
        assert_eq!(longest, [(&old, Reason::Draining), (&middle, Reason::Draining)]);
        waiting.set(&ObjectKey::new("shop-2", "x"), wait(1, &[], &[]));
        assert_eq!(waiting.in_namespace("shop").len(), 4);
        waiting.clear(&ObjectKey::new("shop-2", "x"));
        assert_eq!(waiting.by_reason(), BTreeMap::from([(Reason::Exhausted, 4)]));
        for name in ["young", "old", "middle", "elsewhere"] {
            waiting.clear(&key(name));
        }
        assert!(waiting.by_addr.is_empty() && waiting.by_pool.is_empty());
        assert!(waiting.by_quota.is_empty() && waiting.by_key.is_empty());
        assert!(waiting.refused_by.is_empty() && waiting.all_or_nothing.is_empty());
    }
}
