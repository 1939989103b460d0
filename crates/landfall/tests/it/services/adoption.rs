//! The first start on a cluster that another operator managed: section 10.1 of the specification.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use landfall_testkit::builders::{
    PoolBuilder as _, ServiceBuilder as _, bare_claim, load_balancer, original_claim, pool,
    segment, virtual_ip_claim, virtual_ip_copy,
};
use landfall_testkit::cluster::{Recorder, shown};
use landfall_testkit::wait;
use serde_json::json;

use crate::stage::{LONG, Tenant, allocated, arena, ip};

/// Waits until the ledger names the Service as the holder of the address, in its present version: a Service
/// that came with its address is not written.
async fn entered(tenant: &Tenant, name: &str, addr: &str) -> Service {
    let uid = tenant.get(name).await.uid();
    let holds = wait::until(format!("{name} to hold {addr}"), LONG, async || {
        let claim = tenant.claim(addr).await.ok_or("there is no claim")?;
        let named = claim.spec.holders.iter().any(|holder| holder.uid == uid);
        if named { Ok(()) } else { Err("the claim names another") }
    });
    if let Err(late) = holds.await {
        panic!("{late}");
    }
    tenant.get(name).await
}

#[tokio::test]
async fn addresses_that_services_show_already_are_entered_into_the_ledger_and_kept() {
    let arena = arena().await;
    let tenant = arena.tenant("adopt-shown").await;
    tenant.pool(pool("adopt-shown", &["10.7.1.0/28"]).excluding(&["10.7.1.9"])).await;
    for (name, addr) in [("low", "10.7.1.0"), ("high", "10.7.1.7"), ("excluded", "10.7.1.9")] {
        tenant.create(load_balancer(name)).await;
        tenant.set_ingress(name, json!([{"ip": addr}])).await;
    }
    tenant.create(load_balancer("asks").asking("10.7.1.5")).await;
    tenant.set_ingress("asks", json!([{"ip": "10.7.1.5"}])).await;
    tenant.create(load_balancer("new")).await;
    let recorder = Recorder::start(&tenant.client).await.unwrap();

    let operator = arena.operator().await;
    tenant.shows("new", &["10.7.1.1"]).await;
    let all =
        [("low", "10.7.1.0"), ("high", "10.7.1.7"), ("excluded", "10.7.1.9"), ("asks", "10.7.1.5")];
    for (name, addr) in all {
        let service = entered(&tenant, name, addr).await;
        let claim = tenant.claim(addr).await.unwrap();
        assert_eq!(claim.spec.holders[0].uid, service.uid(), "{name}");
        assert_eq!(claim.spec.pool.as_deref(), Some("IPGroup/adopt-shown"), "{name}");
    }
    tenant.settled().await;
    assert_eq!(recorder.finish().await.unwrap().moved(), []);
    drop(operator);
}

#[tokio::test]
async fn claims_of_the_original_operator_are_respected_completed_and_tidied() {
    let arena = arena().await;
    let tenant = arena.tenant("adopt-original").await;
    tenant.pool(segment("dmz", "10.7.2.0/28", &[])).await;
    let claim = async |addr: &str, name: &str| {
        tenant.make_claim(&original_claim(ip(addr), "dmz", &tenant.key(name))).await
    };
    // "Service LB, ingress ip X, IP object X label ipgroup, owner = Service: nothing"
    tenant.create(load_balancer("steady")).await;
    let steady = tenant.set_ingress("steady", json!([{"ip": "10.7.2.0"}])).await;
    let steady_claim = claim("10.7.2.0", "steady").await;
    // "IP object owner = Service that has no ingress: complete the grant with that address"
    tenant.create(load_balancer("half")).await;
    claim("10.7.2.7", "half").await;
    tenant.create(load_balancer("half-asks").asking("10.7.2.8")).await;
    claim("10.7.2.8", "half-asks").await;
    // "two IP objects owned by one Service: keep the one in ingress, release the other"
    tenant.create(load_balancer("two")).await;
    tenant.set_ingress("two", json!([{"ip": "10.7.2.3"}])).await;
    claim("10.7.2.2", "two").await;
    claim("10.7.2.3", "two").await;
    // "… (or loadBalancerIP)"
    tenant.create(load_balancer("two-asks").asking("10.7.2.5")).await;
    claim("10.7.2.4", "two-asks").await;
    claim("10.7.2.5", "two-asks").await;
    // "IP object owner missing in cluster: collect"
    claim("10.7.2.10", "missing").await;
    // "Service not LB …: release by owner"
    tenant.create(load_balancer("plain").of_type("ClusterIP")).await;
    claim("10.7.2.11", "plain").await;
    // "ingress X outside every group, or host name: leave alone"
    tenant.create(load_balancer("outside")).await;
    let outside = tenant.set_ingress("outside", json!([{"ip": "203.0.113.5"}])).await;
    tenant.create(load_balancer("named")).await;
    let named = tenant.set_ingress("named", json!([{"hostname": "lb.example.com"}])).await;
    // "IP object with label gsm: counts as used for every IPGroup". The kind is gone, but the copy is not, so
    // the claim is not an orphan.
    tenant.create(virtual_ip_copy("steady", "10.7.2.12")).await;
    let virtual_ip = virtual_ip_claim(ip("10.7.2.12"), "old", &tenant.key("steady"));
    let virtual_ip = tenant.make_claim(&virtual_ip).await;

    let recorder = Recorder::start(&tenant.client).await.unwrap();
    let operator = arena.operator().await;
    tenant.shows("half", &["10.7.2.7"]).await;
    tenant.shows("half-asks", &["10.7.2.8"]).await;
    tenant.shows("two-asks", &["10.7.2.5"]).await;
    for addr in ["10.7.2.2", "10.7.2.4", "10.7.2.10", "10.7.2.11"] {
        tenant.claim_is_gone(addr).await;
    }
    tenant.create(load_balancer("new")).await;
    tenant.shows("new", &["10.7.2.1"]).await;
    for (name, before) in [("outside", &outside), ("named", &named)] {
        let now = tenant.get(name).await;
        assert_eq!(now.resource_version(), before.resource_version(), "{name} is not ours");
    }
    assert_eq!(tenant.claim("10.7.2.0").await, Some(steady_claim));
    assert_eq!(tenant.claim("10.7.2.12").await, Some(virtual_ip));
    assert_eq!(shown(&tenant.get("two").await), [ip("10.7.2.3")]);
    assert_eq!(recorder.finish().await.unwrap().moved(), []);

    let now = tenant.get("steady").await;
    assert_eq!(now.resource_version(), steady.resource_version(), "nothing was written");

    // These two are foreign for good; the rest is in order.
    tenant.delete("outside").await;
    tenant.delete("named").await;
    tenant.settled().await;
    // An adopted address is released like any other.
    tenant.delete("steady").await;
    tenant.claim_is_gone("10.7.2.0").await;
    tenant.delete("half").await;
    tenant.claim_is_gone("10.7.2.7").await;
    drop(operator);
}

