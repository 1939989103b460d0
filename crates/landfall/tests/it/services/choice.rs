//! Which pool serves which Service, and the tables of the original's specification.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use landfall_api::{IPGroupStatus, condition};
use landfall_testkit::builders::{
    PoolBuilder as _, ServiceBuilder as _, load_balancer, pool, segment,
};
use landfall_testkit::cluster::{FOREIGN, shown};
use serde_json::json;

use crate::stage::{allocated, ip, tenant};

#[tokio::test]
async fn overlapping_pools_give_an_address_once_and_an_exclusion_in_one_holds_in_all() {
    let tenant = tenant("choice-overlap").await;
    tenant.pool(pool("overlap-a", &["10.3.1.0/30"]).only_for("choice-overlap")).await;
    let second = pool("overlap-b", &["10.3.1.0-10.3.1.5"]).excluding(&["10.3.1.2", "10.3.1.4"]);
    tenant.pool(second.only_for("choice-overlap")).await;
    // An exclusion of an address that a pool does not cover means nothing.
    let third = pool("overlap-c", &["10.3.1.200/32"]).excluding(&["10.3.1.0"]);
    tenant.pool(third.only_for("nobody")).await;
    // Asked first, but not for this namespace: the next one that covers the address serves.
    let first = pool("overlap-first", &["10.3.1.0/30"]).only_for("nobody");
    tenant.pool(first.with_priority(1)).await;
    for (name, addr) in [("s1", "10.3.1.0"), ("s2", "10.3.1.1"), ("s4", "10.3.1.3")] {
        let service = load_balancer(name);
        let asks = if name == "s4" { service.asking(addr) } else { service };
        tenant.create(asks).await;
        tenant.shows(name, &[addr]).await;
        let claim = tenant.claim(addr).await.unwrap();
        assert_eq!(claim.spec.pool.as_deref(), Some("IPGroup/overlap-a"), "{name}");
    }
    tenant.create(load_balancer("s3")).await;
    tenant.shows("s3", &["10.3.1.5"]).await;
    tenant.create(load_balancer("s5")).await;
    tenant.says("s5", "False", "Exhausted", "IPGroup/overlap-b: all its IPv4").await;
    tenant.create(load_balancer("asks").asking("10.3.1.2")).await;
    tenant.says("asks", "False", "Excluded", "10.3.1.2 is excluded by IPGroup/overlap-b").await;
    tenant.pool_counts("overlap-a", "3", "3", "0").await;
    // Each address counts where it was given, and each waiter for the pool that would serve it.
    tenant.pool_counts("overlap-b", "4", "1", "0").await;
    tenant.create(load_balancer("asks-taken").asking("10.3.1.0")).await;
    tenant.says("asks-taken", "False", "TakenBy", "10.3.1.0 is taken by").await;
    tenant.pool_is("overlap-a", "awaited by three", |status| status.waiting == Some(3)).await;
    tenant
        .pool_is("overlap-first", "awaited by no Service", |status| status.waiting == Some(0))
        .await;
    let told = |status: &IPGroupStatus| {
        condition::get(&status.conditions, "Overlaps").map(|told| told.message.clone())
    };
    for (name, others) in [
        ("overlap-a", "IPGroup/overlap-b, IPGroup/overlap-first can give"),
        ("overlap-first", "IPGroup/overlap-a, IPGroup/overlap-b can give"),
    ] {
        let says = |status: &IPGroupStatus| told(status).is_some_and(|told| told.contains(others));
        tenant.pool_is(name, "told of the overlap", says).await;
    }
    tenant.edit_pool("overlap-first", json!({"ranges": ["10.3.1.100"]})).await;
    tenant.pool_is("overlap-first", "free of it", |status| told(status).is_none()).await;
    tenant.ends(&["overlap-a", "overlap-b", "overlap-c", "overlap-first"]).await;
}

