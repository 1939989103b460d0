//! Which addresses are announced for which Service, whatever its author writes.

use super::*;

fn external(rig: &mut Rig, name: &str, addresses: &[&str]) {
    rig.balancer(name, &[]);
    let spec = json!({ "type": "ClusterIP", "externalIPs": addresses });
    rig.patch("services", &format!("shop/{name}"), &json!({ "spec": spec }));
}

#[test]
fn only_annotated_services_with_addresses_are_announced() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    rig.balancer("not-annotated", &["192.0.2.100"]);
    let annotations = json!({ "metadata": { "annotations": null } });
    rig.patch("services", "shop/not-annotated", &annotations);
    external(&mut rig, "no-address", &[]);
    external(&mut rig, "external", &["192.0.2.101"]);
    rig.balancer("both", &["192.0.2.102"]);
    let spec = json!({ "externalIPs": ["192.0.2.103", "192.0.2.102"] });
    rig.patch("services", "shop/both", &json!({ "spec": spec }));
    rig.settle();
    let mut instances = rig.instances();
    instances.sort();
    let names: Vec<_> = instances.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["shop/both", "shop/external"]);
    assert!(instances[0].ends_with(": 192.0.2.102 192.0.2.103"), "{instances:?}");
    assert!(instances[1].ends_with(": 192.0.2.101"), "{instances:?}");
}

#[test]
fn an_address_of_two_services_is_the_holders_or_else_the_older_ones() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    external(&mut rig, "older", &["192.0.2.100", "192.0.2.101"]);
    external(&mut rig, "younger", &["192.0.2.100"]);
    rig.settle();
    assert_eq!(rig.instances(), ["shop/older 1: 192.0.2.100 192.0.2.101"]);
    rig.claim("192.0.2.100", "LoadBalancer", "Service", "younger");
    rig.settle();
    assert_eq!(rig.instances(), ["shop/older 1: 192.0.2.101", "shop/younger 2: 192.0.2.100"]);
}

#[test]
fn addresses_of_nodes_and_of_claims_of_others_are_never_announced() {
    let mut rig = Rig::new();
    rig.group(&json!({ "allowedRanges": ["192.0.2.0/24"] }));
    rig.claim("192.0.2.50", "Egress", "Namespace", "other");
    let kept = json!({
        "address": "192.0.2.51", "use": "Floating", "reservedFor": { "namespace": "shop" },
    });
    rig.store("ips", json!({ "metadata": { "name": "192.0.2.51" }, "spec": kept }));
    let addresses = [
        "192.0.2.1",
        "192.0.2.50",
        "192.0.2.51",
        "198.51.100.1",
        "127.0.0.1",
        "224.0.0.1",
        "169.254.112.1",
        "192.0.2.60",
    ];
    external(&mut rig, "greedy", &addresses);
    rig.settle();
    assert_eq!(rig.instances(), ["shop/greedy 1: 192.0.2.60"]);
}

#[test]
fn namespaces_that_a_group_does_not_allow_get_nothing() {
    let mut rig = Rig::new();
    rig.group(&json!({ "allowedNamespaces": { "matchLabels": { "team": "net" } } }));
    rig.balancer("web", &["192.0.2.100"]);
    rig.settle();
    assert_eq!(rig.instances(), Vec::<String>::new());
    let labels = BTreeMap::from([("team".to_owned(), "net".to_owned())]);
    let version = Version(rig.next_version());
    rig.hear(News::Namespaces(Watched::Present("shop".to_owned(), version, labels)));
    rig.settle();
    assert_eq!(rig.instances(), ["shop/web 1: 192.0.2.100"]);
}

#[test]
fn router_ids_are_kept_refilled_and_moved_only_when_forbidden() {
    let mut rig = Rig::new();
    rig.group(&json!({ "blacklistRouterIDs": [1, 2] }));
    for (name, address) in [("a", "192.0.2.101"), ("b", "192.0.2.102"), ("c", "192.0.2.103")] {
        rig.balancer(name, &[address]);
        rig.settle();
    }
    let ids = |rig: &Rig| rig.status(GROUP)["routerIDs"].clone();
    assert_eq!(ids(&rig), json!({ "shop/a": 3, "shop/b": 4, "shop/c": 5 }));
    rig.edit(&json!({ "blacklistRouterIDs": [1, 2, 3] }));
    rig.settle();
    assert_eq!(ids(&rig), json!({ "shop/a": 6, "shop/b": 4, "shop/c": 5 }));
    rig.remove("services", "shop/b");
    rig.settle();
    rig.balancer("d", &["192.0.2.104"]);
    rig.settle();
    assert_eq!(ids(&rig), json!({ "shop/a": 6, "shop/c": 5, "shop/d": 4 }));
}

