//! Several operators at work on the same `VirtualIP`s.

use std::collections::BTreeMap;

use landfall_api::virtualip::State;
use landfall_testkit::builders::segment;
use landfall_testkit::cluster::Recorder;
use landfall_testkit::proxy::{Action, Record};
use landfall_testkit::{Operator, wait};

use super::{Old, VALID};
use crate::stage::{LONG, comes_to_lead, leads, old_arena};

/// Creates and exposes Services, and waits until each has its address.
async fn exposed(old: &Old, names: impl IntoIterator<Item = String>) -> BTreeMap<String, String> {
    let names: Vec<_> = names.into_iter().collect();
    for name in &names {
        old.service(name).await;
        old.expose(name, name, None).await;
    }
    let mut addrs = BTreeMap::new();
    for name in names {
        let status = old.is(&name, State::Valid, VALID).await;
        addrs.insert(name, status.ip.unwrap());
    }
    addrs
}

async fn migrate(old: &Old, addrs: &BTreeMap<String, String>) {
    for name in addrs.keys() {
        old.migrate(name).await;
    }
}

async fn are_migrated(old: &Old, addrs: &BTreeMap<String, String>) {
    for (name, addr) in addrs {
        old.is_migrated(name, name, addr).await;
    }
}

async fn never_a_gap(old: &Old, recorder: Recorder) {
    old.tenant.settled().await;
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.gaps(), []);
    assert_eq!(history.problems(), Vec::<String>::new());
    assert_eq!(history.moved(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_at_once_migrate_without_a_gap() {
    let arena = old_arena().await;
    let old = Old::new(&arena, "vip-both").await;
    old.mapping("both", "10.45.0.0/26", &[]).await;
    old.tenant.pool(segment("both", "10.45.0.0/26", &[])).await;
    let operators = [arena.operator().await, arena.operator().await];
    for operator in &operators {
        operator.wait_ready(LONG).await.unwrap();
    }
    let addrs = exposed(&old, (0..16).map(|n| format!("s{n:02}"))).await;
    let recorder = Recorder::start(&old.tenant.client).await.unwrap();
    migrate(&old, &addrs).await;
    are_migrated(&old, &addrs).await;
    never_a_gap(&old, recorder).await;
    // Neither of them is behind.
    are_migrated(&old, &addrs).await;
    assert!(operators.iter().all(Operator::is_running));
}

/// The writes of a leader that was frozen arrive when another has done everything.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_sleeps_through_a_migration_does_no_harm_when_it_wakes() {
    const WRITES: usize = 40;
    let arena = old_arena().await;
    let old = Old::new(&arena, "vip-leader").await;
    old.mapping("leader", "10.45.1.0/26", &[]).await;
    old.tenant.pool(segment("leader", "10.45.1.0/26", &[])).await;
    let proxy = arena.proxy().await;
    let first = arena.electing_operator_via(&proxy).await;
    comes_to_lead(&first).await;
    let second = arena.operator_with(&[]).await;
    second.wait_ready(LONG).await.unwrap();
    let mut addrs = exposed(&old, (0..12).map(|n| format!("s{n:02}"))).await;
    let later = exposed(&old, (0..4).map(|n| format!("late{n:02}"))).await;
    let last = exposed(&old, (0..4).map(|n| format!("last{n:02}"))).await;
    let recorder = Recorder::start(&old.tenant.client).await.unwrap();

    // Some are done by then, and each of the others is at a different step.
    let mark = proxy.mark();
    let mut writes = 0;
    proxy.add_rule(move |request| {
        writes += usize::from(request.is_work());
        (request.is_work() && writes > WRITES).then_some(Action::Freeze)
    });
    migrate(&old, &addrs).await;
    wait::until("the first to be in the middle", LONG, async || {
        let made = proxy.requests_since(mark);
        let made = made.iter().filter(|request: &&Record| request.is_work()).count();
        if made > WRITES { Ok(()) } else { Err(format!("{made} writes")) }
    })
    .await
    .unwrap();
    first.stop_signal().unwrap();
    comes_to_lead(&second).await;
    are_migrated(&old, &addrs).await;
    // The other is working when this one wakes.
    migrate(&old, &later).await;
    proxy.clear_rules();
    proxy.thaw();
    first.cont_signal().unwrap();
    are_migrated(&old, &later).await;
    wait::until("the first to be awake", LONG, async || first.metrics().await).await.unwrap();
    leads(&first).await.unwrap_err();

    // The same with an operator that is killed instead of stopped.
    migrate(&old, &last).await;
    second.kill().unwrap();
    comes_to_lead(&first).await;
    addrs.extend(later);
    addrs.extend(last);
    are_migrated(&old, &addrs).await;
    never_a_gap(&old, recorder).await;
    assert!(first.is_running());
}
