//! Single promises of the documents, each with the smallest story that once broke it.

use landfall_ipam::{Family, Terms};

use super::*;
use crate::{cluster::classes::Classes, sim::Foreign};

const BOTH: [Family; 2] = [Family::V4, Family::V6];

/// Another program, or an operator that knows other pools, undoes every write of ours.
#[test]
fn writes_that_are_undone_again_and_again_are_repeated_at_growing_intervals() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    sim.cluster.writes.clear();
    let undo = |sim: &mut Sim| {
        sim.cluster.edit_service("shop/web", |stored| stored.view.shows = vec![ip("192.0.2.1")]);
    };
    undo(&mut sim);
    sim.quiet();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.0"], "a single case is repaired at once");
    for _ in 0..600 {
        undo(&mut sim);
        sim.pass_time(Duration::from_millis(100));
        sim.quiet();
    }
    let publishes = sim.cluster.writes.iter().filter(|word| **word == "publish").count();
    assert!((5..60).contains(&publishes), "{publishes} in a minute");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.0"], "and the last word is ours");
}

fn edit_pool(sim: &mut Sim, change: impl FnOnce(&mut PoolView)) {
    sim.cluster.put_pool(&PoolName::new("IPGroup/a"), change);
}

fn allow_each_namespace(sim: &mut Sim, addresses: i32) {
    edit_pool(sim, |view| {
        let per_namespace = Some(addresses);
        view.quota = Some(landfall_api::Quota { per_namespace, ..Default::default() });
    });
}

fn create(sim: &mut Sim, keys: &[&str]) {
    for key in keys {
        sim.cluster.create_service(key);
    }
}

fn ask(sim: &mut Sim, key: &str, addrs: &[&str]) {
    sim.cluster.edit_service(key, |stored| {
        stored.view.request = Request::Addresses(addrs.iter().map(|addr| ip(addr)).collect());
    });
}

fn want_both_families(sim: &mut Sim, key: &str, require: bool) {
    sim.cluster.edit_service(key, |stored| {
        stored.view.families = BOTH.to_vec();
        stored.view.require_all = require;
    });
}

fn reserve(sim: &mut Sim, addr: &str, namespace: &str, name: Option<&str>) {
    let (namespace, name) = (namespace.to_owned(), name.map(str::to_owned));
    sim.cluster.reserve(
        ip(addr),
        Reservation { kind: HolderKind::Service, namespace, name, expires: None, retained: false },
    );
}

fn set_node(sim: &mut Sim, name: &str, addrs: &[&str]) {
    let addrs: Vec<_> = addrs.iter().map(|addr| ip(addr)).collect();
    sim.cluster.set_foreign(&Foreign::Node(name.to_owned()), &addrs);
}

fn says(sim: &Sim, key: &str) -> (String, String) {
    let (status, reason, _) = condition_of(sim, key);
    (status, reason)
}

fn refused(reason: &str) -> (String, String) {
    ("False".to_owned(), reason.to_owned())
}

fn restart_writes_nothing(sim: &mut Sim) {
    let age = sim.cluster.age();
    sim.crash(0);
    sim.settle();
    assert_eq!(sim.cluster.age(), age, "a restart writes nothing");
}

#[test]
fn a_reservation_by_name_outside_every_pool_does_not_precede_one_for_the_namespace() {
    let mut sim = running(1);
    reserve(&mut sim, "10.0.0.9", "shop", Some("web"));
    reserve(&mut sim, "10.0.0.3", "shop", None);
    create(&mut sim, &["shop/web"]);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.3"]);
}

#[test]
fn a_requested_address_that_is_reserved_but_in_no_pool_is_not_called_reserved_for_another() {
    let mut sim = running(1);
    reserve(&mut sim, "10.0.0.9", "shop", Some("web"));
    create(&mut sim, &["shop/web"]);
    ask(&mut sim, "shop/web", &["10.0.0.9"]);
    sim.settle();
    assert_eq!(says(&sim, "shop/web"), refused("OutsideEveryPool"));
}

#[test]
fn a_service_recreated_before_a_release_comes_back_with_its_reserved_address() {
    let mut sim = running(1);
    reserve(&mut sim, "10.0.0.3", "shop", Some("web"));
    create(&mut sim, &["shop/web"]);
    sim.settle();
    sim.cluster.recreate_service("shop/web");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.3"]);
}

#[test]
fn a_service_recreated_before_a_release_comes_back_with_its_retained_address() {
    let mut sim = running(1);
    edit_pool(&mut sim, |view| view.retain_for = Some(Duration::from_hours(1)));
    create(&mut sim, &["shop/a", "shop/b"]);
    sim.settle();
    sim.cluster.delete_service("shop/a");
    sim.settle();
    sim.cluster.recreate_service("shop/b");
    sim.quiet();
    assert_eq!(shown_by(&sim, "shop/b"), ["10.0.0.1"], "not the lowest, which is free again");
}

