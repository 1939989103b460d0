//! Behaviour that no test of the original covers.

use landfall_api::keys;
use landfall_testkit::builders::{ServiceBuilder as _, load_balancer};
use serde_json::{Value, json};

use super::{Map, annotated, carries, from_json, played};
use crate::stage::arena;

const ADDRESSES: &str = "kube-vip.io/loadbalancerIPs";

fn annotation(value: &str) -> Value {
    json!({"metadata": {"annotations": {ADDRESSES: value}}})
}

fn both_families(policy: &str) -> Value {
    json!({"spec": {"ipFamilyPolicy": policy, "ipFamilies": ["IPv4", "IPv6"]}})
}

#[tokio::test]
async fn the_first_key_that_is_there_decides() {
    played(&Value::Null, async |_, map, tenant| {
        for (data, expected) in [
            (
                json!({"cidr-global": "10.0.1.0/30", "range-shop": "10.0.2.1-10.0.2.3"}),
                Ok("10.0.1.1"),
            ),
            (
                json!({"range-shop": "10.0.2.1-10.0.2.3", "range-global": "10.0.1.1-10.0.1.9"}),
                Ok("10.0.2.1"),
            ),
            (json!({"cidr-shop": "10.0.3.1/32", "cidr-global": "10.0.1.0/30"}), Ok("10.0.3.1")),
            (
                json!({"cidr-shop": "", "cidr-global": "10.0.1.0/30"}),
                Err(("PoolInvalid", "cidr-shop")),
            ),
            (
                json!({"cidr-shop": "10.0.0.1-", "cidr-global": "10.0.1.0/30"}),
                Err(("PoolInvalid", "cidr-shop")),
            ),
            (json!({"cidr-other": "10.0.1.0/30"}), Err(("NoPool", ""))),
            (json!({"cidr-shop": "10.0.0.0/32"}), Err(("Exhausted", "cidr-shop"))),
        ] {
            map.says(&data).await;
            tenant.create(load_balancer("web")).await;
            match expected {
                Ok(addr) => drop(annotated(&tenant.services, "web", addr).await),
                Err((reason, part)) => drop(tenant.says("web", "False", reason, part).await),
            }
            tenant.clear().await;
        }
        // A new leader repeats the warning about it.
        map.says(&json!({"cidr-shop": "10.0.0.1/32"})).await;
    })
    .await;
}

