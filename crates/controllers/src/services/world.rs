//! What is known: watched objects with our own unechoed writes laid over them, and indexes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use landfall_ipam::{AddrSet, Family, PoolName};

use super::{
    audience::Audience,
    classes::Classes,
    external::Externals,
    observe::kube_vip::is_of_map,
    view::{ForeignKind, Leftover, Place, PoolSource, PoolView, ServiceView, Setter},
    wish::asks_for_other_pools,
};
use crate::{
    index::Index,
    ledger::{Claim, ForeignAddress, Ledger},
    object::ObjectKey,
    store::Store,
};

/// What is known, with our own unechoed writes laid over it.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) ledger: Ledger,
    pub(super) services: Store<ObjectKey, ServiceView>,
    /// What replaced operators left on Services of any type.
    pub(super) leftovers: Store<ObjectKey, Leftover>,
    pub(super) pools: BTreeMap<PoolSource, Store<PoolName, PoolView>>,
    pub(super) namespaces: Store<String, BTreeMap<String, String>>,
    pub(super) foreign_addresses: BTreeMap<ForeignKind, Store<ForeignAddress, Vec<IpAddr>>>,
    /// The ranges of each `ServiceCIDR`.
    pub(super) service_ranges: Store<String, AddrSet>,
    /// What Services list in `spec.externalIPs`.
    pub(super) externals: Externals,
    /// Pools in the order they are asked; those that cannot be used come last.
    pub(super) order: Vec<PoolName>,
    /// Pools with addresses that other pools have as well, and those others.
    pub(super) overlaps: BTreeMap<PoolName, BTreeSet<PoolName>>,
    /// Services whose users write in the annotation an address that another has, and that they could
    /// have otherwise.
    pub(super) contested: Index<IpAddr, ObjectKey>,
    /// Addresses that a Service had in the annotation, without a claim, before they were in its status.
    pub(super) asked_first: Index<ObjectKey, IpAddr>,
    pub(super) annotated: AnnotatedServices,
    pub(super) tenancy: Tenancy,
    /// Whether some pool has its Services shown in an annotation.
    annotates: bool,
    no_labels: BTreeMap<String, String>,
}

/// What holds for Services that are shown in an annotation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnotatedServices {
    pub classes: Classes,
    /// Whether an administrator named these classes: then kube-vip is there, though its `ConfigMap` may
    /// not be.
    pub named: bool,
    /// Whether they may ask only for what a pool can give them.
    pub only_from_pools: bool,
}

/// What namespaces see and get of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tenancy {
    /// Whether Services are not told the names of holders in other namespaces.
    pub hide_holders: bool,
    /// Whether the sharing key of another program, which had no other word for it, is consent to share
    /// with every namespace, as it was there.
    pub inherited_keys_share_everywhere: bool,
}

impl World {
    /// Nothing is known yet, but what an administrator sets.
    pub(super) fn new(annotated: AnnotatedServices, tenancy: Tenancy) -> Self {
        Self { annotated, tenancy, ..Self::default() }
    }

