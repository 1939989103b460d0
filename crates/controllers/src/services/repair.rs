//! Ledger and Services compared in both directions, in what is known of them. Pure; changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use landfall_api::Finding;
use landfall_ipam::{ClaimFact, HolderFact, PoolName, Violation, check};

use super::{
    decide::with_terms,
    view::{ClaimView, HolderView, Leftover, ServiceKey, ServiceView, Tenure},
    world::World,
};

/// Something that should not be, for people and for whoever mends it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    pub finding: Finding,
    pub addr: Option<IpAddr>,
    /// The Services concerned.
    pub keys: Vec<ServiceKey>,
    /// The pool concerned, if there is one.
    pub pool: Option<PoolName>,
    pub text: String,
}

/// Everything that should not be. In the middle of work some of it is so by design.
pub(super) fn findings(world: &World) -> Vec<Found> {
    let mut names = BTreeMap::new();
    let claims: Vec<_> =
        world.claims.values().filter_map(|claim| claim_fact(world, claim, &mut names)).collect();
    let holders: Vec<_> = world
        .services
        .values()
        .filter(|service| is_ours(world, service))
        .map(|service| holder_fact(world, service, &mut names))
        .collect();
    let violations = check(&claims, &holders);
    let doubled: BTreeSet<_> = violations
        .iter()
        .filter(|violation| matches!(violation, Violation::SharedWithoutConsent(..)))
        .map(|violation| parts(violation).0)
        .collect();
    // Who shows an address together with others has no claim of his own: that is one thing to say.
    let said_otherwise = |violation: &Violation| matches!(violation, Violation::ShownWithoutClaim(addr, _) if doubled.contains(addr));
    let violations = violations.iter().filter(|violation| !said_otherwise(violation));
    let compared = violations.map(|violation| {
        let (addr, ids) = parts(violation);
        let keys = ids.into_iter().filter_map(|id| names.get(id).cloned()).collect();
        let pool = pool_of(world, addr);
        Found {
            finding: violation.into(),
            addr: Some(addr),
            keys,
            pool,
            text: violation.to_string(),
        }
    });
    let leftovers = world.leftovers.keys().filter(|key| {
        let finalizers =
            |left: &Leftover| left.finalizers.is_some() && world.is_left_to_us(key, left);
        world.leftovers.get(key).is_some_and(finalizers)
    });
    let left = leftovers.map(|key| Found {
        finding: Finding::FinalizerLeft,
        addr: None,
        keys: vec![key.clone()],
        pool: world.held.of(key).next().and_then(|addr| pool_of(world, *addr)),
        text: format!("Service {key} carries the finalizer of a replaced operator"),
    });
    compared.chain(left).collect()
}

fn pool_of(world: &World, addr: IpAddr) -> Option<PoolName> {
    let covering = world.book.pool_of(addr).map(|pool| pool.name.clone());
    covering.or_else(|| world.claim(addr)?.pool.clone())
}

fn parts(violation: &Violation) -> (IpAddr, Vec<&str>) {
    match violation {
        Violation::ClaimedTwice(addr) | Violation::HeldByNobody(addr) => (*addr, Vec::new()),
        Violation::ShownWithoutClaim(addr, id)
        | Violation::HolderGone(addr, id)
        | Violation::NeverShown(addr, id)
        | Violation::ShownTwice(addr, id) => (*addr, vec![id]),
        Violation::SharedWithoutConsent(addr, one, other) => (*addr, vec![one, other]),
    }
}

/// Whether the Service is one of those that are served here.
fn is_ours(world: &World, service: &ServiceView) -> bool {
    let claimed = world.claims_naming(service).next().is_some();
    let of_class = world.serves_class(service.class.as_ref());
    claimed || (of_class && !service.shows_other)
}

fn holder_fact(
    world: &World,
    service: &ServiceView,
    names: &mut BTreeMap<String, ServiceKey>,
) -> HolderFact {
    let id = format!("Service {}", service.key);
    names.insert(id.clone(), service.key.clone());
    // What is outside every pool and not in the ledger is another program's.
    let known = |addr: &IpAddr| world.claim(*addr).is_some() || world.book.pool_of(*addr).is_some();
    HolderFact {
        id,
        shows: service.shows.iter().copied().filter(known).collect(),
        namespace: service.key.namespace().to_owned(),
        terms: with_terms(world, service.clone()).terms.as_deref().cloned(),
    }
}

/// A claim, unless it is none of a Service's business.
fn claim_fact(
    world: &World,
    claim: &ClaimView,
    names: &mut BTreeMap<String, ServiceKey>,
) -> Option<ClaimFact> {
    let addr = claim.addr;
    match &claim.tenure {
        Tenure::Other(_) => None,
        _ if world.is_a_virtual_ips(addr) => None,
        Tenure::Nobody(_) => Some(ClaimFact { addr, holders: Vec::new(), reserved: false }),
        Tenure::Services(holders) => {
            let ids = holders.iter().map(|holder| {
                let id = name_of(world, holder);
                names.insert(id.clone(), holder.key.clone());
                id
            });
            let reserved = claim.reserved.is_some();
            Some(ClaimFact { addr, holders: ids.collect(), reserved })
        }
    }
}

fn name_of(world: &World, holder: &HolderView) -> String {
    let key = &holder.key;
    match world.services.get(key) {
        Some(service) if !holder.is(service) => format!("a former Service {key}"),
        Some(_) | None => format!("Service {key}"),
    }
}
