use std::{sync::Arc, time::Duration};

use super::{
    super::tests::sim::{KINDS, Kind, Sim, Stored},
    *,
};
use crate::{
    cluster::{News, pool::PoolSource, service::Request},
    object::Version,
    sim::fixtures::ip,
    store::Watched,
};

mod annotation;
mod announced;
mod fallback;
mod hold;
mod moves;
mod never;
mod other_uses;
mod overlaps;
mod patience;
mod promises;
mod repair;
mod retained;
mod sharing;
mod stories;
mod takeover;
mod tenants;

const POOLS: [(&str, &str); 4] = [
    ("10.0.0.0-10.0.0.3", ""),
    ("10.0.0.0-10.0.0.1", ""),
    ("10.0.0.0-10.0.0.3", "10.0.0.1"),
    ("10.0.0.2-10.0.0.5", ""),
];

/// A cluster with one pool and operators that have listed everything.
fn running(operators: usize) -> Sim {
    running_in(Place::Status, operators)
}

/// The same where addresses are published in that place.
fn running_in(place: Place, operators: usize) -> Sim {
    let mut sim = Sim::showing_in(place, operators);
    sim.cluster.set_pool("IPGroup/a", POOLS[0].0, POOLS[0].1);
    for operator in 0..operators {
        for kind in KINDS {
            sim.list(operator, kind);
        }
    }
    sim
}

/// The conditions of every Service, word for word.
fn said(sim: &Sim) -> Vec<(String, Vec<String>)> {
    let words = |stored: &Stored| {
        stored.view.conditions.iter().map(|condition| condition.message.clone()).collect()
    };
    sim.cluster.services.iter().map(|(key, stored)| (key.to_string(), words(stored))).collect()
}

fn shown(sim: &Sim) -> Vec<(String, Vec<String>)> {
    sim.cluster
        .services
        .iter()
        .map(|(key, stored)| {
            (key.to_string(), stored.view.shows.iter().map(ToString::to_string).collect())
        })
        .collect()
}

/// A cluster with these Services, each with a sharing key and one port.
fn sharing(services: &[(&str, &str, u16)]) -> Sim {
    let mut sim = running(1);
    for (key, sharing_key, port) in services {
        share(&mut sim, key, sharing_key, *port);
    }
    sim.settle();
    sim.cluster.writes.clear();
    sim
}

/// Creates a Service, if it does not exist, and gives it terms.
fn share(sim: &mut Sim, key: &str, sharing_key: &str, port: u16) {
    sim.cluster.create_service(key);
    sim.cluster.edit_service(key, |stored| {
        stored.view = stored.view.clone().sharing(sharing_key, port);
    });
}

fn shown_by(sim: &Sim, key: &str) -> Vec<String> {
    shown(sim).into_iter().find(|(name, _)| name == key).unwrap().1
}

#[test]
fn an_address_takes_two_writes_and_then_silence() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    assert_eq!(sim.cluster.writes, ["take", "publish"]);
    assert_eq!(shown(&sim), [("shop/web".to_owned(), vec!["10.0.0.0".to_owned()])]);
    assert_eq!(sim.plan(0), 0);
}

#[test]
fn a_new_request_is_granted_before_the_old_address_is_given_up() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    sim.cluster.writes.clear();
    sim.cluster.edit_service("shop/web", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.2")]);
    });
    sim.settle();
    assert_eq!(sim.cluster.writes, ["take", "publish", "release"]);
    assert_eq!(shown(&sim)[0].1, ["10.0.0.2"]);
}

#[test]
fn a_crash_after_the_claim_is_resumed_without_a_second_address_or_an_extra_write() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.deliver(0, Kind::Services, 9);
    sim.plan(0);
    sim.take_hold(0, 0);
    assert_eq!(sim.cluster.writes, ["take"]);
    sim.crash(0);
    sim.settle();
    assert_eq!(sim.cluster.writes, ["take", "publish"]);
    assert_eq!(shown(&sim)[0].1, ["10.0.0.0"]);
}

#[test]
fn a_service_that_changed_since_the_claim_has_it_touched_first() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    sim.cluster.writes.clear();
    sim.cluster.edit_service("shop/web", |stored| stored.view.shows.clear());
    sim.settle();
    assert_eq!(sim.cluster.writes, ["touch", "publish"]);
    assert_eq!(shown(&sim)[0].1, ["10.0.0.0"], "the same address comes back");
}

