//! What a group cannot carry is refused, and what it carries goes on.

use super::*;
use crate::keepalived::round::MOST_BYTES;

/// How many addresses fit with adverts below 100 ms.
const MOST: usize = 1000;

/// The addresses from this number on.
fn addresses(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("198.18.{}.{}", number / 250, number % 250)).collect()
}

fn serve(rig: &mut Rig, name: &str, numbers: std::ops::Range<usize>) {
    let addresses = addresses(numbers);
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    rig.balancer(name, &addresses);
}

/// How many addresses the plan has, and the interval of its adverts.
fn state(rig: &Rig) -> (usize, u32) {
    let plan = rig.plan();
    let served = plan.instances.iter().flat_map(Instance::served).count();
    let intervals: BTreeSet<_> = plan.instances.iter().map(|one| one.form.advert_millis).collect();
    assert_eq!(intervals.len(), 1, "{intervals:?}");
    (served, *intervals.first().unwrap())
}

#[test]
fn short_adverts_carry_a_thousand_addresses_and_newcomers_beyond_are_refused() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": { "slots": 1, "advertInterval": "50ms" } }));
    serve(&mut rig, "many", 0..MOST - 1);
    rig.settle();
    serve(&mut rig, "late", MOST..MOST + 2);
    rig.settle();
    assert_eq!(state(&rig), (MOST, 50));
    assert!(rig.announced("late").starts_with("false NotApplied: "), "{}", rig.announced("late"));
    assert!(rig.announced("many").starts_with("true"));
    // Every address that leaves makes room.
    serve(&mut rig, "many", 1..MOST - 1);
    rig.settle();
    assert_eq!(state(&rig), (MOST, 50));
    assert!(rig.announced("late").starts_with("true"), "{}", rig.announced("late"));
}

#[test]
fn adverts_do_not_become_shorter_than_the_addresses_of_a_group_allow() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": { "slots": 1, "advertInterval": "1s" } }));
    serve(&mut rig, "many", 0..MOST + 1);
    rig.settle();
    assert_eq!(state(&rig), (MOST + 1, 1000));
    rig.edit(&json!({ "vrrp": { "advertInterval": "30ms" } }));
    serve(&mut rig, "late", MOST + 1..MOST + 2);
    rig.settle();
    assert_eq!(state(&rig), (MOST + 1, 1000));
    let (status, reason, message) = rig.condition("Degraded");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "AdvertIntervalKept"));
    assert!(message.contains("1001 addresses") && message.contains("1000 ms"), "{message}");
    // With fewer addresses the interval counts.
    serve(&mut rig, "many", 0..MOST - 1);
    rig.settle();
    assert_eq!(state(&rig), (MOST, 30));
    assert_eq!(rig.condition("Degraded").0, "False");
}

#[test]
fn a_plan_that_is_full_refuses_newcomers_and_goes_on_changing() {
    let mut rig = Rig::new();
    // Each instance names all other nodes in the file of pods of the original, which run everywhere.
    for number in 0..250 {
        let (name, address) = (format!("node-{number:03}"), format!("10.0.0.{number}"));
        rig.silent.insert(name.clone());
        rig.node(&name, &json!({ "edge": "yes" }), &address);
    }
    rig.silent.extend(["n1", "n2", "n3"].map(str::to_owned));
    rig.group(&json!({ "unicastEnabled": true }));
    for part in 0..10 {
        let addresses = addresses(part * 16..part * 16 + 16);
        rig.balancer(
            &format!("part-{part:02}"),
            &addresses.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        rig.annotate(&format!("part-{part:02}"), &json!({ "spreadvips": "true" }));
        rig.settle();
    }
    let (status, reason, _) = rig.condition("Degraded");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "PlanFull"));
    let data = rig.objects[&("configmaps", GROUP.to_owned())]["data"].clone();
    let size: usize = data.as_object().unwrap().values().map(|it| it.as_str().unwrap().len()).sum();
    assert!((MOST_BYTES / 2..=MOST_BYTES).contains(&size), "{size}");
    assert!(rig.announced("part-09").contains("no room for more"), "{}", rig.announced("part-09"));
    // What it has goes on, and can be changed.
    let before = rig.plan().instances.len();
    rig.edit(&json!({ "interface": "eth1" }));
    rig.settle();
    assert_eq!((rig.plan().interface.as_str(), rig.plan().instances.len()), ("eth1", before));
}

#[test]
fn the_file_for_all_nodes_is_short_once_no_pod_of_the_original_reads_it() {
    let mut rig = Rig::new();
    rig.silent.insert("n2".to_owned());
    rig.group(&json!({ "vrrp": { "slots": 1 } }));
    rig.balancer("web", &["192.0.2.50"]);
    rig.settle();
    assert!(rig.file().contains("192.0.2.50"));
    rig.silent.clear();
    rig.settle();
    let short = "# Each node has a file of its own, made from plan.json.\nglobal_defs {\n    router_id edge\n}\n";
    assert_eq!(rig.file(), short);
}

#[test]
fn a_plan_names_the_devices_of_its_own_nodes_alone() {
    let mut rig = Rig::new();
    rig.group(&json!({ "interfaces": { "n1": "eth1", "elsewhere": "eth2" } }));
    rig.settle();
    let devices: Vec<_> = rig.plan().interfaces.into_iter().collect();
    assert_eq!(devices, [("n1".to_owned(), "eth1".to_owned())]);
}
