//! Pools that serve as a fallback for others, and pools that serve only Services that name them.

use landfall_api::kube_vip::Scope;

use super::*;
use crate::cluster::pool::Rank;

const OWN: &str = "ConfigMap/kubevip/cidr-shop";
const NAMED: &str = "ConfigMap/kubevip/cidr-shop.dmz";
const ALL: &str = "ConfigMap/kubevip/cidr-global";

fn put(sim: &mut Sim, name: &str, ranges: &str, change: impl FnOnce(&mut PoolView)) {
    sim.cluster.set_pool(name, ranges, "");
    sim.cluster.put_pool(&PoolName::new(name), change);
}

/// One address for the namespace `shop` alone, a pool with free addresses that is published in the status,
/// and one fallback address for all.
fn falling_back(falls_back: bool) -> Sim {
    let mut sim = running_in(Place::Annotation, 1);
    sim.cluster.put_pool(&PoolName::new("IPGroup/a"), |view| view.place = Place::Status);
    put(&mut sim, OWN, "10.1.0.1", |view| {
        view.rank = Rank::OfNamespace;
        view.scope = Some(Scope::OnlyOne("shop".to_owned()));
        view.falls_back = falls_back;
    });
    put(&mut sim, ALL, "10.2.0.1", |view| view.rank = Rank::Fallback);
    sim
}

fn create(sim: &mut Sim, keys: &[&str]) {
    for key in keys {
        sim.cluster.create_service(key);
    }
    sim.settle();
}

fn put_named(sim: &mut Sim, change: impl FnOnce(&mut PoolView)) {
    put(sim, NAMED, "10.3.0.1-10.3.0.2", |view| {
        view.rank = Rank::OnRequest;
        view.scope = Some(Scope::OnlyOne("shop".to_owned()));
        view.pool.as_mut().unwrap().auto_assign = false;
        change(view);
    });
}

#[test]
fn a_service_that_waits_for_two_pools_is_served_by_the_first_that_frees_an_address() {
    for (freed, addr) in [("shop/a", "10.1.0.1"), ("shop/b", "10.2.0.1")] {
        let mut sim = falling_back(true);
        create(&mut sim, &["shop/a", "shop/b", "shop/c"]);
        assert_eq!(shown_by(&sim, "shop/a"), ["10.1.0.1"]);
        assert_eq!(shown_by(&sim, "shop/b"), ["10.2.0.1"]);
        let (_, reason, message) = condition_of(&sim, "shop/c");
        assert_eq!(reason, "Exhausted");
        let taken = "all its IPv4 addresses are taken";
        let both = format!("no IPv4 address: {OWN}: {taken}; {ALL}: {taken}. ");
        assert!(message.starts_with(&both), "{message}");
        sim.cluster.delete_service(freed);
        sim.settle();
        assert_eq!(shown_by(&sim, "shop/c"), [addr]);
        assert_eq!(sim.plan(0), 0);
    }
}

#[test]
fn a_pool_that_does_not_fall_back_is_the_only_one_to_be_asked() {
    let mut sim = falling_back(false);
    create(&mut sim, &["shop/a", "shop/b"]);
    let (_, reason, message) = condition_of(&sim, "shop/b");
    assert_eq!(reason, "Exhausted");
    assert!(message.contains(OWN) && !message.contains(ALL), "{message}");
}

#[test]
fn a_pool_that_cannot_be_used_falls_back_as_well() {
    let mut sim = falling_back(true);
    sim.cluster.put_pool(&PoolName::new(OWN), |view| view.pool = Err(vec!["odd".to_owned()]));
    create(&mut sim, &["shop/a", "shop/b"]);
    assert_eq!(shown_by(&sim, "shop/a"), ["10.2.0.1"]);
    let message = condition_of(&sim, "shop/b").2;
    assert!(message.contains(&format!("{OWN}: it is invalid; {ALL}: all")), "{message}");
}

