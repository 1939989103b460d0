//! An operator that has only the rights every operator needs, without those for some clusters.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use landfall_api::keys;
use landfall_api::virtualip::State;
use landfall_testkit::builders::{ServiceBuilder as _, load_balancer, pool};
use landfall_testkit::wait;
use serde_json::json;

use crate::kube_vip::Map;
use crate::migration::{Old, VALID};
use crate::stage::{Arena, LONG, Tenant, arena, old_arena};

const PATCH_SERVICES: &[&str] = &["patch", "services"];
const CREATE_SERVICES: &[&str] = &["create", "services"];
const REFUSED: &str = "cannot patch resource \"services\"";
const FIX: &str = "Let the operator patch Services (`deploy/rbac-services.yaml`)";

/// As vip-allocator-operator leaves it.
fn with_finalizer(name: &str) -> Service {
    let mut service = load_balancer(name);
    service.metadata.finalizers = Some(vec![keys::FINALIZER_SERVICE.to_owned()]);
    service
}

async fn is_free_of_finalizers(tenant: &Tenant, name: &str) {
    wait::until(format!("{name} without finalizers"), LONG, async || {
        let service = tenant.services.get(name).await.map_err(|error| error.to_string())?;
        let left = service.finalizers();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await
    .unwrap();
}

/// An arena whose operator has the base role alone.
async fn base_alone() -> Arena {
    let arena = arena().await;
    arena.revoke(&["services", "migration"], PATCH_SERVICES).await;
    arena
}

#[tokio::test(flavor = "multi_thread")]
async fn the_base_role_gives_moves_shares_retains_and_frees_addresses() {
    let arena = base_alone().await;
    let tenant = arena.tenant("base-alone").await;
    // With its lease and all its controllers, as the manifest runs it.
    let operator = arena.operator_with(&[]).await;
    operator.wait_ready(LONG).await.unwrap();
    tenant.pool(pool("base-alone", &["10.60.0.0/29"])).await;
    tenant.create(load_balancer("web")).await;
    tenant.shows("web", &["10.60.0.0"]).await;
    tenant.ask("web", "10.60.0.5").await;
    tenant.shows("web", &["10.60.0.5"]).await;
    tenant.claim_is_gone("10.60.0.0").await;
    tenant.create(load_balancer("next").asking("10.60.0.5")).await;
    tenant.says("next", "False", "TakenBy", "10.60.0.5 is taken by Service base-alone/web").await;
    tenant.tells("next", "TakenBy", "").await;
    tenant.delete("web").await;
    tenant.shows("next", &["10.60.0.5"]).await;
    tenant.pool_says("base-alone", "True", "gives addresses").await;
    tenant.settled().await;
    let log = operator.log_tail(1000);
    assert!(!log.contains("forbidden"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_that_may_not_be_removed_is_told_on_its_service_and_holds_up_nothing() {
    let arena = base_alone().await;
    let tenant = arena.tenant("base-finalizer").await;
    tenant.pool(pool("base-finalizer", &["10.60.1.0/29"])).await;
    tenant.create(with_finalizer("old")).await;
    let operator = arena.operator().await;
    tenant.shows("old", &["10.60.1.0"]).await;
    tenant.tells("old", "ServiceRefused", REFUSED).await;
    tenant.tells("old", "ServiceRefused", FIX).await;
    tenant.says("old", "True", "Allocated", "").await;

    // Its own requests are granted, and so are those of others.
    for addr in ["10.60.1.3", "10.60.1.4", "10.60.1.5"] {
        tenant.ask("old", addr).await;
        tenant.shows("old", &[addr]).await;
    }
    tenant.create(load_balancer("web")).await;
    tenant.shows("web", &["10.60.1.0"]).await;

    arena.grant(PATCH_SERVICES).await;
    is_free_of_finalizers(&tenant, "old").await;
    tenant.shows("old", &["10.60.1.5"]).await;
    tenant.settled().await;
    drop(operator);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_annotation_that_may_not_be_written_is_told_in_the_condition_and_written_once_allowed() {
    let arena = base_alone().await;
    let tenant = arena.tenant("base-annotation").await;
    Map::new(&arena.client).says(&json!({"range-base-annotation": "10.60.2.1-10.60.2.6"})).await;
    tenant.pool(pool("base-annotation", &["10.60.3.0/29"])).await;
    let operator = arena.operator().await;
    operator.wait_ready(LONG).await.unwrap();
    let from_map = keys::ANNOTATION_POOL;
    let key = "ConfigMap/kubevip/range-base-annotation";
    tenant.create(load_balancer("announced").annotated(from_map, key)).await;
    tenant.says("announced", "False", "ServiceRefused", REFUSED).await;
    tenant.says("announced", "False", "ServiceRefused", FIX).await;
    tenant.tells("announced", "ServiceRefused", REFUSED).await;

    // Pools that are published in the status serve as usual.
    let group = "IPGroup/base-annotation";
    tenant.create(load_balancer("web").annotated(from_map, group)).await;
    tenant.shows("web", &["10.60.3.0"]).await;

    arena.grant(PATCH_SERVICES).await;
    tenant.shows("announced", &["10.60.2.1"]).await;
    tenant.says("announced", "True", "Allocated", "10.60.2.1").await;
    tenant.settled().await;
    drop(operator);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_migration_role_a_virtual_ip_says_so_and_services_are_served() {
    let arena = old_arena().await;
    arena.revoke(&["migration"], CREATE_SERVICES).await;
    let old = Old::new(&arena, "base-virtualip").await;
    old.mapping("base-virtualip", "10.60.4.0/29", &[]).await;
    old.tenant.pool(pool("base-virtualip", &["10.60.5.0/29"])).await;
    old.service("cart").await;
    old.expose("cart", "cart", Some("10.60.4.1")).await;
    let operator = arena.operator_with(&[]).await;
    operator.wait_ready(LONG).await.unwrap();
    // Finalizers are written before anything else.
    let words = "cannot patch resource \"virtualips\"";
    old.is("cart", State::Error, words).await;
    old.tenant.tells("cart", "NotExposed", words).await;
    // The role for Services is enough for its purpose.
    old.tenant.create(with_finalizer("web")).await;
    old.tenant.shows("web", &["10.60.5.0"]).await;
    is_free_of_finalizers(&old.tenant, "web").await;

    arena.grant(CREATE_SERVICES).await;
    old.is("cart", State::Valid, VALID).await;
    assert!(old.copy("cart").await.is_some());
    drop(operator);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_migration_role_alone_is_enough_to_migrate() {
    let arena = old_arena().await;
    // It has the right to patch Services by itself, so nothing becomes forbidden.
    arena.revoke(&["services"], &[]).await;
    let old = Old::new(&arena, "one-role").await;
    old.mapping("one-role", "10.60.7.0/29", &[]).await;
    old.tenant.pool(pool("one-role", &["10.60.7.0/29"])).await;
    old.service("cart").await;
    old.expose("cart", "cart", Some("10.60.7.1")).await;
    let operator = arena.operator().await;
    old.is("cart", State::Valid, VALID).await;
    old.migrate("cart").await;
    old.is_migrated("cart", "cart", "10.60.7.1").await;
    drop(operator);
}
