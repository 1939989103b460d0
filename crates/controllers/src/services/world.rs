//! The known state: watched objects with our own writes that no watch has echoed yet, and indexes.

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

/// The known state, including our own writes that no watch has echoed yet.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) ledger: Ledger,
    pub(super) services: Store<ObjectKey, ServiceView>,
    /// Services of any type with marks that replaced operators left on them.
    pub(super) leftovers: Store<ObjectKey, Leftover>,
    pub(super) pools: BTreeMap<PoolSource, Store<PoolName, PoolView>>,
    pub(super) namespaces: Store<String, BTreeMap<String, String>>,
    pub(super) foreign_addresses: BTreeMap<ForeignKind, Store<ForeignAddress, Vec<IpAddr>>>,
    /// The ranges of each `ServiceCIDR`.
    pub(super) service_ranges: Store<String, AddrSet>,
    /// The addresses that Services list in `spec.externalIPs`.
    pub(super) externals: Externals,
    /// Pools in the order in which they are asked; unusable ones come last.
    pub(super) order: Vec<PoolName>,
    /// Pools that share addresses with other pools, and those others.
    pub(super) overlaps: BTreeMap<PoolName, BTreeSet<PoolName>>,
    /// Services with the address of another in the annotation, which they could have otherwise.
    pub(super) contested: Index<IpAddr, ObjectKey>,
    /// Addresses that a Service had in the annotation, without a claim, before they were in its status.
    pub(super) asked_first: Index<ObjectKey, IpAddr>,
    pub(super) annotated: AnnotatedServices,
    pub(super) tenancy: Tenancy,
    /// Whether any pool publishes in an annotation.
    annotates: bool,
    no_labels: BTreeMap<String, String>,
}

/// The rules for Services with addresses published in an annotation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnotatedServices {
    pub classes: Classes,
    /// Whether an administrator named these classes: then kube-vip is in use, even without its
    /// `ConfigMap`.
    pub named: bool,
    /// Whether they may ask only for addresses that a pool can give them.
    pub only_from_pools: bool,
}

/// What namespaces may see of each other and share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tenancy {
    /// Whether the names of holders in other namespaces are hidden from Services.
    pub hide_holders: bool,
    /// Whether the sharing key of another program, which knew no namespaces, is consent to share with
    /// every namespace, as it was there.
    pub inherited_keys_share_everywhere: bool,
}

impl World {
    /// A world of which only the settings are known.
    pub(super) fn new(annotated: AnnotatedServices, tenancy: Tenancy) -> Self {
        Self { annotated, tenancy, ..Self::default() }
    }

    /// The readers of messages about a Service.
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

    /// Whether Services of a class, or without one, are served here: kube-vip's classes even while it
    /// has no pool, others by a pool. An unserved Service gets no message: with kube-vip's pools for
    /// one class, Services without a class belong to another program.
    pub(super) fn serves_class(&self, class: Option<&Arc<str>>) -> bool {
        self.annotated.classes.include(class)
            || self.all_pools().any(|pool| pool.classes.include(class))
    }

    /// Whether kube-vip is in use, according to its `ConfigMap` or an administrator.
    pub(super) fn has_kube_vip(&self) -> bool {
        self.annotates || self.annotated.named
    }

    /// Whether kube-vip's annotation is where addresses of a Service are shown: if kube-vip is in use,
    /// or if the Service has an address that was given so or the label of one, which must go before
    /// another Service gets the address. Elsewhere the annotation is a request like others.
    pub(super) fn is_announced_by_kube_vip(&self, service: &ServiceView) -> bool {
        let marked = service.plain.as_ref().is_some_and(|plain| plain.marked);
        let here = self.has_kube_vip() || marked;
        let mut given = self.claims_naming(service).map(|claim| claim.pool.as_ref());
        here || given.any(|pool| pool.is_none_or(is_of_map))
    }

    /// A Service, with or without kube-vip's annotation, as it applies here.
    pub(super) fn service(&self, key: &ObjectKey) -> Option<ServiceView> {
        self.services.get(key).map(|service| self.as_here(service))
    }

    /// The same for a view from elsewhere.
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

    /// Whether leftovers on a Service are ours to remove.
    ///
    /// A finalizer that many operators use is ours if we replace the operator of this Service: the
    /// Service has other marks of it, or there are pools like those of that operator.
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

    /// Claims that name exactly this Service, with the class it has.
    pub(super) fn claims_naming(&self, service: &ServiceView) -> impl Iterator<Item = &Claim> {
        let held = self.ledger.held_by_service(&service.key).into_iter();
        let claims = held.filter_map(|addr| self.claim(addr));
        claims.filter(|claim| {
            let holder = claim.holder(service);
            holder.is_some_and(|holder| holder.legacy || holder.class == service.class)
        })
    }

    /// Those of them that it may hold together with their other holders, and only from the pools that
    /// it asks for unless it has the address already.
    pub(super) fn claims_of(&self, service: &ServiceView) -> Vec<&Claim> {
        let claims = self.claims_naming(service).filter(|claim| claim.clash(service).is_none());
        let fitting = claims.filter(|claim| {
            let holder = claim.holder(service);
            holder.is_none_or(|holder| !asks_for_other_pools(service, holder, claim))
        });
        fitting.collect()
    }

    /// Whether every watch has completed a list.
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

    /// How many addresses of a pool a namespace holds or is about to hold.
    pub(super) fn count_of(&self, pool: &PoolName, namespace: &str) -> usize {
        let listed = self.externals.count(&(pool.clone(), namespace.to_owned()));
        self.ledger.count(pool, namespace).saturating_add(listed)
    }

    /// The address that has waited longest for a deleted Service of a namespace, if giving it up lets
    /// the namespace have another of the pool.
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

    /// The address of a family that is reserved for this Service, and its pool: first by its name, then
    /// for any Service of its namespace, and then the lowest.
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

    /// Whether a claim reserves its address for this Service; `Some(true)` if for any Service of the
    /// namespace.
    ///
    /// A Service may be deleted and created again before we see it. Its address is then kept as if we
    /// had seen the deletion in time.
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

    /// The object outside the ledger that has an address which a Service would take. The Service's own
    /// `spec.externalIPs` are no obstacle.
    pub(super) fn foreign_address(
        &self,
        addr: IpAddr,
        service: &ServiceView,
    ) -> Option<&ForeignAddress> {
        self.ledger.outside.of(&addr).find(|foreign_address| !foreign_address.is(&service.key))
    }

    /// Whether an address is taken by nothing except the Service's own status and `spec.externalIPs`.
    pub(super) fn is_free_for(&self, service: &ServiceView, addr: IpAddr) -> bool {
        self.claim(addr).is_none()
            && !self.is_in_flight(addr)
            && self.ledger.shown.of(&addr).all(|key| *key == service.key)
            && self.foreign_address(addr, service).is_none()
    }

    /// Whether a `VirtualIP` still has the address.
    ///
    /// During its migration the claim names a Service that is not of type `LoadBalancer` yet. Only the
    /// `VirtualIP` shows that such a claim is wanted.
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

    /// A description of the object that has a taken address.
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

    /// Excludes the ranges of all `ServiceCIDR`s from all pools.
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
