//! Several Services that share one address.

use jiff::SignedDuration;
use landfall_ipam::Family;

use super::*;

#[test]
fn services_with_one_key_share_an_address_as_long_as_their_ports_allow_it() {
    let mut sim = sharing(&[("shop/a", "k", 80)]);
    share(&mut sim, "shop/b", "k", 443);
    sim.settle();
    assert_eq!(sim.cluster.writes, ["touch", "publish"], "joining is two writes as well");
    share(&mut sim, "shop/c", "k", 80);
    share(&mut sim, "shop/d", "other", 22);
    sim.settle();
    for (key, addr) in [
        ("shop/a", "10.0.0.0"),
        ("shop/b", "10.0.0.0"),
        ("shop/c", "10.0.0.1"),
        ("shop/d", "10.0.0.2"),
    ] {
        assert_eq!(shown_by(&sim, key), [addr], "{key}");
    }
}

#[test]
fn a_holder_that_leaves_a_shared_address_leaves_it_to_the_others() {
    let mut sim = sharing(&[("shop/a", "k", 80), ("shop/b", "k", 443)]);
    sim.cluster.delete_service("shop/a");
    sim.settle();
    assert_eq!(sim.cluster.writes, ["leave"]);
    assert_eq!(shown_by(&sim, "shop/b"), ["10.0.0.0"]);
    sim.cluster.delete_service("shop/b");
    sim.settle();
    assert!(sim.cluster.claims.is_empty());
}

#[test]
fn a_request_for_a_shared_address_names_the_holder_and_the_clash_in_its_way_and_waits() {
    let mut sim = sharing(&[("shop/a", "k", 80), ("shop/b", "k", 443)]);
    share(&mut sim, "shop/late", "k", 443);
    sim.cluster.edit_service("shop/late", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.0")]);
    });
    sim.settle();
    let (status, reason, message) = condition_of(&sim, "shop/late");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "SharingRefused"));
    assert!(
        message.starts_with("10.0.0.0 cannot be shared with Service shop/b: both use TCP/443."),
        "{message}"
    );
    sim.cluster.delete_service("shop/b");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/late"), ["10.0.0.0"]);
}

#[test]
fn a_service_that_changes_so_that_it_clashes_gets_an_address_of_its_own() {
    let mut sim = sharing(&[("shop/a", "k", 80), ("shop/b", "k", 443)]);
    share(&mut sim, "shop/b", "k", 80);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/a"), ["10.0.0.0"], "the other is not moved");
    assert_eq!(shown_by(&sim, "shop/b"), ["10.0.0.1"]);
    assert_eq!(sim.cluster.writes, ["take", "publish", "touch", "publish", "leave"]);
}

#[test]
fn without_another_address_a_clashing_service_is_told_and_shows_none() {
    let mut sim = sharing(&[("shop/a", "k", 80), ("shop/b", "k", 443)]);
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0", "");
    sim.settle();
    share(&mut sim, "shop/a", "k", 443);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/a"), [] as [&str; 0]);
    assert_eq!(shown_by(&sim, "shop/b"), ["10.0.0.0"]);
    let (_, reason, _) = condition_of(&sim, "shop/a");
    assert_eq!(reason, "Exhausted");
    // Once its port no longer clashes, it joins again.
    share(&mut sim, "shop/a", "k", 80);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/a"), ["10.0.0.0"]);
}

#[test]
fn a_new_port_that_is_free_is_entered_in_the_ledger_and_no_service_moves() {
    let mut sim = sharing(&[("shop/a", "k", 80), ("shop/b", "k", 443)]);
    share(&mut sim, "shop/b", "k", 8443);
    sim.settle();
    assert_eq!(sim.cluster.writes, ["touch"]);
    let holders = sim.cluster.claims[&ip("10.0.0.0")].services();
    assert_eq!(holders[1].terms.as_ref().unwrap().ports, ["TCP/8443"]);
}

#[test]
fn a_holder_that_is_gone_takes_no_address_from_the_others() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/gone");
    sim.cluster.create_service("shop/web");
    sim.settle();
    // As only a person would write it: two holders without sharing terms.
    sim.cluster.edit_service("shop/gone", |stored| stored.view.shows = vec![ip("10.0.0.1")]);
    let both: Vec<_> = ["10.0.0.0", "10.0.0.1"]
        .iter()
        .map(|addr| sim.cluster.claims[&ip(addr)].services()[0].clone())
        .collect();
    sim.cluster.hold(ip("10.0.0.1"), both);
    sim.cluster.delete_service("shop/gone");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.1"]);
    assert_eq!(sim.cluster.violations(), std::collections::BTreeSet::new());
}

#[test]
fn a_quota_counts_a_shared_address_once() {
    let mut sim = running(1);
    sim.cluster.put_pool(&PoolName::new("IPGroup/a"), |view| {
        view.quota = Some(landfall_api::Quota { per_namespace: Some(1), ..Default::default() });
    });
    for (key, port) in [("shop/a", 80), ("shop/b", 443), ("shop/c", 80)] {
        share(&mut sim, key, "k", port);
        sim.settle();
    }
    assert_eq!(shown_by(&sim, "shop/b"), ["10.0.0.0"]);
    assert_eq!(condition_of(&sim, "shop/c").1, "QuotaExceeded");
}

