//! The checks after every step: they compare the cluster with the model, and with itself one step before.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use landfall_ipam::Family;

use super::{
    super::sim::Sim,
    acts::{Act, Name},
    reference::{Model, Says},
};
use crate::{cluster::service::Place, object::ObjectKey};

/// The addresses that each Service shows.
pub(super) type Shown = BTreeMap<String, BTreeSet<IpAddr>>;

pub(super) fn shown(sim: &Sim) -> Shown {
    let services = sim.cluster.services.iter();
    services
        .map(|(key, stored)| (key.to_string(), stored.view.shows.iter().copied().collect()))
        .collect()
}

/// No Service's address changes unless its owner asked for that.
pub(super) fn no_service_moved_without_reason(before: &Shown, sim: &Sim, act: &Act, after: &Model) {
    let now = shown(sim);
    for (name, had) in before {
        for addr in had {
            let family = Family::of(*addr);
            let has = now.get(name).cloned().unwrap_or_default();
            if has.contains(addr) {
                continue;
            }
            let granted = after.services.get(name.as_str()).is_some_and(|service| {
                service.asks.iter().any(|asked| has.contains(asked) && Family::of(*asked) == family)
            });
            let moved_to_asked_pool = after.services.get(name.as_str()).is_some_and(|service| {
                let of_asked = |addr: &IpAddr| {
                    let giver = after.claims.get(addr).and_then(|claim| claim.pool);
                    let covers = |name: &Name| {
                        let pool = after.pools.get(name);
                        giver == Some(*name)
                            || pool.is_some_and(|pool| pool.covers().contains(addr))
                    };
                    Family::of(*addr) == family && service.pools.iter().any(covers)
                };
                has.iter().any(of_asked)
            });
            let shared =
                || before.iter().any(|(other, addrs)| other != name && addrs.contains(addr));
            let may_cost_it = match act {
                Act::Delete(who) | Act::Recreate(who) | Act::Type(who, _) | Act::Class(who, _) => {
                    Some(who)
                }
                Act::Stack(who, stack) => Some(who).filter(|_| !stack.families().contains(&family)),
                // A Service whose change makes it clash leaves.
                Act::Share(who, _) => Some(who).filter(|_| shared()),
                Act::Create(..)
                | Act::BeginDeletion(_)
                | Act::Ask(..)
                | Act::AskPools(..)
                | Act::LabelService(..)
                | Act::LabelNamespace(..)
                | Act::EditPool(..)
                | Act::DeletePool(_)
                | Act::Reserve { .. }
                | Act::Unreserve(_)
                | Act::Node(..)
                | Act::PassTime(_)
                | Act::Restart => None,
            };
            let own_doing = may_cost_it == Some(&name.as_str());
            let asked = granted || moved_to_asked_pool || own_doing;
            assert!(asked, "{name} lost {addr} by {act:?}, and has {has:?}");
        }
    }
}

/// Ledger and Services agree, and no two Services use one port of an address.
pub(super) fn all_is_well(sim: &Sim) {
    let wrong = sim.cluster.violations();
    assert!(wrong.is_empty(), "{wrong:?}");
    let clashing = sim.cluster.recorded_clashes();
    assert!(clashing.is_empty(), "{clashing:?}");
}

/// Every Service has the addresses and the condition that the model expects.
pub(super) fn every_service_is_served_as_promised(sim: &Sim, model: &Model) {
    let names: Vec<_> = sim.cluster.services.keys().map(ToString::to_string).collect();
    assert_eq!(names, model.services.keys().copied().collect::<Vec<_>>());
    let expected: Shown = model
        .services
        .iter()
        .map(|(name, service)| ((*name).to_owned(), service.has.iter().copied().collect()))
        .collect();
    assert_eq!(shown(sim), expected, "left is what they show");
    for (name, service) in &model.services {
        let view = &sim.cluster.services[&ObjectKey::parse(name).unwrap()].view;
        assert_eq!(view.place == Place::Annotation, service.marked, "where {name} shows it");
        let said = view.conditions.first();
        let said = said.map(|said| (said.status.as_str(), said.reason.as_str()));
        let expected = service.says.map(|says| match says {
            Says::Allocated => ("True", "Allocated"),
            Says::OutsidePool => ("True", "OutsidePool"),
            Says::Refused(reason) => ("False", reason.as_str()),
        });
        // A Service whose annotation was written without a wait is not told that all is well.
        let untold = said.is_none() && service.says == Some(Says::Allocated);
        if untold && model.place == Place::Annotation {
            continue;
        }
        assert_eq!(said, expected, "left is what {name} says: {:?}", view.conditions);
    }
}

