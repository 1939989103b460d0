//! A tenant who may only write Services in its own namespace cannot affect others.

use std::fs;

use k8s_openapi::api::core::v1::{Node, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use landfall_api::keys::{ANNOTATION_KUBE_VIP_ADDRESSES, ANNOTATION_POOL, ANNOTATION_SHARING_KEY};
use landfall_api::{IPGroup, IPGroupStatus, Quota};
use landfall_testkit::builders::{PoolBuilder as _, ServiceBuilder as _, load_balancer, pool};
use landfall_testkit::cluster::in_status;
use landfall_testkit::{Operator, wait};
use rstest::rstest;
use serde_json::json;

use crate::kube_vip::Map;
use crate::stage::{LONG, Tenant, arena, tenant, writes_only};

fn quota(per_namespace: i32) -> Quota {
    Quota { per_namespace: Some(per_namespace), ..Quota::default() }
}

/// A pool that serves two namespaces only: other tests share this control plane.
fn pool_of_both(name: &str, range: &str, namespaces: [&str; 2]) -> IPGroup {
    let names = LabelSelectorRequirement {
        key: "kubernetes.io/metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(namespaces.map(str::to_owned).to_vec()),
    };
    let selector =
        LabelSelector { match_expressions: Some(vec![names]), ..LabelSelector::default() };
    pool(name, &[range]).with(|spec| spec.namespace_selector = Some(selector))
}

fn all_of(prefix: &str, count: u8) -> Vec<String> {
    (0..count).map(|last| format!("{prefix}.{last}")).collect()
}

fn listing_external_ips(name: &str, addrs: Vec<String>) -> Service {
    let service = load_balancer(name).of_type("ClusterIP");
    service.with_spec(|spec| spec.external_ips = Some(addrs))
}

#[tokio::test]
async fn kube_vips_annotation_gives_nothing_that_the_pools_do_not_give() {
    let tenant = tenant("doors-annotation").await;
    tenant.pool(pool("doors-others", &["10.180.0.0/29"]).only_for("doors-nobody")).await;
    let own = pool("doors-own", &["10.180.1.0/29"]).only_for("doors-annotation");
    tenant.pool(own.excluding(&["10.180.1.7"]).with(|spec| spec.quota = Some(quota(1)))).await;
    let draining = pool("doors-draining", &["10.180.2.0/29"]).only_for("doors-annotation");
    tenant.pool(draining.with(|spec| spec.drain = Some(true))).await;
    let classy = pool("doors-classy", &["10.180.3.0/29"]).only_for("doors-annotation");
    let class = Some("doors.example/lb".to_owned());
    tenant.pool(classy.with(|spec| spec.load_balancer_class = class)).await;
    let nodes: Api<Node> = Api::all(tenant.client.clone());
    let node = serde_json::from_value(json!({"metadata": {"name": "doors"}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let addresses = json!([{"type": "InternalIP", "address": "10.180.1.6"}]);
    let addresses = Patch::Merge(json!({"status": {"addresses": addresses}}));
    nodes.patch_status("doors", &PatchParams::default(), &addresses).await.unwrap();
    tenant.pool_counts("doors-own", "7", "1", "6").await;
    for (name, addr, reason) in [
        ("node", "10.180.1.6", "TakenBy"),
        ("classy", "10.180.3.1", "ClassUnknown"),
        ("draining", "10.180.2.1", "Draining"),
        ("others", "10.180.0.1", "NotSelected"),
        ("excluded", "10.180.1.7", "Excluded"),
        ("outside", "192.0.2.77", "OutsideEveryPool"),
        ("cluster", "10.0.0.1", "OutsideEveryPool"),
        ("loopback", "127.0.0.1", "OutsideEveryPool"),
        ("multicast", "224.0.0.1", "OutsideEveryPool"),
        ("any", "0.0.0.0", "OutsideEveryPool"),
    ] {
        tenant.create(load_balancer(name).annotated(ANNOTATION_KUBE_VIP_ADDRESSES, addr)).await;
        let said = tenant.says(name, "False", reason, addr).await;
        assert_eq!(in_status(&said), [] as [std::net::IpAddr; 0], "{name}");
        assert_eq!(tenant.claim(addr).await, None, "{name}");
    }
    // Addresses of its pools may be asked for by this annotation as well.
    let fine = load_balancer("fine").annotated(ANNOTATION_KUBE_VIP_ADDRESSES, "10.180.1.3");
    tenant.create(fine).await;
    tenant.shows("fine", &["10.180.1.3"]).await;
    let over = load_balancer("over").annotated(ANNOTATION_KUBE_VIP_ADDRESSES, "10.180.1.4");
    tenant.create(over).await;
    tenant.says("over", "False", "QuotaExceeded", "").await;
    nodes.delete("doors", &DeleteParams::default()).await.unwrap();
    tenant.ends(&["doors-others", "doors-own", "doors-draining", "doors-classy"]).await;
}

#[tokio::test]
async fn addresses_that_are_merely_listed_are_free_for_others() {
    let tenant = tenant("doors-listed").await;
    tenant.pool(pool("doors-listed", &["10.181.0.0/29"]).only_for("doors-listed")).await;
    let list = all_of("10.181.0", 8).join(",");
    tenant.create(load_balancer("greedy").annotated(ANNOTATION_KUBE_VIP_ADDRESSES, &list)).await;
    tenant.shows("greedy", &["10.181.0.0"]).await;
    for (name, addr) in [("one", "10.181.0.1"), ("two", "10.181.0.2")] {
        tenant.create(load_balancer(name)).await;
        tenant.shows(name, &[addr]).await;
    }
    tenant.pool_counts("doors-listed", "8", "3", "5").await;
    tenant.ends(&["doors-listed"]).await;
}

/// With and without kube-vip in use.
#[rstest]
#[case::without_kube_vip(false)]
#[case::with_kube_vip(true)]
#[tokio::test]
async fn an_annotation_with_addresses_of_others_rewrites_none_of_their_services(
    #[case] in_use: bool,
) {
    let arena = arena().await;
    let map = Map::new(&arena.client);
    if in_use {
        map.says(&json!({"cidr-elsewhere": "10.195.1.0/29"})).await;
    }
    let (good, evil) = (arena.tenant("good").await, arena.tenant("evil").await);
    good.pool(pool("of-good", &["10.195.0.0/29"]).only_for("good")).await;
    let operator = arena.operator().await;
    let names = ["one", "two", "three"];
    for name in names {
        good.create(load_balancer(name)).await;
        good.shows_something(name).await;
    }
    good.settled().await;
    let mut before = Vec::new();
    for name in names {
        before.push(good.get(name).await);
    }
    evil.create(load_balancer("web")).await;
    for service in &before {
        let addr = in_status(service)[0].to_string();
        let list = json!({ANNOTATION_KUBE_VIP_ADDRESSES: format!("{addr},10.195.0.0,10.195.0.1")});
        evil.patch("web", json!({"metadata": {"annotations": list}})).await;
        evil.says("web", "False", "NotSelected", &addr).await;
        let none = json!({ANNOTATION_KUBE_VIP_ADDRESSES: null});
        evil.patch("web", json!({"metadata": {"annotations": none}})).await;
        evil.says("web", "False", "NotSelected", "no IPv4 address").await;
    }
    // Created after the others, and served after everything they cause.
    good.create(load_balancer("last")).await;
    good.shows_something("last").await;
    good.settled().await;
    for service in before {
        let now = good.get(&service.name_any()).await;
        assert_eq!(now.metadata.resource_version, service.metadata.resource_version);
    }
    good.clear().await;
    evil.clear().await;
    map.goes().await;
    operator.terminate().await.unwrap();
}

#[rstest]
#[case::without_kube_vip(false)]
#[case::with_kube_vip(true)]
#[tokio::test]
async fn an_annotation_written_beforehand_snatches_no_freed_address(#[case] in_use: bool) {
    let arena = arena().await;
    let map = Map::new(&arena.client);
    if in_use {
        map.says(&json!({"cidr-elsewhere": "10.196.1.0/29"})).await;
    }
    // Of two created in the same second, the first by name comes first.
    let (good, evil) = (arena.tenant("elder").await, arena.tenant("evil").await);
    good.pool(pool("of-both", &["10.196.0.1/32"])).await;
    let operator = arena.operator().await;
    good.create(load_balancer("has")).await;
    good.shows("has", &["10.196.0.1"]).await;
    good.create(load_balancer("waits")).await;
    good.says("waits", "False", "Exhausted", "").await;
    let snatcher = load_balancer("snatcher").annotated(ANNOTATION_KUBE_VIP_ADDRESSES, "10.196.0.1");
    evil.create(snatcher).await;
    evil.says("snatcher", "False", "TakenBy", "10.196.0.1").await;
    good.delete("has").await;
    good.shows("waits", &["10.196.0.1"]).await;
    evil.says("snatcher", "False", "TakenBy", "elder/waits").await;
    good.clear().await;
    evil.clear().await;
    map.goes().await;
    operator.terminate().await.unwrap();
}

#[tokio::test]
async fn external_addresses_shut_no_pool_to_others() {
    let evil = tenant("doors-external").await;
    let good = tenant("doors-external-good").await;
    let namespaces = ["doors-external", "doors-external-good"];
    let both = pool_of_both("doors-external", "10.182.0.0/29", namespaces);
    evil.pool(both.with(|spec| spec.quota = Some(quota(2)))).await;
    let of_others = pool("doors-external-good", &["10.182.1.0/30"]).only_for("doors-external-good");
    evil.pool(of_others.with_priority(200)).await;
    let listed = [all_of("10.182.0", 8), all_of("10.182.1", 4)].concat();
    evil.create(listing_external_ips("greedy", listed)).await;
    evil.tells("greedy", "ExternalIPIgnored", "does not count as taken").await;
    evil.pool_counts("doors-external", "8", "2", "6").await;
    evil.pool_counts("doors-external-good", "4", "0", "4").await;
    good.create(load_balancer("web")).await;
    good.shows("web", &["10.182.0.2"]).await;
    good.create(load_balancer("other").annotated(ANNOTATION_POOL, "doors-external-good")).await;
    good.shows("other", &["10.182.1.0"]).await;
    let told = wait::until("the pool to say so", LONG, async || {
        let group = evil.pools.get("doors-external-good").await.map_err(|e| e.to_string())?;
        let conditions = group.status.unwrap_or_default().conditions;
        let told = conditions.iter().any(|one| one.reason == "ExternalIPIgnored");
        if told { Ok(()) } else { Err(format!("{conditions:?}")) }
    });
    told.await.unwrap();
    evil.clear().await;
    good.ends(&["doors-external", "doors-external-good"]).await;
}

#[tokio::test]
async fn creating_and_deleting_services_uses_up_no_pool_that_retains_addresses() {
    let tenant = tenant("doors-retained").await;
    let pool = pool("doors-retained", &["10.183.0.0/28"]).only_for("doors-retained");
    let pool = pool.with(|spec| {
        spec.quota = Some(quota(1));
        spec.retain_for = Some("24h".to_owned());
    });
    tenant.pool(pool).await;
    for round in 0..6 {
        let name = format!("web-{round}");
        tenant.create(load_balancer(&name)).await;
        tenant.shows_something(&name).await;
        tenant.delete(&name).await;
    }
    tenant.pool_counts("doors-retained", "16", "1", "15").await;
    // The last address is still retained for its Service.
    tenant.create(load_balancer("web-5")).await;
    tenant.shows_something("web-5").await;
    tenant.pool_counts("doors-retained", "16", "1", "15").await;
    tenant.ends(&["doors-retained"]).await;
}

#[tokio::test]
async fn a_guessed_key_of_another_program_joins_no_other_namespace() {
    let [good, evil] = [tenant("doors-key").await, tenant("doors-key-evil").await];
    good.pool(pool_of_both("doors-key", "10.184.0.0/29", ["doors-key", "doors-key-evil"])).await;
    let key = "metallb.io/allow-shared-ip";
    let on_port = |name: &str, port: i32| {
        let port = ServicePort { port, ..ServicePort::default() };
        load_balancer(name).with_spec(|spec| spec.ports = Some(vec![port])).annotated(key, "true")
    };
    good.create(on_port("web", 80).annotated(ANNOTATION_POOL, "doors-key")).await;
    good.shows("web", &["10.184.0.0"]).await;
    good.create(on_port("ssh", 22).annotated(ANNOTATION_POOL, "doors-key")).await;
    good.shows("ssh", &["10.184.0.0"]).await;
    evil.create(on_port("spy", 8080).asking("10.184.0.0")).await;
    evil.says("spy", "False", "SharingRefused", "10.184.0.0").await;
    evil.clear().await;
    good.ends(&["doors-key"]).await;
}

#[tokio::test]
async fn a_services_own_external_address_is_no_obstacle_and_counts_as_its_request() {
    let tenant = tenant("doors-own").await;
    tenant.pool(pool("doors-own-ips", &["10.185.0.0/29"]).only_for("doors-own")).await;
    let external = |name: &str, addr: &str| {
        let addrs = vec![addr.to_owned()];
        load_balancer(name).with_spec(|spec| spec.external_ips = Some(addrs))
    };
    tenant.create(external("gateway", "10.185.0.3").asking("10.185.0.3")).await;
    tenant.shows("gateway", &["10.185.0.3"]).await;
    tenant.create(external("silent", "10.185.0.4")).await;
    tenant.shows("silent", &["10.185.0.4"]).await;
    tenant.create(external("elsewhere", "192.0.2.9")).await;
    tenant.shows("elsewhere", &["10.185.0.0"]).await;
    tenant.ends(&["doors-own-ips"]).await;
}

#[tokio::test]
async fn a_service_that_shares_with_too_many_ports_is_refused_at_once() {
    let tenant = tenant("doors-ports").await;
    tenant.pool(pool("doors-ports", &["10.186.0.0/29"]).only_for("doors-ports")).await;
    let port =
        |port: i32| ServicePort { name: Some(format!("p{port}")), port, ..ServicePort::default() };
    let many = load_balancer("many").with_spec(|spec| {
        spec.ports = Some((1..=1025).map(port).collect());
        spec.allocate_load_balancer_node_ports = Some(false);
    });
    tenant.create(many.clone().annotated(ANNOTATION_SHARING_KEY, "k")).await;
    tenant.says("many", "False", "Unparseable", "1025 ports").await;
    // Alone it may have any number.
    tenant
        .patch("many", json!({"metadata": {"annotations": {ANNOTATION_SHARING_KEY: null}}}))
        .await;
    tenant.shows("many", &["10.186.0.0"]).await;
    tenant.ends(&["doors-ports"]).await;
}

#[tokio::test]
async fn names_in_other_namespaces_can_be_kept_from_tenants() {
    let arena = arena().await;
    let [secret, spy] = [arena.tenant("secret").await, arena.tenant("spy").await];
    secret.pool(pool("hidden", &["10.187.0.0/29"])).await;
    let operator = arena.operator_with(&["--hide-holders"]).await;
    secret.create(load_balancer("project")).await;
    secret.shows("project", &["10.187.0.0"]).await;
    spy.create(load_balancer("curious").asking("10.187.0.0")).await;
    let told = "10.187.0.0 is taken by a Service of another namespace";
    let said = spy.says("curious", "False", "TakenBy", told).await;
    assert!(!format!("{:?}", said.status).contains("project"));
    secret.create(load_balancer("colleague").asking("10.187.0.0")).await;
    secret.says("colleague", "False", "TakenBy", "taken by Service secret/project").await;
    for tenant in [secret, spy] {
        tenant.settled().await;
        tenant.clear().await;
    }
    operator.terminate().await.unwrap();
}

#[tokio::test]
async fn a_condition_goes_when_the_service_is_no_load_balancer_any_more() {
    let tenant = tenant("doors-condition").await;
    tenant.pool(pool("doors-condition", &["10.188.0.0/32"]).only_for("doors-condition")).await;
    tenant.create(load_balancer("has")).await;
    tenant.says("has", "True", "Allocated", "10.188.0.0").await;
    tenant.create(load_balancer("waits")).await;
    tenant.says("waits", "False", "Exhausted", "").await;
    let silent = async |tenant: &Tenant, name: &str| {
        wait::until(format!("{name} to say nothing"), LONG, async || {
            let service = tenant.services.get(name).await.map_err(|error| error.to_string())?;
            let conditions = service.status.and_then(|status| status.conditions);
            match conditions.unwrap_or_default().as_slice() {
                [] => Ok(()),
                some => Err(format!("{some:?}")),
            }
        })
        .await
        .unwrap();
    };
    tenant.patch("waits", json!({"spec": {"type": "NodePort"}})).await;
    silent(&tenant, "waits").await;
    tenant.patch("has", json!({"spec": {"type": "ClusterIP"}})).await;
    silent(&tenant, "has").await;
    tenant.claim_is_gone("10.188.0.0").await;
    // A class can only change together with the type.
    tenant.patch("waits", json!({"spec": {"type": "LoadBalancer"}})).await;
    tenant.says("waits", "True", "Allocated", "10.188.0.0").await;
    let class = json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "others.example/lb"}});
    tenant.patch("has", class).await;
    silent(&tenant, "has").await;
    tenant.ends(&["doors-condition"]).await;
}

#[tokio::test]
async fn a_service_moves_to_the_pool_that_it_asks_for() {
    let tenant = tenant("doors-pools").await;
    tenant.pool(pool("doors-pools-a", &["10.189.0.0/30"]).only_for("doors-pools")).await;
    let second = pool("doors-pools-b", &["10.189.1.0/32"]).only_for("doors-pools");
    tenant.pool(second.with_priority(200)).await;
    let ask = |pool: &str| json!({"metadata": {"annotations": {ANNOTATION_POOL: pool}}});
    tenant.create(load_balancer("web")).await;
    tenant.shows("web", &["10.189.0.0"]).await;
    tenant.patch("web", ask("doors-pools-b")).await;
    tenant.shows("web", &["10.189.1.0"]).await;
    tenant.claim_is_gone("10.189.0.0").await;
    tenant.create(load_balancer("late")).await;
    tenant.shows("late", &["10.189.0.0"]).await;
    tenant.patch("late", ask("doors-pools-b")).await;
    tenant.says("late", "False", "Exhausted", "keeps 10.189.0.0").await;
    tenant.patch("late", ask("doors-pools-none")).await;
    tenant.says("late", "False", "PoolUnknown", "keeps 10.189.0.0").await;
    tenant.patch("late", ask("doors-pools-b")).await;
    tenant.says("late", "False", "Exhausted", "keeps 10.189.0.0").await;
    tenant.delete("web").await;
    tenant.shows("late", &["10.189.1.0"]).await;
    tenant.claim_is_gone("10.189.0.0").await;
    tenant.ends(&["doors-pools-a", "doors-pools-b"]).await;
}

#[tokio::test]
async fn several_addresses_of_one_family_stay_through_a_take_over() {
    let arena = arena().await;
    let tenant = arena.tenant("several").await;
    tenant.pool(pool("several", &["10.190.0.0/29"])).await;
    let shown = json!([{"ip": "10.190.0.1"}, {"ip": "192.0.2.70"}, {"ip": "10.190.0.4"}]);
    let addrs = ["10.190.0.1", "192.0.2.70", "10.190.0.4"];
    tenant.create(load_balancer("web")).await;
    let before = tenant.set_ingress("web", shown).await;
    let operator = arena.operator_with(&["--repair=report"]).await;
    tenant.pool_says_finding("several", "shows 10.190.0.1, 192.0.2.70, 10.190.0.4").await;
    assert_eq!(tenant.claim("10.190.0.4").await, None, "only reported");
    operator.terminate().await.unwrap();
    let operator = arena.operator().await;
    for addr in ["10.190.0.1", "10.190.0.4"] {
        tenant.has_claim(addr).await;
    }
    tenant.answered().await;
    let after = tenant.shows("web", &addrs).await;
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    tenant.pool_counts("several", "8", "2", "6").await;
    let only_finding = |status: &IPGroupStatus| {
        status.conditions.iter().any(|condition| condition.reason == "SeveralShown")
    };
    tenant.pool_is("several", "telling only of several addresses", only_finding).await;
    // Every new leader reports findings again.
    let proxy = arena.proxy().await;
    let again = arena.electing_operator_via(&proxy).await;
    writes_only(again, &proxy, &["leases", "events"]).await;
    // They stay, whatever else changes, until the owner asks for something else.
    tenant.patch("web", json!({"metadata": {"labels": {"tier": "front"}}})).await;
    tenant.create(load_balancer("next")).await;
    tenant.shows_something("next").await;
    tenant.shows("web", &addrs).await;
    tenant.ask("web", "10.190.0.6").await;
    tenant.shows("web", &["10.190.0.6"]).await;
    for addr in ["10.190.0.1", "10.190.0.4"] {
        tenant.claim_is_gone(addr).await;
    }
    tenant.clear().await;
    operator.terminate().await.unwrap();
}

/// Megabytes that a process has in memory.
fn resident(operator: &Operator) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", operator.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// Services as large as the API server accepts, in each of the ways a user can make them.
fn bulky(index: usize) -> Service {
    let name = format!("bulky-{index}");
    let list = |entry: &str, bytes: usize| vec![entry; bytes / (entry.len() + 1)].join(",");
    match index % 4 {
        0 => load_balancer(&name).annotated(ANNOTATION_POOL, &list("p", 250_000)),
        1 => {
            let addrs = list("10.191.200.200", 250_000);
            load_balancer(&name).annotated("landfall.dev/addresses", &addrs)
        }
        2 => {
            load_balancer(&name).annotated(ANNOTATION_KUBE_VIP_ADDRESSES, &list("fd00::1", 250_000))
        }
        _ => {
            let addrs = (0..65_000).map(|n| format!("10.192.{}.{}", n / 256, n % 256)).collect();
            listing_external_ips(&name, addrs)
        }
    }
}

#[tokio::test]
async fn services_of_any_size_cost_little_memory() {
    let arena = arena().await;
    let tenant = arena.tenant("bulky").await;
    tenant.pool(pool("bulky", &["10.191.0.0/24"])).await;
    let operator = arena.operator().await;
    tenant.create(load_balancer("web")).await;
    tenant.shows_something("web").await;
    let before = resident(&operator);
    for index in 0..40 {
        tenant.create(bulky(index)).await;
    }
    for index in (0..40).filter(|index| index % 4 != 3) {
        tenant.says(&format!("bulky-{index}"), "False", "Unparseable", "at most").await;
    }
    let watched = resident(&operator);
    operator.terminate().await.unwrap();
    let operator = arena.operator().await;
    tenant.create(load_balancer("last")).await;
    tenant.shows_something("last").await;
    let listed = resident(&operator);
    let figures = format!("{before} MB, {watched} MB when watched, {listed} MB when listed");
    assert!(watched < before + 10 && listed < before + 10, "{figures}");
    tenant.clear().await;
    operator.terminate().await.unwrap();
}

#[tokio::test]
async fn two_namespaces_with_local_traffic_do_not_share_an_address() {
    let [one, other] = [tenant("doors-local").await, tenant("doors-local-b").await];
    one.pool(pool_of_both("doors-local", "10.193.0.0/29", ["doors-local", "doors-local-b"])).await;
    let local = |name: &str, port: i32, policy: &str| {
        let policy = policy.to_owned();
        let service = load_balancer(name).sharing("k", &[port]);
        let service = service.with_spec(|spec| spec.external_traffic_policy = Some(policy));
        service.annotated("landfall.dev/sharing-with", "*")
    };
    one.create(local("web", 80, "Local").annotated(ANNOTATION_POOL, "doors-local")).await;
    one.shows("web", &["10.193.0.0"]).await;
    one.create(local("more", 81, "Local").annotated(ANNOTATION_POOL, "doors-local")).await;
    one.create(local("cluster", 82, "Cluster").asking("10.193.0.0")).await;
    one.says("cluster", "False", "SharingRefused", "externalTrafficPolicy differs").await;
    other.create(local("web", 83, "Local").asking("10.193.0.0")).await;
    other.says("web", "False", "SharingRefused", "same pods of one namespace").await;
    other.clear().await;
    one.ends(&["doors-local"]).await;
}

#[tokio::test]
async fn requests_in_the_words_of_other_programs_are_judged_like_ours() {
    let tenant = tenant("doors-words").await;
    tenant.pool(pool("doors-words", &["10.194.0.0/28"]).only_for("doors-words")).await;
    let second = pool("doors-words-b", &["10.194.1.0/28"]).only_for("doors-words");
    tenant.pool(second.with_priority(200)).await;
    for (name, key, value, expected) in [
        ("metallb", "metallb.io/loadBalancerIPs", "10.194.0.3", Ok("10.194.0.3")),
        ("older-metallb", "metallb.universe.tf/loadBalancerIPs", "10.194.0.4", Ok("10.194.0.4")),
        ("cilium", "lbipam.cilium.io/ips", "10.194.0.5,10.194.0.6", Ok("10.194.0.5")),
        ("older-cilium", "io.cilium/lb-ipam-ips", "10.194.0.7", Ok("10.194.0.7")),
        ("purelb", "purelb.io/addresses", "10.194.0.8", Ok("10.194.0.8")),
        ("pool", "metallb.io/address-pool", "doors-words-b", Ok("10.194.1.0")),
        ("older-pool", "metallb.universe.tf/address-pool", "doors-words-b", Ok("10.194.1.1")),
        ("group", "purelb.io/service-group", "doors-words-b", Ok("10.194.1.2")),
        ("outside", "metallb.io/loadBalancerIPs", "192.0.2.1", Err("OutsideEveryPool")),
        ("nonsense", "lbipam.cilium.io/ips", "soon", Err("Unparseable")),
        ("unknown", "metallb.io/address-pool", "doors-none", Err("PoolUnknown")),
        ("taken", "purelb.io/addresses", "10.194.0.3", Err("TakenBy")),
    ] {
        tenant.create(load_balancer(name).annotated(key, value)).await;
        match expected {
            Ok(addr) => drop(tenant.shows(name, &[addr]).await),
            Err(reason) => drop(tenant.says(name, "False", reason, "").await),
        }
    }
    // Ours come first.
    let ours = load_balancer("ours").annotated("metallb.io/loadBalancerIPs", "10.194.0.9");
    tenant.create(ours.asking("10.194.0.10")).await;
    tenant.shows("ours", &["10.194.0.10"]).await;
    tenant.ends(&["doors-words", "doors-words-b"]).await;
}

impl Tenant {
    /// Waits until a pool reports this finding of repair.
    async fn pool_says_finding(&self, name: &str, finding: &str) {
        wait::until(format!("{name} to say {finding}"), LONG, async || {
            let group = self.pools.get(name).await.map_err(|error| error.to_string())?;
            let conditions = group.status.unwrap_or_default().conditions;
            let said = conditions.iter().any(|one| one.message.contains(finding));
            if said { Ok(()) } else { Err(format!("{conditions:?}")) }
        })
        .await
        .unwrap();
    }
}
