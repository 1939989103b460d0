//! An operator that has nothing to do does nothing.

use landfall_testkit::builders::{PoolBuilder as _, ServiceBuilder as _, load_balancer, pool};
use landfall_testkit::{Operator, wait};
use serde_json::json;

use super::many::{all_served, burst};
use crate::stage::{LONG, Tenant, arena, quiet};

/// Services in every state of rest: served, served on request, refused, of another program.
async fn fill(tenant: &Tenant) {
    tenant.pool(pool("idle-a", &["10.9.0.0/28"])).await;
    tenant.pool(pool("idle-b", &["10.9.0.8-10.9.0.31"]).with_priority(7)).await;
    tenant.pool(pool("idle-bad", &["10.9.0.9-10.9.0.8"])).await;
    tenant.pool(pool("idle-six", &["fd00:9::/64"])).await;
    burst(tenant, (0..32).map(|n| format!("s{n:02}"))).await;
    // Of Services created in one second and seen at once, the first by name is served first.
    all_served(tenant).await;
    tenant.create(load_balancer("asks").asking("10.9.0.3")).await;
    tenant.create(load_balancer("garbage").asking("here")).await;
    tenant.create(load_balancer("foreign").of_class("other.example/lb")).await;
    tenant.create(load_balancer("dual").with_families("PreferDualStack", &["IPv6", "IPv4"])).await;
    tenant.shows_something("dual").await;
    tenant.says("asks", "False", "TakenBy", "").await;
    tenant.says("garbage", "False", "Unparseable", "").await;
    // The rest of its addresses were given by the other pool.
    tenant.pool_counts("idle-a", "16", "8", "0").await;
    tenant.pool_counts("idle-six", "18446744073709551616", "1", "18446744073709551615").await;
    tenant.pool_says("idle-bad", "False", "").await;
    tenant.settled().await;
}

async fn rounds_of_planning(operator: &Operator) -> u64 {
    let text = operator.metrics().await.unwrap();
    let lines = text.lines().filter(|line| line.starts_with("landfall_plan_seconds_count{"));
    let rounds: Vec<u64> =
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
    assert!(!rounds.is_empty(), "no controller tells how often it planned: {text}");
    rounds.into_iter().sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_operator_asks_nothing_plans_nothing_and_a_restart_writes_nothing() {
    let arena = arena().await;
    let tenant = arena.tenant("idle").await;
    let proxy = arena.proxy().await;
    let operator = arena.electing_operator_via(&proxy).await;
    fill(&tenant).await;
    quiet(&proxy).await;
    let before = rounds_of_planning(&operator).await;
    let mark = proxy.mark();
    wait::until("more renewals", LONG, async || proxy.requests_since(mark).len() >= 4)
        .await
        .unwrap();
    let seen = proxy.requests_since(mark);
    assert!(seen.iter().all(|request| request.is_for("leases")), "{seen:?}");
    let rounds = rounds_of_planning(&operator).await - before;
    assert!(rounds <= 4, "{rounds} rounds of planning without any news");

    // Changes of another program's Services are seen, and are no reason to write.
    let mark = proxy.mark();
    tenant.create(load_balancer("plain").of_type("ClusterIP")).await;
    tenant.patch("s00", json!({"metadata": {"labels": {"touched": "yes"}}})).await;
    tenant.patch("foreign", json!({"metadata": {"labels": {"touched": "yes"}}})).await;
    wait::until("more renewals", LONG, async || proxy.requests_since(mark).len() >= 4)
        .await
        .unwrap();
    let seen = proxy.requests_since(mark);
    assert!(seen.iter().all(|request| request.is_for("leases")), "{seen:?}");

    operator.terminate().await.unwrap();
    arena.a_start_writes_nothing().await;
    tenant.settled().await;
}

/// Pool status waits for its turn, once a second; waiting must not mean spinning.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_waits_for_a_moment_sleeps_until_then() {
    let arena = arena().await;
    let tenant = arena.tenant("idle-wait").await;
    for (name, range) in
        [("wait-a", "10.9.3.0/30"), ("wait-b", "10.9.4.0/30"), ("wait-c", "10.9.5.0/30")]
    {
        tenant.pool(pool(name, &[range]).with_priority(7)).await;
    }
    tenant.pool(pool("wait-d", &["10.9.2.0/24"])).await;
    let operator = arena.operator().await;
    operator.wait_ready(LONG).await.unwrap();
    let before = rounds_of_planning(&operator).await;
    for n in 0..20 {
        let name = format!("s{n}");
        tenant.create(load_balancer(&name)).await;
        tenant.shows_something(&name).await;
    }
    tenant.pool_counts("wait-d", "256", "8", "248").await;
    let rounds = rounds_of_planning(&operator).await - before;
    // About ten for each Service: its news, its claim's, and the answers.
    assert!(rounds < 1000, "{rounds} rounds of planning for 20 Services");
    tenant.settled().await;
}
