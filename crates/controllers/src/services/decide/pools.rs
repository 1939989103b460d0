//! Finds the pools that serve a Service, and whether one may give it a certain address.

use std::net::IpAddr;

use kube::core::{Selector, SelectorExt as _};
use landfall_ipam::{PoolName, Refusal, Verdict};

use super::{super::world::World, Takes, may_be_given};
use crate::cluster::{
    pool::{PoolView, Rank},
    service::{Balancer, Place},
};

/// A pool to ask; one that the Service asks for may not exist.
pub(super) type Candidate<'a> = (PoolName, Option<&'a PoolView>);

/// The pools to ask, in order and in two turns: the second only if no pool of the first gives.
pub(super) fn candidates<'a>(world: World<'a>, service: &Balancer) -> [Vec<Candidate<'a>>; 2] {
    if let Some(names) = &service.pools {
        let asked = names.iter().map(|name| (name.clone(), world.cluster.pool(name)));
        return [asked.collect(), Vec::new()];
    }
    let first = meant_for(world, service);
    let pools = world.cluster.pools_in_order().filter(|view| concerns(world, view, service));
    let (asked, mut later): (Vec<_>, Vec<_>) =
        pools.partition(|view| first.is_none_or(|first| view.rank <= first.rank));
    later.retain(|view| {
        let falls_back = first.is_some_and(|first| first.falls_back && view.place == first.place);
        falls_back && is_open_to(view, service)
    });
    [asked, later]
        .map(|turn| turn.into_iter().map(|view| (view.name.clone(), Some(view))).collect())
}

/// Whether the pool's verdict matters to a Service that names no pool. Pools of other namespaces do
/// not, nor do pools that must be named and would not serve it.
fn concerns(world: World<'_>, view: &PoolView, service: &Balancer) -> bool {
    match view.rank {
        Rank::OfNamespace => serves(world, view, service) != Err(Verdict::OfOtherNamespaces),
        Rank::Usual | Rank::Fallback => true,
        Rank::OnRequest => serves(world, view, service).is_ok(),
    }
}

/// The first pool that is meant for the Service, though it may be unusable or full.
fn meant_for<'a>(world: World<'a>, service: &Balancer) -> Option<&'a PoolView> {
    let meant = |view: &&PoolView| is_meant_for(world, view, service);
    match &service.pools {
        Some(names) => names.iter().filter_map(|name| world.cluster.pool(name)).find(meant),
        None => world.cluster.pools_in_order().find(meant),
    }
}

/// Whether the pool is meant for the Service, which named no others. It may be unusable or full.
pub(super) fn is_meant_for(world: World<'_>, view: &PoolView, service: &Balancer) -> bool {
    let asked = service.pools.is_some();
    match &view.pool {
        Ok(pool) => (asked || pool.auto_assign) && serves(world, view, service).is_ok(),
        Err(_) => {
            is_open_to(view, service) && serves(world, view, service) == Err(Verdict::Invalid)
        }
    }
}

/// Whether the Service names pools, or this one need not be named.
pub(super) fn is_open_to(view: &PoolView, service: &Balancer) -> bool {
    service.pools.is_some() || view.rank != Rank::OnRequest
}

/// Where to publish these addresses on the Service: in the annotation if it has one. Else, if it shows
/// some of them already, in the same place, unless the pool that gave the first serves it and says
/// otherwise. Else where the pool says that gave them, or contains them, or is meant for the Service.
pub(in crate::services) fn place(world: World<'_>, service: &Balancer, addrs: &[IpAddr]) -> Place {
    if service.place == Place::Annotation {
        return service.place;
    }
    let giver = |addr: &IpAddr| world.cluster.pool(world.claim(*addr)?.pool.as_ref()?);
    let covering = |addr: &IpAddr| world.cluster.pool(&world.ledger.book.pool_of(*addr)?.name);
    let pool = if addrs.iter().any(|addr| service.shows.contains(addr)) {
        let giver = addrs.first().and_then(giver);
        giver.filter(|pool| serves(world, pool, service).is_ok())
    } else {
        let from = addrs.iter().find_map(giver).or_else(|| addrs.iter().find_map(covering));
        from.or_else(|| meant_for(world, service))
    };
    pool.map_or(service.place, |pool| pool.place)
}

