//! Taking over the claims, addresses and finalizers that replaced operators leave behind.

use super::*;
use crate::sim::fixtures::{service, virtual_ip};

/// A claim as the original operator wrote it: it has the Service's name, not its uid.
fn legacy_claim(sim: &mut Sim, addr: &str, key: &str) {
    let holder = HolderEntry { uid: None, seen: None, legacy: true, ..service(key).holder_entry() };
    sim.cluster.hold(ip(addr), vec![holder]);
}

/// A cluster that no operator has listed yet.
fn found() -> Sim {
    let mut sim = Sim::new(1);
    sim.cluster.set_pool("IPGroup/a", POOLS[0].0, POOLS[0].1);
    sim
}

fn leave_finalizer(sim: &mut Sim, key: &str, change: impl FnOnce(&mut Stored)) {
    sim.cluster.create_service(key);
    sim.cluster.edit_service(key, |stored| {
        stored.finalizer = true;
        change(stored);
    });
}

#[test]
fn a_finalizer_leaves_a_service_only_after_the_ledger_is_right() {
    for (case, legacy, deleted, load_balancer, shows, writes) in [
        ("held", true, false, true, "10.0.0.2", &["clean_up"][..]),
        ("shown without a claim", false, false, true, "10.0.0.2", &["take", "clean_up"]),
        ("claimed, not shown", true, false, true, "", &["touch", "publish", "clean_up"]),
        ("waiting", false, false, true, "", &["take", "publish", "clean_up"]),
        ("of another type by now", true, false, false, "", &["release", "clean_up"]),
        ("of another type, nothing held", false, false, false, "", &["clean_up"]),
        ("deleted", true, true, true, "10.0.0.2", &["clean_up", "release"]),
        ("deleted, claim gone", false, true, true, "10.0.0.2", &["clean_up"]),
        ("deleted, of another type", true, true, false, "", &["release", "clean_up"]),
    ] {
        let mut sim = found();
        if legacy {
            legacy_claim(&mut sim, "10.0.0.2", "shop/web");
        }
        leave_finalizer(&mut sim, "shop/web", |stored| {
            stored.view.shows = shows.split_whitespace().map(ip).collect();
            stored.load_balancer = load_balancer;
        });
        if deleted {
            sim.cluster.delete_service("shop/web");
        }
        sim.settle();
        assert_eq!(sim.cluster.writes, writes, "{case}");
        let left = sim.cluster.services.get(&ObjectKey::parse("shop/web").unwrap());
        assert_eq!(left.is_none(), deleted, "{case}");
        assert!(left.is_none_or(|stored| !stored.finalizer), "{case}");
        assert_eq!(sim.cluster.violations().len(), 0, "{case}");
    }
}

#[test]
fn a_claim_waits_for_a_service_that_was_not_there_when_we_came() {
    let mut sim = found();
    legacy_claim(&mut sim, "10.0.0.2", "shop/restored");
    legacy_claim(&mut sim, "10.0.0.3", "shop/forgotten");
    sim.quiet();
    assert_eq!(sim.cluster.writes, [] as [&str; 0], "both may yet come");
    sim.cluster.create_service("shop/restored");
    sim.quiet();
    assert_eq!(shown_by(&sim, "shop/restored"), ["10.0.0.2"]);
    assert!(sim.cluster.claims.contains_key(&ip("10.0.0.3")));
    sim.settle();
    assert!(!sim.cluster.claims.contains_key(&ip("10.0.0.3")), "its time is over");
}

#[test]
fn a_service_that_we_saw_leave_is_not_waited_for() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.quiet();
    sim.cluster.delete_service("shop/web");
    sim.quiet();
    assert_eq!(sim.cluster.claims.len(), 0);
}

