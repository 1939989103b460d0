//! Keys that kube-vip-cloud-provider does not know, tested with the real operator.

use k8s_openapi::api::core::v1::Service;
use landfall_api::keys;
use landfall_testkit::builders::{ServiceBuilder as _, load_balancer, pool};
use serde_json::json;

use super::{Map, annotated, from_json, marks, played};
use crate::stage::arena;

/// A Service that asks for pools.
fn asking(name: &str, pools: &str) -> Service {
    load_balancer(name).annotated(keys::ANNOTATION_POOL, pools)
}

#[tokio::test]
async fn excluded_addresses_are_not_given_and_an_order_holds_for_one_pool() {
    let data = json!({
        "cidr-shop": "10.20.0.8/30", "exclude-shop": "10.20.0.9,10.20.0.11/32",
        "search-order-shop": "desc",
        "cidr-global": "10.20.1.8/30", "exclude-global": "10.20.1.8-10.20.1.9",
    });
    played(&data, async |arena, _, shop| {
        let rest = arena.tenant("rest").await;
        for (name, addr) in [("a", "10.20.0.10"), ("b", "10.20.0.8")] {
            shop.create(load_balancer(name)).await;
            annotated(&shop.services, name, addr).await;
        }
        shop.create(load_balancer("c")).await;
        shop.says("c", "False", "Exhausted", "ConfigMap/kubevip/cidr-shop").await;
        for (name, addr) in [("a", "10.20.1.10"), ("b", "10.20.1.11")] {
            rest.create(load_balancer(name)).await;
            annotated(&rest.services, name, addr).await;
        }
        // Nor does it help to ask for it.
        shop.create(load_balancer("d").asking("10.20.0.9")).await;
        shop.says("d", "False", "Excluded", "10.20.0.9 is excluded by ConfigMap/kubevip/cidr-shop")
            .await;
        rest.clear().await;
    })
    .await;
}

#[tokio::test]
async fn a_full_pool_falls_back_to_that_of_all_and_a_waiting_service_is_served_by_either() {
    let data = json!({
        "cidr-shop": "10.21.0.1/32", "fallback-shop": "true", "cidr-own": "10.21.1.1/32",
        "cidr-global": "10.21.2.1/32", "interface-shop": "eth1", "interface-global": "eth0",
    });
    played(&data, async |arena, map, shop| {
        let own = arena.tenant("own").await;
        // It would serve every Service, but another program announces its addresses.
        own.pool(pool("beside", &["10.21.3.1-10.21.3.9"])).await;
        for (name, addr) in [("a", "10.21.0.1"), ("b", "10.21.2.1")] {
            shop.create(load_balancer(name)).await;
            let served = annotated(&shop.services, name, addr).await;
            assert_eq!(marks(&served)["interface"], json!("eth1"), "{name}");
        }
        shop.create(load_balancer("c")).await;
        shop.says("c", "False", "Exhausted", "ConfigMap/kubevip/cidr-shop: all").await;
        let late = shop.says("c", "False", "Exhausted", "ConfigMap/kubevip/cidr-global: all").await;
        assert!(!format!("{:?}", late.status).contains("beside"), "{:?}", late.status);
        shop.delete("b").await;
        annotated(&shop.services, "c", "10.21.2.1").await;
        shop.create(load_balancer("d")).await;
        shop.says("d", "False", "Exhausted", "cidr-global").await;
        shop.delete("a").await;
        annotated(&shop.services, "d", "10.21.0.1").await;
        // A namespace without a fallback key stays with its own pool.
        own.create(load_balancer("a")).await;
        annotated(&own.services, "a", "10.21.1.1").await;
        own.create(load_balancer("b")).await;
        let waits = own.says("b", "False", "Exhausted", "cidr-own").await;
        assert!(!format!("{:?}", waits.status).contains("cidr-global"), "{:?}", waits.status);
        // Once it has the key, it is served at once.
        shop.delete("c").await;
        map.keeps(&json!({
            "cidr-shop": "10.21.0.1/32", "fallback-global": "true", "cidr-own": "10.21.1.1/32",
            "cidr-global": "10.21.2.1/32",
        }))
        .await;
        annotated(&own.services, "b", "10.21.2.1").await;
        own.clear().await;
        own.delete_pool("beside").await;
    })
    .await;
}

