//! Which writes the operator makes, how often, and which it does not make.

use http::Method;
use landfall_testkit::Proxy;
use landfall_testkit::builders::load_balancer;
use landfall_testkit::proxy::Record;
use serde_json::{Value, json};

use super::{Map, annotated, carries, from_json};
use crate::stage::{Arena, LONG, Tenant, arena, quiet, quiet_since};

pub(super) const CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Writes since a mark, without the lease and events, once no more come.
pub(super) async fn writes(proxy: &Proxy, mark: usize) -> Vec<String> {
    quiet_since(proxy, mark).await;
    let of_interest =
        |record: &Record| record.is_write() && !record.is_for("leases") && !record.is_for("events");
    let all = proxy.requests_since(mark);
    let all = all.iter().filter(|record| of_interest(record));
    all.map(|record| format!("{} {}", record.method, kind(record))).collect()
}

fn kind(record: &Record) -> &'static str {
    match record {
        record if record.is_for("ips") => "ips",
        record if record.path.contains("/status") => "services/status",
        record if record.is_for("services") => "services",
        _ => "something else",
    }
}

pub(super) async fn watched(data: &Value, act: impl AsyncFn(&Arena, &Tenant, &Proxy)) {
    let arena = arena().await;
    let map = Map::new(&arena.client);
    map.says(data).await;
    let tenant = arena.tenant("shop").await;
    let proxy = arena.proxy().await;
    let operator = arena.electing_operator_via(&proxy).await;
    operator.wait_ready(LONG).await.unwrap();
    act(&arena, &tenant, &proxy).await;
    tenant.settled().await;
    tenant.clear().await;
    map.goes().await;
    operator.terminate().await.unwrap();
}

#[tokio::test]
async fn an_address_costs_a_claim_and_a_patch() {
    watched(&json!({"cidr-global": "10.0.0.1/24"}), async |_, tenant, proxy| {
        for protocol in ["UDP", "TCP", "SCTP"] {
            let mark = proxy.mark();
            let ports = json!({"spec": {"ports": [{"port": 80, "protocol": protocol}]}});
            tenant.create(from_json(load_balancer("web"), &[ports])).await;
            annotated(&tenant.services, "web", "10.0.0.1").await;
            assert_eq!(writes(proxy, mark).await, ["POST ips", "PATCH services"], "{protocol}");
            tenant.clear().await;
        }
        let finalizer = json!({"metadata": {"finalizers": [CLEANUP]}});
        let mark = proxy.mark();
        tenant.create(from_json(load_balancer("web"), &[finalizer])).await;
        let given =
            json!({"implementation": "kube-vip", "addresses": "10.0.0.1", "spec": "10.0.0.1"});
        carries(&tenant.services, "web", "the finalizer goes", &given).await;
        assert_eq!(writes(proxy, mark).await, ["POST ips", "PATCH services", "PATCH services"]);
    })
    .await;
}

/// kube-vip reads our fields and writes others; those writes do not concern us.
#[tokio::test]
async fn writes_of_kube_vip_cost_nothing() {
    watched(&json!({"cidr-global": "10.0.0.1/24"}), async |_, tenant, proxy| {
        tenant.create(load_balancer("web")).await;
        annotated(&tenant.services, "web", "10.0.0.1").await;
        quiet(proxy).await;
        let mark = proxy.mark();
        let patches: [Value; 4] = [
            json!({"metadata": {"annotations": {"kube-vip.io/vipHost": "node-1"}}}),
            json!({"metadata": {"annotations": {"kube-vip.io/vipHost": "node-2", "kube-vip.io/hwaddr": "02:00:00:00:00:01"}}}),
            json!({"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}),
            json!({"spec": {"sessionAffinity": "ClientIP"}}),
        ];
        for patch in patches {
            tenant.patch("web", patch).await;
        }
        tenant.set_ingress("web", json!([{"ip": "10.0.0.1"}])).await;
        tenant.set_ingress("web", json!([])).await;
        assert_eq!(writes(proxy, mark).await, Vec::<String>::new());
        assert!(proxy.requests_since(mark).iter().all(|record| record.method != Method::DELETE));
    })
    .await;
}

#[tokio::test]
async fn each_namespace_is_served_from_its_own_key_and_those_without_wait() {
    let data = json!({
        "cidr-default": "192.168.0.200/29", "cidr-plunder": "192.168.0.210/29",
        "cidr-testing": "192.168.0.220/29", "allow-share-global": "true",
        "allow-share-plunder": "false",
    });
    watched(&data, async |arena, other, _| {
        other.create(load_balancer("web")).await;
        other.says("web", "False", "NoPool", "").await;
        carries(&other.services, "web", "not listed", &json!({})).await;
        for (namespace, addrs) in [
            ("default", ["192.168.0.200", "192.168.0.200"]),
            ("testing", ["192.168.0.216", "192.168.0.216"]),
            ("plunder", ["192.168.0.208", "192.168.0.209"]),
        ] {
            let tenant = arena.tenant(namespace).await;
            for ((name, port), addr) in [("one", 80), ("two", 81)].into_iter().zip(addrs) {
                let ports = json!({"spec": {"ports": [{ "port": port }]}});
                tenant.create(from_json(load_balancer(name), &[ports])).await;
                let given = json!({"implementation": "kube-vip", "addresses": addr, "spec": addr});
                carries(&tenant.services, name, namespace, &given).await;
            }
            tenant.clear().await;
        }
    })
    .await;
}
