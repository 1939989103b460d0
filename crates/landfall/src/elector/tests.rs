//! The election under faults, on paused time: a whole day of partitions takes seconds.

mod fakes;
mod rules;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use landfall_controllers::leadership::leadership;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use self::fakes::{Arena, FAST, dice};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Hardly any distance between deadline and lease, so that a second too much anywhere shows.
fn tight() -> Timing {
    Timing::new(8, Duration::from_millis(7_900), SECOND).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_leads_at_once_and_goes_on() {
    let arena = Arena::new(["a"]);
    arena.watch_for(60 * SECOND).await;
    assert_eq!(arena.terms(), ["a"]);
    let spec = arena.spec();
    assert_eq!(spec.holder_identity.as_deref(), Some("a"));
    assert_eq!(spec.lease_duration_seconds, Some(5));
    assert_eq!(spec.lease_transitions, Some(0));
    assert!(spec.acquire_time < spec.renew_time, "acquireTime is kept by renewals");
    // 60 renewals in a minute, and the leader reads nothing after its first look.
    assert_eq!(arena.server.lock().unwrap().reads, 1);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_leader_stands_down_before_another_takes_over() {
    let arena = Arena::new(["a", "b"]);
    arena.watch_for(10 * SECOND).await;
    assert_eq!(arena.terms(), ["a"]);
    arena.link("a").freeze();
    let frozen = Instant::now();
    // `a` renewed at most one retry period ago.
    arena.watch_for(4 * SECOND).await;
    assert_eq!(arena.leaders(), [] as [&str; 0], "the old leader has ended by its own clock");
    while arena.leaders().is_empty() {
        arena.watch_for(SECOND / 10).await;
    }
    assert_eq!(arena.leaders(), ["b"]);
    assert!(frozen.elapsed() <= 6 * SECOND, "took over after {:?}", frozen.elapsed());
    arena.link("a").thaw();
    arena.watch_for(60 * SECOND).await;
    assert_eq!(arena.terms(), ["a", "b"], "the thawed one is a standby");
    assert_eq!(arena.spec().lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_costs_no_leadership() {
    let arena = Arena::new(["a", "b"]);
    arena.watch_for(9 * SECOND).await;
    arena.link("a").lose_next_answer();
    arena.watch_for(60 * SECOND).await;
    assert_eq!(arena.terms(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_paused_process_does_not_lead_when_it_wakes_up() {
    let arena = Arena::new(["a", "b"]);
    arena.watch_for(10 * SECOND).await;
    arena.pause("a");
    arena.watch_for(60 * SECOND).await;
    assert_eq!(arena.leaders(), ["b"]);
    arena.resume("a");
    arena.watch_for(60 * SECOND).await;
    assert_eq!(arena.terms(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_paused_process_leads_again_if_its_place_was_not_taken() {
    let arena = Arena::new(["a"]);
    arena.watch_for(10 * SECOND).await;
    arena.pause("a");
    arena.watch_for(60 * SECOND).await;
    assert_eq!(arena.leaders(), [] as [&str; 0]);
    arena.resume("a");
    arena.watch_for(5 * SECOND).await;
    assert_eq!(arena.terms(), ["a", "a"]);
    assert_eq!(arena.spec().lease_transitions, Some(0), "the holder never changed");
}

#[tokio::test(start_paused = true)]
async fn a_graceful_stop_hands_over_without_waiting_for_the_expiry() {
    let arena = Arena::new(["a", "b"]);
    arena.watch_for(10 * SECOND).await;
    arena.stop("a");
    arena.watch_for(3 * SECOND).await;
    assert_eq!(arena.terms(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn the_last_one_leaves_a_lease_without_holder() {
    let arena = Arena::new(["a"]);
    arena.watch_for(10 * SECOND).await;
    arena.stop("a");
    arena.watch_for(SECOND).await;
    let spec = arena.spec();
    assert_eq!(spec.holder_identity.as_deref(), Some(""));
    assert_eq!(spec.lease_duration_seconds, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_stops_leaves_the_lease_alone() {
    let arena = Arena::new(["a", "b"]);
    arena.watch_for(10 * SECOND).await;
    arena.stop("b");
    arena.watch_for(30 * SECOND).await;
    assert_eq!(arena.terms(), ["a"]);
    assert_eq!(arena.spec().holder_identity.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_free_at_once() {
    let arena = Arena::new(["a", "b"]);
    arena.watch_for(10 * SECOND).await;
    arena.link("a").freeze();
    arena.server.lock().unwrap().lease = None;
    // Long before `a` would have run out.
    arena.watch_overlap_for(SECOND).await;
    assert_eq!(arena.leaders(), ["a", "b"]);
    arena.watch_overlap_for(3 * SECOND).await;
    arena.link("a").thaw();
    arena.watch_for(60 * SECOND).await;
    assert_eq!(arena.leaders(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn one_leads_soon_after_a_lease_was_deleted_under_its_leader() {
    let arena = Arena::new(["a", "b"]);
    arena.watch_for(10 * SECOND).await;
    arena.server.lock().unwrap().lease = None;
    // The first candidate to come has it; the other finds out at its next renewal.
    arena.watch_overlap_for(2 * SECOND).await;
    arena.watch_for(60 * SECOND).await;
    assert_eq!(arena.leaders().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_edited_duration_stops_no_candidate_for_long() {
    for holder in ["a", "somebody who never comes back"] {
        let arena = Arena::new(["a", "b"]);
        arena.watch_for(10 * SECOND).await;
        arena.link("a").freeze();
        arena.server.lock().unwrap().edit(|spec| {
            spec.holder_identity = Some(holder.to_owned());
            spec.lease_duration_seconds = Some(i32::MAX);
        });
        arena.watch_for(21 * SECOND).await;
        assert_eq!(arena.leaders(), ["b"], "held by {holder}");
        assert_eq!(arena.spec().lease_duration_seconds, Some(5));
    }
}

#[tokio::test(start_paused = true)]
async fn two_never_lead_at_once_on_any_network() {
    for seed in 1..=24 {
        let timing = if seed % 2 == 0 { Timing::default() } else { tight() };
        let arena = Arena::with_timing(["a", "b", "c"], timing);
        let mut dice = dice(seed);
        for (salt, name) in (100..).zip(["a", "b", "c"]) {
            arena.link(name).misbehave(seed * salt);
        }
        for _ in 0..20 {
            let name = ["a", "b", "c"][dice(3)];
            match dice(5) {
                0 => arena.link(name).freeze(),
                1 | 2 => arena.link(name).thaw(),
                3 => arena.pause(name),
                _ => arena.resume(name),
            }
            // Panics if two lead.
            arena.watch_for(Duration::from_millis(500 + 20_000 * dice(100) as u64 / 100)).await;
        }
        for name in ["a", "b", "c"] {
            arena.link(name).behave();
            arena.link(name).thaw();
            arena.resume(name);
        }
        arena.watch_for(40 * SECOND).await;
        assert_eq!(arena.leaders().len(), 1, "seed {seed}: one leads when the faults are over");
        assert!(arena.terms().len() > 1, "seed {seed}: the faults never mattered");
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_counts_from_when_it_was_seen_not_from_when_it_was_asked_for() {
    let arena = Arena::with_timing(["a", "b"], tight());
    arena.watch_for(SECOND * 23 / 4).await;
    // The read of `b` sent at 6.0 s reaches the server at 8.5 s and finds what `a` wrote at 8.0 s.
    arena.link("b").delay(SECOND * 5 / 2, FAST);
    arena.watch_for(SECOND).await;
    arena.link("b").delay(FAST, FAST);
    arena.watch_for(SECOND * 21 / 10).await;
    // So `a` leads until 15.9 s, and its record, counted by `b` from 6.0 s, must not expire at 14.0 s.
    arena.link("a").freeze();
    arena.watch_for(20 * SECOND).await;
    assert_eq!(arena.terms(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_the_middle_of_a_write_still_gives_the_lease_back() {
    let arena = Arena::new(["a"]);
    let slow = SECOND * 4 / 5;
    arena.link("a").delay(slow, slow);
    // The read has its answer after 1.6 s; the create succeeds at 2.4 s, its answer comes at 3.2 s.
    arena.watch_for(2 * SECOND).await;
    arena.stop("a");
    arena.watch_for(20 * SECOND).await;
    assert_eq!(arena.terms(), [] as [&str; 0]);
    assert_eq!(arena.spec().holder_identity.as_deref(), Some(""));
}
