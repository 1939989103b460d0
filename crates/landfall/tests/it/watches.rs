//! One watch per kind for all controllers; a kind that cannot be watched stops only what needs it.

use std::collections::BTreeMap;

use http::StatusCode;
use landfall_api::virtualip::State;
use landfall_testkit::builders::{load_balancer, pool};
use landfall_testkit::proxy::{Action, Proxy};

use crate::migration::{Old, VALID};
use crate::stage::{LONG, arena, old_arena, quiet};

/// How many watches of each kind a proxy has seen.
fn watches(proxy: &Proxy) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in proxy.requests().iter().filter(|request| request.is_watch()) {
        let kind = request.resource().unwrap_or_default().to_owned();
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn all_controllers_share_one_watch_per_kind() {
    let arena = arena().await;
    let tenant = arena.tenant("one-watch").await;
    let proxy = arena.proxy().await;
    let operator = arena.electing_operator_via(&proxy).await;
    operator.wait_ready(LONG).await.unwrap();
    tenant.pool(pool("one-watch", &["10.61.0.0/29"])).await;
    tenant.create(load_balancer("web")).await;
    tenant.shows_something("web").await;
    quiet(&proxy).await;
    let mut counts = watches(&proxy);
    // The definitions of the kinds that may be installed or not, each by its name.
    assert_eq!(counts.remove("customresourcedefinitions"), Some(3));
    assert!(counts.len() >= 8, "{counts:?}");
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_cannot_be_listed_stops_only_the_controller_that_needs_it() {
    let arena = old_arena().await;
    let proxy = arena.proxy().await;
    proxy.add_rule(|request| {
        let broken = request.is_for("groupsegmentmappings");
        broken.then_some(Action::Deny(StatusCode::INTERNAL_SERVER_ERROR))
    });
    let old = Old::new(&arena, "broken-kind").await;
    old.mapping("broken-kind", "10.61.1.0/29", &[]).await;
    old.tenant.pool(pool("broken-kind", &["10.61.2.0/29"])).await;
    old.service("cart").await;
    old.expose("cart", "cart", None).await;
    let operator = arena.operator_via(&proxy).await;
    old.tenant.create(load_balancer("web")).await;
    old.tenant.shows("web", &["10.61.2.0"]).await;
    let (_, body) = operator.get("/readyz").await.unwrap();
    assert_eq!(body.trim(), "not listed yet: groupsegmentmappings");
    assert!(old.copy("cart").await.is_none(), "nothing is decided in the dark");
    proxy.clear_rules();
    old.is("cart", State::Valid, VALID).await;
    operator.wait_ready(LONG).await.unwrap();
}
