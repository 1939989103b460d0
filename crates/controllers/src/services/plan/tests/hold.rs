//! The oldest waiter is served first, in whichever order calls are answered.

use super::*;

/// Adds another pool that serves the waiters and is full: the condition of every waiter changes.
fn have_them_say_more(sim: &mut Sim) {
    sim.cluster.set_pool("IPGroup/b", "10.1.0.0", "10.1.0.0");
    sim.deliver(0, Kind::Pools, 9);
    sim.plan(0);
}

/// Two Services wait for an address of a full pool. It is made larger while their conditions are being
/// written, and the call of the younger Service ends first.
fn there_is_more_and_the_young_one_is_answered() -> Sim {
    let mut sim = running(1);
    for key in ["shop/0", "shop/1", "shop/2", "shop/3", "shop/z-old", "shop/a-young"] {
        sim.cluster.create_service(key);
    }
    sim.settle();
    have_them_say_more(&mut sim);
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0-10.0.0.4", "");
    sim.deliver(0, Kind::Pools, 9);
    sim.plan(0);
    let call = sim.publication(0, "shop/a-young").unwrap();
    sim.take_hold(0, call);
    sim.answer(0, call);
    sim.plan(0);
    sim
}

#[test]
fn an_address_that_a_pool_gains_is_for_the_oldest_even_while_its_condition_is_being_written() {
    let mut sim = there_is_more_and_the_young_one_is_answered();
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/z-old"), ["10.0.0.4"]);
    assert_eq!(shown_by(&sim, "shop/a-young"), Vec::<String>::new());
}

#[test]
fn an_address_held_for_the_oldest_goes_to_the_next_if_the_oldest_goes() {
    let mut sim = there_is_more_and_the_young_one_is_answered();
    sim.cluster.delete_service("shop/z-old");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/a-young"), ["10.0.0.4"]);
}

#[test]
fn the_rest_of_a_quota_is_for_the_oldest_even_while_its_condition_is_being_written() {
    let mut sim = running(1);
    sim.cluster.put_pool(&PoolName::new("IPGroup/a"), |view| {
        view.quota =
            Some(landfall_api::Quota { per_namespace: Some(1), ..landfall_api::Quota::default() });
    });
    for key in ["shop/has", "shop/z-old", "shop/a-young"] {
        sim.cluster.create_service(key);
        sim.settle();
    }
    sim.cluster.edit_service("shop/a-young", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.3")]);
    });
    sim.settle();
    have_them_say_more(&mut sim);
    sim.cluster.delete_service("shop/has");
    sim.deliver(0, Kind::Services, 9);
    sim.plan(0);
    // Everything but the condition of the oldest: the release, read and deleted, and what follows.
    for _ in 0..9 {
        for call in (0..sim.calls(0)).rev() {
            if sim.publication(0, "shop/z-old") != Some(call) {
                sim.take_hold(0, call);
                sim.answer(0, call);
            }
        }
        sim.plan(0);
    }
    assert_eq!(shown_by(&sim, "shop/a-young"), Vec::<String>::new());
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/z-old"), ["10.0.0.0"]);
    assert_eq!(shown_by(&sim, "shop/a-young"), Vec::<String>::new());
}
