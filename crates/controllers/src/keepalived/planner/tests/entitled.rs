//! Which Service an address is announced for when several have it, and what one namespace may list.

use super::{super::super::judge::LOOKS, *};

const OTHER: &str = "infra/other";

/// A Service of any namespace, younger than all before it, that asks for a group.
fn service(rig: &mut Rig, key: &str, group: &str, spec: &Value, shown: &[&str]) {
    let key = ObjectKey::parse(key).unwrap();
    let ingress: Vec<_> = shown.iter().map(|address| json!({ "ip": address })).collect();
    let second = rig.next_version();
    rig.store(
        "services",
        json!({
            "metadata": {
                "name": key.name(),
                "namespace": key.namespace(),
                "creationTimestamp": format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60),
                "annotations": { "keepalived-operator.redhat-cop.io/keepalivedgroup": group },
            },
            "spec": spec,
            "status": { "loadBalancer": { "ingress": ingress } },
        }),
    );
}

/// A Service that shows these addresses.
fn shows(rig: &mut Rig, key: &str, group: &str, addresses: &[&str]) {
    service(rig, key, group, &json!({ "type": "LoadBalancer" }), addresses);
}

/// A Service that lists these addresses in `spec.externalIPs`.
fn lists(rig: &mut Rig, key: &str, group: &str, addresses: &[String]) {
    service(rig, key, group, &json!({ "type": "ClusterIP", "externalIPs": addresses }), &[]);
}

fn list(rig: &mut Rig, key: &str, address: &str) {
    lists(rig, key, GROUP, &[address.to_owned()]);
}

/// A claim that Services share.
fn shared(rig: &mut Rig, address: &str, holders: &[&str]) {
    let holders = holders.iter().map(|key| {
        let key = ObjectKey::parse(key).unwrap();
        json!({ "kind": "Service", "namespace": key.namespace(), "name": key.name() })
    });
    let holders: Vec<_> = holders.collect();
    let spec = json!({
        "address": address, "use": "LoadBalancer", "pool": "IPGroup/dmz", "holders": holders,
    });
    rig.store("ips", json!({ "metadata": { "name": address }, "spec": spec }));
}

/// What the condition of a Service should be.
fn told(rig: &Rig, key: &str) -> String {
    match rig.shared.announcements.wanted(&ObjectKey::parse(key).unwrap()) {
        Wanted::AsItIs => "as it is".to_owned(),
        Wanted::Absent => "none".to_owned(),
        Wanted::This(one) => format!("{} {}: {}", one.announced, one.reason, one.message),
    }
}

#[track_caller]
fn assert_told(rig: &Rig, key: &str, expected: &str) {
    let told = told(rig, key);
    assert!(told.starts_with(expected), "{key}: {told}");
}

/// The node that holds the first address of a group.
fn holder(rig: &Rig, group: &str) -> String {
    rig.status(group)["addresses"][0]["node"].as_str().unwrap_or_default().to_owned()
}

fn pool(rig: &mut Rig, generation: i64, spec: &Value) {
    let mut whole = json!({ "segment": "192.0.2.128/25" });
    merge(&mut whole, spec);
    let metadata = json!({ "name": "dmz", "generation": generation });
    rig.store("ipgroups", json!({ "metadata": metadata, "spec": whole }));
}

fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|last| format!("{prefix}.{}.{}", last / 200, last % 200 + 1)).collect()
}

#[test]
fn a_service_that_no_group_announces_keeps_no_address_from_others() {
    let net = json!({ "matchLabels": { "team": "net" } });
    for (case, of_first, spec) in [
        ("its group does not exist", "infra/typo", json!({})),
        ("its group refuses its namespace", OTHER, json!({ "allowedNamespaces": net })),
        ("its group refuses the address", OTHER, json!({ "allowedRanges": ["10.0.0.0/8"] })),
        ("its group cannot be used", OTHER, json!({ "interface": "{" })),
    ] {
        for with_claim in [true, false] {
            let mut rig = Rig::new();
            rig.group(&json!({ "vrrp": {} }));
            rig.group_named("other", &spec);
            if with_claim {
                shared(&mut rig, "192.0.2.150", &["bank/first", "shop/second"]);
                shows(&mut rig, "bank/first", of_first, &["192.0.2.150"]);
                shows(&mut rig, "shop/second", GROUP, &["192.0.2.150"]);
            } else {
                lists(&mut rig, "bank/first", of_first, &["192.0.2.150".to_owned()]);
                list(&mut rig, "shop/second", "192.0.2.150");
            }
            rig.settle();
            let node = holder(&rig, GROUP);
            assert_ne!(node, "", "{case}, {with_claim}: {}", told(&rig, "shop/second"));
            assert_told(&rig, "shop/second", &format!("true Announced: {node} since"));
            assert_told(&rig, "bank/first", "false");
        }
    }
}