#[tokio::test]
async fn the_lowest_priority_number_serves_first_then_the_name() {
    let tenant = tenant("choice-order").await;
    for (name, range, priority) in [
        ("order-a", "10.3.2.0/32", 100),
        ("order-b", "10.3.2.8/32", 7),
        ("order-c", "10.3.2.4/32", 7),
        ("order-z", "10.3.2.12/32", -1),
    ] {
        let one = pool(name, &[range]).only_for("choice-order").with_priority(priority);
        tenant.pool(one).await;
        // Served only once all four are known.
        tenant.pool_says(name, "True", "").await;
    }
    for (name, addr) in
        [("s1", "10.3.2.12"), ("s2", "10.3.2.8"), ("s3", "10.3.2.4"), ("s4", "10.3.2.0")]
    {
        tenant.create(load_balancer(name)).await;
        tenant.shows(name, &[addr]).await;
    }
    tenant.ends(&["order-a", "order-b", "order-c", "order-z"]).await;
}

#[tokio::test]
async fn pools_serve_only_the_services_they_select() {
    let tenant = tenant("choice-select").await;
    let on_request = pool("select-request", &["10.3.3.0/30"]).with(|spec| {
        spec.auto_assign = Some(false);
    });
    tenant.pool(on_request.only_for("choice-select").with_priority(1)).await;
    let labelled = pool("select-label", &["10.3.3.8/30"]).for_services("tier", "front");
    tenant.pool(labelled.only_for("choice-select").with_priority(2)).await;
    let elsewhere = pool("select-elsewhere", &["10.3.3.16/30"]).with_priority(3);
    let elsewhere = elsewhere.with(|spec| {
        spec.namespace_selector = Some(landfall_testkit::builders::matching("select-test", "yes"));
    });
    tenant.pool(elsewhere).await;
    for name in ["select-request", "select-label", "select-elsewhere"] {
        tenant.pool_says(name, "True", "").await;
    }

    tenant.create(load_balancer("plain")).await;
    for fragment in [
        "IPGroup/select-request: it serves only requests for its addresses",
        "IPGroup/select-label: its serviceSelector does not match",
        "IPGroup/select-elsewhere: its namespaceSelector does not match",
    ] {
        tenant.says("plain", "False", "NotSelected", fragment).await;
    }
    tenant.create(load_balancer("asks").asking("10.3.3.2")).await;
    tenant.shows("asks", &["10.3.3.2"]).await;
    tenant.create(load_balancer("asks-foreign").asking("10.3.3.17")).await;
    tenant.says("asks-foreign", "False", "NotSelected", "10.3.3.17 cannot be given").await;
    tenant.create(load_balancer("front").labelled("tier", "front")).await;
    tenant.shows("front", &["10.3.3.8"]).await;

    // A waiter may also wait for a label, of the Service or of its namespace.
    tenant.create(load_balancer("relabelled")).await;
    tenant.says("relabelled", "False", "NotSelected", "").await;
    tenant.patch("relabelled", json!({"metadata": {"labels": {"tier": "front"}}})).await;
    tenant.shows("relabelled", &["10.3.3.9"]).await;
    let namespaces: Api<Namespace> = Api::all(tenant.client.clone());
    let label = Patch::Merge(json!({"metadata": {"labels": {"select-test": "yes"}}}));
    namespaces.patch(&tenant.namespace, &PatchParams::default(), &label).await.unwrap();
    tenant.shows("plain", &["10.3.3.16"]).await;
    tenant.shows("asks-foreign", &["10.3.3.17"]).await;
    // And removing it again takes nothing away. Another waiter shows when the operator knows.
    tenant.create(load_balancer("tells").asking("10.3.3.17")).await;
    tenant.says("tells", "False", "TakenBy", "10.3.3.17").await;
    let unlabel = Patch::Merge(json!({"metadata": {"labels": {"select-test": null}}}));
    namespaces.patch(&tenant.namespace, &PatchParams::default(), &unlabel).await.unwrap();
    tenant.says("tells", "False", "NotSelected", "10.3.3.17 cannot be given").await;
    tenant.create(load_balancer("late")).await;
    tenant.says("late", "False", "NotSelected", "select-elsewhere: its namespaceSelector").await;
    assert_eq!(shown(&tenant.get("plain").await), [ip("10.3.3.16")]);
    tenant.ends(&["select-request", "select-label", "select-elsewhere"]).await;
}

