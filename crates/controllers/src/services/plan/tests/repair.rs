//! Inconsistencies that repair finds, the order in which it reports and fixes them, and when it only reports.

use landfall_api::{Finding, condition};

use super::{super::RepairMode, *};
use crate::sim::fixtures::service;

/// A cluster with one pool that no operator has listed yet.
fn untouched(mode: RepairMode) -> Sim {
    let mut sim = Sim::new(1);
    sim.set_mode(mode);
    sim.cluster.set_pool("IPGroup/a", POOLS[0].0, POOLS[0].1);
    sim
}

fn show(sim: &mut Sim, key: &str, addrs: &[&str]) {
    sim.cluster.create_service(key);
    sim.cluster.edit_service(key, |stored| stored.view = stored.view.clone().showing(addrs));
}

/// An earlier Service of the same name.
fn former(key: &str) -> HolderEntry {
    HolderEntry { uid: Some("former".into()), ..service(key).holder_entry() }
}

/// The pool's condition about consistency: whether all is well, and if not the first finding.
fn consistent(sim: &Sim) -> Option<(String, String)> {
    let status = sim.cluster.pool_status("IPGroup/a");
    let said = condition::get(&status.conditions, "Consistent")?;
    Some((said.status.clone(), said.reason.clone()))
}

type Story = fn(&mut Sim);

/// Each kind of finding, how it arises, and the writes that fix it.
const KINDS_FOUND: [(Finding, Story, &[&str]); 7] = [
    (Finding::ShownWithoutClaim, |sim| show(sim, "shop/web", &["10.0.0.2"]), &["take"]),
    (
        Finding::NeverShown,
        |sim| {
            sim.cluster.create_service("shop/web");
            let holder = sim.cluster.services.values().next().unwrap().view.holder_entry();
            sim.cluster.hold(ip("10.0.0.2"), vec![HolderEntry { seen: None, ..holder }]);
        },
        &["touch", "publish"],
    ),
    (
        Finding::HolderGone,
        |sim| sim.cluster.hold(ip("10.0.0.2"), vec![former("shop/gone")]),
        &["release"],
    ),
    (Finding::HeldByNobody, |sim| sim.cluster.hold_without_holder(ip("10.0.0.2")), &[]),
    (
        Finding::ShownTwice,
        |sim| show(sim, "shop/web", &["10.0.0.2", "10.0.0.2"]),
        &["take", "publish"],
    ),
    (
        Finding::SharedWithoutConsent,
        |sim| {
            show(sim, "shop/a", &["10.0.0.2"]);
            show(sim, "shop/b", &["10.0.0.2"]);
        },
        // Both are told; neither is moved.
        &["take", "publish", "publish"],
    ),
    (
        Finding::FinalizerLeft,
        |sim| {
            sim.cluster.create_service("shop/web");
            sim.cluster.edit_service("shop/web", |stored| stored.finalizer = true);
        },
        &["take", "publish", "clean_up"],
    ),
];

#[test]
fn each_kind_is_reported_before_it_is_repaired() {
    for (finding, story, fixes) in KINDS_FOUND {
        let mut sim = untouched(RepairMode::Fix);
        story(&mut sim);
        for kind in KINDS {
            sim.list(0, kind);
        }
        sim.plan(0);
        assert_eq!(sim.counted(0).get(&finding), Some(&1), "{finding}");
        sim.settle();
        assert_eq!(sim.cluster.writes, fixes, "{finding}");
        // The first write is the pool's report of the finding, if a pool is concerned.
        let said = sim.cluster.said_first("IPGroup/a");
        if finding != Finding::FinalizerLeft {
            assert!(said.contains("10.0.0.2"), "{finding}: {said}");
            let lasts = matches!(finding, Finding::HeldByNobody | Finding::SharedWithoutConsent);
            let word = if lasts { "False" } else { "True" };
            assert_eq!(consistent(&sim).unwrap().0, word, "{finding}");
        }
    }
}

#[test]
fn sharing_an_address_without_consent_is_told_on_both_services_and_the_pool() {
    let mut sim = untouched(RepairMode::Fix);
    for key in ["shop/a", "bank/b"] {
        show(&mut sim, key, &["10.0.0.2"]);
    }
    for kind in KINDS {
        sim.list(0, kind);
    }
    sim.plan(0);
    let word = Finding::SharedWithoutConsent.as_str();
    let told = sim.events(0).iter();
    let told = told.filter(|event| event.reason == word && event.message.contains("10.0.0.2"));
    let about = told.map(|event| (event.about.namespace.as_deref(), event.about.name.as_deref()));
    let about: Vec<_> = about.collect();
    let (pool, other, one) = ((None, "IPGroup/a"), (Some("bank"), "b"), (Some("shop"), "a"));
    assert_eq!(about, [pool, other, one].map(|(namespace, name)| (namespace, Some(name))));
}

#[test]
fn findings_that_are_only_reported_change_nothing() {
    for (finding, story, _) in KINDS_FOUND {
        let mut sim = untouched(RepairMode::Report);
        story(&mut sim);
        sim.cluster.create_service("shop/new");
        sim.settle();
        assert_eq!(sim.counted(0).get(&finding), Some(&1), "{finding}");
        assert_eq!(
            sim.cluster.writes,
            ["take", "publish"],
            "{finding}: only the new one is served"
        );
    }
}

#[test]
fn a_finding_that_lasts_is_told_once_and_one_that_is_over_is_taken_back() {
    let mut sim = untouched(RepairMode::Fix);
    show(&mut sim, "shop/a", &["10.0.0.2"]);
    show(&mut sim, "shop/b", &["10.0.0.2"]);
    sim.settle();
    let expected = ("False".to_owned(), "SharedWithoutConsent".to_owned());
    assert_eq!(consistent(&sim), Some(expected.clone()));
    let (age, counted) = (sim.cluster.age(), sim.counted(0));
    sim.pass_time(Duration::from_mins(11));
    sim.quiet();
    assert_eq!((sim.cluster.age(), sim.counted(0)), (age, counted), "still the same");
    sim.cluster.delete_service("shop/b");
    sim.settle();
    assert_eq!(consistent(&sim).unwrap().0, "True");
}

#[test]
fn the_timer_finds_changes_that_no_watch_told() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    assert_eq!(consistent(&sim), None, "nothing was ever found");
    sim.cluster.hold_without_holder(ip("10.0.0.3"));
    sim.quiet();
    assert_eq!(consistent(&sim), None, "not yet looked");
    sim.pass_time(Duration::from_mins(11));
    sim.settle();
    assert_eq!(consistent(&sim).unwrap().1, "HeldByNobody");
    sim.cluster.delete_claim(ip("10.0.0.3"));
    sim.settle();
    assert_eq!(consistent(&sim).unwrap().0, "True");
}
