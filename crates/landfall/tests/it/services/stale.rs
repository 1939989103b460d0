//! Operators whose watches are silent: they must get by with the memory of their own writes, and with live
//! reads before they take an address away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use landfall_testkit::builders::{PoolBuilder as _, ServiceBuilder as _, load_balancer, pool};
use landfall_testkit::cluster::{Recorder, shown};
use landfall_testkit::proxy::{Action, Record};
use landfall_testkit::{Proxy, wait};
use serde_json::json;

use super::many::{all_served, burst};
use crate::stage::{LONG, arena, ip};

/// Longer than any test.
const FOREVER: Duration = Duration::from_hours(1);

/// Breaks all watches; those of one kind deliver nothing from then on, until [`hears_again`].
async fn silence(proxy: &Proxy, kind: &'static str) {
    let watches = move |request: &Record| request.is_for(kind) && request.is_watch();
    let mark = proxy.mark();
    proxy.add_rule(move |request| watches(request).then_some(Action::HoldStream(FOREVER)));
    proxy.cut_connections();
    wait::until(format!("the watch of {kind} to be asked for again"), LONG, async || {
        proxy.requests_since(mark).iter().any(watches)
    })
    .await
    .unwrap();
}

fn hears_again(proxy: &Proxy) {
    proxy.clear_rules();
    proxy.cut_connections();
}

/// Requests that a proxy holds back, even when they are given up and made again.
struct Held<'a> {
    proxy: &'a Proxy,
    held: Arc<AtomicBool>,
}

fn hold(proxy: &Proxy, which: fn(&Record) -> bool) -> Held<'_> {
    let held = Arc::new(AtomicBool::new(true));
    let still = Arc::clone(&held);
    proxy.add_rule(move |request| {
        (which(request) && still.load(Ordering::SeqCst)).then_some(Action::Freeze)
    });
    Held { proxy, held }
}

impl Held<'_> {
    fn let_go(self) {
        self.held.store(false, Ordering::SeqCst);
        self.proxy.thaw();
    }
}

fn publishes(request: &Record) -> bool {
    request.is_for("services") && request.method == Method::PATCH
}

fn releases(request: &Record) -> bool {
    request.is_for("ips") && request.method == Method::DELETE
}

fn takes(request: &Record) -> bool {
    request.is_for("ips") && request.method == Method::POST
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_watch_of_claims_every_service_still_gets_one_address_and_no_more() {
    let arena = arena().await;
    let tenant = arena.tenant("stale-claims").await;
    tenant.pool(pool("stale-claims", &["10.11.1.0/24"])).await;
    let recorder = Recorder::start(&tenant.client).await.unwrap();
    let proxy = arena.proxy().await;
    let operator = arena.operator_via(&proxy).await;
    operator.wait_ready(LONG).await.unwrap();
    silence(&proxy, "ips").await;
    // Every second claim is made, and the operator does not learn of it.
    let mut count = 0;
    proxy.add_rule(move |request| {
        count += usize::from(takes(request));
        (takes(request) && count % 2 == 0).then_some(Action::LoseReply)
    });
    let mark = proxy.mark();
    burst(&tenant, (0..40).map(|n| format!("s{n:02}"))).await;
    let seen = all_served(&tenant).await;
    assert_eq!(seen.shown().len(), 40);
    let made = proxy.requests_since(mark);
    let made = made.iter().filter(|r| takes(r) && r.status == Some(StatusCode::CREATED)).count();
    assert_eq!(made, 40, "claims made for 40 Services");

    hears_again(&proxy);
    tenant.delete("s00").await;
    all_served(&tenant).await;
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.problems(), Vec::<String>::new());
    assert_eq!(history.moved(), []);
}

/// Rule 5 of the protocol: one operator has claimed and not yet published, the other believes that
/// the Service wants no address.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_not_released_under_an_operator_that_is_about_to_publish_it() {
    let arena = arena().await;
    let tenant = arena.tenant("stale-release").await;
    tenant.pool(pool("stale-release", &["10.11.2.0/30"])).await;
    tenant.create(load_balancer("web").of_type("ClusterIP")).await;
    let recorder = Recorder::start(&tenant.client).await.unwrap();
    let (stale, slow) = (arena.proxy().await, arena.proxy().await);
    let stale_operator = arena.operator_via(&stale).await;
    stale_operator.wait_ready(LONG).await.unwrap();
    silence(&stale, "services").await;
    let slow_operator = arena.operator_via(&slow).await;
    slow_operator.wait_ready(LONG).await.unwrap();
    let publication = hold(&slow, publishes);

    let mark = stale.mark();
    tenant.patch("web", json!({"spec": {"type": "LoadBalancer"}})).await;
    // It learns of the claim, knows no such Service, and does a live read before it deletes.
    let reads = |request: &Record| {
        request.path.ends_with("/services/web")
            && request.method == Method::GET
            && request.status == Some(StatusCode::OK)
    };
    wait::until("the live read", LONG, async || stale.requests_since(mark).iter().any(reads))
        .await
        .unwrap();
    assert!(tenant.claim("10.11.2.0").await.is_some());
    assert!(shown(&tenant.get("web").await).is_empty(), "not published yet");
    publication.let_go();
    tenant.shows("web", &["10.11.2.0"]).await;
    hears_again(&stale);
    all_served(&tenant).await;
    assert_eq!(shown(&tenant.get("web").await), [ip("10.11.2.0")]);
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.problems(), Vec::<String>::new());
    assert_eq!(history.moved(), []);
}

/// Two operators choose different addresses for one Service, because neither learns of the other's claim and
/// one does not know the pool that comes first. The operator that publishes second finds another address
/// shown, and must leave it alone.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_another_has_published_is_not_replaced_by_ones_own() {
    let arena = arena().await;
    let tenant = arena.tenant("stale-moved").await;
    tenant.pool(pool("stale-second", &["10.11.3.0/30"]).with_priority(7)).await;
    let recorder = Recorder::start(&tenant.client).await.unwrap();
    let (slow, fast) = (arena.proxy().await, arena.proxy().await);
    let operators = [arena.operator_via(&slow).await, arena.operator_via(&fast).await];
    for operator in &operators {
        operator.wait_ready(LONG).await.unwrap();
    }
    silence(&slow, "ipgroups").await;
    silence(&slow, "ips").await;
    tenant.pool(pool("stale-first", &["10.11.4.0/30"]).with_priority(1)).await;
    tenant.pool_says("stale-first", "True", "").await;
    silence(&fast, "ips").await;
    // The slow operator may release its own claim only when we let it.
    let slow_ones = hold(&slow, |request| publishes(request) || releases(request));
    let fast_ones = hold(&fast, publishes);
    tenant.create(load_balancer("web")).await;
    for (proxy, who) in [(&slow, "slow"), (&fast, "fast")] {
        let about_to = || proxy.requests().iter().any(publishes);
        let what = format!("the {who} one to be about to publish its own");
        wait::until(what, LONG, async || about_to()).await.unwrap();
    }
    fast_ones.let_go();
    tenant.shows("web", &["10.11.4.0"]).await;
    assert!(tenant.claim("10.11.3.0").await.is_some());
    slow_ones.let_go();
    // It finds what the other has published, reads its claim, and releases its own.
    tenant.claim_is_gone("10.11.3.0").await;
    for proxy in [&slow, &fast] {
        hears_again(proxy);
    }
    all_served(&tenant).await;
    assert_eq!(shown(&tenant.get("web").await), [ip("10.11.4.0")]);
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.problems(), Vec::<String>::new());
    assert_eq!(history.unasked(), []);
}