#[tokio::test]
async fn a_class_is_served_only_by_a_pool_that_names_it_and_others_are_never_touched() {
    let tenant = tenant("choice-class").await;
    let known = pool("class-known", &["10.3.4.0/30"]).for_class("choice.example/lb");
    tenant.pool(known.only_for("choice-class")).await;
    tenant.pool(pool("class-none", &["10.3.4.8/30"]).only_for("choice-class")).await;
    // Another program's Service, which shows an address of one of our pools.
    let mut foreign = load_balancer("foreign").of_class("other.example/lb");
    foreign.annotations_mut().insert(FOREIGN.into(), String::new());
    tenant.create(foreign).await;
    let foreign = tenant.set_ingress("foreign", json!([{"ip": "10.3.4.8"}])).await;

    tenant.create(load_balancer("known").of_class("choice.example/lb")).await;
    tenant.shows("known", &["10.3.4.0"]).await;
    tenant.create(load_balancer("none")).await;
    let none = tenant.shows_something("none").await;
    assert_eq!(none, ip("10.3.4.9"), "what another shows is not given twice");
    let asks = load_balancer("asks-across").of_class("choice.example/lb").asking("10.3.4.10");
    tenant.create(asks).await;
    tenant
        .says("asks-across", "False", "ClassUnknown", "it serves another loadBalancerClass")
        .await;

    let now = tenant.get("foreign").await;
    assert_eq!(now.resource_version(), foreign.resource_version());
    assert!(allocated(&now).is_none());
    assert!(tenant.claim("10.3.4.8").await.is_none());

    // A Service of an unknown class is served as soon as a pool names it.
    tenant.create(load_balancer("later").of_class("later.example/lb")).await;
    let late = pool("class-later", &["10.3.4.16/30"]).for_class("later.example/lb");
    tenant.pool(late.only_for("choice-class")).await;
    tenant.shows("later", &["10.3.4.16"]).await;
    // And keeps its address when that pool goes.
    tenant.delete_pool("class-later").await;
    tenant.says("later", "True", "OutsidePool", "10.3.4.16").await;
    tenant.ends(&["class-known", "class-none"]).await;
}

/// Section 10 of the original's specification: groups and rows of its examples.
#[tokio::test]
async fn the_examples_of_the_original_operator_come_out_as_documented() {
    let tenant = tenant("choice-examples").await;
    for (name, block, excluded) in [
        ("g1", "1.1.1.0/29", vec!["1.1.1.0", "1.1.1.2", "1.1.1.7"]),
        ("g2", "1.1.2.0/29", vec!["1.1.2.0", "1.1.2.1", "1.1.2.5", "1.1.2.7"]),
        (
            "g3",
            "1.1.3.0/29",
            vec!["1.1.3.0", "1.1.3.1", "1.1.3.2", "1.1.3.5", "1.1.3.6", "1.1.3.7"],
        ),
    ] {
        tenant.pool(segment(name, block, &excluded).only_for("choice-examples")).await;
        tenant.pool_says(name, "True", "").await;
    }
    // "none: lowest free of some group … 11 grants in total, 12th: no IP could be allocated"
    let granted = [
        "1.1.1.1", "1.1.1.3", "1.1.1.4", "1.1.1.5", "1.1.1.6", "1.1.2.2", "1.1.2.3", "1.1.2.4",
        "1.1.2.6", "1.1.3.3", "1.1.3.4",
    ];
    for (index, addr) in granted.iter().enumerate() {
        let name = format!("n{index}");
        tenant.create(load_balancer(&name)).await;
        tenant.shows(&name, &[addr]).await;
    }
    tenant.create(load_balancer("twelfth")).await;
    tenant.says("twelfth", "False", "Exhausted", "no IPv4 address").await;
    tenant.delete("twelfth").await;
    for index in 0..granted.len() {
        tenant.delete(&format!("n{index}")).await;
    }
    for addr in granted {
        tenant.claim_is_gone(addr).await;
    }

    // "1.1.2.4: granted"
    tenant.create(load_balancer("four").asking("1.1.2.4")).await;
    tenant.shows("four", &["1.1.2.4"]).await;
    // "1.1.2.6 twice: first granted, second not available until the first is released"
    tenant.create(load_balancer("first").asking("1.1.2.6")).await;
    tenant.shows("first", &["1.1.2.6"]).await;
    tenant.create(load_balancer("second").asking("1.1.2.6")).await;
    tenant
        .says("second", "False", "TakenBy", "1.1.2.6 is taken by Service choice-examples/first")
        .await;
    tenant.delete("first").await;
    tenant.shows("second", &["1.1.2.6"]).await;
    for (row, asked, reason, fragment) in [
        ("excluded", "1.1.2.1", "Excluded", "1.1.2.1 is excluded by IPGroup/g2"),
        ("no-group", "1.1.2.40", "OutsideEveryPool", "1.1.2.40 lies in no pool"),
        ("no-address", "1.1.2", "Unparseable", "\"1.1.2\" is not an address"),
    ] {
        tenant.create(load_balancer(row).asking(asked)).await;
        tenant.says(row, "False", reason, fragment).await;
    }
    tenant.ends(&["g1", "g2", "g3"]).await;
}

