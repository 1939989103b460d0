//! What is known: watched objects with our own unechoed writes laid over them, and indexes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use landfall_ipam::{Book, Family, PoolName, Terms};

use super::{
    store::Store,
    view::{ClaimView, HolderView, Outsider, OutsiderKind, PoolView, ServiceKey, ServiceView},
};

/// What is known, with our own unechoed writes laid over it.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) claims: Store<IpAddr, ClaimView>,
    pub(super) services: Store<ServiceKey, ServiceView>,
    pub(super) pools: Store<PoolName, PoolView>,
    pub(super) namespaces: Store<String, BTreeMap<String, String>>,
    pub(super) outsiders: BTreeMap<OutsiderKind, Store<Outsider, Vec<IpAddr>>>,
    /// Which outsiders have an address.
    pub(super) outside: BTreeMap<IpAddr, BTreeSet<Outsider>>,
    pub(super) book: Book,
    /// Pools in the order they are asked; those that cannot be used come last.
    pub(super) order: Vec<PoolName>,
    /// Addresses claimed for a Service of that name.
    pub(super) held: BTreeMap<ServiceKey, BTreeSet<IpAddr>>,
    /// Addresses of a pool that a namespace holds or is about to.
    pub(super) given: BTreeMap<(PoolName, String), BTreeSet<IpAddr>>,
    /// Addresses whose holders have a sharing key, or are about to.
    pub(super) sharing: BTreeMap<String, BTreeSet<IpAddr>>,
    /// Addresses that are kept for a Service, or for any of a namespace, and that nobody has.
    pub(super) kept: BTreeMap<(String, Option<String>), BTreeSet<IpAddr>>,
    /// Services that show an address, rightly or not.
    pub(super) shown: BTreeMap<IpAddr, BTreeSet<ServiceKey>>,
    /// Addresses with a call about their claim under way or due.
    pub(super) busy: BTreeMap<IpAddr, Busy>,
    no_labels: BTreeMap<String, String>,
}

/// What is under way about the claim on an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Busy {
    /// A write.
    Writing,
    /// A live read is due or under way; that Service waits for what it says.
    Looking { for_whom: Option<ServiceKey> },
}

impl World {
    pub(super) fn claim(&self, addr: IpAddr) -> Option<&ClaimView> {
        self.claims.get(&addr)
    }

    pub(super) fn is_busy(&self, addr: IpAddr) -> bool {
        self.busy.contains_key(&addr)
    }

    pub(super) fn pools_in_order(&self) -> impl Iterator<Item = &PoolView> {
        self.order.iter().filter_map(|name| self.pools.get(name))
    }

    pub(super) fn serves_class(&self, class: &str) -> bool {
        self.pools.values().any(|pool| pool.class.as_deref() == Some(class))
    }

    pub(super) fn namespace_labels(&self, namespace: &str) -> &BTreeMap<String, String> {
        self.namespaces.get(&namespace.to_owned()).unwrap_or(&self.no_labels)
    }

    /// Claims that name this very Service under the class it has and that it may hold together with
    /// whoever else they name.
    pub(super) fn claims_of(&self, service: &ServiceView) -> Vec<&ClaimView> {
        let held = self.held.get(&service.key);
        let claims = held.into_iter().flatten().filter_map(|addr| self.claims.get(addr));
        claims
            .filter(|claim| {
                let holder = claim.holder(service);
                holder.is_some_and(|holder| holder.legacy || holder.class == service.class)
                    && claim.clash(service).is_none()
            })
            .collect()
    }

    /// Whether every watch has listed once.
    pub(super) fn has_listed(&self) -> bool {
        let outsiders = OutsiderKind::ALL
            .iter()
            .all(|kind| self.outsiders.get(kind).is_some_and(Store::listed));
        self.claims.listed()
            && self.services.listed()
            && self.pools.listed()
            && self.namespaces.listed()
            && outsiders
    }

    /// How many addresses of a pool a namespace holds or is about to.
    pub(super) fn count_of(&self, pool: &PoolName, namespace: &str) -> usize {
        self.given.get(&(pool.clone(), namespace.to_owned())).map_or(0, BTreeSet::len)
    }

