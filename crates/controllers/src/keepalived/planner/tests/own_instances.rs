//! Services with an instance and a router ID of their own among the slots of a group.

use super::*;

/// A Service whose traffic stays on its node.
fn local(rig: &mut Rig, key: &str, addresses: &[String]) {
    let key = ObjectKey::parse(key).unwrap();
    let ingress: Vec<_> = addresses.iter().map(|address| json!({ "ip": address })).collect();
    rig.store(
        "services",
        json!({
            "metadata": {
                "name": key.name(),
                "namespace": key.namespace(),
                "annotations": { "keepalived-operator.redhat-cop.io/keepalivedgroup": GROUP },
            },
            "spec": { "type": "LoadBalancer", "externalTrafficPolicy": "Local" },
            "status": { "loadBalancer": { "ingress": ingress } },
        }),
    );
}

fn ids(rig: &Rig, group: &str) -> BTreeMap<String, u8> {
    from_value(rig.status(group)["routerIDs"].clone()).unwrap()
}

fn reason(rig: &Rig, key: &str) -> String {
    match rig.shared.announcements.wanted(&ObjectKey::parse(key).unwrap()) {
        Wanted::This(one) => format!("{}: {}", one.reason, one.message),
        Wanted::AsItIs | Wanted::Absent => String::new(),
    }
}

#[test]
fn a_slot_without_a_router_id_concerns_only_the_services_in_it() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": { "slots": 2, "routerIDs": { "first": 1, "last": 8 } } }));
    local(&mut rig, "shop/local", &["192.0.2.50".to_owned()]);
    rig.endpoints("local", &["n1"]);
    rig.settle();
    rig.group_named(
        "other",
        &json!({ "vrrp": { "slots": 5, "routerIDs": { "first": 4, "last": 8 } } }),
    );
    rig.settle();
    assert_eq!((ids(&rig, GROUP).len(), ids(&rig, "infra/other").len()), (3, 5));
    rig.edit(&json!({ "vrrp": { "slots": 4 } }));
    for last in 1..30 {
        rig.balancer(&format!("web-{last}"), &[&format!("198.51.100.{last}")]);
    }
    rig.settle();
    assert_eq!(rig.condition("Degraded").1, "RouterIDsExhausted");
    assert!(rig.announced("local").starts_with("true"), "{}", rig.announced("local"));
    let served: BTreeSet<_> = rig.plan().instances.iter().flat_map(Instance::served).collect();
    let mut without = 0;
    for last in 1..30 {
        let told = rig.announced(&format!("web-{last}"));
        let address: IpAddr = [198, 51, 100, last].into();
        let expected = if served.contains(&address) { "true" } else { "false NotApplied" };
        assert!(told.starts_with(expected), "{address}: {told}");
        without += usize::from(!served.contains(&address));
    }
    assert!((1..29).contains(&without), "{without}");
}

#[test]
fn a_service_without_an_address_takes_no_router_id_of_its_own() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": { "slots": 2, "routerIDs": { "first": 1, "last": 4 } } }));
    for number in 0..10 {
        local(&mut rig, &format!("evil/waiting-{number}"), &[]);
    }
    rig.settle();
    assert_eq!(ids(&rig, GROUP).len(), 2);
    local(&mut rig, "shop/web", &["192.0.2.50".to_owned()]);
    rig.endpoints("web", &["n1"]);
    rig.settle();
    assert!(rig.announced("web").starts_with("true Announced: n1"), "{}", rig.announced("web"));
    // An address that the group does not announce keeps none.
    rig.edit(&json!({ "allowedRanges": ["198.51.100.0/24"] }));
    rig.settle();
    assert_eq!(ids(&rig, GROUP).len(), 2);
}

#[test]
fn a_namespace_gets_a_limited_number_of_instances_of_its_own() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": { "slots": 2 } }));
    for number in 100..200 {
        local(&mut rig, &format!("evil/web-{number}"), &[format!("198.51.100.{number}")]);
    }
    rig.settle();
    assert_eq!(ids(&rig, GROUP).len(), 2 + 64);
    assert!(
        reason(&rig, "evil/web-163").starts_with("NoHolder"),
        "{}",
        reason(&rig, "evil/web-163")
    );
    let refused = reason(&rig, "evil/web-164");
    assert!(refused.starts_with("NotApplied: infra/edge has 64 VRRP instances"), "{refused}");
    let before = ids(&rig, GROUP);
    local(&mut rig, "evil/early", &["203.0.113.1".to_owned()]);
    local(&mut rig, "shop/web", &["192.0.2.50".to_owned()]);
    rig.endpoints("web", &["n1"]);
    rig.settle();
    let mut after = ids(&rig, GROUP);
    assert!(after.remove("edge/shop/web").is_some());
    assert_eq!(after, before, "the instances that exist stay");
    assert!(rig.announced("web").starts_with("true Announced: n1"));
    rig.remove("services", "evil/web-100");
    rig.settle();
    assert!(ids(&rig, GROUP).contains_key("edge/evil/early"));
    assert!(reason(&rig, "evil/early").starts_with("NoHolder"));
}
