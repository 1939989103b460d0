//! The operator retries failing calls at growing intervals.

use std::time::Duration;

use http::{Method, StatusCode};
use landfall_testkit::Proxy;
use landfall_testkit::builders::{load_balancer, pool};
use landfall_testkit::proxy::{Action, Record};
use landfall_testkit::wait;

use crate::stage::{Dialect, LONG, arena};

fn takes(request: &Record) -> bool {
    request.is_for("ips") && request.method == Method::POST
}

fn touches(request: &Record) -> bool {
    request.is_for("ips") && request.method == Method::PATCH
}

/// A read of one claim.
fn looks(request: &Record) -> bool {
    request.is_for("ips")
        && request.method == Method::GET
        && !request.is_list()
        && !request.is_watch()
}

/// The requests that match, once there are this many of them.
async fn seen(proxy: &Proxy, filter: fn(&Record) -> bool, count: usize) -> Vec<Record> {
    wait::until(format!("{count} requests"), LONG, async || {
        let seen: Vec<_> = proxy.requests().into_iter().filter(filter).collect();
        if seen.len() >= count { Ok(seen) } else { Err(format!("{}", seen.len())) }
    })
    .await
    .unwrap()
}

/// The time between the last two requests.
fn last_pause(requests: &[Record]) -> Duration {
    let [.., before, last] = requests else { panic!("fewer than two: {requests:?}") };
    last.at.saturating_sub(before.at)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_write_waits_as_long_as_the_api_server_says_and_reads_nothing() {
    let arena = arena().await;
    let tenant = arena.tenant("patience-throttled").await;
    tenant.pool(pool("patience-throttled", &["10.10.11.0/29"])).await;
    let proxy = arena.proxy().await;
    let operator = arena.operator_via(&proxy).await;
    operator.wait_ready(LONG).await.unwrap();
    proxy.once(takes, Action::Throttle(3));
    tenant.create(load_balancer("web")).await;
    tenant.shows("web", &["10.10.11.0"]).await;
    let taken = seen(&proxy, takes, 2).await;
    assert!(last_pause(&taken) >= Duration::from_secs(3), "{taken:?}");
    assert!(!proxy.requests().iter().any(looks), "there was nothing to find out");
    let text = operator.metrics().await.unwrap();
    let counted =
        r#"landfall_calls_total{controller="services",effect="take",result="throttled"} 1"#;
    assert!(text.contains(counted), "{text}");
    assert!(!text.contains(r#"result="unknown""#), "{text}");
    tenant.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_always_answers_conflict_is_touched_less_and_less_often() {
    let arena = arena().await;
    let tenant = arena.tenant("patience-conflict").await;
    tenant.pool(pool("patience-conflict", &["10.10.12.0/29"])).await;
    let proxy = arena.proxy().await;
    let operator = arena.operator_via(&proxy).await;
    tenant.create(load_balancer("web")).await;
    tenant.shows("web", &["10.10.12.0"]).await;
    proxy.add_rule(|request| touches(request).then_some(Action::Answer(StatusCode::CONFLICT)));
    tenant.wipe(Dialect::Groups, "web").await;
    let touched = seen(&proxy, touches, 8).await;
    assert!(last_pause(&touched) >= Duration::from_secs(2), "{touched:?}");
    proxy.clear_rules();
    tenant.shows("web", &["10.10.12.0"]).await;
    tenant.settled().await;
    drop(operator);
}

#[tokio::test(flavor = "multi_thread")]
async fn looks_that_fail_are_further_and_further_apart() {
    let arena = arena().await;
    let tenant = arena.tenant("patience-looks").await;
    tenant.pool(pool("patience-looks", &["10.10.13.0/29"])).await;
    let proxy = arena.proxy().await;
    let operator = arena.operator_via(&proxy).await;
    operator.wait_ready(LONG).await.unwrap();
    proxy.add_rule(|request| {
        looks(request).then_some(Action::Answer(StatusCode::INTERNAL_SERVER_ERROR))
    });
    proxy.once(takes, Action::LoseReply);
    tenant.create(load_balancer("web")).await;
    let looked = seen(&proxy, looks, 6).await;
    assert!(last_pause(&looked) >= Duration::from_secs(4), "{looked:?}");
    proxy.clear_rules();
    tenant.shows("web", &["10.10.13.0"]).await;
    assert_eq!(seen(&proxy, takes, 1).await.len(), 1, "it was done the first time");
    tenant.settled().await;
    drop(operator);
}
