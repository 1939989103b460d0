//! What the status of a group says of its nodes is true, and is written no more often than it must be.

use super::*;
use crate::keepalived::{change::PATIENCE, round::STATUS_INTERVAL};

/// A group with agents on three nodes.
fn reporting() -> Rig {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": { "slots": 1 } }));
    rig.balancer("web", &["192.0.2.50"]);
    rig.settle();
    rig
}

fn node_goes(rig: &mut Rig, name: &str) {
    let version = Version(rig.next_version());
    rig.hear(News::Nodes(Watched::Gone(name.to_owned(), version)));
}

/// Changes what an agent reports.
fn reports(rig: &mut Rig, node: &str, change: &Value) {
    let mut nodes = rig.status(GROUP)["nodes"].clone();
    let all = nodes.as_array_mut().unwrap();
    merge(all.iter_mut().find(|entry| entry["node"] == node).unwrap(), change);
    rig.patch("keepalivedgroups", GROUP, &json!({ "status": { "nodes": nodes } }));
}

fn pass(rig: &mut Rig, time: Duration) {
    let until = rig.uptime + time;
    while rig.uptime < until {
        rig.uptime += Duration::from_millis(500);
        rig.step();
        rig.agents_report();
    }
}

fn reason(rig: &Rig, kind: &str) -> String {
    let (status, reason, _) = rig.condition(kind);
    format!("{status} {reason}")
}

/// The events so far that say that addresses moved.
fn moved(rig: &Rig) -> usize {
    rig.events.iter().filter(|event| event.contains("Moved")).count()
}