/// The ledger is what the model expects, entry by entry.
pub(super) fn the_ledger_is_as_expected(sim: &Sim, model: &Model) {
    type Kept = Option<(String, Option<String>, Option<i64>)>;
    type Entry = (Option<String>, BTreeSet<String>, Kept);
    let claims = sim.cluster.claims.iter();
    let ledger: BTreeMap<IpAddr, Entry> = claims
        .map(|(addr, claim)| {
            let pool = claim.pool.as_ref().map(ToString::to_string);
            let holders = claim.services().iter().map(|holder| holder.key.to_string()).collect();
            let kept = claim.reserved.clone().map(|kept| {
                (kept.namespace, kept.name, kept.expires.map(jiff::Timestamp::as_second))
            });
            (*addr, (pool, holders, kept))
        })
        .collect();
    let expected: BTreeMap<IpAddr, Entry> = model
        .claims
        .iter()
        .map(|(addr, claim)| {
            let pool = claim.pool.map(str::to_owned);
            let holders = claim.holders.iter().map(|holder| holder.name.to_owned()).collect();
            let kept = claim
                .reserved
                .as_ref()
                .map(|kept| (kept.namespace.to_owned(), kept.name.map(str::to_owned), kept.ends));
            (*addr, (pool, holders, kept))
        })
        .collect();
    assert_eq!(ledger, expected, "left is the ledger");
}

/// No Service waits while an address that it could have is free.
pub(super) fn no_service_starves(sim: &Sim, model: &Model) {
    for (name, service) in &model.services {
        if !service.load_balancer || service.deleting || !service.asks.is_empty() {
            continue;
        }
        let view = &sim.cluster.services[&ObjectKey::parse(name).unwrap()].view;
        let missing: Vec<Family> = service
            .stack
            .families()
            .into_iter()
            .filter(|family| !view.shows.iter().any(|addr| Family::of(*addr) == *family))
            .collect();
        let possible: Vec<Vec<IpAddr>> =
            missing.iter().map(|family| could_have(sim, model, name, *family)).collect();
        let starves = if view.require_all {
            // It needs both at once; where a quota is near, two together may be one too many.
            let unlimited = model.pools.values().all(|pool| pool.quota == (None, None));
            unlimited && !possible.is_empty() && possible.iter().all(|addrs| !addrs.is_empty())
        } else {
            possible.iter().any(|addrs| !addrs.is_empty())
        };
        assert!(!starves, "{name} could have {possible:?}");
    }
}

/// Every free address of a family that some pool could give a Service, counted one by one.
fn could_have(sim: &Sim, model: &Model, name: Name, family: Family) -> Vec<IpAddr> {
    let service = &model.services[name];
    let (namespace, _) = name.split_once('/').unwrap();
    let mut possible = Vec::new();
    for pool_name in model.turns(name).concat() {
        let Some(pool) = model.pools.get(pool_name) else { continue };
        let asked = service.pools.contains(&pool_name);
        let held = sim.cluster.claims.values().filter(|claim| {
            let of_pool = claim.pool.as_ref().is_some_and(|of| of.as_str() == pool_name);
            of_pool && claim.services().iter().any(|holder| holder.key.namespace() == namespace)
        });
        let serves = pool.class == service.class
            && (asked || (service.pools.is_empty() && pool.gives_unasked()))
            && !pool.is_of_others(namespace)
            && (!pool.some_services || service.labelled)
            && (!pool.some_namespaces || model.labelled_namespaces.contains(namespace))
            && !pool.drain
            && pool.limit(namespace).is_none_or(|limit| held.count() < limit as usize);
        let gives = |addr: &IpAddr| {
            Family::of(*addr) == family
                && !sim.cluster.claims.contains_key(addr)
                && !model.is_foreign_address(*addr)
                && model.excluded_by(*addr).is_none()
                && !pool.holds_back(*addr)
        };
        possible.extend(pool.covers().into_iter().filter(|addr| serves && gives(addr)));
    }
    possible
}

/// Each pool says how full it is and how many Services wait for it.
pub(super) fn pools_tell_the_truth(sim: &Sim, model: &Model) {
    for (name, pool) in &model.pools {
        let taken = |addr: &IpAddr| {
            sim.cluster.claims.contains_key(addr) || model.is_foreign_address(*addr)
        };
        // The pool that gave it, as long as that pool still covers it.
        let counts_for = |addr: &IpAddr| {
            let giver = sim.cluster.claims.get(addr).and_then(|claim| claim.pool.as_ref());
            let giver = model.pools.iter().find(|(name, pool)| {
                giver.is_some_and(|giver| giver.as_str() == **name) && pool.covers().contains(addr)
            });
            giver.map(|(name, _)| *name).or_else(|| model.first_pool(*addr))
        };
        let usable = |addr: &IpAddr| model.excluded_by(*addr).is_none() && !pool.holds_back(*addr);
        let covered = pool.covers();
        let count =
            |counts: &dyn Fn(&IpAddr) -> bool| covered.iter().filter(|addr| counts(addr)).count();
        let waiting = model.services.values().filter(|service| {
            service.load_balancer && service.misses.iter().any(|no| no.pools.contains(name))
        });
        let expected = (
            Some(count(&usable).to_string()),
            Some(count(&|addr| taken(addr) && counts_for(addr) == Some(*name)).to_string()),
            Some(count(&|addr| usable(addr) && !taken(addr)).to_string()),
            Some(i64::try_from(waiting.count()).unwrap()),
        );
        let status = sim.cluster.pool_status(name);
        let told = (status.capacity, status.used, status.free, status.waiting);
        assert_eq!(told, expected, "left is what {name} says: capacity, used, free, waiting");
    }
}
