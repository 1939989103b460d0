//! Pools of both dialects in one cluster, and errors in one of them.

use std::net::IpAddr;

use landfall_api::keys;
use landfall_testkit::Operator;
use landfall_testkit::builders::{PoolBuilder as _, ServiceBuilder as _, load_balancer, pool};
use landfall_testkit::cluster::{Recorder, shown};
use serde_json::json;

use super::{Map, annotated, carries, marks, played};
use crate::services::many::{burst, churn, start};
use crate::stage::{arena, ip};

/// The pool it asks for, else the key of its namespace, else `IPGroup`s, else the key for all.
#[tokio::test]
async fn the_nearest_pool_serves_and_says_where_the_address_is_shown() {
    let arena = arena().await;
    let map = Map::new(&arena.client);
    map.says(&json!({"cidr-own": "10.1.0.1/32", "cidr-global": "10.1.1.1/32,10.1.1.2/32"})).await;
    let [own, some, rest] =
        [arena.tenant("own").await, arena.tenant("some").await, arena.tenant("rest").await];
    some.pool(pool("for-some", &["10.1.2.1-10.1.2.9"]).only_for("some")).await;
    own.pool(pool("asked", &["10.1.3.1-10.1.3.9"]).with(|spec| spec.auto_assign = Some(false)))
        .await;
    let operator = arena.operator().await;
    for tenant in [&own, &some, &rest] {
        tenant.create(load_balancer("web")).await;
    }
    annotated(&own.services, "web", "10.1.0.1").await;
    annotated(&rest.services, "web", "10.1.1.1").await;
    let in_status = some.shows("web", &["10.1.2.1"]).await;
    assert_eq!(marks(&in_status)["addresses"], json!(null));
    own.create(load_balancer("asks").annotated(keys::ANNOTATION_POOL, "asked")).await;
    let asked = own.shows("asks", &["10.1.3.1"]).await;
    assert_eq!(marks(&asked)["addresses"], json!(null));
    // A Service that asks for an address that only a farther pool has gets it from there.
    some.create(load_balancer("beyond").asking("10.1.1.2")).await;
    annotated(&some.services, "beyond", "10.1.1.2").await;
    // A Service whose namespace has its own pool gets nothing from others, and is not told about pools that
    // are not meant for it.
    own.create(load_balancer("late")).await;
    let late = own.says("late", "False", "Exhausted", "ConfigMap/kubevip/cidr-own").await;
    let said = format!("{:?}", late.status);
    assert!(!said.contains("cidr-global") && !said.contains("for-some"), "{said}");
    rest.create(load_balancer("late")).await;
    let late = rest.says("late", "False", "Exhausted", "ConfigMap/kubevip/cidr-global").await;
    assert!(!format!("{:?}", late.status).contains("cidr-own"));
    for tenant in [own, some, rest] {
        tenant.settled().await;
        tenant.clear().await;
    }
    map.goes().await;
    operator.terminate().await.unwrap();
}

/// The program that announces the old address reads the status, and kube-vip the annotation.
#[tokio::test]
async fn a_service_that_moves_from_a_group_to_the_map_leaves_nothing_in_its_status() {
    let arena = arena().await;
    let map = Map::new(&arena.client);
    map.says(&json!({"cidr-global": "10.3.1.1/32"})).await;
    let tenant = arena.tenant("moves").await;
    tenant.pool(pool("moves", &["10.3.0.1-10.3.0.9"])).await;
    let operator = arena.operator().await;
    for (name, addr) in [("web", "10.3.0.1"), ("by-hand", "10.3.0.2")] {
        tenant.create(load_balancer(name)).await;
        tenant.shows(name, &[addr]).await;
    }
    tenant.delete_pool("moves").await;
    let kept = tenant.says("web", "True", "OutsidePool", "10.3.0.1").await;
    assert_eq!(marks(&kept)["addresses"], json!(null), "it stays where it is shown");
    tenant.patch("web", json!({"spec": {"loadBalancerIP": "10.3.1.1"}})).await;
    annotated(&tenant.services, "web", "10.3.1.1").await;
    let moved = tenant.says("web", "True", "Allocated", "10.3.1.1").await;
    let status = moved.status.and_then(|status| status.load_balancer);
    assert_eq!(status.and_then(|balancer| balancer.ingress), None);
    tenant.claim_is_gone("10.3.0.1").await;
    // Its user writes the address it has: that is no reason to withdraw it for a moment.
    let written = json!({"kube-vip.io/loadbalancerIPs": "10.3.0.2"});
    let before = tenant.patch("by-hand", json!({"metadata": {"annotations": written}})).await;
    let mut expected = marks(&before);
    expected["implementation"] = json!("kube-vip");
    carries(&tenant.services, "by-hand", "by hand", &expected).await;
    tenant.settled().await;
    tenant.clear().await;
    map.goes().await;
    operator.terminate().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn overlapping_pools_of_both_kinds_double_nothing() {
    let arena = arena().await;
    let map = Map::new(&arena.client);
    map.says(&json!({
        "range-mixed-a": "10.7.0.1-10.7.0.90", "range-global": "10.7.0.50-10.7.0.150",
    }))
    .await;
    let [annotated, grouped, rest] = [
        arena.tenant("mixed-a").await,
        arena.tenant("mixed-b").await,
        arena.tenant("mixed-c").await,
    ];
    grouped.pool(pool("mixed-b", &["10.7.0.20-10.7.0.120"]).only_for("mixed-b")).await;
    let recorder = Recorder::start(&arena.client).await.unwrap();
    let operators = start(&arena, 2).await;
    let names: Vec<_> = (0..40).map(|n| format!("s{n:02}")).collect();
    tokio::join!(
        burst(&annotated, names.clone()),
        burst(&grouped, names.clone()),
        burst(&rest, names.clone()),
    );
    tokio::join!(
        churn(&annotated, &names, "10.7.0", 60, 1),
        churn(&grouped, &names, "10.7.0", 60, 2),
        churn(&rest, &names, "10.7.0", 60, 3),
    );
    // Some ask for an address that none of their pools has; all others are served.
    for tenant in [&annotated, &grouped, &rest] {
        tenant.create(load_balancer("last")).await;
        tenant.shows_something("last").await;
    }
    let seen = annotated.settled().await;
    for service in seen.services.iter().filter(|service| !shown(service).is_empty()) {
        let of_group = |addr: &IpAddr| (ip("10.7.0.20")..=ip("10.7.0.120")).contains(addr);
        let in_status = marks(service)["addresses"] == json!(null);
        // A Service that asks for an address that only the map has keeps the annotation.
        let may_be = service.metadata.namespace.as_deref() == Some("mixed-b")
            && shown(service).iter().all(of_group);
        assert!(!in_status || may_be, "{:?}", marks(service));
    }
    assert_eq!(marks(&grouped.get("last").await)["addresses"], json!(null));
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.problems(), Vec::<String>::new());
    assert!(operators.iter().all(Operator::is_running));
    map.goes().await;
}

