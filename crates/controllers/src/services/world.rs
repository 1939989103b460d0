//! The known state: what the engine lends, and what the planner of Services knows beyond that.

use std::{net::IpAddr, sync::Arc, time::Duration};

use landfall_ipam::{Family, PoolName};

use super::{audience::Audience, wish::asks_for_other_pools};
use crate::{
    cluster::classes::Classes,
    cluster::{
        Cluster, Kind,
        pool::map::is_of_map,
        service::{Balancer, Leftover, Place, Setter},
    },
    index::Index,
    ledger::{Claim, ForeignAddress, HolderRef, Ledger},
    object::ObjectKey,
};

/// The kinds that must have been listed before any decision.
pub(super) const KINDS: &[Kind] = &[
    Kind::Claims,
    Kind::Services,
    Kind::IpGroups,
    Kind::PoolMap,
    Kind::Namespaces,
    Kind::Nodes,
    Kind::ApiServers,
    Kind::ServiceRanges,
    Kind::VirtualIps,
];

/// The known state, including our own writes that no watch has echoed yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct World<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) ledger: &'a Ledger,
    pub(super) notes: &'a Notes,
}

/// What is known of Services beyond cluster and ledger, and the settings that decisions depend on.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Services with the address of another in the annotation, which they could have otherwise.
    pub(super) contested: Index<IpAddr, ObjectKey>,
    /// Addresses that a Service had in the annotation, without a claim, before they were in its status.
    pub(super) asked_first: Index<ObjectKey, IpAddr>,
    pub(super) annotated: AnnotatedServices,
    pub(super) tenancy: Tenancy,
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

