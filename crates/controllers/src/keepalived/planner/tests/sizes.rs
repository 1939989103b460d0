//! More Services than router IDs, router IDs of a range, and nodes that are put aside.

use super::*;

fn ids(rig: &Rig) -> Vec<(String, i64)> {
    let ids = rig.status(GROUP)["routerIDs"].as_object().unwrap().clone();
    ids.into_iter().map(|(name, id)| (name, id.as_i64().unwrap())).collect()
}

#[test]
fn three_hundred_services_use_up_no_more_router_ids_than_there_are_slots() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": { "slots": 4 } }));
    rig.settle();
    let slots: Vec<_> = (0..4).map(|slot| (format!("edge/{slot}"), slot + 1)).collect();
    assert_eq!(ids(&rig), slots);
    let address = |n: u32| IpAddr::from((0xc612_0000 + n).to_be_bytes());
    for n in 0..300 {
        let name = format!("web-{n}");
        rig.balancer(&name, &[]);
        let spec = json!({ "type": "ClusterIP", "externalIPs": [address(n)] });
        rig.patch("services", &format!("shop/{name}"), &json!({ "spec": spec }));
    }
    rig.settle();
    assert_eq!(ids(&rig), slots);
    let plan = rig.plan();
    let served: BTreeSet<_> = plan.instances.iter().flat_map(Instance::served).collect();
    assert_eq!((plan.instances.len(), served.len()), (4, 300));
    assert!(served.into_iter().eq((0..300).map(address)));
    let shares: Vec<_> = plan.instances.iter().map(|slot| slot.served().count()).collect();
    assert!(shares.iter().all(|share| (40..120).contains(share)), "{shares:?}");
    for n in 0..300 {
        let told = rig.announced(&format!("web-{n}"));
        assert!(told.starts_with("true Announced"), "{n}: {told}");
    }
    assert_eq!(rig.condition("Degraded").0, "False");
}

#[test]
fn router_ids_are_those_of_the_range_and_end_with_it() {
    let mut rig = Rig::new();
    let range = json!({ "first": 100, "last": 103 });
    rig.group(&json!({ "vrrp": { "slots": 2, "routerIDs": range }, "blacklistRouterIDs": [101] }));
    rig.settle();
    assert_eq!(ids(&rig), [("edge/0".to_owned(), 100), ("edge/1".to_owned(), 102)]);
    for (name, address) in [("first", "192.0.2.50"), ("second", "192.0.2.51")] {
        rig.balancer(name, &[address]);
        rig.endpoints(name, &["n1"]);
        let local = json!({ "spec": { "externalTrafficPolicy": "Local" } });
        rig.patch("services", &format!("shop/{name}"), &local);
        rig.settle();
    }
    let expected = [("edge/0", 100), ("edge/1", 102), ("edge/shop/first", 103)];
    assert_eq!(ids(&rig), expected.map(|(name, id)| (name.to_owned(), id)));
    assert!(rig.announced("first").starts_with("true Announced: n1 since"));
    let told = rig.announced("second");
    assert!(told.starts_with("false NotApplied: infra/edge has no router ID left."), "{told}");
    let (status, reason, message) = rig.condition("Degraded");
    assert_eq!((&*status, &*reason), ("True", "RouterIDsExhausted"));
    assert!(message.contains("edge/shop/second"), "{message}");
    // A wider range ends the wait, and moves no instance.
    rig.edit(&json!({ "vrrp": { "routerIDs": { "first": 100, "last": 104 } } }));
    rig.settle();
    let expected =
        [("edge/0", 100), ("edge/1", 102), ("edge/shop/first", 103), ("edge/shop/second", 104)];
    assert_eq!(ids(&rig), expected.map(|(name, id)| (name.to_owned(), id)));
    assert!(rig.announced("second").starts_with("true Announced: n1 since"));
}

/// Lets the node that holds `shop/web` have these taints; returns its name.
fn taint_holder(rig: &mut Rig, spec: &Value) -> String {
    let name = holder(rig);
    let last = name.trim_start_matches('n');
    let object = json!({
        "metadata": { "name": name, "labels": { "edge": "yes" } },
        "spec": spec,
        "status": {
            "addresses": [{ "type": "InternalIP", "address": format!("192.0.2.{last}") }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    });
    let version = Version(rig.next_version());
    let view = Box::new(node::read(from_value(object).unwrap()));
    rig.hear(News::Nodes(Watched::Present(name.clone(), version, view)));
    name
}

fn holder(rig: &Rig) -> String {
    rig.status(GROUP)["addresses"][0]["node"].as_str().unwrap().to_owned()
}

#[test]
fn a_cordoned_node_keeps_its_addresses_and_one_that_is_declared_dead_does_not() {
    for vrrp in [Value::Null, json!({})] {
        let mut rig = Rig::new();
        rig.group(&json!({ "vrrp": vrrp }));
        rig.balancer("web", &["192.0.2.50"]);
        rig.settle();
        let (plan, told) = (rig.plan(), rig.announced("web"));
        rig.forget_calls();
        let cordon = json!([{ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" }]);
        let first = taint_holder(&mut rig, &json!({ "unschedulable": true, "taints": cordon }));
        rig.settle();
        assert_eq!((rig.plan(), rig.announced("web")), (plan, told));
        assert_eq!(rig.calls, [""; 0]);

        let dead = json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]);
        rig.silent.insert(first.clone());
        taint_holder(&mut rig, &json!({ "taints": dead }));
        rig.settle();
        assert!(rig.plan().node_index(&first).is_none());
        let second = holder(&rig);
        assert_ne!(second, first);
        let told = rig.announced("web");
        assert!(told.starts_with(&format!("true Announced: {second} since")), "{told}");
    }
}