/// Section 6 of the original's specification: what a group has to give, row by row.
#[tokio::test]
async fn segments_and_exclusions_count_as_documented() {
    let tenant = tenant("choice-segments").await;
    for (row, block, excluded, capacity) in [
        ("plain", "10.3.6.0/29", vec![], "8"),
        ("host-bits", "10.3.6.13/29", vec![], "8"),
        ("single", "10.3.6.16/32", vec![], "1"),
        (
            "all-excluded",
            "10.3.6.20/30",
            vec!["10.3.6.20", "10.3.6.21", "10.3.6.22-10.3.6.23"],
            "0",
        ),
        // The original took these two as text without effect; for us they mean what they say.
        ("excluded-cidr", "10.3.6.24/30", vec!["10.3.6.24/31"], "2"),
        ("excluded-range", "10.3.6.28/30", vec!["10.3.6.28-10.3.6.29"], "2"),
        ("excluded-elsewhere", "10.3.6.32/30", vec!["9.9.9.9"], "4"),
        // The original supported none of these, and never finished with the last.
        ("ipv6", "fd00:3:6::/120", vec![], "256"),
        ("everything", "0.0.0.0/0", vec![], "4294967296"),
    ] {
        let name = format!("segments-{row}");
        // For no namespace: the last row covers the addresses of all other tests.
        tenant.pool(segment(&name, block, &excluded).only_for("nobody")).await;
        let pool = tenant.pool_says(&name, "True", "").await;
        let seen = pool.status.unwrap().capacity.unwrap();
        if row == "everything" {
            let seen: u64 = seen.parse().unwrap();
            assert!(seen > 4_000_000_000, "{row}: {seen}");
        } else {
            assert_eq!(seen, capacity, "{row}");
        }
        tenant.delete_pool(&name).await;
    }
    let ends = segment("segments-ends", "10.3.6.48/29", &[]).only_for("choice-segments");
    tenant.pool(ends.with(|spec| spec.avoid_ends = Some(true))).await;
    tenant.pool_counts("segments-ends", "6", "0", "6").await;
    tenant.create(load_balancer("end").asking("10.3.6.55")).await;
    let held_back = "10.3.6.55 is held back by avoidEnds of IPGroup/segments-ends";
    tenant.says("end", "False", "Excluded", held_back).await;
    tenant.create(load_balancer("inside")).await;
    tenant.shows("inside", &["10.3.6.49"]).await;
    for (row, block) in [("no-prefix", "1.1.1.0"), ("word", "abc"), ("empty", "")] {
        let name = format!("segments-{row}");
        tenant.pool(segment(&name, block, &[]).only_for("nobody")).await;
        tenant.pool_says(&name, "False", &format!("segment: {block:?} is not")).await;
        tenant.delete_pool(&name).await;
    }
    for (entry, capacity) in [(" 10.3.6.40", "3"), ("10.3.6.041", "4"), ("web", "4")] {
        tenant.pool(segment("segments-bad", "10.3.6.40/30", &[entry]).only_for("nobody")).await;
        let reason = if capacity == "4" { "PartlyRead" } else { "Serving" };
        tenant
            .pool_is("segments-bad", reason, |status| {
                let ready = condition::get(&status.conditions, "Ready");
                ready.is_some_and(|ready| ready.reason == reason)
                    && status.capacity.as_deref() == Some(capacity)
            })
            .await;
        tenant.delete_pool("segments-bad").await;
    }
    tenant.ends(&["segments-ends"]).await;
}
