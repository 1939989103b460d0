//! Which operator leads next: at once if there is no leader left to wait for, and without harm if there was.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use landfall::elector::LEASE_NAME;
use landfall_testkit::builders::{load_balancer, pool};
use landfall_testkit::cluster::Recorder;
use landfall_testkit::install::NAMESPACE;
use landfall_testkit::proxy::Action;
use landfall_testkit::{Operator, wait};
use serde_json::json;

use super::many::{all_served, burst, churn};
use crate::stage::{Arena, LONG, arena, comes_to_lead, leads};

/// A lease that outlasts the test: a new leader did not wait for its end.
const OUTLASTING: [&str; 2] =
    ["--leader-elect-lease-duration=1h", "--leader-elect-renew-deadline=50m"];

fn in_pod(uid: &'static str) -> [&'static str; 3] {
    let [lease, renewal] = OUTLASTING;
    [lease, renewal, uid]
}

fn leases(arena: &Arena) -> Api<Lease> {
    Api::namespaced(arena.client.clone(), NAMESPACE)
}

/// A record of a holder that does not exist, with the longest duration that a record can have.
async fn hold_for_ever(arena: &Arena) {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE_NAME},
        "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": i32::MAX},
    });
    let lease = serde_json::from_value(lease).unwrap();
    leases(arena).create(&PostParams::default(), &lease).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_container_serves_without_waiting_for_its_own_lease() {
    let arena = arena().await;
    let tenant = arena.tenant("succession-restart").await;
    tenant.pool(pool("succession-restart", &["10.13.0.0/24"])).await;
    let first = arena.operator_with(&in_pod("--pod-uid=one")).await;
    comes_to_lead(&first).await;
    // Of another Pod, and of none: they cannot know that the leader is dead.
    let other = arena.operator_with(&in_pod("--pod-uid=two")).await;
    let outside = arena.operator_with(&OUTLASTING).await;
    for operator in [&other, &outside] {
        operator.wait_ready(LONG).await.unwrap();
    }
    first.kill().unwrap();
    tenant.create(load_balancer("waits")).await;
    let again = arena.operator_with(&in_pod("--pod-uid=one")).await;
    tenant.shows_something("waits").await;
    leads(&again).await.unwrap();
    for operator in [&other, &outside] {
        leads(operator).await.unwrap_err();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_that_both_believe_to_lead_double_nothing() {
    let arena = arena().await;
    let tenant = arena.tenant("succession-overlap").await;
    tenant.pool(pool("succession-overlap", &["10.13.1.0/24"])).await;
    let recorder = Recorder::start(&tenant.client).await.unwrap();
    let proxy = arena.proxy().await;
    let old = arena.operator_via_with(&proxy, &in_pod("--pod-uid=one")).await;
    comes_to_lead(&old).await;
    // It never learns that another took its lease, and goes on until its own deadline.
    proxy.add_rule(|request| request.is_for("leases").then_some(Action::Freeze));
    let new = arena.operator_with(&in_pod("--pod-uid=one")).await;
    comes_to_lead(&new).await;

    let names: Vec<_> = (0..80).map(|n| format!("s{n:03}")).collect();
    burst(&tenant, names.clone()).await;
    churn(&tenant, &names, "10.13.1", 200, 3).await;
    all_served(&tenant).await;
    for operator in [&old, &new] {
        leads(operator).await.unwrap();
        assert!(operator.is_running());
    }
    proxy.clear_rules();
    proxy.cut_connections();
    wait::until("the older one to stand down", LONG, async || leads(&old).await.is_err())
        .await
        .unwrap();
    leads(&new).await.unwrap();
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.problems(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_edited_to_last_for_ever_stops_no_operator_for_long() {
    let arena = arena().await;
    hold_for_ever(&arena).await;
    let operator = arena.operator_with(&[]).await;
    comes_to_lead(&operator).await;
    let lease = leases(&arena).get(LEASE_NAME).await.unwrap();
    assert_eq!(lease.spec.unwrap().lease_duration_seconds, Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_lease_is_free() {
    let arena = arena().await;
    hold_for_ever(&arena).await;
    let proxy = arena.proxy().await;
    let operator = arena.operator_via_with(&proxy, &OUTLASTING).await;
    wait::until("the operator to look at the lease twice", LONG, async || {
        proxy.requests().iter().filter(|request| request.is_for("leases")).count() >= 2
    })
    .await
    .unwrap();
    leads(&operator).await.unwrap_err();
    leases(&arena).delete(LEASE_NAME, &DeleteParams::default()).await.unwrap();
    comes_to_lead(&operator).await;
}

/// Which of the gauges about the state of the cluster an operator exports.
async fn gauges(operator: &Operator) -> Vec<&'static str> {
    let text = operator.metrics().await.unwrap();
    let mut shown = vec![
        "landfall_pool_addresses",
        "landfall_pool_services_waiting",
        "landfall_repair_open",
        "landfall_services_pending",
    ];
    shown.retain(|name| text.contains(name));
    shown
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_leader_shows_gauges_of_pools_and_services() {
    let arena = arena().await;
    let tenant = arena.tenant("succession-gauges").await;
    tenant.pool(pool("succession-gauges", &["10.13.2.0/24"])).await;
    let first = arena.operator_with(&[]).await;
    comes_to_lead(&first).await;
    let second = arena.operator_with(&[]).await;
    second.wait_ready(LONG).await.unwrap();
    let shows_all = async |operator: &Operator| {
        wait::until("the gauges of the leader", LONG, async || {
            let text = operator.metrics().await.unwrap();
            let pool = r#"landfall_pool_addresses{pool="IPGroup/succession-gauges""#;
            text.contains(pool) && gauges(operator).await.len() == 4
        })
        .await
        .unwrap();
    };
    shows_all(&first).await;
    assert_eq!(gauges(&second).await, [""; 0], "a standby");

    first.stop_signal().unwrap();
    comes_to_lead(&second).await;
    shows_all(&second).await;
    first.cont_signal().unwrap();
    assert_eq!(gauges(&first).await, [""; 0], "a deposed leader that wakes up");
    shows_all(&second).await;
}
