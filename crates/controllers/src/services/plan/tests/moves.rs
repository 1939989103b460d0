//! Services that ask for another pool than the one that gave their address.

use super::*;

#[test]
fn a_service_that_asks_for_another_pool_moves_there_before_it_leaves() {
    let mut sim = running(1);
    sim.cluster.set_pool("IPGroup/b", "10.0.1.0", "");
    sim.cluster.create_service("shop/web");
    sim.settle();
    let ask = |sim: &mut Sim, pools: &[&str]| {
        sim.cluster.writes.clear();
        let pools: Vec<_> = pools.iter().map(|name| PoolName::new(name)).collect();
        sim.cluster.edit_service("shop/web", |stored| stored.view.pools = Some(pools));
        sim.settle();
    };
    ask(&mut sim, &["IPGroup/b"]);
    assert_eq!(sim.cluster.writes, ["take", "publish", "release"]);
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.1.0"]);
    ask(&mut sim, &["IPGroup/missing"]);
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.1.0"]);
    let (_, reason, message) = condition_of(&sim, "shop/web");
    assert_eq!(reason, "PoolUnknown");
    assert!(message.starts_with("keeps 10.0.1.0"), "{message}");
    // The Service is moved as soon as possible.
    sim.cluster.set_pool("IPGroup/missing", "10.0.2.0", "");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.2.0"]);
    assert_eq!(condition_of(&sim, "shop/web").1, "Allocated");
    assert_eq!(sim.cluster.claims.len(), 1);
    // A pool that covers its address is as good as the one that gave it.
    sim.cluster.set_pool("IPGroup/wide", "10.0.2.0-10.0.2.9", "");
    ask(&mut sim, &["IPGroup/wide"]);
    assert_eq!(sim.cluster.writes, [] as [&str; 0]);
    // Another program's annotation decides where a Service gets an address, and moves no address.
    sim.cluster.edit_service("shop/web", |stored| stored.view.pools_left = true);
    ask(&mut sim, &["IPGroup/b"]);
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.2.0"]);
}

#[test]
fn a_crash_in_the_middle_of_a_move_to_another_pool_is_finished_or_undone() {
    for returns in [false, true] {
        let mut sim = running(1);
        sim.cluster.set_pool("IPGroup/b", "10.0.1.0", "");
        sim.cluster.create_service("shop/web");
        sim.settle();
        sim.cluster.edit_service("shop/web", |stored| {
            stored.view.pools = Some(vec![PoolName::new("IPGroup/b")]);
        });
        sim.deliver(0, Kind::Services, 9);
        sim.plan(0);
        sim.take_hold(0, 0);
        assert_eq!(sim.cluster.claims.len(), 2);
        sim.crash(0);
        if returns {
            sim.cluster.edit_service("shop/web", |stored| stored.view.pools = None);
        }
        sim.settle();
        let expected = if returns { "10.0.0.0" } else { "10.0.1.0" };
        assert_eq!(shown_by(&sim, "shop/web"), [expected], "{returns}");
        assert_eq!(sim.cluster.claims.len(), 1, "{returns}");
    }
}

#[test]
fn an_address_that_was_never_shown_is_given_back_when_its_service_asks_for_another_pool() {
    let mut sim = running(1);
    sim.cluster.set_pool("IPGroup/b", "10.0.1.0", "");
    sim.cluster.create_service("shop/web");
    sim.deliver(0, Kind::Services, 9);
    sim.plan(0);
    sim.take_hold(0, 0);
    assert!(sim.cluster.claims.contains_key(&ip("10.0.0.0")));
    sim.crash(0);
    sim.cluster.edit_service("shop/web", |stored| {
        stored.view.pools = Some(vec![PoolName::new("IPGroup/b")]);
    });
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.1.0"]);
    assert_eq!(sim.cluster.claims.len(), 1);
    let publishes = sim.cluster.writes.iter().filter(|write| **write == "publish");
    assert_eq!(publishes.count(), 1, "{:?}", sim.cluster.writes);
}

#[test]
fn an_address_that_is_kept_comes_back_if_the_status_is_wiped_while_another_pool_is_asked_for() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    sim.cluster.edit_service("shop/web", |stored| {
        stored.view.pools = Some(vec![PoolName::new("IPGroup/missing")]);
    });
    sim.settle();
    assert_eq!(condition_of(&sim, "shop/web").1, "PoolUnknown");
    sim.cluster.edit_service("shop/web", |stored| stored.view.shows.clear());
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.0"]);
    // The same if it happens before the change is answered.
    sim.cluster.set_pool("IPGroup/b", "10.0.1.0", "");
    sim.cluster.edit_service("shop/web", |stored| {
        stored.view.pools = Some(vec![PoolName::new("IPGroup/other")]);
        stored.view.shows.clear();
    });
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.0"]);
}

#[test]
fn pools_asked_for_before_an_address_is_shown_move_nothing_afterwards() {
    let mut sim = running(1);
    sim.cluster.set_pool("IPGroup/b", "10.0.1.0-10.0.1.3", "");
    sim.cluster.create_service("shop/web");
    sim.cluster.edit_service("shop/web", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.1")]);
    });
    for kind in KINDS {
        sim.deliver(0, kind, usize::MAX);
    }
    sim.plan(0);
    sim.take_hold(0, 0);
    // The claim is made; its Service asks for a pool as well before it shows the address.
    sim.cluster.edit_service("shop/web", |stored| {
        stored.view.pools = Some(vec![PoolName::new("IPGroup/b")]);
    });
    sim.answer(0, 0);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.1"]);
    sim.cluster.edit_service("shop/web", |stored| stored.view.request = Request::Any);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.1"], "it asks for no other pools since");
}