#[test]
fn an_address_goes_to_the_next_service_when_the_group_of_the_first_refuses_it() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    rig.group_named("other", &json!({ "vrrp": {} }));
    shared(&mut rig, "192.0.2.150", &["bank/first", "shop/second"]);
    shows(&mut rig, "bank/first", OTHER, &["192.0.2.150"]);
    shows(&mut rig, "shop/second", GROUP, &["192.0.2.150"]);
    rig.settle();
    assert_ne!(holder(&rig, OTHER), "");
    let edit =
        json!({ "metadata": { "generation": 2 }, "spec": { "allowedRanges": ["10.0.0.0/8"] } });
    rig.patch("keepalivedgroups", OTHER, &edit);
    rig.settle();
    assert_eq!((holder(&rig, OTHER).as_str(), holder(&rig, GROUP).is_empty()), ("", false));
    assert_told(&rig, "bank/first", "false RangeRefused");
    assert_told(&rig, "shop/second", "true Announced");
    rig.remove("keepalivedgroups", GROUP);
    rig.patch("keepalivedgroups", OTHER, &json!({ "spec": { "allowedRanges": null } }));
    rig.settle();
    assert_told(&rig, "bank/first", "true Announced");
    assert_told(&rig, "shop/second", "false GroupUnknown");
}

#[test]
fn services_that_share_an_address_are_told_the_holder_by_whichever_group_announces_it() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    rig.group_named("other", &json!({ "vrrp": {} }));
    shared(&mut rig, "192.0.2.150", &["bank/first", "shop/second", "shop/third"]);
    shows(&mut rig, "bank/first", GROUP, &["192.0.2.150"]);
    shows(&mut rig, "shop/second", OTHER, &["192.0.2.150", "192.0.2.160"]);
    shows(&mut rig, "shop/third", GROUP, &["192.0.2.150"]);
    rig.settle();
    let (node, other) = (holder(&rig, GROUP), holder(&rig, OTHER));
    assert_told(&rig, "bank/first", &format!("true Announced: {node} since"));
    assert_told(&rig, "shop/third", &format!("true Announced: {node} since"));
    let second = told(&rig, "shop/second");
    assert!(second.starts_with("true Announced"), "{second}");
    if node != other {
        assert!(second.contains(&format!("192.0.2.150: {node} since")), "{second}");
    }
    assert!(!rig.events.iter().any(|event| event.starts_with("second")), "{:?}", rig.events);

    rig.node_fails(&node);
    rig.settle();
    let next = holder(&rig, GROUP);
    assert_ne!(next, node);
    assert!(told(&rig, "shop/second").contains(&next), "{}", told(&rig, "shop/second"));
    // The group that announces it can no longer be used, and its nodes hold what they held.
    let edit = json!({ "metadata": { "generation": 2 }, "spec": { "interface": "{" } });
    rig.patch("keepalivedgroups", GROUP, &edit);
    rig.settle();
    assert_told(&rig, "shop/second", "true Announced");
    assert!(told(&rig, "shop/second").contains(&next));
    rig.remove("services", "bank/first");
    rig.remove("services", "shop/third");
    rig.remove("keepalivedgroups", GROUP);
    rig.settle();
    assert_told(&rig, "shop/second", "true Announced");
    assert_eq!(rig.status(OTHER)["addresses"].as_array().unwrap().len(), 2);
}

#[test]
fn services_that_share_an_address_are_told_what_is_in_the_way_of_the_one_that_has_it() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": { "slots": 1, "routerIDs": { "first": 1, "last": 1 } } }));
    rig.group_named("other", &json!({ "vrrp": {} }));
    shared(&mut rig, "192.0.2.150", &["bank/first", "shop/second", "shop/third"]);
    let local = json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local" });
    service(&mut rig, "bank/first", GROUP, &local, &["192.0.2.150"]);
    shows(&mut rig, "shop/second", OTHER, &["192.0.2.150"]);
    shows(&mut rig, "shop/third", GROUP, &["192.0.2.150"]);
    rig.settle();
    for key in ["bank/first", "shop/second", "shop/third"] {
        assert_told(&rig, key, "false NotApplied: infra/edge has no router ID left");
    }
}

#[test]
fn a_group_without_its_password_keeps_no_address_from_other_groups() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    rig.group_named("other", &json!({ "passwordAuth": { "secretRef": { "name": "vrrp" } } }));
    shared(&mut rig, "192.0.2.150", &["bank/first", "shop/second"]);
    shows(&mut rig, "bank/first", OTHER, &["192.0.2.150"]);
    shows(&mut rig, "shop/second", GROUP, &["192.0.2.150"]);
    rig.settle();
    assert_told(&rig, "shop/second", "true Announced");
    rig.secrets.insert("infra/vrrp".to_owned(), "u/7".to_owned());
    rig.uptime += MISSING_SECRET_INTERVAL;
    rig.settle();
    assert_ne!(holder(&rig, OTHER), "");
    assert_told(&rig, "bank/first", "true Announced");
    assert_told(&rig, "shop/second", "true Announced");
}