#[test]
fn a_service_that_we_saw_leave_is_not_waited_for_even_if_its_claim_is_touched() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.quiet();
    sim.cluster.delete_service("shop/web");
    assert!(sim.deliver(0, Kind::Services, 1));
    let (addr, claim) = sim.cluster.claims.first_key_value().unwrap();
    let (addr, holders) = (*addr, claim.services().to_vec());
    sim.cluster.hold(addr, holders);
    assert!(sim.deliver(0, Kind::Claims, 1));
    sim.quiet();
    assert_eq!(sim.cluster.claims.len(), 0);
}

/// In the middle of a migration the claim names a Service that is not a `LoadBalancer` yet.
#[test]
fn the_address_of_an_unfinished_virtual_ip_is_neither_released_nor_given() {
    let mut sim = found();
    legacy_claim(&mut sim, "10.0.0.0", "shop/cart");
    sim.cluster.create_service("shop/cart");
    sim.cluster.edit_service("shop/cart", |stored| stored.load_balancer = false);
    for (name, addr) in [("cart-vip", "10.0.0.0"), ("other-vip", "10.0.0.1")] {
        sim.cluster.put_virtual_ip(virtual_ip("shop", name, addr));
    }
    sim.cluster.create_service("shop/other");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/other"), ["10.0.0.2"]);
    assert!(sim.cluster.claims.contains_key(&ip("10.0.0.0")));
    sim.cluster.edit_service("shop/cart", |stored| {
        stored.load_balancer = true;
        stored.view.request = Request::Addresses(vec![ip("10.0.0.0")]);
    });
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/cart"), ["10.0.0.0"]);
    sim.cluster.edit_service("shop/cart", |stored| stored.load_balancer = false);
    sim.settle();
    assert!(sim.cluster.claims.contains_key(&ip("10.0.0.0")), "not finished yet");
    sim.cluster.delete_virtual_ip(&ObjectKey::new("shop", "cart-vip"));
    sim.settle();
    assert!(!sim.cluster.claims.contains_key(&ip("10.0.0.0")));
}

#[test]
fn a_shown_address_stays_even_if_the_original_left_another_claim() {
    let mut sim = found();
    legacy_claim(&mut sim, "10.0.0.0", "shop/web");
    sim.cluster.create_service("shop/web");
    sim.cluster.edit_service("shop/web", |stored| stored.view.shows = vec![ip("10.0.0.2")]);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.2"]);
    assert_eq!(sim.cluster.writes, ["take", "release"]);
    // But an address that we gave is published again if another program replaces it.
    sim.cluster.edit_service("shop/web", |stored| stored.view.shows = vec![ip("10.0.0.3")]);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.2"]);
    assert_eq!(sim.cluster.violations().len(), 0);
}

#[test]
fn a_holder_is_told_once_which_service_has_its_address_in_an_annotation() {
    for asked_pool in [Place::Annotation, Place::Status] {
        let mut sim = running_in(Place::Annotation, 1);
        let pool = PoolName::new("IPGroup/a");
        sim.cluster.put_pool(&pool, |view| view.place = asked_pool);
        sim.cluster
            .put_pool(&PoolName::new("ConfigMap/kubevip/b"), |view| view.place = Place::Annotation);
        for key in ["shop/first", "shop/second"] {
            sim.cluster.create_service(key);
            sim.cluster.edit_service(key, |stored| {
                stored.view.place = Place::Annotation;
                stored.view.shows = vec![ip("10.0.0.1")];
            });
            sim.settle();
        }
        let told = |sim: &Sim, key: &str| {
            let stored = &sim.cluster.services[&ObjectKey::parse(key).unwrap()];
            stored.view.conditions.first().map(|said| said.reason.clone())
        };
        assert_eq!(told(&sim, "shop/first").as_deref(), Some("AlsoShown"), "{asked_pool:?}");
        assert_eq!(told(&sim, "shop/second").as_deref(), Some("TakenBy"), "{asked_pool:?}");
        let writes = sim.cluster.writes.clone();
        sim.crash(0);
        sim.settle();
        assert_eq!(sim.cluster.writes, writes, "{asked_pool:?}");
    }
}
