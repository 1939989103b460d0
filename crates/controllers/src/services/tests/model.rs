//! Compares the planner with a naive model: long random stories with all features at once, in which after
//! every step each Service must have and say exactly what the documents promise.
//!
//! The cluster is the simulated one with a single operator, and after each step everything comes to rest; the
//! planner's own tests cover the time in between and several operators.

use std::collections::BTreeSet;

use landfall_ipam::Reason;
use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

use self::{
    acts::{Act, any_act},
    compare::Shown,
    reference::{Model, Says},
};
use super::sim::Sim;
use crate::cluster::service::Place;

mod acts;
mod compare;
mod driver;
mod pools;
mod reference;
mod rules;
mod sharing;

fn any_place() -> impl Strategy<Value = Place> {
    prop::sample::select(&[Place::Status, Place::Annotation][..])
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Act;

    fn init_state() -> BoxedStrategy<Self> {
        any_place().prop_map(Self::new).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Act> {
        any_act().boxed()
    }

    fn apply(mut state: Self, act: &Act) -> Self {
        state.step(act);
        state
    }
}

/// The real planner in its simulated cluster.
struct Operated {
    sim: Sim,
    /// The addresses shown before the step.
    before: Shown,
}

impl StateMachineTest for Operated {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(model: &Model) -> Self {
        let mut sim = Sim::showing_in(model.place, 1);
        sim.quiet();
        Self { sim, before: Shown::new() }
    }

    fn apply(mut state: Self, after: &Model, act: Act) -> Self {
        let age = state.sim.cluster.age();
        driver::happen(&mut state.sim, &act, after);
        if matches!(act, Act::Restart) {
            assert_eq!(state.sim.cluster.age(), age, "a restart writes nothing");
        }
        driver::pass_a_moment(&mut state.sim);
        assert_eq!(state.sim.plan(0), 0, "an operator that has planned has nothing left to do");
        compare::no_service_moved_without_reason(&state.before, &state.sim, &act, after);
        state.before = compare::shown(&state.sim);
        state
    }

    fn check_invariants(state: &Self, model: &Model) {
        compare::all_is_well(&state.sim);
        compare::every_service_is_served_as_promised(&state.sim, model);
        compare::the_ledger_is_as_expected(&state.sim, model);
        compare::no_service_starves(&state.sim, model);
        compare::pools_tell_the_truth(&state.sim, model);
    }
}

prop_state_machine! {
    // 256 stories, and so about 100,000 steps, unless PROPTEST_CASES says more.
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_planner_does_what_the_documents_promise(sequential 1..800 => Operated);
}

/// A model in which no Service is ever refused would prove little.
#[test]
fn the_stories_reach_every_reason_and_every_way_to_have_an_address() {
    let (mut runner, acts, places) = (TestRunner::deterministic(), any_act(), any_place());
    let mut seen = BTreeSet::new();
    let mut model = Model::default();
    for step in 0..24_000 {
        if step % 200 == 0 {
            model = Model::new(places.new_tree(&mut runner).unwrap().current());
        }
        model.step(&acts.new_tree(&mut runner).unwrap().current());
        seen.extend(model.services.values().filter_map(|service| match service.says? {
            Says::Allocated => Some("Allocated"),
            Says::OutsidePool => Some("OutsidePool"),
            Says::Refused(reason) => Some(reason.as_str()),
        }));
        seen.extend(model.services.values().any(|service| service.marked).then_some("annotated"));
        for claim in model.claims.values() {
            let of_none = claim.pool.is_none() && !claim.holders.is_empty();
            seen.extend(of_none.then_some("of no pool"));
            seen.extend((claim.holders.len() > 1).then_some("shared by two"));
            seen.extend((claim.holders.len() > 2).then_some("shared by three"));
            if let Some(reserved) = &claim.reserved {
                let used = !claim.holders.is_empty();
                seen.insert(if used { "reserved and had" } else { "reserved and waiting" });
                seen.extend(reserved.ends.is_some().then_some("kept for a while"));
            }
        }
    }
    // The API server of a story refuses nothing.
    let refused_writes = [Reason::LedgerRefused, Reason::HolderRefused];
    let reasons = Reason::ALL.into_iter().filter(|reason| !refused_writes.contains(reason));
    let ways = [
        "Allocated",
        "OutsidePool",
        "annotated",
        "of no pool",
        "shared by two",
        "shared by three",
        "reserved and had",
        "reserved and waiting",
        "kept for a while",
    ];
    let expected: BTreeSet<_> = reasons.map(Reason::as_str).chain(ways).collect();
    assert_eq!(seen, expected);
}
