//! Compares the ledger with Services in both directions, as they are known. Pure; changes nothing.

use std::net::IpAddr;

use landfall_api::{Finding, HolderKind, text};
use landfall_ipam::{Family, PoolName};

use super::{
    decide::{is_known, with_terms},
    world::World,
};
use crate::{
    cluster::service::{Balancer, Leftover},
    ledger::{Claim, HolderEntry, HolderRef, Showing},
    object::ObjectKey,
};

/// An inconsistency, for people and for the planner that fixes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    pub finding: Finding,
    pub addr: Option<IpAddr>,
    /// The Services concerned.
    pub keys: Vec<ObjectKey>,
    /// The pool concerned, if there is one.
    pub pool: Option<PoolName>,
    pub text: String,
}

/// All inconsistencies. During work in progress some are there by design.
pub(super) fn findings(world: World<'_>) -> Vec<Found> {
    let services = world.cluster.balancers().map(|service| world.as_here(service));
    let services = services.filter(|service| is_ours(world, service));
    let of_services = |claim: &Claim| claim.is_of_services() && !world.is_a_virtual_ips(claim.addr);
    let is_former = |holder: &HolderEntry| {
        let now = world.cluster.balancer(&holder.key);
        now.is_some_and(|service| !holder.is(service))
    };
    let showing = services.map(|service| showing(world, service));
    let mismatches = world.ledger.compare(showing, of_services, is_former).into_iter();
    let compared = mismatches.map(|mismatch| Found {
        finding: (&mismatch.violation).into(),
        addr: Some(mismatch.addr),
        keys: mismatch.keys,
        pool: world.ledger.pool_of(mismatch.addr),
        text: text::violation(HolderKind::Service, &mismatch.violation),
    });
    let leftovers = world.cluster.services.keys().filter(|key| {
        let finalizers =
            |(_, left): (_, &Leftover)| left.finalizers.is_some() && world.is_left_to_us(key, left);
        world.cluster.leftover(key).is_some_and(finalizers)
    });
    let left = leftovers.map(|key| Found {
        finding: Finding::FinalizerLeft,
        addr: None,
        keys: vec![key.clone()],
        pool: world
            .ledger
            .held_by_service(key)
            .first()
            .and_then(|addr| world.ledger.pool_of(*addr)),
        text: format!("Service {key} carries the finalizer of a replaced operator"),
    });
    let several = world.cluster.balancers().map(|service| world.as_here(service));
    let several = several.filter(|service| is_ours(world, service));
    let several = several.flat_map(|service| several_shown(world, &service));
    let ignored = world.ledger.external_ignored().map(|(addr, key)| Found {
        finding: Finding::ExternalIPIgnored,
        addr: Some(addr),
        keys: Vec::new(),
        pool: world.ledger.pool_of(addr),
        text: format!(
            "Service {key} has {addr} in spec.externalIPs, to which its namespace has no right"
        ),
    });
    compared.chain(left).chain(several).chain(ignored).collect()
}

/// A finding for each family of which a Service shows several known addresses.
fn several_shown(world: World<'_>, service: &Balancer) -> Vec<Found> {
    let found = service.families.iter().filter_map(|family| {
        let of_family = service.in_status().iter().filter(|addr| Family::of(**addr) == *family);
        let shown: Vec<_> = of_family.copied().collect();
        let known = shown.iter().copied().find(|addr| is_known(world, *addr));
        let addr = known.filter(|_| shown.len() > 1)?;
        let text: Vec<_> = shown.iter().map(ToString::to_string).collect();
        Some(Found {
            finding: Finding::SeveralShown,
            addr: Some(addr),
            keys: vec![service.key.clone()],
            pool: world.ledger.pool_of(addr),
            text: format!("Service {} shows {}", service.key, text.join(", ")),
        })
    });
    found.collect()
}

/// Whether the Service is served here.
fn is_ours(world: World<'_>, service: &Balancer) -> bool {
    let claimed = world.claims_naming(service).next().is_some();
    let of_class = world.serves_class(service.class.as_ref());
    claimed || (of_class && !service.ingress_has_hostname)
}

/// The addresses that a Service shows and that it may have a claim on.
fn showing(world: World<'_>, service: Balancer) -> Showing {
    // An address outside every pool and the ledger belongs to another program.
    let known = |addr: &IpAddr| is_known(world, *addr);
    // An address that only its user wrote is a request.
    let held = |addr: &IpAddr| {
        let claim = world.claim(*addr);
        service.in_status().contains(addr)
            || claim.is_some_and(|claim| claim.holder(&service).is_some())
            || world.notes.contested.contains(addr, &service.key)
    };
    let shows = service.shows.iter().copied().filter(known).filter(held).collect();
    let holder = HolderRef::service(&service.key);
    let terms = with_terms(world, service).terms.as_deref().cloned();
    Showing { holder, shows, terms }
}