#[test]
fn the_entry_of_a_node_that_is_gone_goes_as_well() {
    let mut rig = reporting();
    rig.silent.insert("n2".to_owned());
    reports(&mut rig, "n2", &json!({ "lastError": "the disk is full" }));
    rig.settle();
    assert_eq!(reason(&rig, "Degraded"), "True NodesFailing");
    node_goes(&mut rig, "n2");
    rig.settle();
    assert_eq!(reason(&rig, "Degraded"), "False AsExpected");
    let names: Vec<_> = rig.status(GROUP)["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["node"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["n1", "n3"]);
}

#[test]
fn a_node_that_left_the_group_keeps_its_entry_and_its_error_counts_no_longer() {
    let mut rig = reporting();
    rig.silent.insert("n2".to_owned());
    reports(&mut rig, "n2", &json!({ "lastError": "the disk is full" }));
    rig.settle();
    assert_eq!(reason(&rig, "Degraded"), "True NodesFailing");
    let entry = rig.status(GROUP)["nodes"][1].clone();
    rig.node("n2", &json!({}), "192.0.2.2");
    pass(&mut rig, Duration::from_secs(3));
    let mut nodes = rig.status(GROUP)["nodes"].clone();
    nodes.as_array_mut().unwrap().push(entry);
    rig.patch("keepalivedgroups", GROUP, &json!({ "status": { "nodes": nodes } }));
    rig.uptime += STATUS_INTERVAL;
    rig.step();
    assert_eq!(rig.status(GROUP)["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(reason(&rig, "Degraded"), "False AsExpected");
}

#[test]
fn a_group_without_agents_does_not_say_that_it_announces() {
    let mut rig = Rig::new();
    rig.silent.extend(["n1", "n2", "n3"].map(str::to_owned));
    rig.group(&json!({ "vrrp": {} }));
    pass(&mut rig, PATIENCE / 2);
    assert_eq!(reason(&rig, "Ready"), "False NoAgents");
    assert_eq!(reason(&rig, "Degraded"), "False AsExpected");
    assert_eq!(rig.condition("ReconcileSuccess").0, "True");
    pass(&mut rig, PATIENCE);
    assert_eq!(reason(&rig, "Degraded"), "True NodesWithoutAgent");
    assert!(rig.condition("Degraded").2.contains("from n1, n2, n3"));
    rig.silent.remove("n2");
    pass(&mut rig, Duration::from_secs(3));
    assert_eq!(rig.condition("Ready").2, "announced from 1 node");
    assert!(rig.condition("Degraded").2.contains("from n1, n3"));
    rig.silent.clear();
    pass(&mut rig, Duration::from_secs(3));
    assert_eq!(rig.condition("Ready").2, "announced from 3 nodes");
    assert_eq!(reason(&rig, "Degraded"), "False AsExpected");
}

#[test]
fn a_node_with_an_earlier_plan_is_named_unless_it_is_down_or_goes_on() {
    let mut rig = reporting();
    rig.silent.insert("n2".to_owned());
    rig.balancer("other", &["192.0.2.51"]);
    pass(&mut rig, PATIENCE / 2);
    assert_eq!(reason(&rig, "Degraded"), "False AsExpected");
    // An agent that reports a later plan is not late, even if there is a still later one.
    let generation = rig.plan().generation;
    rig.balancer("third", &["192.0.2.52"]);
    rig.uptime += PLAN_INTERVAL;
    rig.step();
    reports(&mut rig, "n2", &json!({ "generation": generation }));
    pass(&mut rig, PATIENCE * 4 / 5);
    assert_eq!(reason(&rig, "Degraded"), "False AsExpected");
    pass(&mut rig, PATIENCE / 3);
    assert_eq!(reason(&rig, "Degraded"), "True NodesBehind");
    assert!(rig.condition("Degraded").2.contains("on n2."));
    rig.node_fails("n2");
    pass(&mut rig, Duration::from_secs(3));
    assert_eq!(reason(&rig, "Degraded"), "False AsExpected");
}

#[test]
fn reports_that_follow_each_other_fast_are_one_write_a_second() {
    let mut rig = reporting();
    rig.uptime += STATUS_INTERVAL;
    rig.forget_calls();
    let began = rig.uptime;
    for turn in 0.. {
        if rig.uptime >= began + 3 * STATUS_INTERVAL {
            break;
        }
        let holder = ["n1", "n2"][turn % 2];
        for node in ["n1", "n2", "n3"] {
            let state = if node == holder { "MASTER" } else { "BACKUP" };
            let report = json!({
                "name": "edge/0", "state": state, "since": "2026-01-02T03:04:05Z",
            });
            reports(&mut rig, node, &json!({ "instances": [report] }));
        }
        rig.step();
        rig.uptime += Duration::from_millis(100);
    }
    let writes = rig.calls.iter().filter(|call| call.starts_with("group_status")).count();
    assert!((2..=4).contains(&writes), "{:?}", rig.calls);
}

#[test]
fn a_status_that_came_too_late_is_written_as_soon_as_the_later_version_is_seen() {
    let mut rig = reporting();
    rig.uptime += STATUS_INTERVAL;
    rig.events.clear();
    let holder = rig.status(GROUP)["addresses"][0]["node"].as_str().unwrap().to_owned();
    let next = if holder == "n1" { "n2" } else { "n1" };
    for tries in 0..8 {
        let state = |state: &str| {
            json!({ "instances": [{
                "name": "edge/0", "state": state, "since": format!("2026-01-02T03:04:{:02}Z", 10 + tries),
            }] })
        };
        reports(&mut rig, &holder, &state("BACKUP"));
        reports(&mut rig, next, &state("MASTER"));
        rig.uptime += STATUS_INTERVAL;
        let write = rig.plan_once().pop().unwrap();
        assert_eq!(write.label(), "group_status", "without a delay that grows");
        rig.report(write, Err(Failure::Conflict));
        assert_eq!(rig.plan_once(), [], "nothing is tried at the same version");
    }
    assert_eq!(moved(&rig), 0, "it is not written yet");
    reports(&mut rig, "n3", &json!({ "device": "eth0" }));
    rig.uptime += STATUS_INTERVAL;
    rig.step();
    assert_eq!(rig.status(GROUP)["addresses"][0]["node"], next);
    assert_eq!(moved(&rig), 1, "{:?}", rig.events);
}

#[test]
fn plans_follow_each_other_no_faster_than_agents_reload() {
    let mut rig = reporting();
    rig.uptime += PLAN_INTERVAL;
    rig.forget_calls();
    let began = rig.uptime;
    for turn in 0.. {
        if rig.uptime >= began + Duration::from_secs(5) {
            break;
        }
        rig.shows("web", if turn % 2 == 0 { &[] } else { &["192.0.2.50"] });
        rig.step();
        rig.agents_report();
        rig.uptime += Duration::from_millis(50);
    }
    let plans = rig.calls.iter().filter(|call| call.starts_with("align configmaps")).count();
    assert!((5..=10).contains(&plans), "{plans}");
}

#[test]
fn a_password_that_no_instance_uses_need_not_exist() {
    let mut rig = Rig::new();
    let password = json!({ "secretRef": { "name": "vrrp" } });
    rig.group(&json!({ "vrrp": { "slots": 1 }, "passwordAuth": password }));
    rig.balancer("web", &["192.0.2.50"]);
    rig.settle();
    assert_eq!(reason(&rig, "Ready"), "True Serving");
    assert_eq!(rig.instances(), ["edge/0 1: 192.0.2.50"]);
    assert_eq!(rig.plan().password_from, None);
    let (status, reason, message) = rig.condition("Degraded");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "PartlyRead"));
    assert!(message.contains("passwordAuth"), "{message}");
}

#[test]
fn a_password_that_instances_still_use_is_needed_until_they_have_changed() {
    let mut rig = Rig::new();
    rig.secrets.insert("infra/vrrp".to_owned(), "u/7".to_owned());
    rig.group(&json!({ "passwordAuth": { "secretRef": { "name": "vrrp" } } }));
    rig.balancer("web", &["192.0.2.50"]);
    rig.settle();
    assert!(rig.plan().password_from.is_some());
    rig.edit(&json!({ "vrrp": { "slots": 1 } }));
    rig.uptime += PLAN_INTERVAL;
    rig.step();
    assert!(rig.plan().password_names().next().is_none() || rig.plan().password_from.is_some());
    rig.settle();
    assert_eq!(
        (rig.plan().password_names().next(), rig.plan().password_from.clone()),
        (None, None)
    );
    assert_eq!(rig.instances(), ["edge/0 1: 192.0.2.50"]);
}

#[test]
fn claims_name_no_node_for_what_went_while_no_operator_ran() {
    let mut rig = reporting();
    for (address, service) in [("192.0.2.50", "web"), ("192.0.2.60", "gone")] {
        rig.claim(address, "LoadBalancer", "Service", service);
        rig.patch("ips", address, &json!({ "status": { "node": "n1" } }));
    }
    rig.claim("192.0.2.70", "Egress", "Namespace", "other");
    rig.patch("ips", "192.0.2.70", &json!({ "status": { "node": "n1" } }));
    rig.restart();
    rig.settle();
    let mut cleared = Vec::new();
    let now = rig.now();
    let mut out = Out::default();
    crate::ledger::Keeper.plan(rig.shared.lend(now), &mut out);
    for write in &out.effects {
        let text = format!("{write:?}");
        if text.contains("Place") && text.contains("node: None") {
            cleared.push(text);
        }
    }
    assert_eq!(cleared.len(), 1, "{cleared:?}");
    assert!(cleared[0].contains("192.0.2.60"), "{cleared:?}");
}
