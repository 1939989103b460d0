//! Addresses in `spec.externalIPs`: they count as taken if their namespace has a right to them.
//!
//! Any author of a Service may list any address there. Inside a pool it counts only if the pool serves
//! the namespace and its quota has room; otherwise one Service could block a pool for all others.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use landfall_ipam::PoolName;

use super::{decide::serves_namespace, world::World};
use crate::{ledger::ForeignAddress, object::ObjectKey};

/// A Service that lists addresses, by its name and uid.
pub(super) type Lister = (ObjectKey, Arc<str>);
/// Services that list an address, by address.
type Listed = BTreeMap<IpAddr, BTreeSet<Lister>>;

/// The addresses that Services list in `spec.externalIPs`.
#[derive(Debug, Default)]
pub(super) struct Externals {
    /// All listed addresses, by namespace.
    listed: BTreeMap<String, Listed>,
    /// Those of them that count as taken.
    counted: BTreeMap<String, BTreeSet<IpAddr>>,
    /// Addresses that count for the quota of a namespace, except those it has claims on.
    in_quota: BTreeMap<(PoolName, String), BTreeSet<IpAddr>>,
    /// Services that were told which of their addresses do not count.
    told: BTreeMap<Lister, Vec<IpAddr>>,
    /// Namespaces whose addresses must be judged again.
    dirty: BTreeSet<String>,
}

/// The result of judging the addresses that a namespace lists.
#[derive(Debug, Default)]
pub(super) struct Weighed {
    /// Addresses that count now and did not before, or the other way round.
    pub changed: Vec<IpAddr>,
    /// Services with addresses that do not count.
    pub refused: BTreeMap<Lister, Vec<IpAddr>>,
    /// Whether a Service that had such addresses has none any more.
    pub relieved: bool,
}

impl Externals {
    /// A Service lists the new addresses instead of the old ones.
    pub(super) fn set(&mut self, who: &Lister, old: &[IpAddr], new: &[IpAddr]) {
        let namespace = who.0.namespace();
        let listed = self.listed.entry(namespace.to_owned()).or_default();
        for addr in old {
            if let Some(services) = listed.get_mut(addr) {
                services.remove(who);
                if services.is_empty() {
                    listed.remove(addr);
                }
            }
        }
        for addr in new {
            listed.entry(*addr).or_default().insert(who.clone());
        }
        if listed.is_empty() {
            self.listed.remove(namespace);
        }
        self.dirty.insert(namespace.to_owned());
    }

    /// The rights of a namespace may have changed.
    pub(super) fn recheck(&mut self, namespace: &str) {
        if self.listed.contains_key(namespace) {
            self.dirty.insert(namespace.to_owned());
        }
    }

    /// The same for every namespace.
    pub(super) fn recheck_all(&mut self) {
        self.dirty.extend(self.listed.keys().cloned());
    }

    /// Whether a Service was not told yet that these of its addresses do not count.
    pub(super) fn is_news(&mut self, who: &Lister, addrs: &[IpAddr]) -> bool {
        let before = self.told.insert(who.clone(), addrs.to_vec());
        before.as_deref() != Some(addrs)
    }

    /// How many addresses count for the quota of a namespace, except those it has claims on.
    pub(super) fn count(&self, quota: &(PoolName, String)) -> usize {
        self.in_quota.get(quota).map_or(0, BTreeSet::len)
    }

    /// Every address of a pool that is listed and does not count, with a Service that lists it.
    pub(super) fn refused<'a>(
        &'a self,
        world: &'a World,
    ) -> impl Iterator<Item = (IpAddr, &'a ObjectKey)> {
        self.listed.iter().flat_map(move |(namespace, listed)| {
            let counted = self.counted.get(namespace);
            let counts = move |addr: &IpAddr| counted.is_some_and(|all| all.contains(addr));
            let open = listed.iter().filter(move |(addr, _)| !counts(addr));
            let known = open.filter(|(addr, _)| world.ledger.book.pool_of(**addr).is_some());
            known.filter_map(|(addr, services)| Some((*addr, &services.first()?.0)))
        })
    }
}

