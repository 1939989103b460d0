//! Nodes whose internal address comes late, in a group that sends its adverts to each node by itself.

use landfall_vrrp::Transport;

use super::*;

/// The internal addresses of the nodes in the plan.
fn peers(rig: &Rig) -> Vec<String> {
    let plan = rig.plan();
    plan.nodes.iter().flat_map(|node| &node.addresses).map(ToString::to_string).collect()
}

/// A node as its kubelet registers it, before it knows its address.
fn fresh_node(rig: &mut Rig, name: &str) {
    let object = json!({
        "metadata": { "name": name, "labels": { "edge": "yes" } },
        "status": { "conditions": [{ "type": "Ready", "status": "False" }] },
    });
    let version = Version(rig.next_version());
    let view = Box::new(node::read(from_value(object).unwrap()));
    rig.hear(News::Nodes(Watched::Present(name.to_owned(), version, view)));
}

#[test]
fn a_node_without_an_address_leaves_the_others_as_they_are_and_is_a_peer_once_it_has_one() {
    for vrrp in [Value::Null, json!({ "slots": 1 })] {
        let mut rig = Rig::new();
        rig.group(&json!({ "unicastEnabled": true, "vrrp": vrrp }));
        rig.balancer("web", &["192.0.2.100"]);
        rig.settle();
        let before = rig.plan();
        assert_eq!(before.instances[0].form.transport, Transport::Unicast);
        rig.silent.insert("n0".to_owned());
        fresh_node(&mut rig, "n0");
        rig.settle();
        assert_eq!(peers(&rig), ["192.0.2.1", "192.0.2.2", "192.0.2.3"], "{vrrp}");
        let plan = rig.plan();
        assert_eq!(plan.instances[0].form, before.instances[0].form);
        assert_eq!(plan.instances[0].change, None);
        assert!(rig.announced("web").starts_with("true Announced"), "{}", rig.announced("web"));
        assert_eq!(rig.condition("Degraded").0, "False");
        // New Services are announced by the nodes that can.
        rig.balancer("mail", &["192.0.2.101"]);
        rig.settle();
        assert!(rig.announced("mail").starts_with("true Announced"), "{}", rig.announced("mail"));

        rig.silent.clear();
        rig.node("n0", &json!({ "edge": "yes" }), "192.0.2.4");
        rig.settle();
        assert_eq!(peers(&rig), ["192.0.2.4", "192.0.2.1", "192.0.2.2", "192.0.2.3"]);
        assert_eq!(rig.status(GROUP)["appliedNodes"], 4);
    }
}

#[test]
fn nodes_that_all_lack_an_address_get_no_empty_list_of_peers() {
    let mut rig = Rig::new();
    rig.silent.extend(["n1", "n2", "n3"].map(str::to_owned));
    for name in ["n1", "n2", "n3"] {
        fresh_node(&mut rig, name);
    }
    rig.group(&json!({ "unicastEnabled": true }));
    rig.balancer("web", &["192.0.2.100"]);
    rig.settle();
    assert!(!rig.file().contains("unicast_peer"), "{}", rig.file());
    rig.silent.clear();
    for (name, last) in [("n1", 1), ("n2", 2), ("n3", 3)] {
        rig.node(name, &json!({ "edge": "yes" }), &format!("192.0.2.{last}"));
    }
    rig.settle();
    assert_eq!(peers(&rig), ["192.0.2.1", "192.0.2.2", "192.0.2.3"]);
    assert_eq!(rig.plan().instances[0].form.transport, Transport::Unicast);
    assert!(rig.announced("web").starts_with("true Announced"), "{}", rig.announced("web"));
}
