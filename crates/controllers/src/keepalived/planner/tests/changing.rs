//! Changes of what all nodes must agree on.

use landfall_vrrp::{Step as ChangeStep, Transport};

use super::*;
use crate::keepalived::change::PATIENCE;

const ALL_STEPS: [ChangeStep; 3] = [ChangeStep::Mute, ChangeStep::Holder, ChangeStep::Others];

/// One round of planning, and the calls that it asks for.
fn round(rig: &mut Rig) {
    let mut out = Out::default();
    let now = rig.now();
    rig.planner.plan(rig.shared.lend(now), &mut out);
    for effect in out.effects {
        rig.perform(effect);
    }
}

/// The steps of the first instance's change, in the plans that are written.
fn steps_until_settled(rig: &mut Rig) -> Vec<ChangeStep> {
    let mut steps = Vec::new();
    for _ in 0..200 {
        round(rig);
        let change = rig.plan().instances.into_iter().next().and_then(|instance| instance.change);
        let step = change.map(|change| change.step);
        steps.extend(step.filter(|step| steps.last() != Some(step)));
        rig.agents_report();
        rig.uptime += Duration::from_millis(100);
    }
    rig.settle();
    assert_eq!(rig.plan().instances[0].change, None);
    steps
}

fn transport(rig: &Rig) -> Transport {
    rig.plan().instances[0].form.transport
}

#[test]
fn a_change_of_transport_goes_from_the_holder_to_the_others() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": { "slots": 1 } }));
    rig.balancer("web", &["192.0.2.100"]);
    rig.settle();
    assert_eq!(transport(&rig), Transport::Multicast);
    rig.edit(&json!({ "unicastEnabled": true }));
    assert_eq!(steps_until_settled(&mut rig), ALL_STEPS);
    assert_eq!(transport(&rig), Transport::Unicast);
    assert_eq!(rig.condition("Degraded").0, "False");
}

#[test]
fn an_advertised_address_that_leaves_is_a_change() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    rig.balancer("web", &["192.0.2.100"]);
    rig.settle();
    rig.shows("web", &["192.0.2.101"]);
    assert_eq!(steps_until_settled(&mut rig), ALL_STEPS);
    assert_eq!(rig.instances(), ["shop/web 1: 192.0.2.101"]);
}

#[test]
fn a_silent_node_holds_a_change_up_for_a_while_and_is_named() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": { "slots": 1 } }));
    rig.settle();
    let plan = rig.plan();
    let last = plan.node(*plan.instances[0].order.last().unwrap()).unwrap().name.clone();
    rig.silent.insert(last.clone());
    rig.edit(&json!({ "unicastEnabled": true }));
    let (begin, mut named) = (rig.uptime, false);
    while rig.uptime < begin + 3 * PATIENCE {
        round(&mut rig);
        rig.agents_report();
        rig.uptime += Duration::from_millis(500);
        let degraded = rig.condition("Degraded");
        named |= degraded.1 == "ChangeWaits" && degraded.2.contains(&last);
    }
    assert!(named);
    assert_eq!(rig.plan().instances[0].change, None);
    assert_eq!(transport(&rig), Transport::Unicast);
}

#[test]
fn a_node_that_is_down_holds_no_change_up() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": { "slots": 1 } }));
    rig.settle();
    rig.node_fails("n2");
    rig.edit(&json!({ "unicastEnabled": true }));
    let begin = rig.uptime;
    rig.settle();
    assert!(rig.uptime < begin + PATIENCE);
    assert_eq!(transport(&rig), Transport::Unicast);
}

#[test]
fn a_change_whose_holder_fell_silent_ends_at_once() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": { "slots": 1 } }));
    rig.settle();
    rig.silent.extend(["n1", "n2", "n3"].map(str::to_owned));
    rig.edit(&json!({ "unicastEnabled": true }));
    rig.uptime += PLAN_INTERVAL;
    round(&mut rig);
    let change = rig.plan().instances[0].change.clone().unwrap();
    let mut nodes = rig.status(GROUP)["nodes"].clone();
    nodes[0]["guard"] = json!({ "generation": change.since, "step": "Ended" });
    rig.patch("keepalivedgroups", GROUP, &json!({ "status": { "nodes": nodes } }));
    let begin = rig.uptime;
    while rig.plan().instances[0].change.is_some() && rig.uptime < begin + PATIENCE {
        rig.uptime += PLAN_INTERVAL;
        round(&mut rig);
    }
    assert!(rig.uptime < begin + PATIENCE);
    assert_eq!(rig.plan().instances[0].change, None);
}

#[test]
fn an_address_that_changes_its_instance_is_on_none_until_all_nodes_have_taken_it_off_the_old_one() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    rig.balancer("web", &["192.0.2.100"]);
    rig.settle();
    assert_eq!(rig.instances(), ["shop/web 1: 192.0.2.100"]);
    rig.silent.insert("n2".to_owned());
    rig.edit(&json!({ "vrrp": { "slots": 1 } }));
    let (begin, mut named) = (rig.uptime, false);
    while rig.uptime < begin + PATIENCE / 2 {
        round(&mut rig);
        rig.agents_report();
        rig.uptime += Duration::from_millis(500);
        named |= rig.condition("Degraded").2.contains("n2");
        let plan = rig.plan();
        let slots = plan.instances.iter().filter(|instance| instance.name.starts_with("edge/"));
        assert!(slots.flat_map(|slot| &slot.excluded).next().is_none(), "{plan:?}");
    }
    assert!(named);
    assert_eq!(rig.plan().leaving.len(), 1);
    rig.silent.clear();
    rig.settle();
    assert_eq!(rig.instances(), ["edge/0 1: 192.0.2.100"]);
    assert_eq!(rig.condition("Degraded").0, "False");
    // A node that stays silent is waited for no longer than for any other change.
    rig.silent.insert("n2".to_owned());
    rig.edit(&json!({ "vrrp": null }));
    let begin = rig.uptime;
    while rig.uptime < begin + 2 * PATIENCE {
        round(&mut rig);
        rig.agents_report();
        rig.uptime += Duration::from_millis(500);
    }
    assert_eq!(rig.instances(), ["shop/web 1: 192.0.2.100"]);
}