impl World {
    /// Judges the addresses of all namespaces that are marked.
    pub(super) fn weigh_externals(&mut self) -> Weighed {
        let mut weighed = Weighed::default();
        for namespace in std::mem::take(&mut self.externals.dirty) {
            self.weigh(&namespace, &mut weighed);
        }
        weighed
    }

    fn weigh(&mut self, namespace: &str, weighed: &mut Weighed) {
        let listed = self.externals.listed.get(namespace).cloned().unwrap_or_default();
        let mut counted = BTreeSet::new();
        let mut in_quota: BTreeMap<PoolName, BTreeSet<IpAddr>> = BTreeMap::new();
        for addr in listed.keys() {
            let covering = self.pools_in_order();
            let mut covering = covering.filter(|view| view.covers(*addr)).peekable();
            if covering.peek().is_none() {
                // No pool gives it, so it blocks no Service.
                counted.insert(*addr);
                continue;
            }
            let right = covering.find(|view| {
                let limit = self.limit_of(&view.name, namespace);
                let held = self.ledger.count(&view.name, namespace);
                let held = held.saturating_add(in_quota.get(&view.name).map_or(0, BTreeSet::len));
                let room = limit.is_none_or(|limit| {
                    self.ledger.counts(&view.name, namespace, *addr)
                        || held < usize::try_from(limit).unwrap_or(usize::MAX)
                });
                room && serves_namespace(self, view, namespace).is_ok()
            });
            if let Some(view) = right {
                counted.insert(*addr);
                if !self.ledger.counts(&view.name, namespace, *addr) {
                    in_quota.entry(view.name.clone()).or_default().insert(*addr);
                }
            }
        }
        self.replace_counted(namespace, &listed, counted, in_quota, weighed);
    }

    fn replace_counted(
        &mut self,
        namespace: &str,
        listed: &Listed,
        counted: BTreeSet<IpAddr>,
        in_quota: BTreeMap<PoolName, BTreeSet<IpAddr>>,
        weighed: &mut Weighed,
    ) {
        self.externals.in_quota.retain(|(_, of), _| of != namespace);
        let in_quota = in_quota.into_iter();
        let in_quota = in_quota.map(|(pool, addrs)| ((pool, namespace.to_owned()), addrs));
        self.externals.in_quota.extend(in_quota);
        let before = self.externals.counted.remove(namespace).unwrap_or_default();
        let of_namespace = |foreign_address: &ForeignAddress| matches!(foreign_address, ForeignAddress::External(key, _) if key.namespace() == namespace);
        for addr in before.union(&counted) {
            let old: Vec<_> =
                self.ledger.outside.of(addr).filter(|who| of_namespace(who)).cloned().collect();
            for foreign_address in old {
                self.ledger.outside.remove(addr, &foreign_address);
            }
            let services = listed.get(addr).into_iter().flatten();
            for (key, uid) in services.filter(|_| counted.contains(addr)) {
                self.ledger
                    .outside
                    .insert(*addr, ForeignAddress::External(key.clone(), uid.clone()));
            }
            weighed.changed.push(*addr);
        }
        for (addr, services) in listed.iter().filter(|(addr, _)| !counted.contains(addr)) {
            for service in services {
                weighed.refused.entry(service.clone()).or_default().push(*addr);
            }
        }
        if !counted.is_empty() {
            self.externals.counted.insert(namespace.to_owned(), counted);
        }
        let told = self.externals.told.len();
        let elsewhere = |who: &Lister| who.0.namespace() != namespace;
        self.externals.told.retain(|who, _| elsewhere(who) || weighed.refused.contains_key(who));
        weighed.relieved |= self.externals.told.len() < told;
    }
}