impl<'a> World<'a> {
    /// The readers of messages about a Service.
    pub(super) fn audience(self, service: &Balancer) -> Audience<'_> {
        Audience { namespace: service.key.namespace(), sees_all: !self.notes.tenancy.hide_holders }
    }

    pub(super) fn claim(self, addr: IpAddr) -> Option<&'a Claim> {
        self.ledger.claim(addr)
    }

    pub(super) fn is_in_flight(self, addr: IpAddr) -> bool {
        self.ledger.is_in_flight(addr)
    }

    /// Whether Services of a class, or without one, are served here: kube-vip's classes even while it
    /// has no pool, others by a pool. An unserved Service gets no message: with kube-vip's pools for
    /// one class, Services without a class belong to another program.
    pub(super) fn serves_class(self, class: Option<&Arc<str>>) -> bool {
        self.notes.annotated.classes.include(class)
            || self.cluster.all_pools().any(|pool| pool.classes.include(class))
    }

    /// Whether kube-vip is in use, according to its `ConfigMap` or an administrator.
    pub(super) fn has_kube_vip(self) -> bool {
        self.cluster.annotates() || self.notes.annotated.named
    }

    /// Whether kube-vip's annotation is where addresses of a Service are shown: if kube-vip is in use,
    /// or if the Service has an address that was given so or the label of one, which must go before
    /// another Service gets the address. Elsewhere the annotation is a request like others.
    pub(super) fn is_announced_by_kube_vip(self, service: &Balancer) -> bool {
        let marked = service.plain.as_ref().is_some_and(|plain| plain.marked);
        let here = self.has_kube_vip() || marked;
        let mut given = self.claims_naming(service).map(|claim| claim.pool.as_ref());
        here || given.any(|pool| pool.is_none_or(is_of_map))
    }

    /// A Service, with or without kube-vip's annotation, as it applies here.
    pub(super) fn service(self, key: &ObjectKey) -> Option<Balancer> {
        self.cluster.balancer(key).map(|service| self.as_here(service))
    }

    /// The same for a view from elsewhere.
    pub(super) fn as_here(self, service: &Balancer) -> Balancer {
        let service = service.clone();
        let speaks = service.plain.is_none() || self.is_announced_by_kube_vip(&service);
        if speaks { service } else { service.without_annotation() }
    }

    /// Whether a namespace lets all its Services share addresses.
    pub(super) fn namespace_allows_sharing(self, namespace: &str) -> bool {
        let map = self.cluster.all_pools().find_map(|pool| pool.map.as_ref());
        map.is_some_and(|map| map.shares(namespace))
    }

    /// Whether leftovers on a Service are ours to remove.
    ///
    /// A finalizer that many operators use is ours if we replace the operator of this Service: the
    /// Service has other marks of it, or there are pools like those of that operator.
    pub(super) fn is_left_to_us(self, key: &ObjectKey, leftover: &Leftover) -> bool {
        let in_its_place = || self.cluster.all_pools().any(|pool| pool.place == Place::Annotation);
        match &leftover.finalizer_owner {
            Some(finalizer_owner) => {
                let possible = match &finalizer_owner.setter {
                    Setter::Class(class) => self.notes.annotated.classes.include(class.as_ref()),
                    Setter::Former => true,
                };
                possible && (finalizer_owner.evident || in_its_place())
            }
            None => !leftover.marked || self.ledger.has_service(key) || in_its_place(),
        }
    }

    /// Claims that name exactly this Service, with the class it has.
    pub(super) fn claims_naming(self, service: &Balancer) -> impl Iterator<Item = &'a Claim> {
        let claims = self.ledger.claims_of(&HolderRef::service(&service.key));
        claims.filter(|claim| {
            let holder = claim.holder(service);
            holder.is_some_and(|holder| holder.legacy || holder.class == service.class)
        })
    }

    /// Those of them that it may hold together with their other holders, and only from the pools that
    /// it asks for unless it has the address already.
    pub(super) fn claims_of(self, service: &Balancer) -> Vec<&'a Claim> {
        let claims = self.claims_naming(service).filter(|claim| claim.clash(service).is_none());
        let fitting = claims.filter(|claim| {
            let holder = claim.holder(service);
            holder.is_none_or(|holder| !asks_for_other_pools(service, holder, claim))
        });
        fitting.collect()
    }

    /// The address that has waited longest for a deleted Service of a namespace, if freeing it lets
    /// the namespace have another of the pool.
    pub(super) fn retained_to_free(self, pool: &PoolName, namespace: &str) -> Option<IpAddr> {
        let limit = usize::try_from(self.cluster.limit_of(pool, namespace)?).unwrap_or(usize::MAX);
        let (retained, oldest) = self.ledger.retained(pool, namespace);
        let in_use = self.ledger.count_with_external(pool, namespace).saturating_sub(retained);
        oldest.filter(|_| in_use < limit)
    }

    /// The address of a family that is reserved for this Service, and its pool: first by its name, then
    /// for any Service of its namespace, and then the lowest.
    pub(super) fn kept_for(
        self,
        service: &Balancer,
        family: Family,
    ) -> Option<(IpAddr, &'a PoolName)> {
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
    pub(super) fn keeps(self, claim: &Claim, service: &Balancer) -> Option<bool> {
        let left = claim.left_by_namesake(service);
        match &claim.reserved {
            Some(kept) if left || claim.waits_for().is_some() => {
                claim.is_reserved_for(&service.key).then_some(kept.name.is_none())
            }
            None if left => self.retain_for(claim).map(|_| false),
            Some(_) | None => None,
        }
    }

    /// How long the pool of a claim keeps the address of a deleted Service for it.
    pub(super) fn retain_for(self, claim: &Claim) -> Option<Duration> {
        self.cluster.pool(claim.pool.as_ref()?)?.retain_for
    }

    /// The object outside the ledger that has an address which a Service would take. The Service's own
    /// `spec.externalIPs` are no obstacle.
    pub(super) fn foreign_address(
        self,
        addr: IpAddr,
        service: &Balancer,
    ) -> Option<&'a ForeignAddress> {
        self.ledger.outside.of(&addr).find(|foreign_address| !foreign_address.is(&service.key))
    }

    /// Whether an address is taken by nothing except the Service's own status and `spec.externalIPs`.
    pub(super) fn is_free_for(self, service: &Balancer, addr: IpAddr) -> bool {
        self.claim(addr).is_none()
            && !self.is_in_flight(addr)
            && self.ledger.shown.of(&addr).all(|key| *key == service.key)
            && self.foreign_address(addr, service).is_none()
    }

    /// Whether a `VirtualIP` still has the address.
    ///
    /// During its migration the claim names a Service that is not of type `LoadBalancer` yet. Only the
    /// `VirtualIP` shows that such a claim is wanted.
    pub(super) fn is_a_virtual_ips(self, addr: IpAddr) -> bool {
        self.ledger
            .outside
            .of(&addr)
            .any(|foreign_address| matches!(foreign_address, ForeignAddress::VirtualIp(_)))
    }

    /// Services that show an address though its claim does not name them.
    pub(super) fn shown_without_claim(self, addr: IpAddr) -> impl Iterator<Item = &'a ObjectKey> {
        let holders = self.claim(addr).map(Claim::services).unwrap_or_default();
        let showing = self.ledger.shown.of(&addr).chain(self.notes.contested.of(&addr));
        showing.filter(|key| !holders.iter().any(|holder| holder.key == **key))
    }

    /// A description of the object that has a taken address.
    pub(super) fn describe_holder(self, addr: IpAddr, audience: Audience<'_>) -> String {
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
}
