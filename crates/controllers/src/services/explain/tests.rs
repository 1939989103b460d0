//! A condition and an offline caller say the same, for every reason.

use std::{collections::BTreeSet, sync::Arc};

use landfall_api::{Quota, condition, keys::CONDITION_ALLOCATED};
use landfall_ipam::{Family, Reason, Terms};

use super::*;
use crate::{
    cluster::{classes::Classes, pool::PoolView},
    ledger::Reservation,
    services::tests::sim::{KINDS, Sim, Stored},
    sim::fixtures::ip,
};

const WEB: &str = "shop/web";

fn running() -> Sim {
    let mut sim = Sim::new(1);
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0-10.0.0.3", "10.0.0.3");
    for kind in KINDS {
        sim.list(0, kind);
    }
    sim
}

fn pool(sim: &mut Sim, change: impl FnOnce(&mut PoolView)) {
    sim.cluster.put_pool(&PoolName::new("IPGroup/a"), change);
}

fn web(sim: &mut Sim, change: impl FnOnce(&mut Stored)) {
    sim.cluster.create_service(WEB);
    sim.cluster.edit_service(WEB, change);
}

fn asks(addr: &'static str) -> impl FnOnce(&mut Stored) {
    move |stored| stored.view.request = Request::Addresses(vec![ip(addr)])
}

/// Brings about that `shop/web` is refused for this reason; `false` if only the API server's answer to a
/// write can.
fn bring_about(sim: &mut Sim, reason: Reason) -> bool {
    match reason {
        Reason::Exhausted => {
            for name in ["a", "b", "c"] {
                sim.cluster.create_service(&format!("shop/{name}"));
            }
            sim.settle();
            web(sim, |_| {});
        }
        Reason::NotSelected => {
            pool(sim, |view| view.pool.as_mut().unwrap().auto_assign = false);
            web(sim, |_| {});
        }
        Reason::Excluded => web(sim, asks("10.0.0.3")),
        Reason::TakenBy => {
            sim.cluster.create_service("shop/a");
            sim.settle();
            web(sim, asks("10.0.0.0"));
        }
        Reason::Reserved => {
            let reservation = Reservation {
                kind: HolderKind::Service,
                namespace: "other".to_owned(),
                name: None,
                expires: None,
                retained: false,
            };
            sim.cluster.reserve(ip("10.0.0.1"), reservation);
            web(sim, asks("10.0.0.1"));
        }
        Reason::SharingRefused => {
            sim.cluster.create_service("shop/a");
            let share = |stored: &mut Stored| {
                stored.view = stored.view.clone().sharing("k", 80);
            };
            sim.cluster.edit_service("shop/a", share);
            sim.settle();
            web(sim, |stored| {
                stored.view = stored.view.clone().sharing("k", 80).asking("10.0.0.0");
            });
        }
        Reason::OutsideEveryPool => web(sim, asks("10.9.9.9")),
        Reason::FamilyMissing => web(sim, |stored| stored.view.families = vec![Family::V6]),
        Reason::Draining => {
            pool(sim, |view| view.pool.as_mut().unwrap().drain = true);
            web(sim, |_| {});
        }
        Reason::Unparseable => web(sim, |stored| {
            let twice = Refusal::TwoOfOneFamily(ip("10.0.0.1"), ip("10.0.0.2"));
            stored.view.request = Request::Bad(twice);
        }),
        Reason::QuotaExceeded => {
            pool(sim, |view| {
                view.quota = Some(Quota { per_namespace: Some(0), ..Quota::default() });
            });
            web(sim, |_| {});
        }
        Reason::ClassUnknown => {
            pool(sim, |view| view.classes = Classes::only(Some("example.org/lb")));
            web(sim, |_| {});
        }
        Reason::PoolUnknown => {
            web(sim, |stored| stored.view.pools = Some(vec![PoolName::new("IPGroup/none")]));
        }
        Reason::PoolInvalid => {
            pool(sim, |view| view.pool = Err(vec!["segment is no CIDR".to_owned()]));
            web(sim, |_| {});
        }
        Reason::NoPool => {
            sim.cluster.delete_pool(&PoolName::new("IPGroup/a"));
            web(sim, |_| {});
        }
        Reason::LedgerRefused | Reason::HolderRefused => return false,
    }
    true
}

/// A Service that shows `10.0.0.1`, which it shares by the rules of another time.
fn shares_as_before(sim: &mut Sim, key: &str, port: u16) {
    sim.cluster.create_service(key);
    sim.cluster.edit_service(key, |stored| {
        stored.view = stored.view.clone().sharing("k", port).showing(&["10.0.0.1"]);
        let terms = stored.view.terms.as_mut().map(Arc::make_mut).unwrap();
        *terms = Terms { local: true, selector: Some("app=web".to_owned()), ..terms.with_all() };
    });
    let holder = sim.cluster.services[&ObjectKey::parse(key).unwrap()].view.holder_entry();
    let claim = sim.cluster.claims.get(&ip("10.0.0.1"));
    let holders = claim.map(|claim| claim.services().to_vec()).unwrap_or_default();
    sim.cluster.hold(ip("10.0.0.1"), holders.into_iter().chain([holder]).collect());
}

type Story = fn(&mut Sim);

