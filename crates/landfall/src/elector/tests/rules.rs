//! Tables for the decisions of one candidate.

use super::*;

const T: Timestamp = Timestamp::UNIX_EPOCH;

/// A record as the server has it.
fn record(holder: &str, version: &str, seconds: Option<i32>) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.resource_version = Some(version.to_owned());
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(holder.to_owned());
    spec.lease_duration_seconds = seconds;
    spec.lease_transitions = Some(4);
    lease
}

#[derive(Debug, PartialEq)]
enum Next {
    Look,
    Wait(u64),
    Create,
    /// The version it replaces.
    Update(&'static str),
}

/// Case, observations with the second they arrived, second of the decision, expected.
type Row = (&'static str, Vec<(u64, Option<Lease>)>, u64, Next);

#[test]
fn decisions_follow_from_the_record_and_the_time_it_was_seen() {
    let other = |version| Some(record("other", version, Some(15)));
    let free = |version| Some(record("", version, Some(1)));
    let mine = |version| Some(record("me", version, Some(15)));
    let rows: Vec<Row> = vec![
        ("nothing is known at first", vec![], 0, Next::Look),
        ("no lease is made", vec![(0, None)], 0, Next::Create),
        ("a lease without holder is taken", vec![(0, free("1"))], 0, Next::Update("1")),
        ("our own is renewed", vec![(0, mine("1"))], 1, Next::Update("1")),
        ("our own is renewed however old it is", vec![(0, mine("1"))], 900, Next::Update("1")),
        (
            "a holder seen for the first time gets its whole time",
            vec![(3, other("1"))],
            3,
            Next::Wait(18),
        ),
        (
            "an unchanged record counts from its first sight",
            vec![(0, other("1")), (14, other("1"))],
            14,
            Next::Wait(15),
        ),
        ("and expires", vec![(0, other("1")), (15, other("1"))], 15, Next::Update("1")),
        (
            "a changed record starts the count again",
            vec![(0, other("1")), (14, other("2"))],
            20,
            Next::Wait(29),
        ),
        (
            "a change after the expiry saves the holder",
            vec![(0, other("1")), (20, other("2"))],
            20,
            Next::Wait(35),
        ),
        (
            "the holder's promise counts, not ours",
            vec![(0, Some(record("other", "1", Some(40))))],
            39,
            Next::Wait(40),
        ),
        (
            "no promise is taken for ours",
            vec![(0, Some(record("other", "1", None)))],
            14,
            Next::Wait(15),
        ),
        (
            "a senseless promise is taken for ours",
            vec![(0, Some(record("other", "1", Some(-5))))],
            14,
            Next::Wait(15),
        ),
        (
            "a released lease is taken at once",
            vec![(0, other("1")), (2, free("2"))],
            2,
            Next::Update("2"),
        ),
        (
            "an absurd promise counts for four times ours",
            vec![(0, Some(record("other", "1", Some(i32::MAX))))],
            59,
            Next::Wait(60),
        ),
        (
            "and no longer",
            vec![(0, Some(record("other", "1", Some(i32::MAX))))],
            60,
            Next::Update("1"),
        ),
        ("a deleted lease is free at once", vec![(0, other("1")), (2, None)], 2, Next::Create),
        ("our own deleted lease is made again", vec![(0, mine("1")), (2, None)], 2, Next::Create),
    ];
    let start = Instant::now();
    let at = |second: u64| start + Duration::from_secs(second);
    for (case, seen, now, expected) in rows {
        let mut candidate = Candidate::new("me".into(), Timing::client_go());
        for (second, lease) in seen {
            candidate.observe(lease, at(second));
        }
        let decision = match candidate.decide(at(now), T) {
            Decision::Look => Next::Look,
            Decision::Wait(until) => Next::Wait((until - start).as_secs()),
            Decision::Create(_) => Next::Create,
            Decision::Update(lease) => {
                let version = lease.metadata.resource_version.unwrap();
                Next::Update(if version == "1" { "1" } else { "2" })
            }
        };
        assert_eq!(decision, expected, "{case}");
    }
}

#[test]
fn forgetting_leads_to_a_look_but_keeps_the_holders_time() {
    let start = Instant::now();
    let mut candidate = Candidate::new("me".into(), Timing::client_go());
    candidate.observe(Some(record("other", "1", Some(15))), start);
    candidate.forget();
    assert_eq!(candidate.decide(start, T), Decision::Look);
    candidate.observe(Some(record("other", "1", Some(15))), start + 9 * SECOND);
    assert_eq!(candidate.decide(start, T), Decision::Wait(start + 15 * SECOND));
}

#[test]
fn taking_counts_a_transition_and_renewing_does_not() {
    let now = Timestamp::from_second(1_000).unwrap();
    let then = Timestamp::from_second(10).unwrap();
    let mut mine = record("me", "1", Some(15));
    mine.spec.as_mut().unwrap().acquire_time = Some(then.into());
    // (case, what was seen, transitions, acquired)
    for (case, seen, transitions, acquired) in [
        ("created", None, 0, now),
        ("taken without a holder", Some(record("", "1", Some(1))), 5, now),
        ("renewed", Some(mine), 4, then),
    ] {
        let mut candidate = Candidate::new("me".into(), Timing::client_go());
        candidate.observe(seen, Instant::now());
        let (Decision::Create(lease) | Decision::Update(lease)) =
            candidate.decide(Instant::now(), now)
        else {
            panic!("{case}: neither created nor updated")
        };
        let spec = lease.spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("me"), "{case}");
        assert_eq!(spec.lease_transitions, Some(transitions), "{case}");
        assert_eq!(spec.acquire_time, Some(acquired.into()), "{case}");
        assert_eq!(spec.renew_time, Some(now.into()), "{case}");
    }
}

#[test]
fn fields_that_others_wrote_on_the_object_stay() {
    let mut lease = record("", "1", Some(1));
    lease.metadata.labels = Some([("team".to_owned(), "net".to_owned())].into());
    let mut candidate = Candidate::new("me".into(), Timing::client_go());
    candidate.observe(Some(lease), Instant::now());
    let Decision::Update(claimed) = candidate.decide(Instant::now(), T) else {
        panic!("a free lease is taken")
    };
    assert_eq!(claimed.metadata.labels.unwrap()["team"], "net");
}

#[test]
fn timings_that_allow_two_leaders_are_refused() {
    for (case, lease, renew, retry, sound) in [
        ("client-go's", 15, 10, 2, true),
        ("no distance between lease and deadline", 10, 10, 2, false),
        ("no time for a second try", 15, 2, 2, false),
        ("no pause", 15, 10, 0, false),
    ] {
        let timing = Timing::new(lease, renew * SECOND, retry * SECOND);
        assert_eq!(timing.is_some(), sound, "{case}");
    }
    assert_eq!(Timing::new(15, 10 * SECOND, 2 * SECOND), Some(Timing::client_go()));
    assert_eq!(Timing::new(5, 4 * SECOND, SECOND), Some(Timing::default()));
}

#[test]
fn a_restarted_process_takes_the_lease_of_the_one_before_it_at_once() {
    let start = Instant::now();
    let of = |pod| Identity::new(pod, T);
    let (old, new) = (of(Some("pod-1")), of(Some("pod-1")));
    let next = |identity: &Identity, seen: &[(&Identity, &str)]| {
        let mut candidate = Candidate::new(identity.clone(), Timing::default());
        for (holder, version) in seen {
            candidate.observe(Some(record(holder.name(), version, Some(5))), start);
        }
        candidate.decide(start, T)
    };
    let takes = |decision: &Decision| matches!(decision, Decision::Update(_));
    assert!(takes(&next(&new, &[(&old, "1")])));
    assert!(takes(&next(&new, &[(&old, "1"), (&old, "2")])), "its last write came late");

    let other = of(Some("pod-2"));
    for (case, me, seen) in [
        ("another pod", &new, &[(&other, "1")][..]),
        ("a process of this host that names no pod", &new, &[(&of(None), "1")]),
        ("we name no pod, nor does the holder", &of(None), &[(&of(None), "1")]),
        ("a process of our pod that came after us", &old, &[(&old, "1"), (&new, "2")]),
        ("one that came while another pod led", &old, &[(&other, "1"), (&new, "2")]),
    ] {
        assert!(matches!(next(me, seen), Decision::Wait(_)), "{case}");
    }
}

#[test]
fn only_the_holder_releases() {
    for (case, seen, releases) in [
        ("nothing", None, false),
        ("another's", Some(record("other", "1", Some(15))), false),
        ("without a holder", Some(record("", "1", Some(1))), false),
        ("ours", Some(record("me", "1", Some(15))), true),
    ] {
        let mut candidate = Candidate::new("me".into(), Timing::client_go());
        candidate.observe(seen, Instant::now());
        assert_eq!(candidate.released(T).is_some(), releases, "{case}");
    }
}
