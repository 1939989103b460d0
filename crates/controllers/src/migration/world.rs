//! What the migration of one `VirtualIP` is decided from, and questions about it.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use landfall_api::HolderKind;
use landfall_ipam::{Book, Pool, PoolName};

use super::effect::Services;
use crate::{
    cluster::{
        Cluster,
        pool::PoolSource,
        virtual_ip::{MappingView, VirtualIpView},
    },
    ledger::{Claim, HolderRef, Ledger},
    object::ObjectKey,
};

/// The known state, and the Services of one `VirtualIP` as they were just read: its target and its copy.
/// They are not kept, because nothing else needs them whole.
#[derive(Clone, Copy)]
pub(super) struct World<'a> {
    pub cluster: &'a Cluster,
    pub ledger: &'a Ledger,
    pub services: &'a Services,
}

impl<'a> World<'a> {
    pub(super) fn claim(self, addr: IpAddr) -> Option<&'a Claim> {
        self.ledger.claim(addr)
    }

    /// The Service that a `VirtualIP` exposes, unless it is being deleted.
    pub(super) fn target(self) -> Option<&'a Service> {
        let service = self.services.target.as_deref()?;
        service.metadata.deletion_timestamp.is_none().then_some(service)
    }

    /// The Service with the name of the copy.
    pub(super) fn at_clones_place(self) -> Option<&'a Service> {
        self.services.copy.as_deref()
    }

    /// The copy, if the Service of its name belongs to this `VirtualIP`.
    pub(super) fn clone_of(self, vip: &VirtualIpView) -> Option<&'a Service> {
        self.at_clones_place().filter(|service| is_clone(service, &vip.uid))
    }

    /// A Service that shows the address, except those that may on behalf of this `VirtualIP`.
    pub(super) fn stranger(self, addr: IpAddr, vip: &VirtualIpView) -> Option<&'a ObjectKey> {
        let target = vip.target();
        let copy = self.clone_of(vip).map(|copy| ObjectKey::of(&copy.metadata));
        let mut showing = self.ledger.shown.of(&addr).chain(self.ledger.listing(addr));
        showing.find(|key| **key != target && Some(*key) != copy.as_ref())
    }

    /// The first `IPGroup`, in the order in which they serve, that covers the address.
    pub(super) fn group_of(self, addr: IpAddr) -> Option<PoolName> {
        let mut groups = self.cluster.pools_in_order();
        let covering = groups.find(|view| view.source == PoolSource::IpGroups && view.covers(addr));
        covering.map(|view| view.name.clone())
    }

    /// The mapping that covers the address, the lowest name first.
    pub(super) fn mapping_of(self, addr: IpAddr) -> Option<&'a MappingView> {
        self.usable_mappings().find(|(_, pool)| pool.contains(addr)).map(|(mapping, _)| mapping)
    }

    /// Mappings that can be read, in the order of their names.
    pub(super) fn usable_mappings(self) -> impl Iterator<Item = (&'a MappingView, &'a Pool)> {
        let mappings = self.cluster.mappings.values();
        mappings.filter_map(|mapping| Some((mapping, mapping.pool.as_ref().ok()?)))
    }

    /// The book of the ledger with the mappings as pools: an exclusion by any pool that covers an address
    /// counts, and every address that is claimed or shown is taken.
    pub(super) fn book(self) -> Book {
        let mut book = self.ledger.book.clone();
        let mappings = self.usable_mappings().map(|(_, pool)| pool);
        let pools: Vec<_> = self.ledger.book.pools().chain(mappings).cloned().collect();
        book.replace_pools(pools);
        book
    }

    /// Every claim of this `VirtualIP`, the lowest address first.
    pub(super) fn claims_of(self, vip: &VirtualIpView) -> impl Iterator<Item = &'a Claim> {
        let held = self.ledger.claims_of(&HolderRef::virtual_ip(&vip.key));
        held.filter(|claim| claim.is_of(vip))
    }
}

/// Whether any Service shows the address in its status, or lists it in `spec.externalIPs`.
pub(super) fn is_shown(ledger: &Ledger, addr: IpAddr) -> bool {
    ledger.shown.has(&addr) || ledger.listing(addr).next().is_some()
}

/// Whether a Service is the copy that belongs to the `VirtualIP` of this uid.
pub(super) fn is_clone(service: &Service, vip: &str) -> bool {
    let owners = service.metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| owner.kind == HolderKind::VirtualIp.as_str() && owner.uid == vip)
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
