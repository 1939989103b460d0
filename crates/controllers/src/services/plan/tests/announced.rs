//! The condition that says how a Service is announced, which another planner knows.

use landfall_api::{condition, keys::CONDITION_ANNOUNCED};

use super::*;
use crate::announcements::Announcement;

fn web() -> ObjectKey {
    ObjectKey::parse("shop/web").unwrap()
}

fn held_by(node: &str) -> Announcement {
    Announcement { announced: true, reason: "Announced", message: format!("{node} since noon") }
}

/// What the condition says, if there is one.
fn announced(sim: &Sim) -> Option<(String, String)> {
    let conditions = &sim.cluster.services[&web()].view.conditions;
    let found = condition::get(conditions, CONDITION_ANNOUNCED)?;
    Some((found.status.clone(), found.message.clone()))
}

/// A Service with an address, and an operator that was told nothing of how it is announced.
fn serving() -> Sim {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    sim.cluster.writes.clear();
    sim
}

fn say(sim: &mut Sim, announcement: Option<Announcement>) {
    sim.operators[0].runner.shared.announcements.say(&web(), announcement);
}

#[test]
fn a_condition_is_written_once_beside_the_other_one() {
    let mut sim = serving();
    say(&mut sim, Some(held_by("n1")));
    sim.settle();
    assert_eq!(announced(&sim), Some(("True".to_owned(), "n1 since noon".to_owned())));
    assert_eq!(sim.cluster.writes, ["set_conditions"]);
    assert_eq!(sim.cluster.services[&web()].view.conditions.len(), 2);
    say(&mut sim, Some(held_by("n1")));
    sim.settle();
    say(&mut sim, None);
    sim.settle();
    assert_eq!(sim.cluster.writes.len(), 1, "nothing else is known");
    say(&mut sim, Some(held_by("n2")));
    sim.settle();
    assert_eq!(announced(&sim), Some(("True".to_owned(), "n2 since noon".to_owned())));
}

#[test]
fn a_condition_goes_only_when_it_is_known_that_the_service_is_not_announced() {
    let mut sim = serving();
    say(&mut sim, Some(held_by("n1")));
    sim.settle();
    sim.cluster.writes.clear();
    let all = &mut sim.operators[0].runner.shared.announcements;
    all.forget_all();
    all.look_again(web());
    sim.settle();
    assert!(announced(&sim).is_some());
    let all = &mut sim.operators[0].runner.shared.announcements;
    all.complete();
    all.look_again(web());
    sim.settle();
    assert_eq!((announced(&sim), &sim.cluster.writes[..]), (None, &["set_conditions"][..]));
}

#[test]
fn a_condition_that_another_program_removes_comes_back_and_not_for_ever_at_once() {
    let mut sim = serving();
    say(&mut sim, Some(held_by("n1")));
    sim.settle();
    sim.cluster.writes.clear();
    for _ in 0..10 {
        sim.cluster.edit_service("shop/web", |stored| {
            condition::remove(&mut stored.view.conditions, CONDITION_ANNOUNCED);
        });
        sim.quiet();
    }
    let writes = sim.cluster.writes.len();
    assert!((1..10).contains(&writes), "{writes}");
    sim.settle();
    assert!(announced(&sim).is_some());
}

#[test]
fn a_service_that_is_no_balancer_any_more_loses_both_conditions() {
    let mut sim = serving();
    say(&mut sim, Some(held_by("n1")));
    sim.settle();
    sim.operators[0].runner.shared.announcements.retract(&web());
    sim.cluster.edit_service("shop/web", |stored| stored.load_balancer = false);
    sim.settle();
    assert!(sim.cluster.services[&web()].view.conditions.is_empty());
}