/// Whether the Service may have an address that it asks for though no pool gives it. One announced from
/// the annotation always could, if the address is free, no pool excludes it and no `IPGroup` covers it.
pub(super) fn may_ask_beyond_pools(
    world: World<'_>,
    service: &Balancer,
    addr: IpAddr,
    refusal: &Refusal,
) -> bool {
    let lenient = |pool: &PoolName| {
        world.cluster.pool(pool).is_some_and(|view| view.place == Place::Annotation)
    };
    let beyond = match refusal {
        Refusal::OutsideEveryPool(_) => !world.notes.annotated.only_from_pools,
        Refusal::NotServed(_, verdicts) => {
            !world.notes.annotated.only_from_pools && verdicts.iter().all(|(pool, _)| lenient(pool))
        }
        Refusal::HeldBack(_, pool) => lenient(pool),
        Refusal::Unparseable { .. }
        | Refusal::TwoOfOneFamily(..)
        | Refusal::Excluded(..)
        | Refusal::NeverGiven(..)
        | Refusal::TakenBy(..)
        | Refusal::Reserved(..)
        | Refusal::SharingRefused(..)
        | Refusal::WrongFamily(_)
        | Refusal::LedgerRefused(_)
        | Refusal::HolderRefused(_)
        | Refusal::NoneGives(..) => false,
    };
    beyond
        && world.has_kube_vip()
        && place(world, service, &[]) == Place::Annotation
        && (!world.ledger.book.is_taken(addr) || world.is_free_for(service, addr))
        && world.ledger.book.never_given(addr).is_none()
}

/// How a Service can have an address that it asks for.
pub(super) enum Grant {
    /// This pool gives it.
    From(PoolName),
    /// A pool gives it once the namespace has given up this one, which waits for a deleted Service.
    After(IpAddr),
}

/// Whether, and how, a pool can give exactly this address to this Service.
pub(super) fn specific(
    world: World<'_>,
    service: &Balancer,
    addr: IpAddr,
    takes: &Takes,
) -> Result<Grant, Refusal> {
    let audience = world.audience(service);
    let reservation = world.claim(addr).filter(|claim| claim.waits_for().is_some());
    if let Some(claim) = reservation.filter(|claim| !claim.is_reserved_for(&service.key)) {
        return Err(Refusal::Reserved(addr, claim.described(audience)));
    }
    if world.claim(addr).is_some_and(|claim| world.keeps(claim, service).is_some()) {
        // The reservation decides; selectors and quotas do not count.
        let pool = world.ledger.book.pool_of(addr).ok_or(Refusal::OutsideEveryPool(addr))?;
        if let Some(why) = world.ledger.book.unusable(addr) {
            return Err(Refusal::NeverGiven(addr, why));
        }
        let foreign_address = world.foreign_address(addr, service);
        let taken = foreign_address.map(|foreign_address| {
            Refusal::TakenBy(addr, audience.foreign_address(foreign_address))
        });
        return taken.map_or_else(|| Ok(Grant::From(pool.name.clone())), Err);
    }
    let joins = world.claim(addr).map(|claim| may_be_given(world, claim, service));
    let mut verdicts = Vec::new();
    let mut refusal = None;
    let mut held_back = None;
    for view in world.cluster.pools_in_order() {
        if !view.covers(addr) {
            continue;
        }
        let asked = service.pools.as_ref().is_none_or(|names| names.contains(&view.name));
        let served = if asked { serves(world, view, service) } else { Err(Verdict::NotAsked) };
        let served = served.and_then(|()| within_quota(world, view, service, Some(addr), takes));
        let retained = match served {
            Ok(()) => None,
            Err(verdict) => {
                let over = matches!(verdict, Verdict::OverQuota(_));
                let namespace = service.key.namespace();
                let retained = world.retained_to_free(&view.name, namespace).filter(|_| over);
                if retained.is_none() {
                    verdicts.push((view.name.clone(), verdict));
                    continue;
                }
                retained
            }
        };
        let given = match &joins {
            Some(Ok(())) => world.ledger.book.offers(&view.name, addr),
            Some(Err(why)) => Err(why.clone()),
            None if world.is_free_for(service, addr) => world.ledger.book.offers(&view.name, addr),
            None => world
                .ledger
                .book
                .can_give(&view.name, addr, || world.describe_holder(addr, audience)),
        };
        match given {
            Ok(()) => {
                return Ok(retained.map_or_else(|| Grant::From(view.name.clone()), Grant::After));
            }
            // These are about one pool only, and another may have better reasons.
            Err(Refusal::NotServed(_, why)) => verdicts.extend(why),
            Err(why @ Refusal::HeldBack(..)) => held_back = held_back.or(Some(why)),
            Err(why) => refusal = refusal.or(Some(why)),
        }
    }
    let passes = verdicts.iter().any(|(_, verdict)| *verdict >= Verdict::Draining);
    Err(match refusal.or_else(|| held_back.filter(|_| !passes)) {
        Some(refusal) => refusal,
        None if verdicts.is_empty() => Refusal::OutsideEveryPool(addr),
        None => Refusal::NotServed(addr, verdicts),
    })
}

