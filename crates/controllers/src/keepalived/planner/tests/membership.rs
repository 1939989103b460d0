//! Nodes that join and leave a group whose adverts go to each node by itself.

use super::{changing::round, *};
use crate::keepalived::change::PATIENCE;

/// A group of `n1` and `n2` with unicast adverts, and `n3` that is not of it.
fn two_of_three() -> Rig {
    let mut rig = Rig::new();
    rig.node("n3", &json!({}), "192.0.2.3");
    rig.group(&json!({ "unicastEnabled": true, "vrrp": { "slots": 1 } }));
    rig.balancer("web", &["192.0.2.100"]);
    rig.settle();
    assert_eq!(muted(&rig), [("n1", false), ("n2", false)].map(named));
    rig
}

fn named((node, muted): (&str, bool)) -> (String, bool) {
    (node.to_owned(), muted)
}

/// On which nodes the only instance is muted.
fn muted(rig: &Rig) -> Vec<(String, bool)> {
    let plan = rig.plan();
    let instance = &plan.instances[0];
    let nodes = (0..).zip(&plan.nodes);
    nodes.map(|(index, node)| (node.name.clone(), plan.is_muted_on(instance, index))).collect()
}

/// The last numbers of the addresses that a node sends adverts to.
fn peers(rig: &Rig, node: &str) -> BTreeSet<u8> {
    let plan = rig.plan();
    let own = plan.node(plan.node_index(node).unwrap());
    let last = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => panic!("{address}"),
    };
    plan.peers(&plan.instances[0].form, own).map(last).collect()
}

/// Lets some time pass in which the agents that are not silent carry plans out.
fn pass(rig: &mut Rig, time: Duration) {
    let end = rig.uptime + time;
    while rig.uptime < end {
        round(rig);
        rig.agents_report();
        rig.uptime += Duration::from_millis(500);
    }
}

#[test]
fn a_node_that_joins_holds_nothing_until_all_others_send_to_it() {
    let mut rig = two_of_three();
    rig.silent.insert("n2".to_owned());
    rig.node("n3", &json!({ "edge": "yes" }), "192.0.2.3");
    pass(&mut rig, PATIENCE / 2);
    assert_eq!(muted(&rig), [("n1", false), ("n2", false), ("n3", true)].map(named));
    assert_eq!(peers(&rig, "n1"), [2, 3].into());
    let (_, reason, message) = rig.condition("Degraded");
    assert!(reason == "ChangeWaits" && message.contains("n2"), "{reason}: {message}");
    rig.silent.clear();
    rig.settle();
    assert_eq!(muted(&rig), [("n1", false), ("n2", false), ("n3", false)].map(named));
    assert_eq!(rig.condition("Degraded").0, "False");
}

#[test]
fn a_node_that_joins_waits_for_a_silent_one_and_not_for_ever() {
    let mut rig = two_of_three();
    rig.silent.insert("n2".to_owned());
    rig.node("n3", &json!({ "edge": "yes" }), "192.0.2.3");
    pass(&mut rig, 2 * PATIENCE);
    assert_eq!(muted(&rig), [("n1", false), ("n2", false), ("n3", false)].map(named));
}

#[test]
fn nodes_that_join_together_do_not_wait_for_each_other() {
    let mut rig = two_of_three();
    rig.silent.extend(["n3", "n4"].map(str::to_owned));
    rig.node("n3", &json!({ "edge": "yes" }), "192.0.2.3");
    rig.node("n4", &json!({ "edge": "yes" }), "192.0.2.4");
    pass(&mut rig, PATIENCE / 2);
    assert_eq!(muted(&rig).iter().filter(|(_, muted)| *muted).count(), 0);
}

#[test]
fn a_node_that_leaves_is_heard_until_it_has_let_its_instances_go() {
    let mut rig = two_of_three();
    rig.node("n3", &json!({ "edge": "yes" }), "192.0.2.3");
    rig.settle();
    rig.silent.insert("n3".to_owned());
    rig.node("n3", &json!({}), "192.0.2.3");
    pass(&mut rig, PATIENCE / 2);
    assert_eq!(rig.plan().node_index("n3"), None);
    assert_eq!(peers(&rig, "n1"), [2, 3].into());
    // The agent on it carries out the plan that no longer has it.
    let mut nodes = rig.status(GROUP)["nodes"].clone();
    let report = json!({ "node": "n3", "generation": rig.plan().generation });
    nodes.as_array_mut().unwrap().push(report);
    rig.patch("keepalivedgroups", GROUP, &json!({ "status": { "nodes": nodes } }));
    rig.uptime += PLAN_INTERVAL;
    round(&mut rig);
    assert_eq!(peers(&rig, "n1"), [2].into());
    // One that says nothing is heard for a while.
    rig.silent.clear();
    rig.node("n3", &json!({ "edge": "yes" }), "192.0.2.3");
    rig.settle();
    rig.silent.insert("n2".to_owned());
    rig.node("n2", &json!({}), "192.0.2.2");
    pass(&mut rig, PATIENCE / 2);
    let plan = rig.plan();
    assert!(plan.departing.contains_key(&"192.0.2.2".parse().unwrap()), "{plan:?}");
    pass(&mut rig, PATIENCE);
    assert_eq!(rig.plan().departing, BTreeMap::new());
}

#[test]
fn a_node_with_another_address_joins_with_it() {
    let mut rig = two_of_three();
    rig.silent.extend(["n1", "n2"].map(str::to_owned));
    rig.node("n2", &json!({ "edge": "yes" }), "192.0.2.22");
    pass(&mut rig, SECOND);
    assert_eq!(muted(&rig), [("n1", false), ("n2", true)].map(named));
    assert_eq!(peers(&rig, "n1"), [2, 22].into());
    assert_eq!(peers(&rig, "n2"), [1].into());
    // The node itself uses it no more.
    rig.silent.remove("n2");
    pass(&mut rig, SECOND);
    assert_eq!(muted(&rig), [("n1", false), ("n2", true)].map(named));
    assert_eq!(peers(&rig, "n1"), [22].into());
    rig.silent.clear();
    rig.settle();
    assert_eq!(muted(&rig), [("n1", false), ("n2", false)].map(named));
    assert_eq!(peers(&rig, "n1"), [22].into());
}

#[test]
fn nodes_that_hear_multicast_need_not_wait() {
    let mut rig = Rig::new();
    rig.node("n3", &json!({}), "192.0.2.3");
    rig.group(&json!({ "vrrp": { "slots": 1 } }));
    rig.settle();
    rig.silent.insert("n2".to_owned());
    rig.node("n3", &json!({ "edge": "yes" }), "192.0.2.3");
    pass(&mut rig, SECOND);
    assert_eq!((rig.plan().nodes.len(), rig.plan().joining), (3, BTreeMap::new()));
    assert_eq!(rig.condition("Degraded").0, "False");
}
