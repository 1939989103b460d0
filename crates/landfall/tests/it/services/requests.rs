//! Requests by annotation, quotas, reservations and retention.

use landfall_api::keys::{ANNOTATION_ADDRESSES, ANNOTATION_POOL};
use landfall_api::{IP, Quota};
use landfall_testkit::builders::{PoolBuilder as _, ServiceBuilder as _, load_balancer, pool};
use landfall_testkit::wait;
use serde_json::json;

use crate::stage::{LONG, tenant};

#[tokio::test]
async fn addresses_are_asked_for_by_annotation_one_per_family() {
    let tenant = tenant("ask-addresses").await;
    let ranges = ["10.12.1.0/28", "fd00:12:1::/120"];
    tenant.pool(pool("ask-addresses", &ranges).only_for("ask-addresses")).await;
    tenant.create(load_balancer("one").annotated(ANNOTATION_ADDRESSES, "10.12.1.5")).await;
    tenant.shows("one", &["10.12.1.5"]).await;
    let both = load_balancer("both")
        .annotated(ANNOTATION_ADDRESSES, "10.12.1.6, fd00:12:1::6")
        .with_families("RequireDualStack", &["IPv4", "IPv6"]);
    tenant.create(both).await;
    tenant.shows("both", &["10.12.1.6", "fd00:12:1::6"]).await;
    let half = load_balancer("half")
        .annotated(ANNOTATION_ADDRESSES, "fd00:12:1::7")
        .with_families("RequireDualStack", &["IPv4", "IPv6"]);
    tenant.create(half).await;
    tenant.shows("half", &["10.12.1.0", "fd00:12:1::7"]).await;

    tenant
        .create(load_balancer("two").annotated(ANNOTATION_ADDRESSES, "10.12.1.8,10.12.1.9"))
        .await;
    tenant.says("two", "False", "Unparseable", "10.12.1.8 and 10.12.1.9 are both asked for").await;
    tenant.create(load_balancer("odd").annotated(ANNOTATION_ADDRESSES, "10.12.1")).await;
    tenant.says("odd", "False", "Unparseable", "landfall.dev/addresses \"10.12.1\" is not").await;
    let torn =
        load_balancer("torn").annotated(ANNOTATION_ADDRESSES, "10.12.1.8").asking("10.12.1.9");
    tenant.create(torn).await;
    tenant.says("torn", "False", "Unparseable", "10.12.1.8 and 10.12.1.9 are both asked for").await;

    // A change is granted before the old address is released; a refused one changes nothing.
    let ask = |addr: &str| json!({"metadata": {"annotations": {ANNOTATION_ADDRESSES: addr}}});
    tenant.patch("one", ask("10.12.1.10")).await;
    tenant.shows("one", &["10.12.1.10"]).await;
    tenant.claim_is_gone("10.12.1.5").await;
    tenant.patch("one", ask("10.12.1.6")).await;
    let held = "keeps 10.12.1.10; 10.12.1.6 is taken by Service ask-addresses/both";
    tenant.says("one", "False", "TakenBy", held).await;
    tenant.delete("both").await;
    tenant.shows("one", &["10.12.1.6"]).await;
    tenant.ends(&["ask-addresses"]).await;
}

#[tokio::test]
async fn pools_are_asked_for_in_the_order_the_service_names_them() {
    let tenant = tenant("ask-pools").await;
    let reserved = pool("ask-second", &["10.12.2.8/32"]).only_for("ask-pools");
    tenant.pool(reserved.with(|spec| spec.auto_assign = Some(false))).await;
    tenant.pool(pool("ask-first", &["10.12.2.0/30"]).only_for("ask-pools")).await;
    tenant.pool(pool("ask-others", &["10.12.2.16/30"]).only_for("nobody")).await;
    for name in ["ask-first", "ask-second", "ask-others"] {
        tenant.pool_says(name, "True", "").await;
    }
    let asks = "ask-second,IPGroup/ask-first";
    tenant.create(load_balancer("a").annotated(ANNOTATION_POOL, asks)).await;
    tenant.shows("a", &["10.12.2.8"]).await;
    tenant.create(load_balancer("b").annotated(ANNOTATION_POOL, asks)).await;
    tenant.shows("b", &["10.12.2.0"]).await;
    tenant.create(load_balancer("c").annotated(ANNOTATION_POOL, "ask-others")).await;
    tenant.says("c", "False", "NotSelected", "ask-others: its namespaceSelector does not").await;
    tenant.create(load_balancer("d").annotated(ANNOTATION_POOL, "ask-nothing")).await;
    tenant.says("d", "False", "PoolUnknown", "ask-nothing: there is no such pool").await;
    let e = load_balancer("e").annotated(ANNOTATION_POOL, "ask-second").asking("10.12.2.1");
    tenant.create(e).await;
    tenant.says("e", "False", "NotSelected", "ask-first: the Service asks for other pools").await;
    // The pool it waits for appears.
    tenant.pool(pool("ask-nothing", &["10.12.2.32/32"]).only_for("ask-pools")).await;
    tenant.shows("d", &["10.12.2.32"]).await;
    tenant.ends(&["ask-first", "ask-second", "ask-others", "ask-nothing"]).await;
}

