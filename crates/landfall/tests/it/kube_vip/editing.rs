//! Edits by users that the original did not notice.

use landfall_testkit::builders::load_balancer;
use serde_json::{Value, json};

use super::writing::CLEANUP;
use super::{Map, annotated, carries, from_json, played};
use crate::stage::{Tenant, arena};

const ADDRESSES: &str = "kube-vip.io/loadbalancerIPs";

fn annotation(value: impl Into<Option<&'static str>>) -> Value {
    json!({"metadata": {"annotations": {ADDRESSES: value.into()}}})
}

fn in_step(addr: &str) -> Value {
    json!({"implementation": "kube-vip", "addresses": addr, "spec": addr})
}

/// The same with one Service that has an address.
async fn served(case: &str, act: impl AsyncFn(&Map, &Tenant)) {
    played(&json!({"cidr-global": "10.0.0.0/29"}), async |_, map, tenant| {
        tenant.create(load_balancer("web")).await;
        carries(&tenant.services, "web", case, &in_step("10.0.0.1")).await;
        act(map, tenant).await;
    })
    .await;
}

#[tokio::test]
async fn whichever_field_is_edited_the_service_moves_and_both_say_so() {
    served("edits", async |_, tenant| {
        tenant.ask("web", "10.0.0.3").await;
        carries(&tenant.services, "web", "by spec", &in_step("10.0.0.3")).await;
        tenant.claim_is_gone("10.0.0.1").await;
        tenant.patch("web", annotation("10.0.0.4")).await;
        carries(&tenant.services, "web", "by annotation", &in_step("10.0.0.4")).await;
        tenant.claim_is_gone("10.0.0.3").await;
        let both = json!({"spec": {"loadBalancerIP": "10.0.0.5"}});
        let mut patch = annotation("10.0.0.5");
        patch["spec"] = both["spec"].clone();
        tenant.patch("web", patch).await;
        tenant.claim_is_gone("10.0.0.4").await;
        carries(&tenant.services, "web", "by both", &in_step("10.0.0.5")).await;
        // A removed annotation comes back with the same address.
        tenant.patch("web", annotation(None)).await;
        carries(&tenant.services, "web", "annotation removed", &in_step("10.0.0.5")).await;
        let mut patch = annotation(None);
        patch["spec"] = json!({"loadBalancerIP": null});
        tenant.patch("web", patch).await;
        carries(&tenant.services, "web", "both removed", &in_step("10.0.0.5")).await;
    })
    .await;
}

#[tokio::test]
async fn a_request_for_an_address_of_another_service_is_told_on_both() {
    served("taken", async |_, tenant| {
        tenant.create(load_balancer("other")).await;
        carries(&tenant.services, "other", "second", &in_step("10.0.0.2")).await;
        tenant.ask("web", "10.0.0.2").await;
        tenant
            .says(
                "web",
                "False",
                "TakenBy",
                "keeps 10.0.0.1; 10.0.0.2 is taken by Service shop/other",
            )
            .await;
        annotated(&tenant.services, "web", "10.0.0.1").await;
        tenant.ask("web", "10.0.0.1").await;
        tenant.says("web", "True", "Allocated", "").await;
        // Written into the annotation, the address is announced twice; neither Service is moved.
        tenant.patch("web", annotation("10.0.0.2")).await;
        tenant.says("web", "False", "TakenBy", "10.0.0.2 is taken by Service shop/other").await;
        tenant
            .says("other", "True", "AlsoShown", "10.0.0.2 is also shown by Service shop/web")
            .await;
        assert!(tenant.claim("10.0.0.1").await.is_some(), "its spec still asks for it");
        tenant.patch("web", annotation("10.0.0.1")).await;
        tenant.says("web", "True", "Allocated", "").await;
        tenant.says("other", "True", "Allocated", "").await;
    })
    .await;
}

#[tokio::test]
async fn a_service_that_stops_being_a_load_balancer_keeps_nothing_of_it() {
    served("type", async |_, tenant| {
        let cleanup = json!({"metadata": {"finalizers": [CLEANUP]}});
        tenant.patch("web", cleanup).await;
        tenant.patch("web", json!({"spec": {"type": "ClusterIP"}})).await;
        carries(&tenant.services, "web", "no LoadBalancer", &json!({})).await;
        tenant.claim_is_gone("10.0.0.1").await;
        tenant.create(load_balancer("other")).await;
        carries(&tenant.services, "other", "has it now", &in_step("10.0.0.1")).await;
        tenant.patch("web", json!({"spec": {"type": "LoadBalancer"}})).await;
        carries(&tenant.services, "web", "comes back", &in_step("10.0.0.2")).await;
    })
    .await;
}

#[tokio::test]
async fn a_family_more_or_less_leaves_the_other_as_it_is() {
    served("families", async |map, tenant| {
        map.says(&json!({"cidr-global": "10.0.0.0/29,fd00::/125"})).await;
        let dual =
            json!({"spec": {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"]}});
        tenant.patch("web", dual).await;
        annotated(&tenant.services, "web", "10.0.0.1,fd00::").await;
        let single = json!({"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}});
        tenant.patch("web", single).await;
        annotated(&tenant.services, "web", "10.0.0.1").await;
        tenant.claim_is_gone("fd00::").await;
        // An address that its user writes is announced, and so it stays.
        tenant.patch("web", annotation("10.0.0.1,fd00::5")).await;
        tenant.has_claim("fd00::5").await;
        tenant.settled().await;
        annotated(&tenant.services, "web", "10.0.0.1,fd00::5").await;
    })
    .await;
}

/// Fields that an old provider ignored or an old user wrote change no Service's address.
#[tokio::test]
async fn an_annotation_that_contradicts_the_spec_wins_when_we_come() {
    let arena = arena().await;
    let map = Map::new(&arena.client);
    map.says(&json!({"cidr-global": "10.0.0.0/29"})).await;
    let tenant = arena.tenant("shop").await;
    let mut written = annotation("10.0.0.6");
    written["spec"] = json!({"loadBalancerIP": "10.0.0.3"});
    tenant.create(from_json(load_balancer("web"), &[written])).await;
    let operator = arena.operator().await;
    carries(&tenant.services, "web", "the annotation wins", &in_step("10.0.0.6")).await;
    tenant.settled().await;
    tenant.answered().await;
    arena.a_start_writes_nothing().await;
    tenant.clear().await;
    map.goes().await;
    operator.terminate().await.unwrap();
}
