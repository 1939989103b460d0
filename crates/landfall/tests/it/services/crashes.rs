//! Operators that are killed, stopped and resumed at the worst moment.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use landfall_testkit::builders::{load_balancer, pool};
use landfall_testkit::cluster::{Recorder, Snapshot};
use landfall_testkit::random::Random;
use landfall_testkit::wait;
use rstest::rstest;

use super::many::{all_served, burst, churn};
use crate::stage::{Dialect, LONG, Tenant, arena, comes_to_lead, leads};

async fn claims_reach(tenant: &Tenant, count: usize) {
    wait::until(format!("{count} claims"), LONG, async || {
        let seen = Snapshot::take(&tenant.client).await.map_err(|error| format!("{error:?}"))?;
        if seen.claims.len() >= count { Ok(()) } else { Err(seen.claims.len().to_string()) }
    })
    .await
    .unwrap();
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_killed_anywhere_in_a_burst_leaves_nothing_behind(
    #[values(Dialect::Groups, Dialect::KubeVip)] dialect: Dialect,
) {
    let arena = arena().await;
    let tenant = arena.tenant("crash-burst").await;
    tenant.addresses(dialect, &["10.8.0.0/24"]).await;
    let recorder = Recorder::start(&tenant.client).await.unwrap();
    let mut random = Random::new(7);
    for round in 0..6 {
        let names: Vec<_> = (0..30).map(|n| format!("r{round}-{n:02}")).collect();
        burst(&tenant, names).await;
        let operator = arena.operator().await;
        claims_reach(&tenant, round * 30 + 1 + random.below(28)).await;
        operator.kill().unwrap();
    }
    let operator = arena.operator().await;
    let seen = all_served(&tenant).await;
    assert_eq!(seen.shown().len(), 180);
    assert_eq!(seen.claims.len(), 180, "a claim for each, and no more");
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.problems(), Vec::<String>::new());
    assert_eq!(history.moved(), []);
    drop(operator);
}

/// Changes are interrupted as well: deletions, requests, types.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_killed_anywhere_in_a_churn_leaves_nothing_behind(
    #[values(Dialect::Groups, Dialect::KubeVip)] dialect: Dialect,
) {
    let arena = arena().await;
    let tenant = arena.tenant("crash-churn").await;
    tenant.addresses(dialect, &["10.8.1.0/24"]).await;
    let names: Vec<_> = (0..60).map(|n| format!("s{n:02}")).collect();
    burst(&tenant, names.clone()).await;
    let recorder = Recorder::start(&tenant.client).await.unwrap();
    let mut operator = arena.operator().await;
    for seed in 0..5 {
        churn(&tenant, &names, "10.8.1", 60, seed).await;
        // In the middle of the writes that the last changes caused.
        operator.kill().unwrap();
        churn(&tenant, &names, "10.8.1", 20, 100 + seed).await;
        operator = arena.operator().await;
    }
    all_served(&tenant).await;
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.problems(), Vec::<String>::new());
    drop(operator);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_sleeps_past_its_lease_does_no_harm_when_it_wakes(
    #[values(Dialect::Groups, Dialect::KubeVip)] dialect: Dialect,
) {
    let arena = arena().await;
    let tenant = arena.tenant("crash-leader").await;
    tenant.addresses(dialect, &["10.8.2.0/24"]).await;
    let recorder = Recorder::start(&tenant.client).await.unwrap();
    let first = arena.operator_with(&[]).await;
    comes_to_lead(&first).await;
    let second = arena.operator_with(&[]).await;
    second.wait_ready(LONG).await.unwrap();

    let names: Vec<_> = (0..60).map(|n| format!("s{n:02}")).collect();
    burst(&tenant, names.clone()).await;
    claims_reach(&tenant, 20).await;
    first.stop_signal().unwrap();
    comes_to_lead(&second).await;
    // It works while the other is stopped, and is working when the other resumes.
    for name in &names[..20] {
        tenant.delete(name).await;
    }
    burst(&tenant, (0..20).map(|n| format!("late{n:02}"))).await;
    first.cont_signal().unwrap();
    burst(&tenant, (20..40).map(|n| format!("late{n:02}"))).await;
    let seen = all_served(&tenant).await;
    assert_eq!(seen.shown().len(), 80);
    wait::until("the first to be awake", LONG, async || first.metrics().await).await.unwrap();
    leads(&first).await.unwrap_err();

    // The same with an operator that is killed instead of stopped.
    second.kill().unwrap();
    burst(&tenant, (40..60).map(|n| format!("late{n:02}"))).await;
    comes_to_lead(&first).await;
    let seen = all_served(&tenant).await;
    assert_eq!(seen.shown().len(), 100);
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.problems(), Vec::<String>::new());
    assert_eq!(history.moved(), []);
}