#[test]
fn a_freed_address_goes_to_the_oldest_and_no_other_service_is_written() {
    let mut sim = running(1);
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        sim.cluster.create_service(&format!("shop/{name}"));
    }
    sim.settle();
    sim.cluster.writes.clear();
    sim.cluster.delete_service("shop/b");
    sim.settle();
    assert_eq!(sim.cluster.writes, ["release", "take", "publish"]);
    let e = shown(&sim).into_iter().find(|(key, _)| key == "shop/e").unwrap();
    assert_eq!(e.1, ["10.0.0.1"]);
}

#[test]
fn a_refused_request_keeps_the_old_address_and_says_why() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/a");
    sim.settle();
    sim.cluster.create_service("shop/b");
    sim.settle();
    sim.cluster.edit_service("shop/b", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.0")]);
    });
    sim.settle();
    let b = &sim.cluster.services[&ObjectKey::parse("shop/b").unwrap()].view;
    assert_eq!(b.shows, [ip("10.0.0.1")]);
    let condition = &b.conditions[0];
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "TakenBy"));
    assert!(
        condition.message.starts_with("keeps 10.0.0.1; 10.0.0.0 is taken by Service shop/a"),
        "{}",
        condition.message
    );
}

#[test]
fn a_shown_address_without_a_claim_is_entered_in_the_ledger_and_nothing_is_written_on_the_service()
{
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    sim.cluster.delete_claim(ip("10.0.0.0"));
    sim.cluster.writes.clear();
    sim.settle();
    assert_eq!(sim.cluster.writes, ["take"]);
    assert_eq!(shown(&sim)[0].1, ["10.0.0.0"]);
}

#[test]
fn an_address_that_left_its_pool_stays_and_says_so() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    sim.cluster.set_pool("IPGroup/a", "10.0.0.2-10.0.0.3", "");
    sim.settle();
    let web = &sim.cluster.services[&ObjectKey::parse("shop/web").unwrap()].view;
    assert_eq!(web.shows, [ip("10.0.0.0")]);
    assert_eq!(web.conditions[0].reason, "OutsidePool");
    assert_eq!(web.conditions[0].status, "True");
}

/// A Service's condition: status, reason and message.
fn condition_of(sim: &Sim, key: &str) -> (String, String, String) {
    let view = &sim.cluster.services[&ObjectKey::parse(key).unwrap()].view;
    let condition = &view.conditions[0];
    (condition.status.clone(), condition.reason.clone(), condition.message.clone())
}

#[test]
fn a_quota_holds_for_a_namespace_and_the_oldest_is_served_when_one_is_given_back() {
    let mut sim = running(1);
    sim.cluster.put_pool(&PoolName::new("IPGroup/a"), |view| {
        view.quota = Some(landfall_api::Quota { per_namespace: Some(2), ..Default::default() });
    });
    for key in ["shop/a", "shop/b", "shop/c", "shop/d", "other/a"] {
        sim.cluster.create_service(key);
    }
    sim.settle();
    let served: Vec<_> = shown(&sim).into_iter().filter(|(_, addrs)| !addrs.is_empty()).collect();
    let served: Vec<_> = served.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(served, ["other/a", "shop/a", "shop/b"], "one address is free, but not for shop");
    let (status, reason, message) = condition_of(&sim, "shop/c");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "QuotaExceeded"));
    assert!(message.contains("IPGroup/a: namespace quota reached (2 of 2)"), "{message}");

    sim.cluster.writes.clear();
    sim.cluster.delete_service("shop/b");
    sim.settle();
    assert_eq!(sim.cluster.writes, ["release", "take", "publish"]);
    let of = |key: &str| shown(&sim).into_iter().find(|(name, _)| name == key).unwrap().1;
    assert_eq!((of("shop/c").len(), of("shop/d").len()), (1, 0));
}