#[test]
fn a_service_recreated_between_the_look_at_it_and_the_release_has_its_address_retained() {
    let mut sim = running(1);
    edit_pool(&mut sim, |view| view.retain_for = Some(Duration::from_hours(1)));
    create(&mut sim, &["shop/a", "shop/b"]);
    sim.quiet();
    sim.cluster.delete_service("shop/b");
    sim.deliver(0, Kind::Services, 9);
    sim.plan(0);
    create(&mut sim, &["shop/b"]);
    sim.quiet();
    assert_eq!(shown_by(&sim, "shop/b"), ["10.0.0.1"]);
}

#[test]
fn the_address_of_a_node_is_not_given_even_if_it_is_reserved_for_the_service() {
    let mut sim = running(1);
    reserve(&mut sim, "10.0.0.0", "shop", Some("web"));
    set_node(&mut sim, "n1", &["10.0.0.0"]);
    create(&mut sim, &["shop/web"]);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.1"]);
    sim.cluster.delete_service("shop/web");
    create(&mut sim, &["shop/web"]);
    ask(&mut sim, "shop/web", &["10.0.0.0"]);
    sim.settle();
    assert_eq!(says(&sim, "shop/web"), refused("TakenBy"));
    set_node(&mut sim, "n1", &[]);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.0"]);
}

#[test]
fn the_address_of_a_node_is_not_given_even_if_the_service_could_share_it() {
    let mut sim = sharing(&[("shop/a", "k", 80)]);
    set_node(&mut sim, "n1", &["10.0.0.0"]);
    share(&mut sim, "shop/b", "k", 443);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/a"), ["10.0.0.0"], "no Service loses its address");
    assert_eq!(shown_by(&sim, "shop/b"), ["10.0.0.1"]);
}

#[test]
fn a_service_that_asks_for_an_address_is_told_its_present_holder() {
    let mut sim = running(1);
    create(&mut sim, &["shop/a", "shop/b"]);
    sim.settle();
    ask(&mut sim, "shop/b", &["10.0.0.0"]);
    sim.settle();
    for (nodes, expected) in [
        (vec![("n1", "10.0.0.0"), ("n2", "10.0.0.0")], "Service shop/a"),
        (vec![], "Node n1"),
        (vec![("n1", "10.0.0.9")], "Node n2"),
    ] {
        for (node, addr) in nodes {
            set_node(&mut sim, node, &[addr]);
        }
        if expected == "Node n1" {
            sim.cluster.delete_service("shop/a");
        }
        sim.settle();
        let (_, _, message) = condition_of(&sim, "shop/b");
        let words = format!("keeps 10.0.0.1; 10.0.0.0 is taken by {expected}");
        assert!(message.starts_with(&words), "{message}");
    }
}

#[test]
fn a_quota_counts_both_addresses_of_one_service() {
    let mut sim = running(1);
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0-10.0.0.3 fd00::-fd00::3", "");
    allow_each_namespace(&mut sim, 1);
    for (key, require) in [("shop/prefers", false), ("other/requires", true)] {
        create(&mut sim, &[key]);
        want_both_families(&mut sim, key, require);
    }
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/prefers"), ["10.0.0.0"]);
    assert_eq!(says(&sim, "other/requires"), refused("QuotaExceeded"));
}

#[test]
fn a_quota_holds_for_services_that_join_at_the_same_time() {
    let mut sim = running(1);
    let share_with_all = |sim: &mut Sim, key: &str, sharing_key: &str, port: u16| {
        share(sim, key, sharing_key, port);
        sim.cluster.edit_service(key, |stored| {
            let terms = stored.view.terms.as_deref().cloned().unwrap();
            stored.view.terms = Some(Arc::new(Terms { with: vec!["*".to_owned()], ..terms }));
        });
    };
    share_with_all(&mut sim, "other/a", "k", 80);
    share_with_all(&mut sim, "other/b", "m", 80);
    sim.settle();
    allow_each_namespace(&mut sim, 1);
    share_with_all(&mut sim, "shop/c", "k", 443);
    share_with_all(&mut sim, "shop/d", "m", 443);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/c"), ["10.0.0.0"]);
    assert_eq!(says(&sim, "shop/d"), refused("QuotaExceeded"));
}

#[test]
fn a_quota_is_not_the_reason_where_the_pool_would_not_give_anyway() {
    let mut sim = running(1);
    allow_each_namespace(&mut sim, 1);
    create(&mut sim, &["shop/has", "shop/v6"]);
    sim.cluster.edit_service("shop/v6", |stored| stored.view.families = vec![Family::V6]);
    sim.settle();
    assert_eq!(says(&sim, "shop/v6"), refused("FamilyMissing"));
}