/// Lets one operator work until it has nothing left to do; the other's watches deliver nothing.
fn work(sim: &mut Sim, operator: usize) {
    loop {
        let news: Vec<_> = KINDS.map(|kind| sim.deliver(operator, kind, usize::MAX)).into();
        let planned = sim.plan(operator);
        if planned == 0 && !news.contains(&true) {
            return;
        }
        while sim.calls(operator) > 0 {
            sim.take_hold(operator, 0);
            sim.take_hold(operator, 0);
            sim.answer(operator, 0);
        }
    }
}

#[test]
fn a_disagreement_that_is_over_takes_no_address_away() {
    let mut sim = Sim::new(2);
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0/32", "");
    for operator in 0..2 {
        for kind in KINDS {
            sim.list(operator, kind);
        }
    }
    share(&mut sim, "shop/red", "k", 80);
    share(&mut sim, "shop/blue", "k", 443);
    sim.settle();
    assert_eq!(sim.cluster.claims[&ip("10.0.0.0")].services().len(), 2);
    // Red no longer wants to share, loses the address, and has it alone when blue is gone.
    sim.cluster.edit_service("shop/red", |stored| stored.view.terms = None);
    work(&mut sim, 0);
    assert_eq!(shown_by(&sim, "shop/red"), [] as [&str; 0]);
    sim.cluster.delete_service("shop/blue");
    work(&mut sim, 0);
    assert_eq!(shown_by(&sim, "shop/red"), ["10.0.0.0"]);
    // The other operator knows the Services as they are and the claim as it was.
    sim.deliver(1, Kind::Services, usize::MAX);
    for _ in 0..3 {
        sim.plan(1);
        while sim.calls(1) > 0 {
            sim.take_hold(1, 0);
            sim.take_hold(1, 0);
            sim.answer(1, 0);
        }
    }
    assert_eq!(sim.cluster.wrongs, [] as [&str; 0]);
    assert_eq!(shown_by(&sim, "shop/red"), ["10.0.0.0"]);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/red"), ["10.0.0.0"]);
}

/// A quota may be all that keeps a Service from joining, though the pool, which gives on request only, does
/// not say so.
#[test]
fn a_service_that_could_share_is_served_when_its_namespace_holds_less() {
    let mut sim = running(1);
    let on_request = PoolName::new("IPGroup/on-request");
    sim.cluster.set_pool("IPGroup/on-request", "10.0.0.0-10.0.0.7", "");
    sim.cluster.put_pool(&on_request, |view| {
        view.quota = Some(landfall_api::Quota { per_namespace: Some(1), ..Default::default() });
        if let Ok(pool) = &mut view.pool {
            pool.auto_assign = false;
        }
    });
    share(&mut sim, "shop/has", "k", 53);
    sim.cluster.create_service("shop/asks");
    sim.cluster.edit_service("shop/asks", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.7")]);
    });
    sim.settle();
    sim.cluster.put_pool(&PoolName::new("IPGroup/a"), |view| view.pool = Err(vec!["x".to_owned()]));
    share(&mut sim, "shop/late", "k", 80);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/late"), [] as [&str; 0], "its namespace holds one already");
    sim.cluster.delete_service("shop/asks");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/late"), shown_by(&sim, "shop/has"));
}

/// A Service that joins an address takes it from no other, so the other need not wait for it.
#[test]
fn a_service_that_requires_both_families_gets_the_second_while_another_joins_the_first() {
    let mut sim = running(1);
    let more = PoolName::new("IPGroup/more");
    share(&mut sim, "shop/joins", "k", 22);
    sim.cluster.edit_service("shop/joins", |stored| stored.view.pools = Some(vec![more.clone()]));
    share(&mut sim, "shop/both", "k", 80);
    sim.settle();
    sim.cluster.edit_service("shop/both", |stored| {
        stored.view.families = vec![Family::V4, Family::V6];
        stored.view.require_all = true;
    });
    sim.cluster.create_service("shop/younger");
    sim.cluster.edit_service("shop/younger", |stored| stored.view.families = vec![Family::V6]);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/both"), ["10.0.0.0"]);
    sim.cluster.set_pool(more.as_str(), "10.0.0.0-10.0.0.3 fd00::1", "");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/joins"), ["10.0.0.0"]);
    assert_eq!(shown_by(&sim, "shop/both"), ["10.0.0.0", "fd00::1"]);
    assert_eq!(shown_by(&sim, "shop/younger"), [] as [&str; 0]);
}

#[test]
fn a_service_that_requires_both_families_gets_the_second_while_another_takes_its_requested_address()
{
    let mut sim = running(1);
    sim.cluster.create_service("shop/both");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/both"), ["10.0.0.0"]);
    sim.cluster.delete_pool(&PoolName::new("IPGroup/a"));
    sim.settle();
    sim.cluster.create_service("shop/older");
    let key = ObjectKey::parse("shop/both").unwrap();
    let born = sim.cluster.services[&key].view.created - SignedDuration::from_secs(1);
    sim.cluster.edit_service("shop/older", |stored| stored.view.created = born);
    sim.cluster.edit_service("shop/both", |stored| {
        stored.view.families = vec![Family::V4, Family::V6];
        stored.view.require_all = true;
        stored.view.request = Request::Addresses(vec![ip("10.0.0.1")]);
    });
    sim.cluster.create_service("shop/younger");
    sim.cluster.edit_service("shop/younger", |stored| stored.view.families = vec![Family::V6]);
    sim.settle();
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0-10.0.0.1 fd00::1", "");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/older"), ["10.0.0.1"]);
    assert_eq!(shown_by(&sim, "shop/both"), ["10.0.0.0", "fd00::1"]);
    assert_eq!(shown_by(&sim, "shop/younger"), [] as [&str; 0]);
}