#[test]
fn a_service_gets_its_address_from_the_pools_it_asks_for_in_its_own_order() {
    let mut sim = running(1);
    sim.cluster.set_pool("IPGroup/b", "10.0.0.16-10.0.0.17", "");
    sim.cluster.set_pool("IPGroup/on-request", "10.0.0.32", "");
    sim.cluster.put_pool(&PoolName::new("IPGroup/on-request"), |view| {
        if let Ok(pool) = &mut view.pool {
            pool.auto_assign = false;
        }
    });
    let asks = |sim: &mut Sim, key: &str, pools: &[&str]| {
        sim.cluster.create_service(key);
        sim.cluster.edit_service(key, |stored| {
            stored.view.pools = Some(pools.iter().map(|pool| PoolName::new(pool)).collect());
        });
    };
    asks(&mut sim, "shop/first", &["IPGroup/on-request", "IPGroup/b"]);
    asks(&mut sim, "shop/second", &["IPGroup/on-request", "IPGroup/b"]);
    asks(&mut sim, "shop/third", &["IPGroup/none"]);
    sim.settle();
    let of = |key: &str| shown(&sim).into_iter().find(|(name, _)| name == key).unwrap().1;
    assert_eq!(of("shop/first"), ["10.0.0.32"], "also one that serves only on request");
    assert_eq!(of("shop/second"), ["10.0.0.16"]);
    let (_, reason, message) = condition_of(&sim, "shop/third");
    assert_eq!(reason, "PoolUnknown");
    assert!(
        message.starts_with("no IPv4 address: IPGroup/none: there is no such pool"),
        "{message}"
    );
}

#[test]
fn a_deleted_service_gets_its_address_back_if_it_comes_again_in_time() {
    let mut sim = running(1);
    let retain = |view: &mut PoolView| view.retain_for = Some(Duration::from_hours(1));
    sim.cluster.put_pool(&PoolName::new("IPGroup/a"), retain);
    for key in ["shop/a", "shop/b"] {
        sim.cluster.create_service(key);
    }
    sim.quiet();
    sim.cluster.delete_service("shop/a");
    sim.quiet();
    sim.cluster.create_service("shop/c");
    sim.quiet();
    let of = |sim: &Sim, key: &str| shown(sim).into_iter().find(|(name, _)| name == key).unwrap().1;
    assert_eq!(of(&sim, "shop/c"), ["10.0.0.2"], "10.0.0.0 waits for shop/a");
    sim.cluster.writes.clear();
    sim.cluster.create_service("shop/a");
    sim.quiet();
    assert_eq!(of(&sim, "shop/a"), ["10.0.0.0"]);
    assert_eq!(sim.cluster.writes, ["touch", "publish"]);
    // The Service goes for good, and after the retention time the address is free for others.
    sim.cluster.delete_service("shop/a");
    sim.quiet();
    assert!(sim.cluster.claims[&ip("10.0.0.0")].waits_for().is_some());
    sim.pass_time(Duration::from_hours(2));
    sim.settle();
    assert!(!sim.cluster.claims.contains_key(&ip("10.0.0.0")));
}

#[test]
fn a_reservation_is_for_one_service_or_namespace_and_outlives_it() {
    let mut sim = running(1);
    let kept = |name: Option<&str>| Reservation {
        kind: HolderKind::Service,
        namespace: "shop".to_owned(),
        name: name.map(str::to_owned),
        expires: None,
        retained: false,
    };
    sim.cluster.reserve(ip("10.0.0.0"), kept(Some("vip")));
    sim.cluster.reserve(ip("10.0.0.1"), kept(None));
    for key in ["other/first", "shop/any", "shop/vip"] {
        sim.cluster.create_service(key);
    }
    sim.cluster.create_service("other/asks");
    sim.cluster.edit_service("other/asks", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.0")]);
    });
    sim.settle();
    let of = |sim: &Sim, key: &str| shown(sim).into_iter().find(|(name, _)| name == key).unwrap().1;
    assert_eq!(of(&sim, "shop/vip"), ["10.0.0.0"]);
    assert_eq!(of(&sim, "shop/any"), ["10.0.0.1"]);
    assert_eq!(of(&sim, "other/first"), ["10.0.0.2"]);
    sim.cluster.delete_service("shop/vip");
    sim.settle();
    let (_, reason, message) = condition_of(&sim, "other/asks");
    assert_eq!(reason, "Reserved");
    assert!(message.starts_with("10.0.0.0 is kept by a reservation for shop/vip."), "{message}");
}

