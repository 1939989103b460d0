//! A bad object harms only itself, and its error is reported on it.

use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use landfall_api::condition;
use landfall_testkit::builders::{
    PoolBuilder as _, ServiceBuilder as _, bare_claim, load_balancer, pool, segment,
    virtual_ip_claim, virtual_ip_copy,
};
use landfall_testkit::cluster::shown;
use landfall_testkit::wait;
use serde_json::json;

use crate::stage::{LONG, arena, ip, tenant};

/// A request that cannot be granted: reason, and a part of the message.
const REFUSED: [(&str, &str, &str, &str); 7] = [
    ("garbage", "web.example.com", "Unparseable", "\"web.example.com\" is not an address"),
    ("leading-zero", "10.2.1.01", "Unparseable", "\"10.2.1.01\" is not an address"),
    ("cidr", "10.2.1.0/30", "Unparseable", "\"10.2.1.0/30\" is not an address"),
    ("excluded", "10.2.1.5", "Excluded", "10.2.1.5 is excluded by IPGroup/bad-request"),
    ("taken", "10.2.1.0", "TakenBy", "10.2.1.0 is taken by Service bad-request/holder"),
    ("outside", "10.99.99.99", "OutsideEveryPool", "10.99.99.99 lies in no pool"),
    ("wrong-family", "fd00:2:1::1", "FamilyMissing", "fd00:2:1::1 is IPv6"),
];

#[tokio::test]
async fn a_request_that_cannot_be_granted_is_refused_with_its_reason_and_takes_nothing_away() {
    let tenant = tenant("bad-request").await;
    let group = segment("bad-request", "10.2.1.0/27", &["10.2.1.5"]);
    tenant.pool(group.only_for("bad-request")).await;
    tenant.create(load_balancer("holder")).await;
    tenant.shows("holder", &["10.2.1.0"]).await;

    // Asked for from the start: the Service stays without an address.
    for (name, asked, reason, fragment) in REFUSED {
        tenant.create(load_balancer(name).asking(asked)).await;
        let service = tenant.says(name, "False", reason, fragment).await;
        assert!(shown(&service).is_empty(), "{name}");
    }
    tenant.tells("outside", "OutsideEveryPool", "10.99.99.99").await;
    tenant.settled().await;

    // Asked for later: the Service keeps its address.
    for (name, asked, reason, fragment) in REFUSED {
        let name = format!("keeps-{name}");
        tenant.create(load_balancer(&name)).await;
        let has = tenant.shows_something(&name).await;
        tenant.ask(&name, asked).await;
        let service = tenant.says(&name, "False", reason, fragment).await;
        assert_eq!(shown(&service), [has], "{name}");
        tenant.says(&name, "False", reason, &format!("keeps {has}")).await;
    }

    // All other Services are still served, and so is a Service whose request is fixed.
    tenant.create(load_balancer("good").asking("10.2.1.20")).await;
    tenant.shows("good", &["10.2.1.20"]).await;
    tenant.ask("garbage", "10.2.1.21").await;
    tenant.shows("garbage", &["10.2.1.21"]).await;
    tenant.ask("cidr", None).await;
    let cidr = tenant.shows_something("cidr").await;
    assert!(!["10.2.1.0", "10.2.1.5", "10.2.1.20", "10.2.1.21"].map(ip).contains(&cidr), "{cidr}");
    tenant.says("cidr", "True", "Allocated", "").await;
    tenant.ends(&["bad-request"]).await;
}

#[tokio::test]
async fn a_claim_without_a_service_counts_as_taken_and_is_never_touched() {
    let tenant = tenant("bad-claims").await;
    let by_hand = tenant.make_claim(&bare_claim(ip("10.2.2.0"))).await;
    // As long as its copy shows the address, the claim does not count as an orphan.
    tenant.create(virtual_ip_copy("web", "10.2.2.1")).await;
    let virtual_ip = virtual_ip_claim(ip("10.2.2.1"), "old", "bad-claims/web");
    let virtual_ip = tenant.make_claim(&virtual_ip).await;
    tenant.pool(pool("bad-claims", &["10.2.2.0/30"]).only_for("bad-claims")).await;
    tenant.pool_counts("bad-claims", "4", "2", "2").await;

    // The owner text has no kind: this Service is not the VirtualIP of the same name.
    tenant.create(load_balancer("web")).await;
    tenant.shows("web", &["10.2.2.2"]).await;
    tenant.create(load_balancer("asks-hand").asking("10.2.2.0")).await;
    tenant.says("asks-hand", "False", "TakenBy", "an IP object that names no holder").await;
    tenant.create(load_balancer("asks-virtual").asking("10.2.2.1")).await;
    tenant.says("asks-virtual", "False", "TakenBy", "VirtualIP bad-claims/web").await;

    // Created while the operator runs, for the address that would be next.
    let late = tenant.make_claim(&bare_claim(ip("10.2.2.3"))).await;
    tenant.pool_counts("bad-claims", "4", "4", "0").await;
    tenant.create(load_balancer("last")).await;
    tenant.says("last", "False", "Exhausted", "IPGroup/bad-claims: all its IPv4").await;
    for (addr, made) in [("10.2.2.0", by_hand), ("10.2.2.1", virtual_ip), ("10.2.2.3", late)] {
        assert_eq!(tenant.claim(addr).await.as_ref(), Some(&made), "{addr}");
    }

    // And once it is gone, the address is given.
    tenant.delete_claim("10.2.2.3").await;
    tenant.shows("last", &["10.2.2.3"]).await;
    tenant.delete_claim("10.2.2.0").await;
    tenant.shows("asks-hand", &["10.2.2.0"]).await;
    tenant.delete("web-keepalived-clone").await;
    tenant.shows("asks-virtual", &["10.2.2.1"]).await;
    tenant.ends(&["bad-claims"]).await;
}