    /// Those who read what is said about a Service.
    pub(super) fn audience<'a>(&self, service: &'a ServiceView) -> Audience<'a> {
        Audience { namespace: service.key.namespace(), sees_all: !self.tenancy.hide_holders }
    }

    pub(super) fn claim(&self, addr: IpAddr) -> Option<&Claim> {
        self.ledger.claim(addr)
    }

    pub(super) fn is_in_flight(&self, addr: IpAddr) -> bool {
        self.ledger.is_in_flight(addr)
    }

    pub(super) fn pools_in_order(&self) -> impl Iterator<Item = &PoolView> {
        self.order.iter().filter_map(|name| self.pool(name))
    }

    pub(super) fn pool(&self, name: &PoolName) -> Option<&PoolView> {
        self.pools.values().find_map(|pools| pools.get(name))
    }

    fn all_pools(&self) -> impl Iterator<Item = &PoolView> {
        self.pools.values().flat_map(Store::values)
    }

    /// Whether Services of a class, or those without one, are served here: kube-vip's also while it
    /// has no pool, others by a pool. Who is not served is not even told so: with kube-vip's pools for
    /// a class, Services without one are another program's.
    pub(super) fn serves_class(&self, class: Option<&Arc<str>>) -> bool {
        self.annotated.classes.include(class)
            || self.all_pools().any(|pool| pool.classes.include(class))
    }

    /// Whether kube-vip is in use, as its `ConfigMap` or an administrator says.
    pub(super) fn has_kube_vip(&self) -> bool {
        self.annotates || self.annotated.named
    }

    /// Whether kube-vip's annotation says where a Service is shown: where kube-vip is in use, and where
    /// the Service has an address that was given so or bears the mark of that, which must go before
    /// the address is another's. Elsewhere it is a request like others.
    pub(super) fn is_announced_by_kube_vip(&self, service: &ServiceView) -> bool {
        let marked = service.plain.as_ref().is_some_and(|plain| plain.marked);
        let here = self.has_kube_vip() || marked;
        let mut given = self.claims_naming(service).map(|claim| claim.pool.as_ref());
        here || given.any(|pool| pool.is_none_or(is_of_map))
    }

    /// A Service as it is here: with or without what kube-vip's annotation says.
    pub(super) fn service(&self, key: &ObjectKey) -> Option<ServiceView> {
        self.services.get(key).map(|service| self.as_here(service))
    }

    /// The same for one that was read elsewhere.
    pub(super) fn as_here(&self, service: &ServiceView) -> ServiceView {
        let service = service.clone();
        let speaks = service.plain.is_none() || self.is_announced_by_kube_vip(&service);
        if speaks { service } else { service.without_annotation() }
    }

    /// Whether a namespace lets all its Services share addresses.
    pub(super) fn namespace_allows_sharing(&self, namespace: &str) -> bool {
        let map = self.all_pools().find_map(|pool| pool.map.as_ref());
        map.is_some_and(|map| map.shares(namespace))
    }

    /// Whether what was left on a Service is for us to take off.
    ///
    /// A finalizer that many operators use is so if the Service is one of those whose operator we
    /// replace: it carries more of that one than the finalizer, or pools like that one's are here.
    pub(super) fn is_left_to_us(&self, key: &ObjectKey, leftover: &Leftover) -> bool {
        let in_its_place = || self.all_pools().any(|pool| pool.place == Place::Annotation);
        match &leftover.finalizer_owner {
            Some(finalizer_owner) => {
                let possible = match &finalizer_owner.setter {
                    Setter::Class(class) => self.annotated.classes.include(class.as_ref()),
                    Setter::Former => true,
                };
                possible && (finalizer_owner.evident || in_its_place())
            }
            None => !leftover.marked || self.ledger.has_service(key) || in_its_place(),
        }
    }

    pub(super) fn namespace_labels(&self, namespace: &str) -> &BTreeMap<String, String> {
        self.namespaces.get(&namespace.to_owned()).unwrap_or(&self.no_labels)
    }

    /// Claims that name this very Service under the class it has.
    pub(super) fn claims_naming(&self, service: &ServiceView) -> impl Iterator<Item = &Claim> {
        let held = self.ledger.held_by_service(&service.key).into_iter();
        let claims = held.filter_map(|addr| self.claim(addr));
        claims.filter(|claim| {
            let holder = claim.holder(service);
            holder.is_some_and(|holder| holder.legacy || holder.class == service.class)
        })
    }

    /// Those of them that it may hold together with whoever else they name, and of the pools that it
    /// asks for unless it has the address already.
    pub(super) fn claims_of(&self, service: &ServiceView) -> Vec<&Claim> {
        let claims = self.claims_naming(service).filter(|claim| claim.clash(service).is_none());
        let fitting = claims.filter(|claim| {
            let holder = claim.holder(service);
            holder.is_none_or(|holder| !asks_for_other_pools(service, holder, claim))
        });
        fitting.collect()
    }

    /// Whether every watch has listed once.
    pub(super) fn has_listed(&self) -> bool {
        let foreign_addresses = ForeignKind::ALL
            .iter()
            .all(|kind| self.foreign_addresses.get(kind).is_some_and(Store::listed));
        self.ledger.listed()
            && self.services.listed()
            && PoolSource::ALL
                .iter()
                .all(|source| self.pools.get(source).is_some_and(Store::listed))
            && self.namespaces.listed()
            && self.service_ranges.listed()
            && foreign_addresses
    }

    /// How many addresses of a pool a namespace holds or is about to.
    pub(super) fn count_of(&self, pool: &PoolName, namespace: &str) -> usize {
        let listed = self.externals.count(&(pool.clone(), namespace.to_owned()));
        self.ledger.count(pool, namespace).saturating_add(listed)
    }

    /// The address that has waited longest for a deleted Service of a namespace, if giving it up gives
    /// the namespace room for one more of the pool.
    pub(super) fn to_give_up(&self, pool: &PoolName, namespace: &str) -> Option<IpAddr> {
        let limit = usize::try_from(self.limit_of(pool, namespace)?).unwrap_or(usize::MAX);
        let (retained, oldest) = self.ledger.retained(pool, namespace);
        let in_use = self.count_of(pool, namespace).saturating_sub(retained);
        oldest.filter(|_| in_use < limit)
    }

    /// How many addresses of a pool a namespace may hold; `None` is no limit.
    pub(super) fn limit_of(&self, pool: &PoolName, namespace: &str) -> Option<u32> {
        let limit = self.pool(pool)?.quota.as_ref()?.of(namespace)?;
        Some(u32::try_from(limit).unwrap_or_default())
    }

    /// The address of a family that is kept for this Service, and its pool: one for it by name
    /// before one for any of its namespace, and then the lowest.
    pub(super) fn kept_for(
        &self,
        service: &ServiceView,
        family: Family,
    ) -> Option<(IpAddr, &PoolName)> {
        let whom = [Some(service.key.name()), None];
        let namespace = service.key.namespace();
        let kept = whom.into_iter().flat_map(|name| self.ledger.kept_for(namespace, name)).copied();
        let held = self.ledger.held_by_service(&service.key);
        let of_family = kept.chain(held).filter(|addr| Family::of(*addr) == family);
        let fitting = of_family.filter_map(|addr| {
            let for_any = self.keeps(self.ledger.claim_to_be(addr)?, service)?;
            let book = &self.ledger.book;
            let usable =
                self.foreign_address(addr, service).is_none() && book.unusable(addr).is_none();
            let pool = book.pool_of(addr).filter(|_| usable)?;
            Some((for_any, addr, &pool.name))
        });
        fitting.min().map(|(_, addr, pool)| (addr, pool))
    }

    /// Whether a claim keeps its address for this Service, and if so, whether for any other of the
    /// namespace as well.
    ///
    /// A Service may be deleted and made anew before anybody looks. Its address is then kept as if
    /// the deletion had been seen in time.
    fn keeps(&self, claim: &Claim, service: &ServiceView) -> Option<bool> {
        let left = claim.left_by_namesake(service);
        match &claim.reserved {
            Some(kept) if left || claim.waits_for().is_some() => {
                kept.is_for_service(&service.key).then_some(kept.name.is_none())
            }
            None if left => self.retain_for(claim).map(|_| false),
            Some(_) | None => None,
        }
    }

    /// How long the pool of a claim keeps the address of a deleted Service for it.
    pub(super) fn retain_for(&self, claim: &Claim) -> Option<Duration> {
        self.pool(claim.pool.as_ref()?)?.retain_for
    }

    /// Who outside the ledger has an address that a Service would have. What the Service itself has in
    /// `spec.externalIPs` is no obstacle.
    pub(super) fn foreign_address(
        &self,
        addr: IpAddr,
        service: &ServiceView,
    ) -> Option<&ForeignAddress> {
        self.ledger.outside.of(&addr).find(|foreign_address| !foreign_address.is(&service.key))
    }

    /// Whether an address is taken by nothing but what the Service itself shows and has in
    /// `spec.externalIPs`.
    pub(super) fn is_free_for(&self, service: &ServiceView, addr: IpAddr) -> bool {
        self.claim(addr).is_none()
            && !self.is_in_flight(addr)
            && self.ledger.shown.of(&addr).all(|key| *key == service.key)
            && self.foreign_address(addr, service).is_none()
    }

    /// Whether a `VirtualIP` has the address and is not done with it.
    ///
    /// On its way to a Service its claim names a Service that is not of type `LoadBalancer` yet. Only
    /// the `VirtualIP` tells that such a claim is wanted.
    pub(super) fn is_a_virtual_ips(&self, addr: IpAddr) -> bool {
        self.ledger
            .outside
            .of(&addr)
            .any(|foreign_address| matches!(foreign_address, ForeignAddress::VirtualIp(_)))
    }

    /// Services that show an address though its claim does not name them.
    pub(super) fn shown_without_claim(&self, addr: IpAddr) -> impl Iterator<Item = &ObjectKey> {
        let holders = self.claim(addr).map(Claim::services).unwrap_or_default();
        let showing = self.ledger.shown.of(&addr).chain(self.contested.of(&addr));
        showing.filter(|key| !holders.iter().any(|holder| holder.key == **key))
    }

    /// Who has a taken address.
    pub(super) fn who_has(&self, addr: IpAddr, audience: Audience<'_>) -> String {
        if let Some(claim) = self.claim(addr) {
            return claim.described(audience);
        }
        if let Some(foreign_address) = self.ledger.outside.of(&addr).next() {
            return audience.foreign_address(foreign_address);
        }
        match self.ledger.shown.of(&addr).next() {
            Some(key) => format!("{}, which shows it without a claim", audience.service(key)),
            None => "a Service whose claim is being written".to_owned(),
        }
    }

    /// Takes the ranges of all `ServiceCIDR`s out of what pools give.
    pub(super) fn rebuild_service_ranges(&mut self) {
        let ranges = self.service_ranges.values();
        self.ledger.book.set_cluster_ips(ranges.fold(AddrSet::new(), |all, one| all.union(one)));
    }

    pub(super) fn rebuild_pools(&mut self) {
        let annotates = self.all_pools().any(|view| view.place == Place::Annotation);
        self.annotates = annotates;
        self.externals.recheck_all();
        let usable: Vec<_> =
            self.all_pools().filter_map(|view| view.pool.as_ref().ok()).cloned().collect();
        self.overlaps = self.ledger.set_pools(usable);
        let invalid = self.all_pools().filter(|view| view.pool.is_err());
        let invalid: Vec<_> = invalid.map(|view| view.name.clone()).collect();
        self.order =
            self.ledger.book.pools().map(|pool| pool.name.clone()).chain(invalid).collect();
        let mut order = std::mem::take(&mut self.order);
        order.sort_by_key(|name| self.pool(name).map(|view| view.rank));
        self.order = order;
    }
}