/// The pool that counts a Service as waiting for this address: the first that covers it and would serve
/// the Service, else the first that covers it.
pub(in crate::services) fn awaited<'a>(
    world: World<'a>,
    service: &Balancer,
    addr: IpAddr,
) -> Option<&'a PoolName> {
    let asked =
        |view: &PoolView| service.pools.as_ref().is_none_or(|names| names.contains(&view.name));
    let would_serve = world.cluster.pools_in_order().find(|view| {
        let covers = view.pool.as_ref().is_ok_and(|pool| pool.contains(addr));
        covers && asked(view) && serves(world, view, service).is_ok()
    });
    let covering = || world.ledger.book.pool_of(addr).map(|pool| &pool.name);
    would_serve.map(|view| &view.name).or_else(covering)
}

/// Whether the namespace may hold one more address of the pool: this one, which it may have already.
/// Addresses that the Service takes for its other family count.
pub(super) fn within_quota(
    world: World<'_>,
    view: &PoolView,
    service: &Balancer,
    addr: Option<IpAddr>,
    takes: &Takes,
) -> Result<(), Verdict> {
    let namespace = service.key.namespace();
    let Some(limit) = world.cluster.limit_of(&view.name, namespace) else { return Ok(()) };
    let counts = |addr: IpAddr| world.ledger.counts(&view.name, namespace, addr);
    // A shared address counts for the pool that gave it first.
    let gives = |addr: IpAddr| world.claim(addr).and_then(|claim| claim.pool.as_ref());
    let more = takes.iter().filter(|(addr, pool)| {
        gives(*addr).or(pool.as_ref()) == Some(&view.name) && !counts(*addr)
    });
    let more = more.count();
    let held = world.ledger.count_with_external(&view.name, namespace).saturating_add(more);
    if addr.is_some_and(counts) || held < usize::try_from(limit).unwrap_or(usize::MAX) {
        Ok(())
    } else {
        Err(Verdict::OverQuota(limit))
    }
}

/// Whether the pool serves this Service at all.
pub(super) fn serves(world: World<'_>, view: &PoolView, service: &Balancer) -> Result<(), Verdict> {
    if !view.classes.include(service.class.as_ref()) {
        return Err(Verdict::OtherClass);
    }
    world.cluster.serves_namespace(view, service.key.namespace())?;
    if service.opts_out_of == Some(view.place) {
        return Err(Verdict::Ignored);
    }
    let selected = |selector: &Selector| selector.matches(&service.labels);
    if !view.services.as_ref().is_none_or(selected) {
        return Err(Verdict::OtherHolders);
    }
    // Last: an invalid pool is no reason for Services that it would not serve anyway.
    if view.pool.is_err() {
        return Err(Verdict::Invalid);
    }
    Ok(())
}
