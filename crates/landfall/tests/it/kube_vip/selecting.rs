//! Which addresses a Service gets, by its families and by what its pool has left.

use k8s_openapi::api::core::v1::Service;
use landfall_testkit::builders::load_balancer;
use serde_json::{Value, json};

use super::{Map, annotated, from_json};
use crate::stage::{Tenant, arena};

const P4: &str = "10.10.10.8-10.10.10.15";
const P6: &str = "fd00::1-fd00::10";
const S4: &str = "10.10.10.8-10.10.10.9";
const S6: &str = "fd00::1-fd00::2";
const U4: &[&str] = &["10.10.10.8", "10.10.10.9", "10.10.10.10", "10.10.10.12"];
const U6: &[&str] = &["fd00::1", "fd00::2", "fd00::4"];

fn families(policy: &str, families: &[&str]) -> Value {
    json!({"spec": {"ipFamilyPolicy": policy, "ipFamilies": families}})
}

/// Policy and families, pool, addresses of others, and the Service's addresses or the reason for none.
type Row = (Value, String, Vec<&'static str>, Result<&'static str, &'static str>);

fn rows() -> Vec<Row> {
    let (v4, v6) = (["IPv4"], ["IPv6"]);
    let (both, reversed) = (["IPv4", "IPv6"], ["IPv6", "IPv4"]);
    let single = |family: &[&str]| families("SingleStack", family);
    let prefer = |all: &[&str]| families("PreferDualStack", all);
    let require = |all: &[&str]| families("RequireDualStack", all);
    let all4 = vec!["10.10.10.8", "10.10.10.9"];
    let all6 = vec!["fd00::1", "fd00::2"];
    let all = [all4.clone(), all6.clone()].concat();
    let (pools, small) = (format!("{P4},{P6}"), format!("{S4},{S6}"));
    let (used4, used6) = (U4.to_vec(), U6.to_vec());
    let none = Vec::new;
    vec![
        (json!({}), P4.into(), used4.clone(), Ok("10.10.10.11")),
        (single(&v4), P4.into(), used4.clone(), Ok("10.10.10.11")),
        (single(&v6), P6.into(), used6.clone(), Ok("fd00::3")),
        (single(&v4), P6.into(), none(), Err("FamilyMissing")),
        (single(&v6), P4.into(), none(), Err("FamilyMissing")),
        (prefer(&both), P4.into(), used4, Ok("10.10.10.11")),
        (prefer(&both), P6.into(), used6, Ok("fd00::3")),
        (prefer(&both), pools.clone(), none(), Ok("10.10.10.8,fd00::1")),
        (prefer(&reversed), pools.clone(), none(), Ok("fd00::1,10.10.10.8")),
        (prefer(&both), small.clone(), all6.clone(), Ok("10.10.10.8")),
        (prefer(&both), small.clone(), all4.clone(), Ok("fd00::1")),
        (prefer(&reversed), small.clone(), all6.clone(), Ok("10.10.10.8")),
        (prefer(&both), small.clone(), all.clone(), Err("Exhausted")),
        (prefer(&both), format!("{small},invalid-pool"), none(), Err("PoolInvalid")),
        (require(&both), P4.into(), none(), Err("FamilyMissing")),
        (require(&both), P6.into(), none(), Err("FamilyMissing")),
        (require(&both), String::new(), none(), Err("PoolInvalid")),
        (require(&both), pools.clone(), none(), Ok("10.10.10.8,fd00::1")),
        (require(&reversed), pools, none(), Ok("fd00::1,10.10.10.8")),
        (require(&both), small.clone(), all6, Err("Exhausted")),
        (require(&both), small.clone(), all4, Err("Exhausted")),
        (require(&both), small, all, Err("Exhausted")),
    ]
}

#[tokio::test]
async fn families_come_in_the_order_of_the_service_as_far_as_its_pool_has_them() {
    let arena = arena().await;
    let tenant = arena.tenant("default").await;
    let operator = arena.operator().await;
    let map = Map::new(&arena.client).read_by(&operator);
    for (number, (written, pool, used, expected)) in rows().into_iter().enumerate() {
        map.says(&json!({ "cidr-global": pool })).await;
        for addr in &used {
            hold(&tenant, addr).await;
        }
        let name = format!("row-{number}");
        tenant.create(from_json(load_balancer(&name), &[written])).await;
        match expected {
            Ok(addrs) => drop(annotated(&tenant.services, &name, addrs).await),
            Err(reason) => {
                let waits = tenant.says(&name, "False", reason, "").await;
                assert_eq!(super::marks(&waits), super::marks(&Service::default()), "{name}");
            }
        }
        tenant.settled().await;
        tenant.clear().await;
    }
    map.goes().await;
    tenant.ends(&[]).await;
    operator.terminate().await.unwrap();
}

/// A Service that has an address because its annotation says so.
async fn hold(tenant: &Tenant, addr: &str) {
    let family = if addr.contains(':') { "IPv6" } else { "IPv4" };
    let name = format!("has-{}", addr.replace(['.', ':'], "-"));
    let written = json!({"metadata": {"annotations": {"kube-vip.io/loadbalancerIPs": addr}}});
    let families = families("SingleStack", &[family]);
    tenant.create(from_json(load_balancer(&name), &[written, families])).await;
    tenant.has_claim(addr).await;
}