/// Without an election nothing tells a stopped operator that it is late.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_slept_through_everything_does_no_harm_when_it_wakes() {
    let arena = arena().await;
    let tenant = arena.tenant("crash-sleeper").await;
    tenant.pool(pool("crash-sleeper", &["10.8.3.0-10.8.3.79"])).await;
    let recorder = Recorder::start(&tenant.client).await.unwrap();
    let sleeper = arena.operator().await;
    sleeper.wait_ready(LONG).await.unwrap();
    for round in 0..4 {
        let names: Vec<_> = (0..40).map(|n| format!("r{round}-{n:02}")).collect();
        burst(&tenant, names.clone()).await;
        claims_reach(&tenant, 5 + round * 7).await;
        sleeper.stop_signal().unwrap();
        let other = arena.operator().await;
        all_served(&tenant).await;
        // Everything it knows is wrong by now: gone, or a different Service of the same name.
        for name in &names {
            tenant.delete(name).await;
        }
        burst(&tenant, names.iter().rev().cloned()).await;
        let late = load_balancer(&format!("late{round}"));
        tenant.create(late).await;
        sleeper.cont_signal().unwrap();
        all_served(&tenant).await;
        drop(other);
        for name in &names {
            tenant.delete(name).await;
        }
    }
    let seen = all_served(&tenant).await;
    assert_eq!(seen.shown().len(), 4);
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.problems(), Vec::<String>::new());
    assert_eq!(history.moved(), []);
}

/// Does what the namespace controller does, which does not run here.
async fn end_namespace(tenant: &Tenant) {
    let namespaces: Api<Namespace> = Api::all(tenant.client.clone());
    let name = tenant.namespace.as_str();
    namespaces.delete(name, &DeleteParams::default()).await.unwrap();
    for service in tenant.services.list(&ListParams::default()).await.unwrap() {
        tenant.delete(&service.name_any()).await;
    }
    let mut namespace = namespaces.get(name).await.unwrap();
    namespace.spec = None;
    let params = PostParams::default();
    namespaces.replace_subresource("finalize", name, &params, &namespace).await.unwrap();
    wait::until(format!("namespace {name} to go"), LONG, async || {
        namespaces.get_opt(name).await.is_ok_and(|found| found.is_none())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_goes_while_no_operator_runs_leaves_no_claims_behind() {
    let arena = arena().await;
    let tenant = arena.tenant("crash-namespace").await;
    let neighbour = arena.tenant("crash-neighbour").await;
    tenant.pool(pool("crash-namespace", &["10.8.4.0/28"])).await;
    let recorder = Recorder::start(&tenant.client).await.unwrap();
    let operator = arena.operator().await;
    burst(&tenant, (0..8).map(|n| format!("s{n}"))).await;
    neighbour.create(load_balancer("web")).await;
    assert_eq!(all_served(&tenant).await.claims.len(), 9);
    operator.kill().unwrap();
    end_namespace(&tenant).await;

    let operator = arena.operator().await;
    tenant.pool_counts("crash-namespace", "16", "1", "15").await;
    assert_eq!(all_served(&neighbour).await.claims.len(), 1);
    // A new namespace of the same name is served like any other.
    let tenant = arena.tenant("crash-namespace").await;
    burst(&tenant, (0..8).map(|n| format!("s{n}"))).await;
    assert_eq!(all_served(&tenant).await.claims.len(), 9);
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.problems(), Vec::<String>::new());
    assert_eq!(history.moved(), []);
    drop(operator);
}