    /// Counts an address of a pool for a namespace.
    pub(super) fn give(&mut self, pool: &PoolName, namespace: &str, addr: IpAddr) {
        self.given.entry((pool.clone(), namespace.to_owned())).or_default().insert(addr);
    }

    /// Counts an address no more; says for which pool and namespace it had counted.
    pub(super) fn ungive(
        &mut self,
        pool: &PoolName,
        namespace: &str,
        addr: IpAddr,
    ) -> Option<(PoolName, String)> {
        let key = (pool.clone(), namespace.to_owned());
        let addrs = self.given.get_mut(&key)?;
        let counted = addrs.remove(&addr);
        if addrs.is_empty() {
            self.given.remove(&key);
        }
        counted.then_some(key)
    }

    /// Counts an address for a holder: for its namespace's quota and for its sharing key.
    pub(super) fn count(&mut self, pool: Option<&PoolName>, holder: &HolderView, addr: IpAddr) {
        if let Some(pool) = pool {
            self.give(pool, holder.key.namespace(), addr);
        }
        self.offer(holder.terms.as_deref(), addr);
    }

    /// Counts an address for the sharing key of somebody who has it or is about to.
    pub(super) fn offer(&mut self, terms: Option<&Terms>, addr: IpAddr) {
        if let Some(key) = terms.and_then(|terms| terms.key.as_ref()) {
            self.sharing.entry(key.clone()).or_default().insert(addr);
        }
    }

    /// Counts an address for a sharing key no more.
    pub(super) fn unoffer(&mut self, key: &str, addr: IpAddr) {
        if let Some(addrs) = self.sharing.get_mut(key) {
            addrs.remove(&addr);
            if addrs.is_empty() {
                self.sharing.remove(key);
            }
        }
    }

    /// Whether an address of a pool counts for a namespace.
    pub(super) fn counts(&self, pool: &PoolName, namespace: &str, addr: IpAddr) -> bool {
        let counted = self.given.get(&(pool.clone(), namespace.to_owned()));
        counted.is_some_and(|addrs| addrs.contains(&addr))
    }

    /// The address of a family that is kept for this Service: one for it by name before one for any
    /// of its namespace, and then the lowest.
    pub(super) fn kept_for(&self, service: &ServiceView, family: Family) -> Option<IpAddr> {
        let lowest = |name: Option<&str>| {
            let whom = (service.key.namespace().to_owned(), name.map(str::to_owned));
            let mut kept = self.kept.get(&whom)?.iter().copied();
            kept.find(|addr| Family::of(*addr) == family)
        };
        lowest(Some(service.key.name())).or_else(|| lowest(None))
    }

    /// Who has a taken address, for people.
    pub(super) fn who_has(&self, addr: IpAddr) -> String {
        if let Some(claim) = self.claims.get(&addr) {
            return claim.described();
        }
        if let Some(outsider) = self.outside.get(&addr).and_then(BTreeSet::first) {
            return outsider.to_string();
        }
        match self.shown.get(&addr).and_then(BTreeSet::first) {
            Some(key) => format!("Service {key}, which shows it without a claim"),
            None => "a Service whose claim is being written".to_owned(),
        }
    }

    /// Brings the book in line with what is known of one address; says whether it became free.
    pub(super) fn settle(&mut self, addr: IpAddr) -> bool {
        let taken = self.claims.get(&addr).is_some()
            || self.busy.contains_key(&addr)
            || self.shown.contains_key(&addr)
            || self.outside.contains_key(&addr);
        if taken {
            self.book.take(addr);
            false
        } else {
            self.book.release(addr)
        }
    }

    pub(super) fn rebuild_pools(&mut self) {
        let usable = self.pools.values().filter_map(|view| view.pool.as_ref().ok());
        self.book.replace_pools(usable.cloned());
        let invalid = self.pools.values().filter(|view| view.pool.is_err());
        let invalid: Vec<_> = invalid.map(|view| view.name.clone()).collect();
        self.order = self.book.pools().map(|pool| pool.name.clone()).chain(invalid).collect();
    }
}
