//! A watch that misses events without an error is found and restarted.

use landfall_testkit::builders::{load_balancer, pool};
use landfall_testkit::proxy::{Action, Record};
use landfall_testkit::{Operator, wait};

use crate::stage::{LONG, arena};

fn watches_services(request: &Record) -> bool {
    request.is_watch() && request.is_for("services")
}

/// How many watches of Services were found blind.
async fn found(operator: &Operator) -> u64 {
    let text = operator.metrics().await.unwrap();
    let name = r#"landfall_watches_blind_total{kind="services"} "#;
    text.lines().find_map(|line| line.strip_prefix(name)).map_or(0, |n| n.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blind_watch_is_found_counted_and_begun_again() {
    let arena = arena().await;
    let tenant = arena.tenant("blind").await;
    tenant.pool(pool("blind", &["10.10.15.0/28"])).await;
    let proxy = arena.proxy().await;
    proxy.once(watches_services, Action::DropEvents("made-unseen".to_owned()));
    let flags = ["--leader-elect=false", "--watch-check-interval=5s"];
    let operator = arena.operator_via_with(&proxy, &flags).await;
    operator.wait_ready(LONG).await.unwrap();

    tenant.create(load_balancer("made-unseen")).await;
    tenant.create(load_balancer("seen")).await;
    tenant.shows_something("seen").await;
    tenant.shows_something("made-unseen").await;
    let blind = found(&operator).await;
    assert!(blind >= 1);

    tenant.create(load_balancer("deleted-unseen")).await;
    tenant.shows_something("deleted-unseen").await;
    proxy.once(watches_services, Action::DropEvents("deleted-unseen".to_owned()));
    let mark = proxy.mark();
    proxy.cut_connections();
    wait::until("another watch", LONG, async || {
        proxy.requests_since(mark).iter().any(|it| watches_services(it) && it.status.is_some())
    })
    .await
    .unwrap();
    tenant.delete("deleted-unseen").await;
    tenant.settled().await;
    assert!(found(&operator).await > blind);

    // The new watch sees everything, and is left alone.
    let mark = proxy.mark();
    let all = found(&operator).await;
    wait::until("more comparisons", LONG, async || {
        let lists = proxy.requests_since(mark).into_iter();
        lists.filter(|request| request.is_list() && request.is_for("services")).count() >= 3
    })
    .await
    .unwrap();
    assert_eq!(found(&operator).await, all);
    assert!(operator.is_running());
}
