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

use super::{Change, ForeignAddress, Ledger};
use crate::{cluster::Cluster, object::ObjectKey};

/// A Service that lists addresses, by its name and uid.
pub(crate) type Lister = (ObjectKey, Arc<str>);
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

    /// Every Service that lists an address, whether it counts or not.
    pub(super) fn listing(&self, addr: IpAddr) -> impl Iterator<Item = &ObjectKey> {
        let listers = self.listed.values().filter_map(move |listed| listed.get(&addr));
        listers.flatten().map(|(key, _)| key)
    }

    /// Whether a Service was not told yet that these of its addresses do not count.
    fn is_news(&mut self, who: &Lister, addrs: &[IpAddr]) -> bool {
        let before = self.told.insert(who.clone(), addrs.to_vec());
        before.as_deref() != Some(addrs)
    }
}

impl Ledger {
    /// Every Service that lists an address in `spec.externalIPs`, rightly or not.
    pub(crate) fn listing(&self, addr: IpAddr) -> impl Iterator<Item = &ObjectKey> {
        self.externals.listing(addr)
    }

    /// How many addresses of a pool a namespace has, or is about to have, by claims or because it lists
    /// them in `spec.externalIPs`.
    pub(crate) fn count_with_external(&self, pool: &PoolName, namespace: &str) -> usize {
        let quota = (pool.clone(), namespace.to_owned());
        let listed = self.externals.in_quota.get(&quota).map_or(0, BTreeSet::len);
        self.count(pool, namespace).saturating_add(listed)
    }

    /// Every address of a pool that is listed in `spec.externalIPs` and does not count, with a Service
    /// that lists it.
    pub(crate) fn external_ignored(&self) -> impl Iterator<Item = (IpAddr, &ObjectKey)> {
        self.externals.listed.iter().flat_map(move |(namespace, listed)| {
            let counted = self.externals.counted.get(namespace);
            let counts = move |addr: &IpAddr| counted.is_some_and(|all| all.contains(addr));
            let open = listed.iter().filter(move |(addr, _)| !counts(addr));
            let known = open.filter(|(addr, _)| self.book.pool_of(**addr).is_some());
            known.filter_map(|(addr, services)| Some((*addr, &services.first()?.0)))
        })
    }

    /// Judges the addresses in `spec.externalIPs` of all namespaces whose rights may have changed.
    pub(crate) fn weigh_externals(&mut self, cluster: &Cluster) {
        for namespace in std::mem::take(&mut self.externals.dirty) {
            self.weigh(cluster, &namespace);
        }
    }

    fn weigh(&mut self, cluster: &Cluster, namespace: &str) {
        let listed = self.externals.listed.get(namespace).cloned().unwrap_or_default();
        let mut counted = BTreeSet::new();
        let mut in_quota: BTreeMap<PoolName, BTreeSet<IpAddr>> = BTreeMap::new();
        for addr in listed.keys() {
            let covering = cluster.pools_in_order();
            let mut covering = covering.filter(|view| view.covers(*addr)).peekable();
            if covering.peek().is_none() {
                // No pool gives it, so it blocks no Service.
                counted.insert(*addr);
                continue;
            }
            let right = covering.find(|view| {
                let limit = cluster.limit_of(&view.name, namespace);
                let held = self.count(&view.name, namespace);
                let held = held.saturating_add(in_quota.get(&view.name).map_or(0, BTreeSet::len));
                let room = limit.is_none_or(|limit| {
                    self.counts(&view.name, namespace, *addr)
                        || held < usize::try_from(limit).unwrap_or(usize::MAX)
                });
                room && cluster.serves_namespace(view, namespace).is_ok()
            });
            if let Some(view) = right {
                counted.insert(*addr);
                if !self.counts(&view.name, namespace, *addr) {
                    in_quota.entry(view.name.clone()).or_default().insert(*addr);
                }
            }
        }
        self.replace_counted(namespace, &listed, counted, in_quota);
    }

    fn replace_counted(
        &mut self,
        namespace: &str,
        listed: &Listed,
        counted: BTreeSet<IpAddr>,
        in_quota: BTreeMap<PoolName, BTreeSet<IpAddr>>,
    ) {
        self.externals.in_quota.retain(|(_, of), _| of != namespace);
        let in_quota = in_quota.into_iter();
        let in_quota = in_quota.map(|(pool, addrs)| ((pool, namespace.to_owned()), addrs));
        self.externals.in_quota.extend(in_quota);
        let before = self.externals.counted.remove(namespace).unwrap_or_default();
        let of_namespace = |foreign_address: &ForeignAddress| matches!(foreign_address, ForeignAddress::External(key, _) if key.namespace() == namespace);
        for addr in before.union(&counted) {
            let old: Vec<_> =
                self.outside.of(addr).filter(|who| of_namespace(who)).cloned().collect();
            for foreign_address in old {
                self.outside.remove(addr, &foreign_address);
            }
            let services = listed.get(addr).into_iter().flatten();
            for (key, uid) in services.filter(|_| counted.contains(addr)) {
                self.outside.insert(*addr, ForeignAddress::External(key.clone(), uid.clone()));
            }
            self.outside_changed(*addr);
        }
        let mut refused: BTreeMap<Lister, Vec<IpAddr>> = BTreeMap::new();
        for (addr, services) in listed.iter().filter(|(addr, _)| !counted.contains(addr)) {
            for service in services {
                refused.entry(service.clone()).or_default().push(*addr);
            }
        }
        if !counted.is_empty() {
            self.externals.counted.insert(namespace.to_owned(), counted);
        }
        let told = self.externals.told.len();
        let elsewhere = |who: &Lister| who.0.namespace() != namespace;
        self.externals.told.retain(|who, _| elsewhere(who) || refused.contains_key(who));
        if self.externals.told.len() < told {
            self.tell(Change::ExternalRelieved);
        }
        for (who, addrs) in refused {
            if self.externals.is_news(&who, &addrs) {
                self.tell(Change::ExternalIgnored(who, addrs));
            }
        }
    }
}