#[test]
fn each_change_of_a_requested_address_is_told_whether_a_pool_has_it_or_not() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.cluster.edit_service("shop/web", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.9")]);
    });
    sim.settle();
    assert_eq!(condition_of(&sim, "shop/web").1, "OutsideEveryPool");
    let (namespace, name) = ("other".to_owned(), None);
    sim.cluster.reserve(
        ip("10.0.0.9"),
        Reservation { kind: HolderKind::Service, namespace, name, expires: None, retained: false },
    );
    sim.settle();
    assert_eq!(condition_of(&sim, "shop/web").1, "Reserved");
}

#[test]
fn an_overtaken_service_gets_the_next_address_or_the_reason() {
    let taken = |asked: Option<&str>| {
        let mut sim = running(1);
        sim.cluster.create_service("shop/web");
        sim.cluster.edit_service("shop/web", |stored| {
            let addrs = asked.map(|addr| Request::Addresses(vec![ip(addr)]));
            stored.view.request = addrs.unwrap_or_default();
        });
        sim.deliver(0, Kind::Services, 9);
        sim.plan(0);
        // The call is in flight, and an administrator is faster.
        let (namespace, name) = ("other".to_owned(), None);
        sim.cluster.reserve(
            ip("10.0.0.0"),
            Reservation {
                kind: HolderKind::Service,
                namespace,
                name,
                expires: None,
                retained: false,
            },
        );
        sim.settle();
        sim
    };
    let any = taken(None);
    assert_eq!(shown_by(&any, "shop/web"), ["10.0.0.1"]);
    assert_eq!(any.cluster.writes, ["take", "publish"]);
    let asking = taken(Some("10.0.0.0"));
    assert_eq!(shown_by(&asking, "shop/web"), [] as [&str; 0], "no other address will do");
    assert_eq!(condition_of(&asking, "shop/web").1, "Reserved");
    assert_eq!(asking.cluster.writes, ["publish"]);
}

#[test]
fn a_service_that_is_being_deleted_gives_up_addresses_it_does_not_show() {
    for (shows, expected) in [(false, 0), (true, 1)] {
        let mut sim = running(1);
        sim.cluster.create_service("shop/web");
        sim.settle();
        sim.cluster.edit_service("shop/web", |stored| {
            stored.view.deleting = true;
            stored.view.shows.truncate(usize::from(shows));
        });
        sim.settle();
        assert_eq!(sim.cluster.claims.len(), expected, "shows: {shows}");
    }
}

#[test]
fn a_pool_names_those_that_have_waited_longest_for_it_and_why() {
    let mut sim = running(1);
    for n in 10..30 {
        sim.cluster.create_service(&format!("shop/s{n}"));
    }
    sim.cluster.create_service("shop/asks");
    sim.cluster.edit_service("shop/asks", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.0")]);
    });
    sim.settle();
    let status = sim.cluster.pool_status("IPGroup/a");
    assert_eq!(status.waiting, Some(17));
    let longest: Vec<_> =
        status.longest_waiting.iter().map(|one| (one.name.as_str(), one.reason.as_str())).collect();
    assert_eq!(longest.len(), 10);
    assert_eq!((longest[0], longest[9]), (("s14", "Exhausted"), ("s23", "Exhausted")));
    for n in 14..30 {
        sim.cluster.delete_service(&format!("shop/s{n}"));
    }
    sim.settle();
    let status = sim.cluster.pool_status("IPGroup/a");
    assert_eq!((status.waiting, status.longest_waiting.len()), (Some(1), 1));
    assert_eq!(status.longest_waiting[0].reason, "TakenBy");
}

#[test]
fn an_edit_that_changes_no_pool_decides_nothing_again() {
    let name = PoolName::new("ConfigMap/kubevip/cidr-global");
    let object = Arc::from("kube-system/kubevip");
    let view = PoolView::empty(name, PoolSource::ConfigMap, object, "u".into());
    let mut cluster = Cluster::default();
    let mut changes = |version: u64, view: PoolView| {
        let is = Watched::Present(view.name.clone(), Version(version), Box::new(view));
        cluster.observe(News::Pools(PoolSource::ConfigMap, is));
        cluster.take_pools_changed()
    };
    let at = |version: u64| PoolView { version: Version(version), ..view.clone() };
    assert!(changes(1, at(1)), "a new pool");
    assert!(!changes(2, at(2)), "a label on the ConfigMap");
    assert!(changes(3, PoolView { falls_back: true, ..at(3) }), "another rule");
    assert!(changes(4, PoolView { falls_back: true, uid: "v".into(), ..at(4) }), "another object");
}