#[tokio::test]
async fn a_pool_serves_without_the_entries_that_cannot_be_read_and_names_them() {
    let tenant = tenant("bad-entries").await;
    let excluded = [" 10.2.6.0", "gateway", "10.2.6.1 - 10.2.6.2\t", "10.2.6.03"];
    let group = segment("bad-entries", " 10.2.6.0/29", &excluded);
    tenant.pool(group.only_for("bad-entries")).await;
    let told = tenant.pool_says("bad-entries", "True", "excludedIPs: \"gateway\" is not").await;
    let told = told.status.unwrap();
    let ready = condition::get(&told.conditions, "Ready").unwrap();
    assert_eq!(ready.reason, "PartlyRead", "{}", ready.message);
    assert!(ready.message.contains("\"10.2.6.03\""), "{}", ready.message);
    assert_eq!(told.capacity.as_deref(), Some("5"), "8 without those that can be read");

    tenant.create(load_balancer("any")).await;
    tenant.shows("any", &["10.2.6.3"]).await;
    tenant.create(load_balancer("asks").asking("10.2.6.2")).await;
    tenant.says("asks", "False", "Excluded", "10.2.6.2 is excluded by IPGroup/bad-entries").await;

    tenant.edit_pool("bad-entries", json!({"excludedIPs": ["10.2.6.0"]})).await;
    tenant.shows("asks", &["10.2.6.2"]).await;
    let told = tenant.pool_says("bad-entries", "True", "gives addresses").await;
    let conditions = told.status.unwrap().conditions;
    assert_eq!(condition::get(&conditions, "Ready").unwrap().reason, "Serving");
    tenant.ends(&["bad-entries"]).await;
}

#[tokio::test]
async fn a_bad_pool_names_its_error_and_the_others_serve_on() {
    // An arena: errors of these pools concern every Service they might serve.
    let arena = arena().await;
    let tenant = arena.tenant("bad-pools").await;
    let operator = arena.operator().await;
    // Both pass the schema: its rules cannot compare addresses, nor read selectors.
    let reversed = pool("bad-reversed", &["10.2.3.9-10.2.3.8"]);
    tenant.pool(reversed.only_for("bad-pools")).await;
    tenant.pool_says("bad-reversed", "False", "ranges: ").await;
    let pool_text = tenant.pool_says("bad-reversed", "False", "10.2.3.9-10.2.3.8").await;
    assert_eq!(pool_text.status.unwrap().free.as_deref(), Some("0"));
    let unreadable = pool("bad-selector", &["10.2.3.16/30"]).with(|spec| {
        spec.namespace_selector = serde_json::from_value(json!({
            "matchExpressions": [{"key": "team", "operator": "Among", "values": ["a"]}],
        }))
        .unwrap();
    });
    tenant.pool(unreadable).await;
    tenant.pool_says("bad-selector", "False", "namespaceSelector: ").await;

    tenant.create(load_balancer("waits")).await;
    tenant.says("waits", "False", "PoolInvalid", "IPGroup/bad-reversed: it is invalid").await;
    tenant.pool(pool("bad-good", &["10.2.3.32/30"]).only_for("bad-pools")).await;
    tenant.shows("waits", &["10.2.3.32"]).await;

    // Fixed, it serves at once.
    tenant.edit_pool("bad-reversed", json!({"ranges": ["10.2.3.0/30", "10.2.3.8-10.2.3.9"]})).await;
    tenant.pool_says("bad-reversed", "True", "").await;
    tenant.create(load_balancer("asks").asking("10.2.3.9")).await;
    tenant.shows("asks", &["10.2.3.9"]).await;
    tenant.ends(&["bad-reversed", "bad-selector", "bad-good"]).await;
    drop(operator);
}

#[tokio::test]
async fn a_bad_pool_is_no_reason_for_those_it_would_not_serve() {
    let arena = arena().await;
    let tenant = arena.tenant("bad-bystander").await;
    let operator = arena.operator().await;
    tenant.pool(pool("bystander-bad", &["10.2.6.9-10.2.6.8"]).only_for("somebody-else")).await;
    let classed = pool("bystander-class", &["10.2.6.9-10.2.6.8"]);
    tenant.pool(classed.for_class("other.example/lb")).await;
    tenant.pool(pool("bystander-good", &["10.2.6.0/32"]).only_for("somebody-else")).await;
    for (name, status) in
        [("bystander-bad", "False"), ("bystander-class", "False"), ("bystander-good", "True")]
    {
        tenant.pool_says(name, status, "").await;
    }
    tenant.create(load_balancer("web")).await;
    let fragment = "IPGroup/bystander-bad: its namespaceSelector does not match";
    tenant.says("web", "False", "NotSelected", fragment).await;
    tenant.ends(&["bystander-bad", "bystander-class", "bystander-good"]).await;
    drop(operator);
}