/// Each reason of a Service that has what it wants, and how it arises.
const HAS_ALL: [(&str, Story); 4] = [
    (ALLOCATED, |sim| web(sim, |_| {})),
    (OUTSIDE_POOL, |sim| {
        web(sim, |_| {});
        sim.settle();
        sim.cluster.set_pool("IPGroup/a", "10.0.0.2", "");
    }),
    (ALSO_SHOWN, |sim| {
        web(sim, |_| {});
        sim.settle();
        sim.cluster.create_service("shop/other");
        sim.cluster.edit_service("shop/other", |stored| {
            stored.view = stored.view.clone().showing(&["10.0.0.0"]);
        });
    }),
    (SHARED_AS_BEFORE, |sim| {
        shares_as_before(sim, WEB, 80);
        shares_as_before(sim, "other/web", 443);
    }),
];

#[test]
fn a_condition_and_an_offline_caller_say_the_same_of_a_service_that_has_all_it_wants() {
    for (reason, arise) in HAS_ALL {
        let mut sim = running();
        arise(&mut sim);
        sim.settle();
        let told = sim.explain(WEB).unwrap();
        assert_eq!((told.outcome, told.reason.as_str()), (Outcome::Allocated, reason));
        assert_eq!(("True".to_owned(), told.reason, told.message), written(&sim, WEB), "{reason}");
    }
}

/// Status, reason and message of the condition that the operator wrote.
fn written(sim: &Sim, key: &str) -> (String, String, String) {
    let stored = &sim.cluster.services[&ObjectKey::parse(key).unwrap()];
    let said = condition::get(&stored.view.conditions, CONDITION_ALLOCATED).unwrap();
    (said.status.clone(), said.reason.clone(), said.message.clone())
}

#[test]
fn a_condition_and_an_offline_caller_say_the_same_for_every_reason() {
    let mut left_to_the_api_server = BTreeSet::new();
    for reason in Reason::ALL {
        let mut sim = running();
        if !bring_about(&mut sim, reason) {
            left_to_the_api_server.insert(reason);
            continue;
        }
        sim.settle();
        let told = sim.explain(WEB).unwrap();
        assert_eq!(told.outcome, Outcome::Refused, "{reason}");
        assert_eq!(
            ("False".to_owned(), told.reason.clone(), told.message.clone()),
            written(&sim, WEB),
            "{reason}"
        );
        assert_eq!((told.service.as_str(), told.reason.as_str()), (WEB, reason.as_str()));
        let first = &told.missing[0];
        assert_eq!(first.reason, reason.as_str());
        assert_eq!(first.fix, text::fix(HolderKind::Service, reason), "{reason}");
        assert!(told.message.contains(&first.text), "{reason}");
    }
    let expected = BTreeSet::from([Reason::LedgerRefused, Reason::HolderRefused]);
    assert_eq!(left_to_the_api_server, expected);
}

#[test]
fn a_refusal_names_the_holder_in_the_way_and_the_verdict_of_each_pool() {
    let mut sim = running();
    bring_about(&mut sim, Reason::TakenBy);
    sim.settle();
    let told = sim.explain(WEB).unwrap();
    assert_eq!(told.asked.addresses, [ip("10.0.0.0")]);
    assert_eq!(told.missing[0].address, Some(ip("10.0.0.0")));
    assert_eq!(told.missing[0].held_by.as_deref(), Some("Service shop/a"));

    let mut sim = running();
    bring_about(&mut sim, Reason::Exhausted);
    sim.settle();
    let told = sim.explain(WEB).unwrap();
    let verdict = &told.missing[0].pools[0];
    assert_eq!((verdict.pool.as_str(), verdict.reason.as_str()), ("IPGroup/a", "Exhausted"));
    assert!(told.missing[0].text.contains(&verdict.text));
}

#[test]
fn the_addresses_of_a_service_are_explained_as_its_condition_says_it() {
    let mut sim = running();
    web(&mut sim, |_| {});
    let before = sim.explain(WEB).unwrap();
    assert_eq!((before.outcome, before.has.len()), (Outcome::Pending, 0));
    assert_eq!(before.message, "is about to get 10.0.0.0 from IPGroup/a");
    sim.settle();
    let after = sim.explain(WEB).unwrap();
    assert_eq!(after.outcome, Outcome::Allocated);
    assert_eq!(after.has[0].pool.as_deref(), Some("IPGroup/a"));
    assert_eq!(("True".to_owned(), after.reason, after.message), written(&sim, WEB));
    // An edit leaves its address outside the pool.
    sim.cluster.set_pool("IPGroup/a", "10.0.0.2", "");
    sim.settle();
    let outside = sim.explain(WEB).unwrap();
    assert_eq!(outside.reason, "OutsidePool");
    assert_eq!(("True".to_owned(), outside.reason, outside.message), written(&sim, WEB));
}

#[test]
fn an_explanation_is_readable_by_programs() {
    let mut sim = running();
    bring_about(&mut sim, Reason::TakenBy);
    sim.settle();
    let told = serde_json::to_value(sim.explain(WEB).unwrap()).unwrap();
    assert_eq!(told["outcome"], "Refused");
    assert_eq!(told["missing"][0]["heldBy"], "Service shop/a");
    assert_eq!(told["asked"]["addresses"][0], "10.0.0.0");
}