#[tokio::test]
async fn a_map_without_any_pool_tells_the_errors_of_its_keys() {
    played(&json!({"cdir-global": "10.0.0.1/32"}), async |arena, map, tenant| {
        tenant.create(load_balancer("web")).await;
        tenant.says("web", "False", "NoPool", "").await;
        let system = arena.tenant("kube-system").await;
        system.tells("kubevip", "PoolWarning", "cdir-global: is not known").await;
        map.says(&json!({"cidr-global": "10.0.0.1/32"})).await;
        annotated(&tenant.services, "web", "10.0.0.1").await;
    })
    .await;
}

#[tokio::test]
async fn an_error_in_one_key_is_told_on_the_map_and_harms_no_other_pool() {
    let arena = arena().await;
    let map = Map::new(&arena.client);
    map.says(&json!({
        "cidr-bad": "10.0.0.9-10.0.0.1", "cidr-global": "10.0.1.0/29", "search-order": "DESC",
        "allow-share-good": "yes", "range-bad": "10.0.2.1-10.0.2.9",
    }))
    .await;
    let [bad, good] = [arena.tenant("bad").await, arena.tenant("good").await];
    let operator = arena.operator().await;
    let map = map.read_by(&operator);
    for tenant in [&bad, &good] {
        tenant.create(load_balancer("web")).await;
    }
    annotated(&good.services, "web", "10.0.1.1").await;
    bad.says("web", "False", "PoolInvalid", "ConfigMap/kubevip/cidr-bad").await;
    carries(&bad.services, "web", "waits", &json!({})).await;
    let system = arena.tenant("kube-system").await;
    system.tells("kubevip", "PoolInvalid", "cidr-bad: ").await;
    for (key, part) in
        [("search-order", "desc"), ("allow-share-good", "yes"), ("range-bad", "cidr-bad")]
    {
        system.tells("kubevip", "PoolWarning", &format!("{key}: ")).await;
        system.tells("kubevip", "PoolWarning", part).await;
    }
    // Once fixed, it serves its waiters at once.
    map.keeps(&json!({"cidr-bad": "10.0.0.1-10.0.0.9", "cidr-global": "10.0.1.0/29"})).await;
    annotated(&bad.services, "web", "10.0.0.1").await;
    bad.says("web", "True", "Allocated", "10.0.0.1 from ConfigMap/kubevip/cidr-bad").await;
    // Without the map no Service's address changes, and a new Service is told that there is no pool.
    map.goes().await;
    good.create(load_balancer("late")).await;
    good.says("late", "False", "NoPool", "").await;
    bad.says("web", "True", "OutsidePool", "10.0.0.1").await;
    assert_eq!(shown(&bad.get("web").await), [ip("10.0.0.1")]);
    map.keeps(&json!({"cidr-global": "10.0.1.0/29"})).await;
    annotated(&good.services, "late", "10.0.1.2").await;
    for tenant in [bad, good] {
        tenant.settled().await;
        tenant.clear().await;
    }
    map.goes().await;
    operator.terminate().await.unwrap();
}
