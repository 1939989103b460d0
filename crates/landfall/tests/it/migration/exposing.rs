use landfall_api::virtualip::State;
use landfall_testkit::builders::{ServiceBuilder as _, load_balancer};
use landfall_testkit::cluster::external;
use landfall_testkit::wait;
use serde_json::{Value, json};

use super::{Old, VALID};
use crate::stage::{LONG, ip, old_arena};

async fn copied(old: &Old, name: &str, what: &str, pointer: &str, expected: Value) {
    wait::until(format!("the copy of {name} to have {what}"), LONG, async || {
        let copy = serde_json::to_value(old.copy(name).await).unwrap();
        match copy.pointer(pointer).unwrap_or(&Value::Null) {
            seen if *seen == expected => Ok(()),
            seen => Err(seen.to_string()),
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_virtual_ip_has_an_address_and_a_copy_that_is_kept_in_line() {
    let arena = old_arena().await;
    let old = Old::new(&arena, "vip-life").await;
    old.mapping("life", "10.40.0.0/29", &["10.40.0.0"]).await;
    let service = load_balancer("web").of_type("NodePort").labelled("app", "web");
    let original = old.tenant.create(service).await;
    old.expose("front", "web", None).await;
    old.expose("wanted", "web", Some("10.40.0.5")).await;
    let operator = arena.operator().await;
    operator.wait_ready(LONG).await.unwrap();

    let status = old.is("front", State::Valid, VALID).await;
    assert_eq!(status.ip.as_deref(), Some("10.40.0.1"));
    assert_eq!(status.cloned_service.as_deref(), Some("front-keepalived-clone"));
    let status = old.is("wanted", State::Valid, VALID).await;
    assert_eq!(status.ip.as_deref(), Some("10.40.0.5"));
    let copy = old.copy("front").await.unwrap();
    assert_eq!(external(&copy), [ip("10.40.0.1")]);
    let spec = copy.spec.unwrap();
    assert_eq!(spec.type_.as_deref(), Some("ClusterIP"));
    assert!(spec.ports.unwrap().iter().all(|port| port.node_port.is_none()));
    let claim = old.tenant.claim("10.40.0.1").await.unwrap();
    assert_eq!(claim.metadata.labels.unwrap()["gsm"], "life");
    assert_eq!(claim.metadata.annotations.unwrap()["virtualips.paas.il/owner"], "vip-life/front");
    assert_eq!(
        (&*claim.spec.holders[0].kind, &*claim.spec.holders[0].name),
        ("VirtualIP", "front")
    );
    let now = old.tenant.get("web").await;
    assert_eq!(now.metadata.resource_version, original.metadata.resource_version, "untouched");

    // A change of the Service reaches the copy, and a change of the copy is undone.
    let ports = json!([{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 443}]);
    let change = json!({
        "metadata": {"labels": {"app": null, "tier": "front"}, "annotations": {"a": "b"}},
        "spec": {"selector": {"app": "web"}, "ports": ports},
    });
    old.tenant.patch("web", change).await;
    copied(&old, "front", "the port", "/spec/ports", ports).await;
    copied(&old, "front", "the labels", "/metadata/labels", json!({"tier": "front"})).await;
    copied(&old, "front", "the annotation", "/metadata/annotations/a", json!("b")).await;
    copied(&old, "front", "the selector", "/spec/selector", json!({"app": "web"})).await;
    let drift = json!({"spec": {"type": "NodePort", "externalIPs": ["10.40.0.6"]}});
    old.tenant.patch("front-keepalived-clone", drift).await;
    copied(&old, "front", "its address", "/spec/externalIPs", json!(["10.40.0.1"])).await;
    copied(&old, "front", "its type", "/spec/type", json!("ClusterIP")).await;
    old.tenant.delete("front-keepalived-clone").await;
    copied(&old, "front", "its address", "/spec/externalIPs", json!(["10.40.0.1"])).await;

    // Another Service, the same address.
    old.patch("front", json!({"spec": {"service": "other"}})).await;
    old.is("front", State::Error, "exposed: Service \"other\" not found").await;
    old.tenant.tells("front", "NotExposed", "Service \"other\" not found").await;
    old.service("other").await;
    let status = old.is("front", State::Valid, VALID).await;
    assert_eq!(
        (status.ip.as_deref(), status.service.as_deref()),
        (Some("10.40.0.1"), Some("other"))
    );
    copied(&old, "front", "the selector", "/spec/selector", Value::Null).await;

    old.delete("front").await;
    old.goes("front").await;
    assert!(old.copy("front").await.is_none());
    old.tenant.claim_is_gone("10.40.0.1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_virtual_ip_is_served_when_an_address_becomes_free() {
    let arena = old_arena().await;
    let old = Old::new(&arena, "vip-wait").await;
    let operator = arena.operator().await;
    operator.wait_ready(LONG).await.unwrap();
    old.service("web").await;
    old.expose("first", "web", None).await;
    old.is("first", State::Error, "could not allocate an IP: no IP could be allocated").await;
    old.mapping("wait", "10.40.1.0/32", &[]).await;
    old.is("first", State::Valid, VALID).await;
    old.expose("second", "web", Some("10.40.1.0")).await;
    let why = "failed to allocate specific ip: the requested ip is not available";
    old.is("second", State::Error, why).await;
    old.delete("first").await;
    old.is("second", State::Valid, VALID).await;
}

/// A user removed the finalizers and deleted it while no operator ran.
#[tokio::test(flavor = "multi_thread")]
async fn the_claim_of_a_vanished_virtual_ip_is_released_when_its_copy_is_gone() {
    let arena = old_arena().await;
    let old = Old::new(&arena, "vip-gone").await;
    old.mapping("gone", "10.40.3.0/29", &[]).await;
    for name in ["gone", "next"] {
        old.service(name).await;
    }
    old.expose("gone", "gone", None).await;
    let operator = arena.operator().await;
    old.is("gone", State::Valid, VALID).await;
    operator.kill().unwrap();
    old.patch("gone", json!({"metadata": {"finalizers": null}})).await;
    old.delete("gone").await;
    let operator = arena.operator().await;
    old.expose("next", "next", None).await;
    let status = old.is("next", State::Valid, VALID).await;
    assert_eq!(status.ip.as_deref(), Some("10.40.3.1"), "the copy still shows the first");
    assert!(old.tenant.claim("10.40.3.0").await.is_some());
    old.tenant.delete("gone-keepalived-clone").await;
    old.tenant.claim_is_gone("10.40.3.0").await;
    drop(operator);
}

/// The kinds come after the operator, go, and come back.
#[tokio::test(flavor = "multi_thread")]
async fn the_kinds_may_come_and_go_while_the_operator_runs() {
    let arena = old_arena().await;
    let kinds = ["virtualips.paas.org", "groupsegmentmappings.paas.org"];
    let remove = ["delete", "crd", kinds[0], kinds[1], "--timeout=60s"];
    arena.kubectl(&remove).await;
    let operator = arena.operator().await;
    operator.wait_ready(LONG).await.unwrap();
    for round in 0..2 {
        arena.install_old_kinds().await;
        let old = Old::new(&arena, &format!("vip-kinds-{round}")).await;
        old.mapping("kinds", "10.40.2.0/29", &[]).await;
        old.service("web").await;
        old.expose("web", "web", None).await;
        old.is("web", State::Valid, VALID).await;
        // Their objects are deleted with them, and wait for the operator to remove its finalizers.
        arena.kubectl(&remove).await;
        old.tenant.claim_is_gone("10.40.2.0").await;
    }
    assert!(operator.is_running());
    let (status, _) = operator.get("/readyz").await.unwrap();
    assert!(status.is_success());
}
