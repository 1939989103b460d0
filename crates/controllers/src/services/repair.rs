//! Compares the ledger with Services in both directions, as they are known. Pure; changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use landfall_api::{Finding, HolderKind, Use, text};
use landfall_ipam::{ClaimFact, Family, HolderFact, PoolName, Violation, check};

use super::{
    decide::{is_known, with_terms},
    world::World,
};
use crate::{
    cluster::service::{Balancer, Leftover},
    ledger::{Claim, HolderEntry, Tenure},
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
    let mut names = BTreeMap::new();
    let claims: Vec<_> =
        world.ledger.claims().filter_map(|claim| claim_fact(world, claim, &mut names)).collect();
    let holders: Vec<_> = world
        .cluster
        .balancers()
        .map(|service| world.as_here(service))
        .filter(|service| is_ours(world, service))
        .map(|service| holder_fact(world, service, &mut names))
        .collect();
    let violations = check(&claims, &holders);
    let doubled: BTreeSet<_> = violations
        .iter()
        .filter(|violation| matches!(violation, Violation::SharedWithoutConsent(..)))
        .map(|violation| parts(violation).0)
        .collect();
    // A Service that shows an address together with others has no claim on it: that is one finding.
    let said_otherwise = |violation: &Violation| matches!(violation, Violation::ShownWithoutClaim(addr, _) if doubled.contains(addr));
    let violations = violations.iter().filter(|violation| !said_otherwise(violation));
    let compared = violations.map(|violation| {
        let (addr, ids) = parts(violation);
        let keys = ids.into_iter().filter_map(|id| names.get(id).cloned()).collect();
        let pool = world.ledger.pool_of(addr);
        Found {
            finding: violation.into(),
            addr: Some(addr),
            keys,
            pool,
            text: text::violation(HolderKind::Service, violation),
        }
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

/// Whether the Service is served here.
fn is_ours(world: World<'_>, service: &Balancer) -> bool {
    let claimed = world.claims_naming(service).next().is_some();
    let of_class = world.serves_class(service.class.as_ref());
    claimed || (of_class && !service.ingress_has_hostname)
}

fn holder_fact(
    world: World<'_>,
    service: Balancer,
    names: &mut BTreeMap<String, ObjectKey>,
) -> HolderFact {
    let id = format!("Service {}", service.key);
    names.insert(id.clone(), service.key.clone());
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
    let namespace = service.key.namespace().to_owned();
    let terms = with_terms(world, service).terms.as_deref().cloned();
    HolderFact { id, shows, namespace, terms }
}

/// A claim, unless it is not for Services.
fn claim_fact(
    world: World<'_>,
    claim: &Claim,
    names: &mut BTreeMap<String, ObjectKey>,
) -> Option<ClaimFact> {
    let addr = claim.addr;
    if !claim.is_of_services() || world.is_a_virtual_ips(addr) {
        return None;
    }
    match &claim.tenure {
        Tenure::Other(_) => None,
        Tenure::Nobody(_) => Some(ClaimFact { addr, holders: Vec::new(), reserved: false }),
        Tenure::Held(holders) => {
            let ids = holders.iter().map(|holder| {
                let id = name_of(world, holder);
                names.insert(id.clone(), holder.key.clone());
                id
            });
            // An administrator may reserve it for no Service at all.
            let reserved = claim.reserved.is_some() || claim.purpose == Use::Reserved;
            Some(ClaimFact { addr, holders: ids.collect(), reserved })
        }
    }
}

fn name_of(world: World<'_>, holder: &HolderEntry) -> String {
    let key = &holder.key;
    match world.cluster.balancer(key) {
        Some(service) if !holder.is(service) => format!("a former Service {key}"),
        Some(_) | None => format!("Service {key}"),
    }
}
