//! `allow-share`: Services of a namespace that lets them share one IPv4 address by their ports.

use k8s_openapi::api::core::v1::Service;
use landfall_testkit::builders::load_balancer;
use serde_json::{Value, json};

use super::writing::CLEANUP;
use super::{Map, annotated, from_json};
use crate::stage::{Tenant, arena};

fn service(name: &str, protocol: &str, port: u16, more: Value) -> Service {
    let written = json!({"spec": {"ports": [{"protocol": protocol, "port": port}]}});
    from_json(load_balancer(name), &[written, more])
}

#[tokio::test]
async fn services_with_different_ports_share_and_the_next_address_is_taken_when_they_clash() {
    let arena = arena().await;
    let map = Map::new(&arena.client);
    map.says(&json!({"cidr-global": "10.0.0.2/31,2001::0/48", "allow-share-global": "true"})).await;
    let tenant = arena.tenant("default").await;
    let operator = arena.operator().await;
    let map = map.read_by(&operator);
    let both =
        || json!({"spec": {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}});
    let reversed =
        || json!({"spec": {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]}});
    let marked = || json!({"metadata": {"finalizers": [CLEANUP]}});
    for (name, protocol, port, more, expected) in [
        ("one", "UDP", 123, both(), "10.0.0.2,2001::"),
        ("two", "TCP", 345, both(), "10.0.0.2,2001::1"),
        ("reversed", "TCP", 346, reversed(), "2001::2,10.0.0.2"),
        ("three", "SCTP", 1234, json!({}), "10.0.0.2"),
        ("five", "TCP", 80, marked(), "10.0.0.2"),
        ("six", "TCP", 8080, json!({}), "10.0.0.2"),
        ("same-number", "UDP", 80, json!({}), "10.0.0.2"),
        ("seven", "TCP", 80, json!({}), "10.0.0.3"),
    ] {
        tenant.create(service(name, protocol, port, more)).await;
        annotated(&tenant.services, name, expected).await;
    }
    tenant.create(service("eight", "TCP", 80, json!({}))).await;
    tenant.says("eight", "False", "Exhausted", "no IPv4 address").await;
    // A Service that is being deleted, with the finalizer that no other program removes any more.
    tenant.create(service("four", "TCP", 4, marked())).await;
    tenant.delete("four").await;
    is_gone(&tenant, "four").await;
    tenant.settled().await;

    // Turning it off later separates no Services, and lets no other join.
    map.says(&json!({"cidr-global": "10.0.0.2/31,2001::0/48"})).await;
    tenant.create(service("late", "TCP", 9, json!({}))).await;
    tenant.says("late", "False", "Exhausted", "").await;
    annotated(&tenant.services, "six", "10.0.0.2").await;
    tenant.answered().await;
    arena.a_start_writes_nothing().await;
    map.goes().await;
    tenant.ends(&[]).await;
    operator.terminate().await.unwrap();
}

/// The original asked only the newcomer's namespace.
#[tokio::test]
async fn a_namespace_that_does_not_let_its_services_share_is_not_shared_with() {
    let arena = arena().await;
    let map = Map::new(&arena.client);
    map.says(&json!({
        "range-global": "10.0.0.2-10.0.0.3", "allow-share-global": "true", "allow-share-web": "false",
    }))
    .await;
    let (here, web) = (arena.tenant("default").await, arena.tenant("web").await);
    let operator = arena.operator().await;
    web.create(service("a", "TCP", 80, json!({}))).await;
    annotated(&web.services, "a", "10.0.0.2").await;
    here.create(service("b", "TCP", 81, json!({}))).await;
    annotated(&here.services, "b", "10.0.0.3").await;
    // Traffic that must stay on its node cannot be shared with other pods.
    let local = json!({"spec": {"externalTrafficPolicy": "Local", "selector": {"app": "c"}}});
    here.create(service("c", "TCP", 82, local)).await;
    here.says("c", "False", "Exhausted", "").await;
    here.create(service("d", "TCP", 83, json!({}))).await;
    annotated(&here.services, "d", "10.0.0.3").await;
    map.goes().await;
    web.ends(&[]).await;
    here.ends(&[]).await;
    operator.terminate().await.unwrap();
}

async fn is_gone(tenant: &Tenant, name: &str) {
    landfall_testkit::wait::until(
        format!("{name} to go"),
        crate::stage::LONG,
        async || match tenant.services.get_opt(name).await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await
    .unwrap();
}