#[tokio::test]
async fn a_namespace_holds_no_more_than_its_quota() {
    let tenant = tenant("ask-quota").await;
    let limited = pool("ask-quota", &["10.12.3.0/28"]).only_for("ask-quota");
    let quota = |limit| Some(Quota { per_namespace: Some(limit), ..Quota::default() });
    tenant.pool(limited.with(|spec| spec.quota = quota(2))).await;
    for name in ["a", "b"] {
        tenant.create(load_balancer(name)).await;
        tenant.shows_something(name).await;
    }
    tenant.create(load_balancer("c")).await;
    let limit = "IPGroup/ask-quota: namespace quota reached (2 of 2)";
    tenant.says("c", "False", "QuotaExceeded", limit).await;
    tenant.create(load_balancer("d").asking("10.12.3.9")).await;
    tenant.says("d", "False", "QuotaExceeded", limit).await;
    tenant.delete("a").await;
    tenant.shows_something("c").await;
    tenant.edit_pool("ask-quota", json!({"quota": {"namespaces": {"ask-quota": 3}}})).await;
    tenant.shows("d", &["10.12.3.9"]).await;
    // Lowering it takes nothing away.
    tenant.edit_pool("ask-quota", json!({"quota": {"namespaces": {"ask-quota": 0}}})).await;
    tenant.create(load_balancer("e")).await;
    tenant.says("e", "False", "QuotaExceeded", "namespace quota reached (0 of 0)").await;
    tenant.shows("d", &["10.12.3.9"]).await;
    tenant.ends(&["ask-quota"]).await;
}

#[tokio::test]
async fn a_reserved_address_is_kept_for_the_service_that_the_administrator_named() {
    let tenant = tenant("ask-kept").await;
    tenant.pool(pool("ask-kept", &["10.12.4.0/29"]).only_for("ask-kept")).await;
    let reserve = |addr: &str, name: Option<&str>| {
        let reserved_for = json!({"namespace": "ask-kept", "name": name});
        let spec = json!({"address": addr, "use": "Reserved", "reservedFor": reserved_for});
        let object = json!({
            "apiVersion": "paas.org/v1", "kind": "IP", "metadata": {"name": addr}, "spec": spec,
        });
        serde_json::from_value::<IP>(object)
    };
    tenant.make_claim(&reserve("10.12.4.0", Some("mail")).unwrap()).await;
    tenant.pool_counts("ask-kept", "8", "1", "7").await;
    tenant.create(load_balancer("other")).await;
    tenant.shows("other", &["10.12.4.1"]).await;
    tenant.create(load_balancer("asks").asking("10.12.4.0")).await;
    let kept = "10.12.4.0 is kept by a reservation for ask-kept/mail";
    tenant.says("asks", "False", "Reserved", kept).await;
    tenant.create(load_balancer("mail")).await;
    tenant.shows("mail", &["10.12.4.0"]).await;
    let held = "10.12.4.0 is taken by Service ask-kept/mail";
    tenant.says("asks", "False", "TakenBy", held).await;
    // The reservation outlives its Service.
    tenant.delete("mail").await;
    tenant.says("asks", "False", "Reserved", kept).await;
    tenant.create(load_balancer("mail")).await;
    tenant.shows("mail", &["10.12.4.0"]).await;
    // Without a reservation the address is free for a waiter.
    tenant.delete("mail").await;
    tenant.says("asks", "False", "Reserved", kept).await;
    tenant.delete_claim("10.12.4.0").await;
    tenant.shows("asks", &["10.12.4.0"]).await;
    tenant.ends(&["ask-kept"]).await;
}

#[tokio::test]
async fn an_address_waits_for_its_deleted_service_and_for_no_other() {
    let tenant = tenant("ask-retain").await;
    let retaining = pool("ask-retain", &["10.12.5.0/30"]).only_for("ask-retain");
    tenant.pool(retaining.with(|spec| spec.retain_for = Some("1h".to_owned()))).await;
    for (name, addr) in [("web", "10.12.5.0"), ("typed", "10.12.5.1")] {
        tenant.create(load_balancer(name)).await;
        tenant.shows(name, &[addr]).await;
    }
    tenant.delete("web").await;
    wait::until("the claim to wait for its Service", LONG, async || {
        let claim = tenant.claim("10.12.5.0").await.ok_or("it is gone")?;
        let kept = claim.spec.reserved_for.ok_or("it is not kept")?;
        if claim.spec.holders.is_empty() && kept.expires.is_some() {
            Ok(())
        } else {
            Err("not yet")
        }
    })
    .await
    .unwrap();
    tenant.create(load_balancer("other")).await;
    tenant.shows("other", &["10.12.5.2"]).await;
    tenant.create(load_balancer("web")).await;
    tenant.shows("web", &["10.12.5.0"]).await;
    let claim = tenant.claim("10.12.5.0").await.unwrap();
    assert_eq!(claim.spec.reserved_for, None, "it has served its purpose");
    // A change of type is not a deletion.
    let to_cluster = json!({"spec": {"type": "ClusterIP", "allocateLoadBalancerNodePorts": null}});
    tenant.patch("typed", to_cluster).await;
    tenant.claim_is_gone("10.12.5.1").await;
    // One second is over soon, and then it is free.
    tenant.edit_pool("ask-retain", json!({"retainFor": "1s"})).await;
    tenant.delete("other").await;
    tenant.claim_is_gone("10.12.5.2").await;
    tenant.edit_pool("ask-retain", json!({"retainFor": null})).await;
    tenant.ends(&["ask-retain"]).await;
}
