use alloc::{string::ToString, vec, vec::Vec};

use super::*;
use crate::plan::{Change, FORMAT, Form, Preempt, Step, Transport, Version};

/// An instance that advertises an anchor, or else its first address.
fn instance(name: &str, router_id: u8, anchor: bool, served: &[&str]) -> Instance {
    let mut served: Vec<IpAddr> = served.iter().map(|text| text.parse().unwrap()).collect();
    let first = if anchor { "169.254.112.1".parse().unwrap() } else { served.remove(0) };
    Instance {
        name: name.to_string(),
        router_id,
        generation: 1,
        form: Form {
            version: Version::V3,
            advert_millis: 100,
            transport: Transport::Multicast,
            password: None,
            advertised: vec![first],
            anchor,
        },
        excluded: served,
        order: vec![0],
        preempt: Preempt::Never,
        only_on: None,
        lines: vec![],
        change: None,
    }
}

fn plan(generation: i64, instances: Vec<Instance>) -> Plan {
    Plan {
        format: FORMAT,
        generation,
        group: "net/edge".to_string(),
        interface: "eth0".to_string(),
        interface_from: None,
        interfaces: BTreeMap::new(),
        password_from: None,
        global_lines: vec![],
        nodes: vec![],
        instances,
        leaving: BTreeMap::new(),
    }
}

/// The instances with what they serve.
fn served(plan: &Plan) -> Vec<(&str, Vec<alloc::string::String>)> {
    let all = plan.instances.iter();
    all.map(|it| (it.name.as_str(), it.serves().map(|it| it.to_string()).collect())).collect()
}

fn texts(all: &[&str]) -> Vec<alloc::string::String> {
    all.iter().map(ToString::to_string).collect()
}

/// The next plan from a draft, as the operator makes it.
fn next(mut draft: Plan, before: &Plan, run: i64) -> (Plan, Vec<i64>) {
    let waits = draft.hold_back(before, |generation| generation <= run);
    (
        draft.succeeding(Some(before)).unwrap_or_else(|| before.clone()),
        waits.into_values().collect(),
    )
}

#[test]
fn an_address_is_on_no_instance_until_all_nodes_have_taken_it_off_the_old_one() {
    let first = plan(1, vec![instance("a", 1, true, &["192.0.2.1", "192.0.2.2"])]);
    let draft = || {
        plan(
            0,
            vec![
                instance("a", 1, true, &["192.0.2.2"]),
                instance("b", 2, true, &["192.0.2.1", "192.0.2.3"]),
            ],
        )
    };
    let (second, waits) = next(draft(), &first, 1);
    let without = [("a", texts(&["192.0.2.2"])), ("b", texts(&["192.0.2.3"]))];
    assert_eq!((served(&second), waits), (without.to_vec(), vec![2]));
    // Nothing changes until the nodes report it.
    let (same, waits) = next(draft(), &second, 1);
    assert_eq!((same.generation, waits), (second.generation, vec![2]));
    let (third, waits) = next(draft(), &second, 2);
    let with = [("a", texts(&["192.0.2.2"])), ("b", texts(&["192.0.2.1", "192.0.2.3"]))];
    assert_eq!((third.generation, served(&third), waits), (3, with.to_vec(), vec![]));
    assert!(third.leaving.is_empty());
}

#[test]
fn an_instance_without_an_address_to_advertise_is_not_there_yet() {
    let first = plan(1, vec![instance("ns/a", 1, false, &["192.0.2.1", "2001:db8::1"])]);
    let draft = || plan(0, vec![instance("ns/b", 1, false, &["192.0.2.1", "2001:db8::1"])]);
    let (second, _) = next(draft(), &first, 1);
    assert_eq!(served(&second), []);
    let (third, _) = next(draft(), &second, 2);
    assert_eq!(served(&third), [("ns/b", texts(&["192.0.2.1", "2001:db8::1"]))]);
}

#[test]
fn an_address_may_come_back_at_once_to_where_it_was() {
    let first = plan(1, vec![instance("a", 1, true, &["192.0.2.1"])]);
    let (second, _) = next(plan(0, vec![instance("a", 1, true, &[])]), &first, 0);
    assert_eq!(second.leaving.len(), 1);
    let (third, waits) = next(plan(0, vec![instance("a", 1, true, &["192.0.2.1"])]), &second, 0);
    assert_eq!((served(&third), waits), (vec![("a", texts(&["192.0.2.1"]))], vec![]));
    assert!(third.leaving.is_empty());
    // With another router id the nodes do not hear each other.
    let (other, waits) = next(plan(0, vec![instance("a", 2, true, &["192.0.2.1"])]), &second, 0);
    assert_eq!((served(&other), waits), (vec![("a", vec![])], vec![2]));
}

#[test]
fn an_address_that_a_change_still_has_to_take_off_goes_nowhere_else() {
    let old = instance("ns/a", 1, false, &["192.0.2.1"]);
    let first = plan(1, vec![old.clone()]);
    let mut changing = instance("ns/a", 1, false, &["192.0.2.9"]);
    changing.change = Some(Change { before: old.form, holder: 0, step: Step::Mute, since: 2 });
    let draft = plan(0, vec![changing, instance("ns/b", 2, false, &["192.0.2.1"])]);
    let (second, waits) = next(draft, &first, 9);
    assert_eq!(served(&second), [("ns/a", texts(&["192.0.2.9", "192.0.2.1"]))]);
    assert_eq!(waits, [0; 0]);
}

#[test]
fn what_nodes_have_taken_off_is_forgotten_with_the_next_change() {
    let first = plan(1, vec![instance("a", 1, true, &["192.0.2.1"])]);
    let empty = || plan(0, vec![instance("a", 1, true, &[])]);
    let (second, _) = next(empty(), &first, 1);
    // To forget it is no reason for a plan.
    let (same, _) = next(empty(), &second, 2);
    assert_eq!((same.generation, same.leaving.len()), (2, 1));
    let (third, _) = next(plan(0, vec![instance("a", 1, true, &["192.0.2.7"])]), &second, 2);
    assert_eq!((third.generation, third.leaving.len()), (3, 0));
}
