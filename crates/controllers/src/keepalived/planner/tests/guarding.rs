//! Changes of a form in which something goes wrong.

use landfall_vrrp::{Change as FormChange, Step as ChangeStep};

use super::{changing::round, *};
use crate::keepalived::change::PATIENCE;

/// The change of the first instance.
fn change(rig: &Rig) -> Option<FormChange> {
    rig.plan().instances[0].change.clone()
}

/// The name of the node that goes first with the change of the first instance.
fn first(rig: &Rig) -> Option<String> {
    let plan = rig.plan();
    let change = plan.instances[0].change.as_ref()?;
    Some(plan.node(change.holder)?.name.clone())
}

fn holder(rig: &Rig) -> String {
    let reports = rig.status(GROUP)["nodes"].as_array().cloned().unwrap_or_default();
    let holds = |report: &&Value| {
        let states = report["instances"].as_array().into_iter().flatten();
        states.into_iter().any(|state| state["state"] == "MASTER")
    };
    reports.iter().find(holds).unwrap()["node"].as_str().unwrap().to_owned()
}

/// Rewrites what the agent of a node said last.
fn rewrite(rig: &mut Rig, node: &str, edit: impl Fn(&mut Value)) {
    let mut nodes = rig.status(GROUP)["nodes"].clone();
    nodes.as_array_mut().unwrap().iter_mut().filter(|it| it["node"] == node).for_each(edit);
    rig.patch("keepalivedgroups", GROUP, &json!({ "status": { "nodes": nodes } }));
}

fn slots(count: u8) -> Rig {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": { "slots": count } }));
    rig.balancer("web", &["192.0.2.100"]);
    rig.settle();
    rig
}

fn plan_again(rig: &mut Rig) {
    rig.uptime += PLAN_INTERVAL;
    round(rig);
}

#[test]
fn a_change_begins_with_a_holder_that_is_well() {
    let mut rig = slots(1);
    let dead = holder(&rig);
    // Its last report still says that it holds the instance.
    rig.node_fails(&dead);
    let next = rig.plan().nodes.iter().map(|node| node.name.clone()).find(|it| *it != dead);
    let next = next.unwrap();
    let name = rig.plan().instances[0].name.clone();
    rewrite(&mut rig, &next, |report| {
        report["instances"] =
            json!([{ "name": name, "state": "MASTER", "since": "2026-01-02T03:05:00Z" }]);
    });
    rig.silent.extend(["n1", "n2", "n3"].map(str::to_owned));
    rig.edit(&json!({ "unicastEnabled": true }));
    plan_again(&mut rig);
    assert_eq!(first(&rig), Some(next));
}

#[test]
fn a_change_whose_holder_fell_silent_begins_again_with_the_node_that_holds_the_instance_now() {
    let mut rig = slots(2);
    let names: Vec<_> = rig.plan().instances.iter().map(|one| one.name.clone()).collect();
    rig.silent.extend(["n1", "n2", "n3"].map(str::to_owned));
    rig.edit(&json!({ "unicastEnabled": true }));
    plan_again(&mut rig);
    let (begun, dead) = (change(&rig).unwrap(), first(&rig).unwrap());
    let heir = ["n1", "n2", "n3"].into_iter().find(|name| *name != dead).unwrap();
    rewrite(&mut rig, heir, |report| {
        report["guard"] = json!({ "generation": begun.since, "step": "Ended" });
    });
    plan_again(&mut rig);
    assert_eq!(change(&rig), Some(begun.clone()), "no other node holds it yet");
    let other = rig.plan().instances[1].change.clone();
    rewrite(&mut rig, heir, |report| {
        report["instances"] =
            json!([{ "name": names[0], "state": "MASTER", "since": "2026-01-02T03:05:00Z" }]);
    });
    plan_again(&mut rig);
    let again = change(&rig).unwrap();
    assert_eq!((first(&rig).as_deref(), again.step), (Some(heir), ChangeStep::Mute));
    assert_eq!(again.before, begun.before);
    assert!(again.since > begun.since);
    assert_eq!(rig.plan().instances[1].change, other, "its holder lives");
    rig.silent = BTreeSet::from([dead]);
    for _ in 0..200 {
        round(&mut rig);
        rig.agents_report();
        rig.uptime += Duration::from_millis(500);
    }
    assert!(rig.plan().instances.iter().all(|instance| instance.change.is_none()));
}

#[test]
fn an_address_that_stays_is_held_while_another_one_stops_being_advertised() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    rig.balancer("web", &["192.0.2.100"]);
    rig.settle();
    rig.shows("web", &["192.0.2.100", "192.0.2.101"]);
    rig.settle();
    assert_eq!(rig.instances(), ["shop/web 1: 192.0.2.100 192.0.2.101"]);
    rig.shows("web", &["192.0.2.101"]);
    let stays: IpAddr = "192.0.2.101".parse().unwrap();
    let mut steps = BTreeSet::new();
    for _ in 0..100 {
        round(&mut rig);
        let plan = rig.plan();
        let instance = &plan.instances[0];
        steps.extend(instance.change.as_ref().map(|change| change.step));
        for node in 0..3 {
            let held: Vec<_> = instance.addresses_on(node).collect();
            assert!(held.contains(&stays), "{node}: {instance:?}");
        }
        rig.agents_report();
        rig.uptime += Duration::from_millis(500);
    }
    assert_eq!(steps.len(), 3);
    assert_eq!(rig.instances(), ["shop/web 1: 192.0.2.101"]);
}

#[test]
fn an_address_that_stays_is_held_while_a_node_without_an_agent_holds_a_change_up() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    rig.balancer("web", &["192.0.2.100"]);
    rig.settle();
    rig.shows("web", &["192.0.2.100", "192.0.2.101"]);
    rig.settle();
    rig.node("n4", &json!({ "edge": "yes" }), "192.0.2.4");
    rig.silent.insert("n4".to_owned());
    rig.shows("web", &["192.0.2.101"]);
    for _ in 0..20 {
        round(&mut rig);
        rig.agents_report();
        rig.uptime += Duration::from_millis(500);
        assert!(rig.instances()[0].contains("192.0.2.101"), "{:?}", rig.instances());
    }
}

#[test]
fn a_node_that_says_why_it_cannot_let_an_address_go_is_waited_for() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    rig.balancer("old", &["192.0.2.50"]);
    rig.balancer("new", &["192.0.2.51"]);
    rig.settle();
    let stuck = holder(&rig);
    rig.silent.insert(stuck.clone());
    rewrite(&mut rig, &stuck, |report| report["lastError"] = json!("the disk is full"));
    rig.shows("old", &[]);
    rig.shows("new", &["192.0.2.50", "192.0.2.51"]);
    let end = rig.uptime + 3 * PATIENCE;
    while rig.uptime < end {
        round(&mut rig);
        rig.agents_report();
        rig.uptime += Duration::from_millis(500);
    }
    assert_eq!(rig.instances(), ["shop/new 1: 192.0.2.51"], "{stuck} may hold the other");
    rig.silent.clear();
    rig.settle();
    assert_eq!(rig.instances(), ["shop/new 1: 192.0.2.51 192.0.2.50"]);
}