#[test]
fn waiting_services_say_when_their_namespace_may_hold_no_more() {
    let mut sim = running(1);
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0", "");
    allow_each_namespace(&mut sim, 1);
    create(&mut sim, &["other/has", "shop/first", "shop/second"]);
    sim.settle();
    assert_eq!(says(&sim, "shop/second"), refused("Exhausted"));
    sim.cluster.delete_service("other/has");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/first"), ["10.0.0.0"]);
    assert_eq!(says(&sim, "shop/second"), refused("QuotaExceeded"));
}

#[test]
fn a_service_that_requires_both_families_keeps_its_address_until_it_can_have_both() {
    let mut sim = running(1);
    create(&mut sim, &["shop/web"]);
    sim.settle();
    want_both_families(&mut sim, "shop/web", true);
    ask(&mut sim, "shop/web", &["10.0.0.2"]);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.0"]);
    assert_eq!(says(&sim, "shop/web"), refused("FamilyMissing"));
    // Nor does it lose the address that it had at first.
    sim.cluster.edit_service("shop/web", |stored| stored.view.request = Request::Any);
    sim.settle();
    sim.cluster.delete_claim(ip("10.0.0.0"));
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.0"]);
    assert_eq!(sim.cluster.violations().len(), 0);
}

#[test]
fn a_service_that_requires_both_families_gets_the_address_that_was_claimed_for_it_before() {
    let mut sim = running(1);
    create(&mut sim, &["shop/web"]);
    sim.settle();
    ask(&mut sim, "shop/web", &["10.0.0.2"]);
    sim.deliver(0, Kind::Services, 9);
    sim.plan(0);
    sim.take_hold(0, 0);
    assert!(sim.cluster.claims.contains_key(&ip("10.0.0.2")), "claimed, and not shown yet");
    want_both_families(&mut sim, "shop/web", true);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.2"]);
    assert_eq!(says(&sim, "shop/web"), refused("FamilyMissing"));
    assert_eq!(sim.cluster.violations().len(), 0);
    restart_writes_nothing(&mut sim);
}

#[test]
fn a_service_that_requires_both_families_takes_none_while_it_is_open_whether_it_can_have_the_other()
{
    let mut sim = running(1);
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0 fd00::-fd00::1", "");
    create(&mut sim, &["shop/web", "shop/old"]);
    want_both_families(&mut sim, "shop/web", true);
    ask(&mut sim, "shop/web", &["10.0.0.0"]);
    sim.settle();
    sim.cluster.recreate_service("shop/web");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/old"), ["10.0.0.0"]);
    assert_eq!(shown_by(&sim, "shop/web"), [] as [&str; 0]);
}

#[test]
fn a_service_that_requires_both_families_says_which_it_misses_even_when_others_take_it() {
    let mut sim = running(1);
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0", "");
    create(&mut sim, &["shop/both"]);
    want_both_families(&mut sim, "shop/both", true);
    sim.settle();
    assert_eq!(says(&sim, "shop/both"), refused("FamilyMissing"));
    create(&mut sim, &["shop/web"]);
    sim.settle();
    assert_eq!(says(&sim, "shop/both"), refused("Exhausted"));
    restart_writes_nothing(&mut sim);
}

#[test]
fn one_family_is_enough_for_a_service_that_prefers_both_and_got_the_address_it_asked_for() {
    let mut sim = running(1);
    create(&mut sim, &["shop/web", "shop/outside"]);
    for (key, addr) in [("shop/web", "10.0.0.2"), ("shop/outside", "10.0.0.9")] {
        want_both_families(&mut sim, key, false);
        ask(&mut sim, key, &[addr]);
    }
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.2"]);
    assert_eq!(says(&sim, "shop/web"), ("True".to_owned(), "Allocated".to_owned()));
    assert_eq!(says(&sim, "shop/outside"), refused("OutsideEveryPool"));
}

#[test]
fn a_clashing_service_leaves_even_when_no_pool_serves_its_class_any_more() {
    let mut sim = running(1);
    let class = |view: &mut PoolView| view.classes = Classes::only(Some("some.example/lb"));
    edit_pool(&mut sim, class);
    for (key, port) in [("shop/a", 80), ("shop/b", 443)] {
        share(&mut sim, key, "k", port);
        sim.cluster.edit_service(key, |stored| {
            stored.view = stored.view.clone().of_class("some.example/lb");
        });
    }
    sim.settle();
    edit_pool(&mut sim, |view| view.classes = Classes::default());
    share(&mut sim, "shop/b", "k", 80);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/a"), ["10.0.0.0"]);
    assert_eq!(shown_by(&sim, "shop/b"), [] as [&str; 0]);
    assert_eq!(sim.cluster.violations().len(), 0);
}