#[test]
fn a_right_to_an_address_that_comes_or_goes_is_noticed_by_itself() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    let selector = json!({ "matchLabels": { "team": "net" } });
    pool(&mut rig, 1, &json!({ "namespaceSelector": selector }));
    list(&mut rig, "shop/web", "192.0.2.150");
    rig.settle();
    assert_told(&rig, "shop/web", "false RangeRefused: namespace shop has no right");
    pool(&mut rig, 2, &json!({}));
    rig.settle();
    assert_told(&rig, "shop/web", "true Announced");
    pool(&mut rig, 3, &json!({ "quota": { "perNamespace": 0 } }));
    rig.settle();
    assert_told(&rig, "shop/web", "false RangeRefused: namespace shop has no right");
    assert_eq!(holder(&rig, GROUP), "");
    pool(&mut rig, 4, &json!({ "quota": { "perNamespace": 1 } }));
    rig.settle();
    assert_told(&rig, "shop/web", "true Announced");
    service(&mut rig, "bank/api", "", &json!({ "clusterIPs": ["192.0.2.150"] }), &[]);
    rig.settle();
    assert_told(&rig, "shop/web", "false AddressConflict: 192.0.2.150 is held by Service bank/api");
    rig.remove("services", "bank/api");
    rig.settle();
    assert_told(&rig, "shop/web", "true Announced");
    shared(&mut rig, "192.0.2.150", &["bank/mail"]);
    rig.settle();
    assert_told(&rig, "shop/web", "false AddressConflict");
}

#[test]
fn a_namespace_fills_a_group_with_addresses_of_its_own_choice_up_to_a_limit() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    pool(&mut rig, 1, &json!({}));
    let all = numbered("198.18", 1100);
    lists(&mut rig, "shop/old", GROUP, &all[..900]);
    lists(&mut rig, "shop/new", GROUP, &all[900..]);
    // The same addresses once more, and others that have a right of their own.
    lists(&mut rig, "shop/again", GROUP, &all[..10]);
    list(&mut rig, "shop/of-pool", "192.0.2.150");
    shows(&mut rig, "shop/shown", GROUP, &["198.51.100.1"]);
    list(&mut rig, "bank/web", "198.19.0.1");
    rig.settle();
    let served = rig.status(GROUP)["addresses"].as_array().unwrap().len();
    assert_eq!(served, 1024 + 3);
    for key in ["shop/old", "shop/of-pool", "shop/shown", "bank/web"] {
        assert_told(&rig, key, "true Announced");
    }
    assert_told(&rig, "shop/new", "false RangeRefused: 198.18.5.25 is beyond the 1024 addresses");
    assert_told(&rig, "shop/again", "false AddressConflict");
    let before = rig.status(GROUP)["addresses"].clone();
    // Another namespace is not kept from an address that is beyond the limit.
    list(&mut rig, "bank/beyond", &all[1099]);
    rig.settle();
    assert_told(&rig, "bank/beyond", "true Announced");
    rig.remove("services", "bank/beyond");
    lists(&mut rig, "shop/newest", GROUP, &numbered("198.17", 5));
    rig.settle();
    assert_eq!(rig.status(GROUP)["addresses"], before, "the older Service keeps its addresses");
    rig.remove("services", "shop/old");
    rig.settle();
    assert_told(&rig, "shop/new", "true Announced");
    assert_told(&rig, "shop/newest", "true Announced");
}

#[test]
fn a_decision_looks_at_each_address_of_each_service_a_few_times_however_many_share_it() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    let all = numbered("198.18", 200);
    for number in 0..200 {
        lists(&mut rig, &format!("shop/web-{number:03}"), GROUP, &all);
    }
    rig.settle();
    assert_eq!(rig.status(GROUP)["addresses"].as_array().unwrap().len(), 200);
    assert_told(&rig, "shop/web-000", "true Announced");
    assert_told(&rig, "shop/web-199", "false AddressConflict");
    LOOKS.set(0);
    rig.planner.dirty.insert(ObjectKey::parse(GROUP).unwrap());
    rig.plan_once();
    let looks = LOOKS.take();
    assert!((40_000..=3 * 40_000).contains(&looks), "{looks}");
}

#[test]
fn a_change_of_one_service_concerns_groups_and_not_the_services_that_share_its_addresses() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    for number in 0..20 {
        let missing = format!("infra/missing-{number}");
        lists(&mut rig, &format!("shop/web-{number:03}"), &missing, &["198.18.0.1".to_owned()]);
    }
    list(&mut rig, "shop/web", "198.18.0.1");
    rig.settle();
    assert_told(&rig, "shop/web", "true Announced");
    let key = ObjectKey::parse("shop/web-007").unwrap();
    let world = World { cluster: &rig.shared.cluster, ledger: &rig.shared.ledger };
    let concerned = rig.planner.wishes.update(world, &key);
    assert_eq!(concerned, [ObjectKey::parse(GROUP).unwrap()].into());
}
