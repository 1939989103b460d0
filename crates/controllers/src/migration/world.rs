//! The known state of the migration, and questions about it.

use std::{net::IpAddr, sync::Arc};

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use landfall_ipam::{Book, Pool, PoolName};

use super::{
    observe,
    view::{MappingView, VirtualIpView},
};
use crate::{ledger::Claim, object::ObjectKey, services::view::PoolView, store::Store};

/// The newest known objects.
#[derive(Debug, Default)]
pub(super) struct World {
    pub virtual_ips: Store<ObjectKey, VirtualIpView>,
    pub mappings: Store<Arc<str>, MappingView>,
    pub groups: Store<PoolName, PoolView>,
    pub claims: Store<IpAddr, Claim>,
    pub services: Store<ObjectKey, Service>,
}

impl World {
    /// Whether every kind has been listed.
    pub(super) fn has_listed(&self) -> bool {
        self.virtual_ips.listed()
            && self.mappings.listed()
            && self.groups.listed()
            && self.claims.listed()
            && self.services.listed()
    }

    /// The Service that a `VirtualIP` exposes, unless it is being deleted.
    pub(super) fn target(&self, vip: &VirtualIpView) -> Option<&Service> {
        let service = self.services.get(&vip.target())?;
        service.metadata.deletion_timestamp.is_none().then_some(service)
    }

    /// The Service with the name of the copy.
    pub(super) fn at_clones_place(&self, vip: &VirtualIpView) -> Option<&Service> {
        self.services.get(&vip.clone_key())
    }

    /// The copy, if the Service of its name belongs to this `VirtualIP`.
    pub(super) fn clone_of(&self, vip: &VirtualIpView) -> Option<&Service> {
        self.at_clones_place(vip).filter(|service| is_clone(service, &vip.uid))
    }

    /// A Service that shows the address, except those that may on behalf of this `VirtualIP`.
    pub(super) fn stranger(&self, addr: IpAddr, vip: &VirtualIpView) -> Option<ObjectKey> {
        let target = vip.target();
        self.services
            .values()
            .filter(|service| !is_clone(service, &vip.uid))
            .filter(|service| {
                shows(service).chain(observe::external_ips(service)).any(|ip| ip == addr)
            })
            .map(|service| ObjectKey::of(&service.metadata))
            .find(|key| *key != target)
    }

    /// Whether any Service shows the address.
    pub(super) fn is_shown(&self, addr: IpAddr) -> bool {
        self.services.values().any(|service| {
            shows(service).chain(observe::external_ips(service)).any(|shown| shown == addr)
        })
    }

    /// The first `IPGroup`, in the order in which they serve, that covers the address.
    pub(super) fn group_of(&self, addr: IpAddr) -> Option<PoolName> {
        let mut book = Book::new();
        book.replace_pools(self.group_pools().cloned());
        book.pool_of(addr).map(|pool| pool.name.clone())
    }

    /// The mapping that covers the address, the lowest name first.
    pub(super) fn mapping_of(&self, addr: IpAddr) -> Option<&MappingView> {
        self.usable_mappings().find(|(_, pool)| pool.contains(addr)).map(|(mapping, _)| mapping)
    }

    /// Mappings that can be read, in the order of their names.
    pub(super) fn usable_mappings(&self) -> impl Iterator<Item = (&MappingView, &Pool)> {
        self.mappings.values().filter_map(|mapping| Some((mapping, mapping.pool.as_ref().ok()?)))
    }

    /// The addresses that can be given now: an exclusion by any pool that covers an address counts, and
    /// every address that is claimed or shown is taken.
    pub(super) fn book(&self) -> Book {
        let mappings = self.usable_mappings().map(|(_, pool)| pool);
        let mut book = Book::new();
        book.replace_pools(mappings.chain(self.group_pools()).cloned());
        for claim in self.claims.values() {
            book.take(claim.addr);
        }
        for service in self.services.values() {
            for addr in shows(service).chain(observe::external_ips(service)) {
                book.take(addr);
            }
        }
        book
    }

    /// Every claim of this `VirtualIP`, the lowest address first.
    pub(super) fn claims_of<'a>(
        &'a self,
        vip: &'a VirtualIpView,
    ) -> impl Iterator<Item = &'a Claim> {
        self.claims.values().filter(|claim| claim.is_of(vip))
    }

    fn group_pools(&self) -> impl Iterator<Item = &Pool> {
        self.groups.values().filter_map(|view| view.pool.as_ref().ok())
    }
}

/// Whether a Service is the copy that belongs to the `VirtualIP` of this uid.
pub(super) fn is_clone(service: &Service, vip: &str) -> bool {
    let owners = service.metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| owner.kind == observe::KIND && owner.uid == vip)
}

pub(super) fn is_load_balancer(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
}

/// Whether the Service has no address even inside the cluster.
pub(super) fn is_headless(spec: &ServiceSpec) -> bool {
    spec.cluster_ip.as_deref() == Some("None")
}

/// The addresses in the Service's ingress.
pub(super) fn shows(service: &Service) -> impl Iterator<Item = IpAddr> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default();
    ingress.iter().filter_map(|entry| entry.ip.as_deref()?.parse().ok())
}

/// Whether the Service's ingress has any entry.
pub(super) fn shows_something(service: &Service) -> bool {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|balancer| balancer.ingress.as_ref()).is_some_and(|all| !all.is_empty())
}

/// The address that the Service asks for.
pub(super) fn asks_for(service: &Service) -> Option<&str> {
    let asked = service.spec.as_ref()?.load_balancer_ip.as_deref()?;
    (!asked.is_empty()).then_some(asked)
}
