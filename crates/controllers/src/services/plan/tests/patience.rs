//! Failing calls are retried at growing intervals.

use super::*;
use crate::{call::Failure, engine::Call as _, ledger, object::Version, services::effect::Answer};

/// A step as short as the time between news and answers on a real network.
const STEP: Duration = Duration::from_millis(80);

/// The calls made in this time, by kind, while `server` answers.
fn calls_during(
    sim: &mut Sim,
    time: Duration,
    mut server: impl FnMut(&Effect) -> Option<Result<Answer, Failure>>,
) -> BTreeMap<&'static str, usize> {
    let mut calls = BTreeMap::new();
    for _ in 0..time.as_millis() / STEP.as_millis() {
        sim.play(0, |effect| {
            *calls.entry(effect.label()).or_default() += 1;
            server(effect)
        });
        sim.pass_time(STEP);
    }
    calls
}

/// The claim on `10.0.0.0` as it was long ago.
fn older_claim(sim: &Sim) -> Answer {
    let claim = sim.cluster.claims[&ip("10.0.0.0")].clone();
    Answer::Ledger(ledger::Answer::Claim(Claim { version: Version(1), ..claim }))
}

fn served() -> Sim {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    sim.cluster.writes.clear();
    sim
}

#[test]
fn a_claim_that_answers_conflict_and_reads_older_than_known_is_touched_less_and_less_often() {
    let mut sim = served();
    sim.cluster.edit_service("shop/web", |stored| stored.view.shows.clear());
    let older = older_claim(&sim);
    let mut lie = |effect: &Effect| match effect.label() {
        "touch" => Some(Err(Failure::Conflict)),
        "look" => Some(Ok(older.clone())),
        _ => None,
    };
    let first = calls_during(&mut sim, Duration::from_mins(1), &mut lie);
    assert!((4..15).contains(&first["touch"]), "{first:?}");
    calls_during(&mut sim, Duration::from_mins(5), &mut lie);
    let later = calls_during(&mut sim, Duration::from_mins(5), &mut lie);
    assert!((3..10).contains(&later["touch"]), "{later:?}");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.0"], "when the server tells the truth");
}

#[test]
fn a_claim_that_answers_conflict_is_released_less_and_less_often() {
    let mut sim = served();
    sim.cluster.delete_service("shop/web");
    let older = older_claim(&sim);
    let calls = calls_during(&mut sim, Duration::from_mins(5), |effect| match effect.label() {
        "release" => Some(Err(Failure::Conflict)),
        "look" => Some(Ok(older.clone())),
        _ => None,
    });
    assert!((5..20).contains(&calls["release"]), "{calls:?}");
    sim.settle();
    assert!(sim.cluster.claims.is_empty());
}

/// Another program removes from the claim the terms on which the Service has the address.
#[test]
fn a_claim_that_another_program_keeps_rewriting_is_written_with_patience() {
    let mut sim = served();
    sim.cluster.edit_service("shop/web", |stored| {
        stored.view = stored.view.clone().sharing("k", 80);
    });
    sim.settle();
    let undo = |sim: &mut Sim| {
        let claim = sim.cluster.claims[&ip("10.0.0.0")].clone();
        let holders = claim.services().iter().cloned();
        let stripped = holders.map(|holder| HolderEntry { terms: None, ..holder });
        sim.cluster.hold(claim.addr, stripped.collect());
    };
    undo(&mut sim);
    sim.quiet();
    assert_eq!(sim.cluster.writes.last(), Some(&"touch"), "once is put right at once");
    sim.cluster.writes.clear();
    for _ in 0..600 {
        undo(&mut sim);
        sim.pass_time(Duration::from_millis(100));
        sim.quiet();
    }
    let touches = sim.cluster.writes.iter().filter(|word| **word == "touch").count();
    assert!((4..30).contains(&touches), "{touches} in a minute");
    sim.settle();
    let claim = &sim.cluster.claims[&ip("10.0.0.0")];
    assert!(claim.services()[0].terms.is_some(), "and the last word is ours");
}

#[test]
fn a_throttled_write_is_tried_again_when_the_server_says_and_nothing_is_read_in_between() {
    let wait = Duration::from_secs(20);
    for case in ["take", "publish", "release"] {
        let mut sim = if case == "release" { served() } else { running(1) };
        if case == "release" {
            sim.cluster.delete_service("shop/web");
        } else {
            sim.cluster.create_service("shop/web");
        }
        let calls = calls_during(&mut sim, wait.saturating_sub(STEP), |effect| {
            (effect.label() == case).then_some(Err(Failure::Throttled(wait)))
        });
        assert_eq!(calls[case], 1, "{calls:?}");
        assert_eq!(calls.get("look"), None, "{case}: {calls:?}");
        assert!(!sim.is_in_flight(0, ip("10.0.0.0")), "{case}: nothing is under way");
        let calls = calls_during(&mut sim, Duration::from_secs(1), |_| None);
        assert_eq!(calls[case], 1, "{calls:?}");
        assert_eq!(calls.get("look"), None, "{case}: {calls:?}");
        let left = usize::from(case != "release");
        assert_eq!(sim.cluster.claims.len(), left, "{case}");
    }
}

#[test]
fn looks_that_fail_are_a_minute_apart_in_the_end() {
    let unknown = || Err(Failure::Unknown("no answer".to_owned()));
    let minutes = Duration::from_mins(10);
    // The outcome of a write to a claim, and of a write to a Service.
    for case in ["take", "publish"] {
        let mut sim = running(1);
        sim.cluster.create_service("shop/web");
        let calls = calls_during(&mut sim, minutes, |effect| {
            ["look", case].contains(&effect.label()).then(unknown)
        });
        assert_eq!(calls[case], 1, "{calls:?}");
        assert!((10..30).contains(&calls["look"]), "{case}: {calls:?}");
        sim.settle();
        assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.0"], "{case}");
    }
}

#[test]
fn a_look_that_is_throttled_waits_as_told() {
    let wait = Duration::from_secs(20);
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    let calls = calls_during(&mut sim, wait, |effect| match effect.label() {
        "take" => Some(Err(Failure::Unknown("lost".to_owned()))),
        "look" => Some(Err(Failure::Throttled(wait))),
        _ => None,
    });
    assert_eq!(calls["look"], 1, "{calls:?}");
}

#[test]
fn a_pools_status_that_cannot_be_written_is_tried_less_and_less_often() {
    let mut sim = running(1);
    let calls = calls_during(&mut sim, Duration::from_mins(10), |effect| {
        matches!(effect, Effect::PoolStatus { .. }).then_some(Err(Failure::Conflict))
    });
    assert!((10..30).contains(&calls["pool_status"]), "{calls:?}");
}