/// The strictest reading of "nothing": no write at all for objects that are in order.
#[tokio::test]
async fn nothing_is_written_for_objects_that_are_in_order() {
    let arena = arena().await;
    let tenant = arena.tenant("adopt-steady").await;
    tenant.pool(segment("steady", "10.7.3.0/28", &[])).await;
    tenant.create(load_balancer("original")).await;
    let service = tenant.set_ingress("original", json!([{"ip": "10.7.3.0"}])).await;
    let claim = original_claim(ip("10.7.3.0"), "steady", &tenant.key("original"));
    let claim = tenant.make_claim(&claim).await;
    let operator = arena.operator().await;
    tenant.create(load_balancer("barrier")).await;
    tenant.shows("barrier", &["10.7.3.1"]).await;
    tenant.settled().await;
    assert_eq!(tenant.claim("10.7.3.0").await, Some(claim));
    let now = tenant.get("original").await;
    assert_eq!(
        now.resource_version(),
        service.resource_version(),
        "condition {:?} was added",
        allocated(&now)
    );
    drop(operator);
}

/// "already exists for someone else is reported as a conflict on both, and nobody is moved"
#[tokio::test]
async fn two_services_that_show_one_address_are_both_told_and_neither_is_moved() {
    let arena = arena().await;
    let tenant = arena.tenant("adopt-doubled").await;
    tenant.pool(pool("adopt-doubled", &["10.7.4.0/30"])).await;
    for name in ["one", "two"] {
        tenant.create(load_balancer(name)).await;
        tenant.set_ingress(name, json!([{"ip": "10.7.4.0"}])).await;
    }
    tenant.create(load_balancer("reserved")).await;
    tenant.set_ingress("reserved", json!([{"ip": "10.7.4.1"}])).await;
    let by_hand = tenant.make_claim(&bare_claim(ip("10.7.4.1"))).await;
    let operator = arena.operator().await;
    tenant.says("two", "False", "TakenBy", "10.7.4.0 is taken by Service adopt-doubled/one").await;
    let also = "10.7.4.0 is also shown by Service adopt-doubled/two, which has no claim on it";
    tenant.says("one", "True", "AlsoShown", also).await;
    tenant.tells("two", "TakenBy", "10.7.4.0").await;
    tenant.tells("one", "AlsoShown", also).await;
    tenant.says("reserved", "False", "TakenBy", "10.7.4.1 is taken by").await;
    for (name, addr) in [("one", "10.7.4.0"), ("two", "10.7.4.0"), ("reserved", "10.7.4.1")] {
        assert_eq!(shown(&tenant.get(name).await), [ip(addr)], "{name}");
    }
    assert_eq!(tenant.claim("10.7.4.1").await, Some(by_hand));

    // A person removes the address from one of them.
    tenant.set_ingress("two", json!([])).await;
    tenant.shows("two", &["10.7.4.2"]).await;
    tenant.says("one", "True", "Allocated", "10.7.4.0").await;
    assert_eq!(shown(&tenant.get("one").await), [ip("10.7.4.0")]);
    // Or its holder gives it up: then it goes to the other Service that shows it.
    tenant.delete_claim("10.7.4.1").await;
    tenant.says("reserved", "True", "Allocated", "10.7.4.1").await;
    tenant.settled().await;
    drop(operator);
}

#[tokio::test]
async fn an_address_shown_twice_becomes_the_others_when_its_holder_is_deleted() {
    let arena = arena().await;
    let tenant = arena.tenant("adopt-inherited").await;
    tenant.pool(pool("adopt-inherited", &["10.7.5.0/30"])).await;
    for name in ["one", "two"] {
        tenant.create(load_balancer(name)).await;
        tenant.set_ingress(name, json!([{"ip": "10.7.5.0"}])).await;
    }
    let operator = arena.operator().await;
    tenant
        .says("two", "False", "TakenBy", "10.7.5.0 is taken by Service adopt-inherited/one")
        .await;
    tenant.delete("one").await;
    tenant.says("two", "True", "Allocated", "10.7.5.0").await;
    tenant.settled().await;
    assert_eq!(shown(&tenant.get("two").await), [ip("10.7.5.0")]);
    drop(operator);
}
