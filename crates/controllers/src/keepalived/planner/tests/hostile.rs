//! Authors of Services who want more than is theirs, in every layout and by every way to a group.

use super::*;

/// Layouts of a group: an instance per Service, and slots.
const LAYOUTS: [&str; 2] = ["null", "{\"slots\": 2}"];

fn layout(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn external(rig: &mut Rig, name: &str, addresses: &[&str]) {
    rig.balancer(name, &[]);
    let spec = json!({ "type": "ClusterIP", "externalIPs": addresses });
    rig.patch("services", &format!("shop/{name}"), &json!({ "spec": spec }));
}

/// All addresses that some instance serves, in order.
fn served(rig: &Rig) -> Vec<String> {
    let plan = rig.plan();
    let all: BTreeSet<IpAddr> = plan.instances.iter().flat_map(Instance::served).collect();
    all.iter().map(ToString::to_string).collect()
}

#[test]
fn an_ipv4_address_that_is_written_as_ipv6_counts_as_what_it_is() {
    for vrrp in LAYOUTS {
        let mut rig = Rig::new();
        rig.group(&json!({ "vrrp": layout(vrrp), "allowedRanges": ["192.0.2.0/24", "::/0"] }));
        let version = Version(rig.next_version());
        let server = vec!["192.0.2.250".parse().unwrap()];
        let slice = "kubernetes".to_owned();
        rig.hear(News::ApiServers(Watched::Present(slice, version, server)));
        rig.claim("192.0.2.50", "Egress", "Namespace", "other");
        rig.balancer("older", &["192.0.2.51"]);
        for (name, address, expected) in [
            ("node", "::ffff:192.0.2.1", "RangeRefused: 192.0.2.1 is an address of node n1."),
            ("hex", "::FFFF:c000:202", "RangeRefused: 192.0.2.2 is an address of node n2."),
            ("long", "0:0:0:0:0:ffff:192.0.2.3", "RangeRefused: 192.0.2.3 is an address of node"),
            ("server", "::ffff:192.0.2.250", "RangeRefused: 192.0.2.250 is an address of the API"),
            ("outside", "::ffff:10.0.0.1", "RangeRefused: 10.0.0.1 is outside the allowedRanges"),
            ("loopback", "::ffff:127.0.0.1", "RangeRefused: 127.0.0.1 is a loopback address, wh"),
            ("held", "::ffff:192.0.2.50", "AddressConflict: 192.0.2.50 is held by"),
            ("older-s", "::ffff:192.0.2.51", "AddressConflict: 192.0.2.51 is held by Service shop"),
        ] {
            external(&mut rig, name, &[address]);
            rig.settle();
            let told = rig.announced(name);
            assert!(told.starts_with(&format!("false {expected}")), "{vrrp} {name}: {told}");
            assert_eq!(served(&rig), ["192.0.2.51"], "{vrrp} {name}");
        }
        // Two spellings are one address.
        external(&mut rig, "both", &["::ffff:192.0.2.60", "192.0.2.60"]);
        rig.settle();
        assert_eq!(served(&rig), ["192.0.2.51", "192.0.2.60"]);
        assert!(rig.announced("both").starts_with("true Announced"), "{}", rig.announced("both"));
        assert!(!rig.plan_text().contains("::ffff"), "{}", rig.plan_text());
        // What the status shows is what some program gave, and it gave no IPv4 address.
        rig.balancer("status", &["::ffff:192.0.2.70"]);
        rig.settle();
        assert_eq!(served(&rig), ["192.0.2.51", "192.0.2.60"]);
        assert_eq!(
            rig.announced("status"),
            "false RangeRefused: ::ffff:192.0.2.70 is an IPv4 address written as an IPv6 one, which no group \
             announces. Give the Service another address."
        );
    }
}

#[test]
fn a_node_whose_address_is_written_as_ipv6_keeps_it() {
    let mut rig = Rig::new();
    rig.node("n4", &json!({ "edge": "yes" }), "::ffff:192.0.2.4");
    rig.group(&json!({}));
    external(&mut rig, "greedy", &["192.0.2.4", "192.0.2.60"]);
    rig.settle();
    assert_eq!(served(&rig), ["192.0.2.60"]);
    let nodes = rig.plan().nodes;
    assert_eq!(nodes[3].addresses, ["192.0.2.4".parse::<IpAddr>().unwrap()]);
}

#[test]
fn what_a_hostile_author_writes_is_in_no_object_of_a_group_of_slots() {
    for text in [
        "}\nvrrp_script evil {",
        "notify /bin/sh",
        "\"; include /etc/shadow",
        "# comment",
        "edge/1 {",
        "169.254.112.1",
    ] {
        let mut rig = Rig::new();
        rig.group(&json!({ "vrrp": { "slots": 1 } }));
        rig.balancer("good", &["198.51.100.1"]);
        rig.settle();
        let before = rig.plan();
        rig.balancer("evil", &["198.51.100.2"]);
        let mut lines = Map::new();
        for key in ["notify", "track_src_ip", "include", "virtual_ipaddress", text] {
            lines.insert(key.to_owned(), json!(text));
        }
        let lines = Value::Object(lines).to_string();
        rig.annotate("evil", &json!({ "verbatimconfig": lines, "spreadvips": text }));
        rig.settle();
        let after = rig.plan();
        let [slot] = &after.instances[..] else { panic!("{after:?}") };
        assert_eq!(slot.form, before.instances[0].form, "{text}");
        assert_eq!(slot.lines, Vec::<String>::new(), "{text}");
        assert_eq!(served(&rig), ["198.51.100.1", "198.51.100.2"], "{text}");
        // An instance of its own has none of it either.
        let local = json!({ "spec": { "externalTrafficPolicy": "Local" } });
        rig.patch("services", "shop/evil", &local);
        rig.settle();
        let plan = rig.plan();
        assert_eq!(plan.instances.len(), 2, "{plan:?}");
        assert!(plan.instances.iter().all(|one| one.lines.is_empty()), "{plan:?}");
        external(&mut rig, "anchor", &["169.254.112.1", text]);
        rig.settle();
        assert!(rig.announced("anchor").starts_with("false RangeRefused: 169.254.112.1 is a link"));
        for ((kind, key), object) in &rig.objects {
            let written = object.to_string();
            let escaped = json!(text).to_string();
            let is_anchor = text.starts_with("169");
            let found = *kind != "services" && written.contains(escaped.trim_matches('"'));
            assert!(is_anchor || !found, "{kind} {key}: {written}");
        }
    }
}

#[test]
fn a_service_that_a_pool_announces_gets_its_claim_announced_and_nothing_that_it_writes() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    rig.group_named("other", &json!({ "vrrp": {} }));
    let spec = json!({ "segment": "198.51.100.0/24", "announce": { "keepalivedGroup": GROUP } });
    rig.store("ipgroups", json!({ "metadata": { "name": "dmz", "generation": 1 }, "spec": spec }));
    for (name, address) in [("good", "198.51.100.1"), ("evil", "198.51.100.2")] {
        rig.balancer(name, &[address]);
        let key = format!("shop/{name}");
        rig.patch("services", &key, &json!({ "metadata": { "annotations": null } }));
        rig.claim(address, "LoadBalancer", "Service", name);
    }
    rig.settle();
    assert_eq!(served(&rig), ["198.51.100.1", "198.51.100.2"]);
    let before = rig.plan();
    // Neither lines without a group, nor addresses of its own, nor those of others.
    rig.annotate("evil", &json!({ "verbatimconfig": "{\"notify\": \"/bin/sh\"}" }));
    let external = json!({ "externalIPs": ["198.51.100.1", "198.51.100.9", "192.0.2.1"] });
    rig.patch("services", "shop/evil", &json!({ "spec": external }));
    rig.shows("evil", &["198.51.100.2", "198.51.100.1"]);
    rig.settle();
    assert_eq!(rig.plan(), before);
    assert!(rig.announced("good").starts_with("true Announced"));
    // A group that it names instead has no right to the addresses of others either.
    rig.annotate("evil", &json!({ "keepalivedgroup": "infra/other" }));
    rig.settle();
    assert_eq!(served(&rig), ["198.51.100.1"]);
    let told = rig.announced("evil");
    assert!(told.contains("RangeRefused") && told.contains("192.0.2.1 is an address of"), "{told}");
    assert!(told.contains("198.51.100.1 is held by"), "{told}");
    assert!(rig.announced("good").starts_with("true Announced"));
}
