//! The write protocol as a model that is explored exhaustively.
//!
//! `docs/design/0002-write-protocol.md` says why no address is ever doubled; this checks it, with
//! operators that follow the rules by views of any age, against an API server that keeps its guards.
//! It shares no code with the operator: it is about the rules, and about each of them being needed.
//! `docs/design/0004-protocol-model.md` tells what is in the model, what is not, and what it found.
//!
//! Everything within the bounds is explored: two addresses, two Services, one or two operators, and
//! as many edits by users, crashes and lost answers as [`BOUNDS`] says. `LANDFALL_PROTOCOL_BOUND=large`
//! explores [`LARGE_BOUNDS`] instead, which takes several minutes.

mod cluster;
mod model;
mod operator;
mod properties;
mod rules;
mod server;
mod state;

use std::{collections::BTreeSet, thread::available_parallelism};

use stateright::{Checker, CheckerBuilder, HasDiscoveries, Model};

use crate::{
    model::{Protocol, Scene},
    properties::{
        KEPT, LISTED, NO_ORPHANS, NOT_TWICE, ONE_CLAIM, SERVED, SHOWN_ONCE, TIDY, UNMOVED,
    },
    rules::{Rules, Weakened},
    state::Budget,
};

/// A scene, how many operators, the trouble there may be, and the number of distinct states, which
/// tells a change that quietly leaves out part of the model.
type Bound = (Scene, usize, Budget, usize);

const BOUNDS: [Bound; 10] = [
    (Scene::Apart, 1, budget(0, 0, 1), 92),
    (Scene::Apart, 1, budget(2, 1, 1), 79_481),
    (Scene::Lone, 2, budget(2, 1, 0), 104_394),
    (Scene::Lone, 2, budget(1, 1, 1), 60_114),
    (Scene::Apart, 2, budget(1, 1, 0), 67_783),
    (Scene::Apart, 2, budget(1, 0, 1), 171_277),
    (Scene::Apart, 2, budget(2, 0, 0), 278_416),
    (Scene::Sharing, 2, budget(1, 0, 0), 42_952),
    (Scene::Doubled, 2, budget(2, 1, 0), 115_126),
    (Scene::Inherited, 2, budget(1, 1, 0), 26_399),
];

const LARGE_BOUNDS: [Bound; 6] = [
    (Scene::Doubled, 2, budget(3, 1, 0), 3_413_582),
    (Scene::Sharing, 2, budget(1, 1, 0), 605_992),
    (Scene::Inherited, 2, budget(2, 0, 0), 95_682),
    (Scene::Apart, 1, budget(3, 2, 1), 973_690),
    (Scene::Apart, 2, budget(1, 1, 1), 1_219_880),
    (Scene::Lone, 2, budget(3, 1, 0), 4_634_686),
];

/// Each rule, where to look for what it prevents, and which property is lost without it.
const NEEDED: [(Weakened, Scene, usize, Budget, &str); 21] = [
    (Weakened::TakeOverwrites, Scene::Apart, 2, budget(0, 0, 0), ONE_CLAIM),
    (Weakened::TakeOverwrites, Scene::Apart, 2, budget(0, 0, 0), SHOWN_ONCE),
    (Weakened::ResumeUntouched, Scene::Lone, 2, budget(2, 0, 0), LISTED),
    (Weakened::TouchUnguarded, Scene::Sharing, 2, budget(1, 0, 0), LISTED),
    (Weakened::TouchBackwards, Scene::Lone, 2, budget(2, 0, 0), LISTED),
    (Weakened::PublishUnguarded, Scene::Lone, 2, budget(2, 0, 0), LISTED),
    (Weakened::GuardObservedLate, Scene::Lone, 2, budget(2, 0, 0), LISTED),
    (Weakened::NewAddressFirst, Scene::Lone, 2, budget(2, 0, 0), SERVED),
    (Weakened::ReleaseFromCache, Scene::Lone, 2, budget(2, 0, 0), KEPT),
    (Weakened::ReleaseUnguarded, Scene::Lone, 2, budget(2, 0, 0), LISTED),
    (Weakened::ReleaseGuardedByUid, Scene::Lone, 2, budget(2, 0, 0), LISTED),
    (Weakened::ReadBeforeKnowing, Scene::Lone, 2, budget(2, 0, 0), LISTED),
    (Weakened::ReleaseByName, Scene::Apart, 1, budget(2, 0, 0), TIDY),
    (Weakened::PublishByName, Scene::Lone, 1, budget(2, 0, 0), LISTED),
    (Weakened::ReleaseBeforeWithdraw, Scene::Lone, 1, budget(1, 0, 0), LISTED),
    (Weakened::WithdrawFromCache, Scene::Sharing, 2, budget(1, 0, 0), UNMOVED),
    (Weakened::KeepExtraClaims, Scene::Lone, 2, budget(1, 0, 0), TIDY),
    (Weakened::AdoptionMoves, Scene::Doubled, 1, budget(0, 0, 0), UNMOVED),
    (Weakened::KeptBeforeShown, Scene::Doubled, 1, budget(2, 0, 0), TIDY),
    (Weakened::OverlayForgotten, Scene::Lone, 1, budget(0, 0, 1), NOT_TWICE),
    (Weakened::HoldersListedFirst, Scene::Lone, 2, budget(2, 1, 0), NO_ORPHANS),
];

const fn budget(edits: u8, crashes: u8, losses: u8) -> Budget {
    Budget { edits, crashes, losses }
}

fn checker(protocol: Protocol) -> CheckerBuilder<Protocol> {
    protocol.checker().threads(available_parallelism().map_or(1, usize::from))
}

#[test]
fn the_protocol_keeps_its_promises() {
    let large = std::env::var_os("LANDFALL_PROTOCOL_BOUND").is_some_and(|bound| bound == "large");
    let bounds = if large { &LARGE_BOUNDS[..] } else { &BOUNDS[..] };
    for (scene, operators, budget, states) in bounds.iter().copied() {
        let protocol = Protocol { scene, operators, budget, rules: Rules::ALL };
        let failed = HasDiscoveries::AnyFailures;
        let explored = checker(protocol).finish_when(failed).spawn_bfs().join();
        explored.assert_properties();
        assert_eq!(explored.unique_state_count(), states, "states of {protocol:?}");
    }
}

#[test]
fn each_rule_is_needed() {
    for (weakened, scene, operators, budget, lost) in NEEDED {
        let protocol = Protocol { scene, operators, budget, rules: Rules(Some(weakened)) };
        let found = HasDiscoveries::AnyOf(BTreeSet::from([lost]));
        let explored = checker(protocol).finish_when(found).spawn_bfs().join();
        assert!(explored.discovery(lost).is_some(), "{weakened:?} does no harm to: {lost}");
    }
}