#[tokio::test]
async fn no_edit_of_a_pool_takes_an_address_away() {
    let tenant = tenant("bad-edits").await;
    tenant.pool(pool("edits-deleted", &["10.2.4.0/32"]).only_for("bad-edits")).await;
    tenant.create(load_balancer("deleted")).await;
    tenant.shows("deleted", &["10.2.4.0"]).await;
    tenant.pool(pool("edits-shrunk", &["10.2.4.8/30"]).only_for("bad-edits")).await;
    tenant.create(load_balancer("shrunk").asking("10.2.4.8")).await;
    tenant.create(load_balancer("excluded").asking("10.2.4.11")).await;
    tenant.create(load_balancer("drained").asking("10.2.4.10")).await;
    for (name, addr) in
        [("shrunk", "10.2.4.8"), ("excluded", "10.2.4.11"), ("drained", "10.2.4.10")]
    {
        tenant.shows(name, &[addr]).await;
    }

    tenant.delete_pool("edits-deleted").await;
    tenant.says("deleted", "True", "OutsidePool", "10.2.4.0, which no pool covers any more").await;
    tenant.tells("deleted", "OutsidePool", "10.2.4.0, which no pool covers any more").await;
    tenant
        .edit_pool(
            "edits-shrunk",
            json!({"ranges": ["10.2.4.9-10.2.4.11"], "excludedIPs": ["10.2.4.11"]}),
        )
        .await;
    tenant.says("shrunk", "True", "OutsidePool", "10.2.4.8").await;
    tenant.edit_pool("edits-shrunk", json!({"drain": true})).await;
    tenant.pool_says("edits-shrunk", "True", "gives no more").await;
    tenant.create(load_balancer("late")).await;
    tenant.says("late", "False", "Draining", "IPGroup/edits-shrunk: it is draining").await;
    for (name, addr) in [
        ("deleted", "10.2.4.0"),
        ("shrunk", "10.2.4.8"),
        ("excluded", "10.2.4.11"),
        ("drained", "10.2.4.10"),
    ] {
        assert_eq!(shown(&tenant.get(name).await), [ip(addr)], "{name}");
        let claim = tenant.claim(addr).await.unwrap();
        assert_eq!(claim.spec.holders[0].name, name);
    }
    // A selector that no longer matches takes nothing away either.
    let other = json!({"namespaceSelector": {"matchLabels": {"nobody": "here"}}, "drain": false});
    tenant.edit_pool("edits-shrunk", other).await;
    tenant.says("late", "False", "NotSelected", "its namespaceSelector does not match").await;
    assert_eq!(shown(&tenant.get("drained").await), [ip("10.2.4.10")]);

    // Outside its pool an address is released like any other, and given to no Service.
    tenant.delete("shrunk").await;
    tenant.claim_is_gone("10.2.4.8").await;
    tenant.delete("excluded").await;
    tenant.claim_is_gone("10.2.4.11").await;
    // Covered again: no longer outside.
    tenant.pool(pool("edits-again", &["10.2.4.0/32"]).only_for("nobody")).await;
    tenant.says("deleted", "True", "Allocated", "10.2.4.0").await;
    tenant.ends(&["edits-shrunk", "edits-again"]).await;
}

#[tokio::test]
async fn a_pool_may_have_any_name_an_object_may_have() {
    let arena = arena().await;
    let tenant = arena.tenant("bad-names").await;
    let operator = arena.operator().await;
    let long = format!("{}.{}", "n".repeat(63), "m".repeat(63));
    tenant.pool(pool(&long, &["10.2.5.0/30"]).only_for("bad-names")).await;
    tenant.create(load_balancer("web")).await;
    tenant.shows("web", &["10.2.5.0"]).await;
    let claim = tenant.claim("10.2.5.0").await.unwrap();
    assert_eq!(claim.spec.pool, Some(format!("IPGroup/{long}")));
    assert!(claim.labels().is_empty(), "the name does not fit into a label: {:?}", claim.labels());

    // And the errors of such a pool are reported like those of any other.
    let longest = format!("{long}.{long}")[..253 - 8].trim_end_matches('.').to_owned();
    tenant.pool(pool(&longest, &["10.2.5.9-10.2.5.8"]).only_for("bad-names")).await;
    tenant.pool_says(&longest, "False", "10.2.5.9-10.2.5.8").await;
    let events: Api<Event> = Api::namespaced(tenant.client.clone(), "default");
    wait::until("an event about the pool", LONG, async || {
        let all = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let about = |event: &Event| {
            event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(&*longest)
        };
        if all.iter().any(about) { Ok(()) } else { Err("none".to_owned()) }
    })
    .await
    .unwrap();
    tenant.ends(&[&long, &longest]).await;
    drop(operator);
}