#[tokio::test]
async fn a_pool_with_a_name_serves_services_that_ask_for_it_on_an_interface_of_its_own() {
    let data = json!({
        "cidr-shop": "10.22.0.1/32", "interface-shop": "eth0",
        "cidr-shop.dmz": "10.22.1.8/29", "interface-shop.dmz": "eth1",
        "exclude-shop.dmz": "10.22.1.15", "search-order-shop.dmz": "desc",
        "range-shop.lab": "10.22.2.1-10.22.2.9", "range-global.spare": "10.22.3.1-10.22.3.9",
    });
    played(&data, async |arena, _, shop| {
        let rest = arena.tenant("rest").await;
        for (name, pool, addr, interface) in [
            ("dmz", "ConfigMap/kubevip/cidr-shop.dmz", "10.22.1.14", "eth1"),
            ("lab", "ConfigMap/kubevip/range-shop.lab", "10.22.2.1", "eth0"),
            ("spare", "ConfigMap/kubevip/range-global.spare", "10.22.3.1", "eth0"),
            ("plain", "ConfigMap/kubevip/cidr-shop", "10.22.0.1", "eth0"),
        ] {
            shop.create(asking(name, pool)).await;
            let served = annotated(&shop.services, name, addr).await;
            assert_eq!(marks(&served)["interface"], json!(interface), "{name}");
            let claim = shop.has_claim(addr).await;
            assert_eq!(claim.spec.pool.as_deref(), Some(pool), "{name}");
        }
        // No other Service is served from there, not even one without an address or one of another namespace.
        shop.create(load_balancer("late")).await;
        let late = shop.says("late", "False", "Exhausted", "ConfigMap/kubevip/cidr-shop: ").await;
        let said = format!("{:?}", late.status);
        assert!(!said.contains(".dmz") && !said.contains(".spare"), "{said}");
        rest.create(load_balancer("bare")).await;
        rest.says("bare", "False", "NotSelected", "ConfigMap/kubevip/range-global.spare").await;
        rest.create(asking("foreign", "ConfigMap/kubevip/cidr-shop.dmz")).await;
        rest.says("foreign", "False", "NotSelected", "cidr-shop.dmz: it is for other namespaces")
            .await;
        rest.create(asking("spare", "ConfigMap/kubevip/range-global.spare")).await;
        let spare = annotated(&rest.services, "spare", "10.22.3.2").await;
        assert_eq!(marks(&spare)["interface"], json!(null));
        rest.create(asking("odd", "ConfigMap/kubevip/cidr-shop.nothing")).await;
        rest.says("odd", "False", "PoolUnknown", "").await;
        rest.clear().await;
    })
    .await;
}

#[tokio::test]
async fn services_that_ask_for_a_pool_with_a_name_share_there_if_their_namespace_lets_them() {
    let data = json!({"cidr-shop.dmz": "10.24.0.1-10.24.0.2", "allow-share-shop": "true"});
    played(&data, async |_, _, shop| {
        let on_port = |service, port: u16| {
            from_json(service, &[json!({"spec": {"ports": [{"protocol": "TCP", "port": port}]}})])
        };
        let pool = "ConfigMap/kubevip/cidr-shop.dmz";
        for (name, port, addr) in
            [("a", 80, "10.24.0.1"), ("b", 81, "10.24.0.1"), ("c", 80, "10.24.0.2")]
        {
            shop.create(on_port(asking(name, pool), port)).await;
            annotated(&shop.services, name, addr).await;
        }
        // A Service that did not ask does not join them.
        shop.create(on_port(load_balancer("d"), 82)).await;
        shop.says("d", "False", "NotSelected", pool).await;
    })
    .await;
}

#[tokio::test]
async fn an_exclusion_that_cannot_be_read_is_told_on_service_and_map_and_nothing_is_given() {
    let arena = arena().await;
    let map = Map::new(&arena.client);
    map.says(&json!({
        "cidr-shop": "10.23.0.1-10.23.0.9", "exclude-shop": "10.23.0.1,10.23.0.300",
        "cidr-shop.dmz": "10.23.1.1-10.23.1.9", "exclude-nobody": "10.23.0.1",
        "cidr-global": "10.23.2.1-10.23.2.9", "fallback-shop": "yes",
    }))
    .await;
    let [shop, rest] = [arena.tenant("shop").await, arena.tenant("rest").await];
    let operator = arena.operator().await;
    for tenant in [&shop, &rest] {
        tenant.create(load_balancer("web")).await;
    }
    shop.create(asking("asks", "ConfigMap/kubevip/cidr-shop.dmz")).await;
    annotated(&rest.services, "web", "10.23.2.1").await;
    annotated(&shop.services, "asks", "10.23.1.1").await;
    shop.says("web", "False", "PoolInvalid", "ConfigMap/kubevip/cidr-shop").await;
    let system = arena.tenant("kube-system").await;
    system.tells("kubevip", "PoolInvalid", r#"exclude-shop: "10.23.0.300" is not"#).await;
    system.tells("kubevip", "PoolWarning", "exclude-nobody: has no effect").await;
    system.tells("kubevip", "PoolWarning", r#"fallback-shop: is "yes""#).await;
    // Once fixed, it serves its waiters at once.
    map.keeps(&json!({
        "cidr-shop": "10.23.0.1-10.23.0.9", "exclude-shop": "10.23.0.1,10.23.0.3",
        "cidr-shop.dmz": "10.23.1.1-10.23.1.9", "cidr-global": "10.23.2.1-10.23.2.9",
    }))
    .await;
    annotated(&shop.services, "web", "10.23.0.2").await;
    for tenant in [shop, rest] {
        tenant.settled().await;
        tenant.clear().await;
    }
    map.goes().await;
    operator.terminate().await.unwrap();
}
