//! Judges addresses that a Service already shows: they are adopted into the ledger, or treated as
//! requests.

use std::net::IpAddr;

use landfall_ipam::Family;

use super::{
    super::{status, world::World},
    Slot, Takes, has, is_lease, may_join, no_longer_shared, requested, serves,
};
use crate::{
    cluster::service::{Balancer, Place},
    ledger::Claim,
};

/// Adopts an address that the Service already shows, whichever program gave it.
pub(super) fn adopt(world: World<'_>, service: &Balancer, addr: IpAddr) -> Slot {
    if world.is_in_flight(addr) {
        return Slot::Later;
    }
    if let Some(claim) = world.claim(addr) {
        if claim.left_by_namesake(service) {
            return Slot::Has(addr);
        }
        if let Err(refusal) = may_join(world, claim, service) {
            return Slot::Disputed(refusal);
        }
    }
    let pool = world.ledger.book.pool_of(addr).map(|pool| pool.name.clone());
    pool.map_or(Slot::Foreign, |pool| Slot::Takes(addr, Some(pool)))
}

/// An address in kube-vip's annotation on which the Service has no claim. If its status has it as well,
/// an operator that we replace gave it. Else its user asks for it.
pub(super) fn annotated(world: World<'_>, service: &Balancer, addr: IpAddr, takes: &Takes) -> Slot {
    if is_lease(addr) {
        return Slot::Leased(addr);
    }
    // A status written after the request or our refusal proves nothing: kube-vip announces every
    // address in the annotation, and may be faster than we are.
    let is_held = service.in_status().contains(&addr)
        && !status::says_refused(service)
        && !world.notes.asked_first.contains(&service.key, &addr);
    let slot = if is_held {
        let slot = adopt(world, service, addr);
        // An address outside every pool is announced in any case, so no other Service may get it.
        if matches!(slot, Slot::Foreign) { Slot::Takes(addr, None) } else { slot }
    } else if world.is_in_flight(addr) {
        Slot::Later
    } else if world.claim(addr).is_some_and(|claim| claim.left_by_namesake(service)) {
        Slot::Has(addr)
    } else {
        requested(world, service, addr, takes).unwrap_or_else(Slot::Disputed)
    };
    let had = matches!(slot, Slot::Has(_) | Slot::Takes(..));
    if had && service.spec_contradicts_annotation { Slot::Follow } else { slot }
}

/// More addresses of one family that the Service shows beside the one it keeps, given by another
/// program. They stay for as long as it shows them.
pub(super) fn beside(
    world: World<'_>,
    service: &Balancer,
    claims: &[&Claim],
    kept: IpAddr,
) -> Vec<Slot> {
    if service.place != Place::Status || !service.shows.contains(&kept) {
        return Vec::new();
    }
    let family = Family::of(kept);
    let others = service.shows.iter().copied().filter(|addr| *addr != kept);
    let others = others.filter(|addr| Family::of(*addr) == family);
    let slots =
        others.filter(|addr| no_longer_shared(world, service, *addr).is_none()).map(|addr| {
            if claims.iter().any(|claim| claim.addr == addr) {
                has(world, service, addr)
            } else if is_known(world, addr) {
                adopt(world, service, addr)
            } else {
                Slot::Has(addr)
            }
        });
    slots.collect()
}

/// The one address of the family that counts among those the Service shows: one it has a claim on, else
/// one in the ledger or a pool, else the first.
pub(super) fn of_family(
    world: World<'_>,
    service: &Balancer,
    claims: &[&Claim],
    family: Family,
) -> Option<IpAddr> {
    let of_family = || service.shows.iter().copied().filter(|addr| Family::of(*addr) == family);
    let its_own = |addr: &IpAddr| claims.iter().any(|claim| claim.addr == *addr);
    let known = |addr: &IpAddr| is_known(world, *addr);
    let first = of_family().find(its_own).or_else(|| of_family().find(known));
    first.or_else(|| of_family().next())
}

/// Whether an address is in the ledger or in a pool; others belong to another program.
pub(in crate::services) fn is_known(world: World<'_>, addr: IpAddr) -> bool {
    world.claim(addr).is_some() || world.ledger.book.pool_of(addr).is_some()
}

/// The first of its external addresses in a pool that serves the Service: its user wants the Service to
/// have it.
pub(super) fn external(world: World<'_>, service: &Balancer, family: Family) -> Option<IpAddr> {
    let of_family = service.external.iter().copied().filter(|addr| Family::of(*addr) == family);
    let served = |addr: &IpAddr| {
        let mut covering = world.cluster.pools_in_order().filter(|view| view.covers(*addr));
        covering.any(|view| serves(world, view, service).is_ok())
    };
    of_family.into_iter().find(served)
}