#[test]
fn a_service_shares_an_address_of_its_fallback_only_when_its_first_pool_is_full() {
    let mut sim = falling_back(true);
    put(&mut sim, "IPGroup/a", "10.0.0.0-10.0.0.3", |view| {
        view.scope = Some(Scope::OnlyOne("nobody".to_owned()));
    });
    for (port, key) in [(80, "other/a"), (81, "shop/a"), (82, "shop/b"), (81, "shop/c")] {
        share(&mut sim, key, "k", port);
        sim.cluster.edit_service(key, |stored| {
            let mut terms = stored.view.terms.as_deref().cloned().unwrap();
            terms.with = vec!["shop".to_owned(), "other".to_owned()];
            stored.view.terms = Some(Arc::new(terms));
        });
        sim.settle();
    }
    for (key, addr) in [
        ("other/a", "10.2.0.1"),
        ("shop/a", "10.1.0.1"),
        ("shop/b", "10.1.0.1"),
        ("shop/c", "10.2.0.1"),
    ] {
        assert_eq!(shown_by(&sim, key), [addr], "{key}");
    }
}

#[test]
fn a_pool_on_request_serves_only_services_that_name_it() {
    let mut sim = falling_back(true);
    put_named(&mut sim, |_| {});
    create(&mut sim, &["shop/a", "shop/b", "shop/c"]);
    let message = condition_of(&sim, "shop/c").2;
    assert!(!message.contains(NAMED), "{message}");
    sim.cluster.edit_service("shop/c", |stored| {
        stored.view.pools = Some(vec![PoolName::new(NAMED)]);
    });
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/c"), ["10.3.0.1"]);
}

#[test]
fn a_service_without_another_pool_is_told_of_the_one_on_request_unless_it_is_for_others() {
    for (key, named) in [("shop/a", true), ("other/a", false)] {
        let mut sim = falling_back(true);
        for pool in ["IPGroup/a", OWN, ALL] {
            sim.cluster.delete_pool(&PoolName::new(pool));
        }
        put_named(&mut sim, |_| {});
        share(&mut sim, "shop/asks", "k", 80);
        sim.cluster.edit_service("shop/asks", |stored| {
            stored.view.pools = Some(vec![PoolName::new(NAMED)]);
        });
        sim.settle();
        assert_eq!(shown_by(&sim, "shop/asks"), ["10.3.0.1"]);
        share(&mut sim, key, "k", 81);
        sim.settle();
        let (_, reason, message) = condition_of(&sim, key);
        assert_eq!(reason, if named { "NotSelected" } else { "NoPool" }, "{key}");
        assert_eq!(message.contains(NAMED), named, "{message}");
    }
}

#[test]
fn a_pool_on_request_that_cannot_be_used_blocks_no_service() {
    let mut sim = falling_back(true);
    put_named(&mut sim, |view| view.pool = Err(vec!["odd".to_owned()]));
    sim.cluster.delete_pool(&PoolName::new(OWN));
    sim.cluster.delete_pool(&PoolName::new("IPGroup/a"));
    create(&mut sim, &["shop/a", "shop/b"]);
    assert_eq!(shown_by(&sim, "shop/a"), ["10.2.0.1"]);
    assert!(!condition_of(&sim, "shop/b").2.contains(NAMED));
    sim.cluster.edit_service("shop/b", |stored| {
        stored.view.pools = Some(vec![PoolName::new(NAMED)]);
    });
    sim.settle();
    assert_eq!(condition_of(&sim, "shop/b").1, "PoolInvalid");
    // Nor does such a pool let a Service ask for an address outside every pool.
    sim.cluster.delete_pool(&PoolName::new(ALL));
    sim.cluster.create_service("shop/c");
    sim.cluster.edit_service("shop/c", |stored| {
        stored.view.request = Request::Addresses(vec![ip("192.0.2.1")]);
    });
    sim.settle();
    assert_eq!(condition_of(&sim, "shop/c").1, "OutsideEveryPool");
}

/// A Service announced from the annotation may ask for an address outside every pool; a Service of the same
/// namespace that names an `IPGroup` may not.
#[test]
fn a_service_that_names_pools_may_only_ask_for_their_addresses() {
    for (pools, reason) in [(None, "OutsidePool"), (Some("IPGroup/a"), "OutsideEveryPool")] {
        let mut sim = falling_back(false);
        sim.cluster.create_service("shop/a");
        sim.cluster.edit_service("shop/a", |stored| {
            stored.view.pools = pools.map(|name| vec![PoolName::new(name)]);
            stored.view.request = Request::Addresses(vec![ip("192.0.2.1")]);
        });
        sim.settle();
        assert_eq!(condition_of(&sim, "shop/a").1, reason, "{pools:?}");
    }
}