#[test]
fn groups_that_share_a_node_have_no_router_id_in_common() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    rig.balancer("web", &["192.0.2.100"]);
    rig.settle();
    let spec = json!({ "image": "", "interface": "eth0", "nodeSelector": { "edge": "yes" } });
    let metadata = json!({ "name": "two", "namespace": "infra" });
    rig.store("keepalivedgroups", json!({ "metadata": metadata, "spec": spec }));
    rig.balancer("other", &["192.0.2.101"]);
    rig.annotate("other", &json!({ "keepalivedgroup": "infra/two" }));
    rig.settle();
    assert_eq!(rig.status(GROUP)["routerIDs"], json!({ "shop/web": 1 }));
    assert_eq!(rig.status("infra/two")["routerIDs"], json!({ "shop/other": 2 }));
}

#[test]
fn groups_that_are_created_together_have_no_router_id_in_common() {
    let mut rig = Rig::new();
    for name in ["edge", "two", "three"] {
        rig.group_named(name, &json!({ "vrrp": { "slots": 2 } }));
    }
    rig.settle();
    let ids = |group: &str| {
        let ids = rig.status(group)["routerIDs"].as_object().unwrap().clone();
        ids.into_iter().map(|(_, id)| id.as_i64().unwrap()).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = ["infra/edge", "infra/two", "infra/three"].map(ids).concat();
    all.sort_unstable();
    assert_eq!(all, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn what_a_hostile_author_writes_is_in_no_object() {
    let texts = [
        "}\nvrrp_script evil {",
        "notify /bin/sh",
        "\"; include /etc/shadow",
        "# comment",
        "a/b/c",
        "infra/edge\n}",
        "../../edge",
        "{{EVIL}}",
    ];
    for text in texts {
        let mut rig = Rig::new();
        rig.group(&json!({}));
        rig.balancer("good", &["192.0.2.100"]);
        rig.balancer("evil", &["192.0.2.101"]);
        let mut lines = Map::new();
        for key in ["notify", "track_src_ip", "include", text] {
            lines.insert(key.to_owned(), json!(text));
        }
        rig.annotate("evil", &json!({ "verbatimconfig": Value::Object(lines).to_string() }));
        rig.settle();
        let both = ["shop/evil 1: 192.0.2.101", "shop/good 2: 192.0.2.100"];
        assert_eq!(rig.instances(), both, "{text}");
        rig.annotate("evil", &json!({ "keepalivedgroup": text }));
        rig.settle();
        assert_eq!(rig.instances(), both[1..], "{text}");
        for ((kind, key), object) in &rig.objects {
            let written = object.to_string();
            let escaped = json!(text).to_string();
            let found = *kind != "services" && written.contains(escaped.trim_matches('"'));
            assert!(!found, "{kind} {key}: {written}");
        }
    }
}

#[test]
fn a_service_is_told_once_why_it_is_not_announced() {
    let mut rig = Rig::new();
    rig.group(&json!({ "allowedRanges": ["192.0.2.0/24"] }));
    rig.balancer("first", &["192.0.2.100"]);
    rig.settle();
    assert_eq!(rig.events, Vec::<String>::new());
    for (annotations, addresses, expected) in [
        (json!({ "keepalivedgroup": "a/b/c" }), ["192.0.2.101"], "Unparseable: "),
        (json!({ "keepalivedgroup": "infra/none" }), ["192.0.2.101"], "GroupUnknown: "),
        (json!({}), ["198.51.100.1"], "RangeRefused: 198.51.100.1 is outside the allowedRanges"),
        (json!({}), ["192.0.2.1"], "RangeRefused: 192.0.2.1 is an address of node"),
        (json!({}), ["127.0.0.1"], "RangeRefused: 127.0.0.1 is a loopback address"),
        (json!({}), ["192.0.2.100"], "AddressConflict: 192.0.2.100 is held by Service shop/first"),
        (json!({ "verbatimconfig": "{\"notify\": \"x\"}" }), ["192.0.2.101"], "LineRefused: "),
    ] {
        rig.balancer("web", &addresses);
        rig.annotate("web", &annotations);
        rig.settle();
        let now = rig.now();
        rig.planner.reconsider_all(rig.shared.lend(now));
        rig.settle();
        let events = std::mem::take(&mut rig.events);
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(events[0].starts_with(&format!("web {expected}")), "{events:?}");
        rig.remove("services", "shop/web");
        rig.settle();
    }
}