#[tokio::test]
async fn an_address_left_to_dhcp_is_in_no_ledger() {
    played(&Value::Null, async |_, map, tenant| {
        map.says(&json!({"cidr-global": "0.0.0.0/32"})).await;
        for name in ["one", "two"] {
            tenant.create(load_balancer(name)).await;
            let given =
                json!({"implementation": "kube-vip", "addresses": "0.0.0.0", "spec": "0.0.0.0"});
            carries(&tenant.services, name, "all by DHCP", &given).await;
        }
        tenant.create(from_json(load_balancer("both"), &[both_families("RequireDualStack")])).await;
        annotated(&tenant.services, "both", "0.0.0.0").await;
        assert_eq!(tenant.claim("0.0.0.0").await, None);
        tenant.clear().await;
        map.says(&json!({"cidr-global": "0.0.0.0/32,2001:db8::/64"})).await;
        tenant
            .create(from_json(load_balancer("mixed"), &[both_families("RequireDualStack")]))
            .await;
        annotated(&tenant.services, "mixed", "0.0.0.0,2001:db8::").await;
        tenant.clear().await;
        // Each family by itself, and even if its user wrote it.
        map.says(&json!({"cidr-global": "0.0.0.0/32,::/128"})).await;
        for name in ["one", "two"] {
            let both = both_families("RequireDualStack");
            tenant.create(from_json(load_balancer(name), &[both])).await;
            annotated(&tenant.services, name, "0.0.0.0,::").await;
        }
        for name in ["three", "four"] {
            let v6 = json!({"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]}});
            tenant.create(from_json(load_balancer(name), &[annotation("::"), v6])).await;
            let kept = json!({"implementation": "kube-vip", "addresses": "::"});
            carries(&tenant.services, name, "by its user", &kept).await;
        }
        assert_eq!(tenant.claim("::").await, None);
        tenant.clear().await;
        tenant
            .create(from_json(load_balancer("mixed"), &[both_families("RequireDualStack")]))
            .await;
        annotated(&tenant.services, "mixed", "0.0.0.0,::").await;
        // Only the status tells which address DHCP gave.
        map.says(
            &json!({"cidr-global": "0.0.0.0/32,2001:db8::/64", "cidr-web": "10.0.0.1-10.0.0.2"}),
        )
        .await;
        tenant.set_ingress("mixed", json!([{"ip": "10.0.0.1"}])).await;
    })
    .await;
}

#[tokio::test]
async fn an_address_that_is_announced_for_a_service_is_given_to_no_other() {
    played(&Value::Null, async |arena, map, tenant| {
        map.says(&json!({"cidr-global": "0.0.0.0/32", "cidr-web": "10.0.0.1-10.0.0.3"})).await;
        tenant.create(load_balancer("leased")).await;
        annotated(&tenant.services, "leased", "0.0.0.0").await;
        tenant.set_ingress("leased", json!([{"ip": "10.0.0.1"}])).await;
        tenant
            .patch(
                "leased",
                json!({"metadata": {"annotations": {
                    "kube-vip.io/requestedIP": "10.0.0.2,fd00::2",
                }}}),
            )
            .await;
        let web = arena.tenant("web").await;
        web.create(load_balancer("web")).await;
        // An address that a user could have written is not kept from others.
        annotated(&web.services, "web", "10.0.0.2").await;
        web.clear().await;
    })
    .await;
}

#[tokio::test]
async fn a_full_pool_of_one_family_leaves_no_empty_annotation() {
    played(&Value::Null, async |_, map, tenant| {
        map.says(&json!({"cidr-global": "10.0.0.1/32"})).await;
        tenant.create(load_balancer("first")).await;
        annotated(&tenant.services, "first", "10.0.0.1").await;
        let prefers = from_json(load_balancer("second"), &[both_families("PreferDualStack")]);
        tenant.create(prefers).await;
        tenant.says("second", "False", "Exhausted", "").await;
        carries(&tenant.services, "second", "waits", &json!({})).await;
        map.says(&json!({"cidr-global": "10.0.0.1/31"})).await;
        tenant.says("second", "False", "Exhausted", "").await;
        map.says(&json!({"cidr-global": "10.0.0.1/32,10.0.0.2/32"})).await;
        annotated(&tenant.services, "second", "10.0.0.2").await;
    })
    .await;
}

#[tokio::test]
async fn an_annotation_that_is_no_address_harms_only_its_own_service() {
    played(&Value::Null, async |_, map, tenant| {
        map.says(&json!({"cidr-global": "10.0.0.0/29", "allow-share-global": "true"})).await;
        for (name, value, reason) in [
            ("host", "web.example.com", Some("Unparseable")),
            ("mixed", "10.0.0.4,web.example.com", Some("Unparseable")),
            ("two", "10.0.0.5,10.0.0.6", Some("Unparseable")),
            ("empty", "", None),
        ] {
            let before = tenant.create(from_json(load_balancer(name), &[annotation(value)])).await;
            match reason {
                Some(reason) => {
                    let said =
                        tenant.says(name, "False", reason, value.rsplit(',').next().unwrap()).await;
                    assert_eq!(
                        super::marks(&said)["addresses"],
                        super::marks(&before)["addresses"]
                    );
                }
                None => drop(annotated(&tenant.services, name, "10.0.0.1").await),
            }
        }
        // Its ports clash with all that share, so it needs an address of its own.
        tenant.create(load_balancer("web")).await;
        annotated(&tenant.services, "web", "10.0.0.2").await;
        for name in ["host", "two"] {
            tenant.delete(name).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_address_outside_every_pool_belongs_to_the_service_that_names_it_and_says_so() {
    played(&Value::Null, async |_, map, tenant| {
        map.says(&json!({"cidr-global": "10.0.0.0/29"})).await;
        tenant.create(from_json(load_balancer("web"), &[annotation("192.0.2.7")])).await;
        tenant.says("web", "True", "OutsidePool", "192.0.2.7").await;
        let marks = json!({"implementation": "kube-vip", "addresses": "192.0.2.7"});
        carries(&tenant.services, "web", "outside", &marks).await;
        tenant.create(load_balancer("spec").asking("192.0.2.8")).await;
        let marks =
            json!({"implementation": "kube-vip", "addresses": "192.0.2.8", "spec": "192.0.2.8"});
        carries(&tenant.services, "spec", "outside by spec", &marks).await;
        for addr in ["192.0.2.7", "192.0.2.8"] {
            assert_eq!(tenant.has_claim(addr).await.spec.pool, None);
        }
    })
    .await;
}

#[tokio::test]
async fn where_only_pools_give_a_request_outside_them_is_refused() {
    let arena = arena().await;
    let map = Map::new(&arena.client);
    map.says(&json!({"cidr-global": "10.34.0.0/29", "cidr-other": "10.34.1.0/29"})).await;
    let tenant = arena.tenant("from-pools").await;
    let operator = arena.operator_with(&["--kube-vip-requests=from-pools"]).await;
    for (name, addr, reason) in
        [("outside", "192.0.2.8", "OutsideEveryPool"), ("others", "10.34.1.1", "NotSelected")]
    {
        tenant.create(load_balancer(name).asking(addr)).await;
        tenant.says(name, "False", reason, addr).await;
        carries(&tenant.services, name, "waits", &json!({"spec": addr})).await;
    }
    // It is in the pool, which does not give it to a Service that does not ask.
    tenant.create(load_balancer("web").asking("10.34.0.0")).await;
    annotated(&tenant.services, "web", "10.34.0.0").await;
    tenant.ask("web", "192.0.2.9").await;
    tenant.says("web", "False", "OutsideEveryPool", "192.0.2.9").await;
    annotated(&tenant.services, "web", "10.34.0.0").await;
    // The annotation is a request as well.
    tenant.create(from_json(load_balancer("annotated"), &[annotation("192.0.2.7")])).await;
    tenant.says("annotated", "False", "OutsideEveryPool", "192.0.2.7").await;
    assert_eq!(tenant.claim("192.0.2.7").await, None);
    tenant.settled().await;
    tenant.clear().await;
    map.goes().await;
    operator.terminate().await.unwrap();
}

#[tokio::test]
async fn an_ignored_service_gets_nothing() {
    played(&Value::Null, async |_, map, tenant| {
        map.says(&json!({"cidr-global": "10.0.0.1/32"})).await;
        let ignored = load_balancer("ignored").annotated(keys::ANNOTATION_KUBE_VIP_IGNORE, "true");
        tenant.create(ignored).await;
        tenant.says("ignored", "False", "NotSelected", "tells kube-vip to ignore it").await;
        tenant.create(load_balancer("web")).await;
        annotated(&tenant.services, "web", "10.0.0.1").await;
    })
    .await;
}