#[test]
fn a_service_that_asks_for_an_address_is_woken_by_each_pool_that_could_give_it() {
    let mut sim = running(1);
    create(&mut sim, &["shop/has", "shop/asks"]);
    sim.cluster.set_pool("IPGroup/b", "10.0.0.2", "");
    allow_each_namespace(&mut sim, 1);
    sim.cluster.put_pool(&PoolName::new("IPGroup/b"), |view| {
        if let Ok(pool) = &mut view.pool {
            (pool.drain, pool.priority) = (true, 1);
        }
    });
    ask(&mut sim, "shop/asks", &["10.0.0.2"]);
    sim.settle();
    assert_eq!(says(&sim, "shop/asks"), refused("QuotaExceeded"));
    sim.cluster.delete_service("shop/has");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/asks"), ["10.0.0.2"]);
}

/// Every Service that has an address.
fn served(sim: &Sim) -> Vec<String> {
    let all = shown(sim).into_iter().filter(|(_, addrs)| !addrs.is_empty());
    all.map(|(key, _)| key).collect()
}

#[test]
fn no_younger_service_is_served_while_an_older_one_looks_for_an_address_to_share() {
    let mut sim = running(1);
    sim.cluster.delete_pool(&PoolName::new("IPGroup/a"));
    for (key, port) in [("shop/a", 80), ("shop/b", 80)] {
        share(&mut sim, key, "k", port);
    }
    create(&mut sim, &["shop/young"]);
    sim.settle();
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0-10.0.0.1", "");
    sim.settle();
    assert_eq!(served(&sim), ["shop/a", "shop/b"]);
}

#[test]
fn no_younger_service_is_served_while_an_older_one_waits_to_share_an_address_of_the_other_family() {
    let mut sim = running(1);
    sim.cluster.delete_pool(&PoolName::new("IPGroup/a"));
    for (key, port) in [("shop/v6", 80), ("shop/both", 443)] {
        share(&mut sim, key, "k", port);
    }
    sim.cluster.edit_service("shop/v6", |stored| stored.view.families = vec![Family::V6]);
    want_both_families(&mut sim, "shop/both", false);
    create(&mut sim, &["shop/young"]);
    sim.settle();
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0 fd00::", "");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/both"), ["10.0.0.0", "fd00::"]);
    assert_eq!(served(&sim), ["shop/both", "shop/v6"]);
}

#[test]
fn no_younger_service_is_served_while_an_address_reserved_for_two_is_taken() {
    let mut sim = running(1);
    sim.cluster.delete_pool(&PoolName::new("IPGroup/a"));
    reserve(&mut sim, "10.0.0.0", "shop", None);
    create(&mut sim, &["shop/a", "shop/b", "other/young"]);
    sim.settle();
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0-10.0.0.1", "");
    sim.settle();
    assert_eq!(served(&sim), ["shop/a", "shop/b"]);
}

#[test]
fn an_address_that_is_released_goes_to_the_oldest_even_if_a_quota_was_in_its_way() {
    let mut sim = running(1);
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0", "");
    allow_each_namespace(&mut sim, 1);
    create(&mut sim, &["shop/has", "shop/old", "other/young"]);
    sim.settle();
    sim.cluster.delete_service("shop/has");
    sim.settle();
    assert_eq!(served(&sim), ["shop/old"]);
}

#[test]
fn a_service_that_gets_a_freed_address_leaves_the_reserved_one_to_an_older_service() {
    let mut sim = running(1);
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0 fd00::", "");
    reserve(&mut sim, "10.0.0.0", "shop", None);
    create(&mut sim, &["shop/has", "shop/old", "shop/young"]);
    for key in ["shop/has", "shop/young"] {
        want_both_families(&mut sim, key, false);
    }
    sim.settle();
    sim.cluster.delete_service("shop/has");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/old"), ["10.0.0.0"]);
    assert_eq!(shown_by(&sim, "shop/young"), ["fd00::"]);
}

#[test]
fn a_service_that_gets_one_freed_address_does_not_take_another_from_an_older_service() {
    let mut sim = running(1);
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0 fd00::", "");
    create(&mut sim, &["shop/has", "shop/old", "shop/young"]);
    for key in ["shop/has", "shop/young"] {
        want_both_families(&mut sim, key, false);
    }
    sim.cluster.edit_service("shop/old", |stored| stored.view.families = vec![Family::V6]);
    sim.settle();
    sim.cluster.delete_service("shop/has");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/old"), ["fd00::"]);
    assert_eq!(shown_by(&sim, "shop/young"), ["10.0.0.0"]);
}
