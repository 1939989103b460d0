//! An address leaves one instance on every node before it joins another one, of the same group or of another.

use super::*;

/// Whether the plan of a group has an address, and whether it is on its way out.
fn state(rig: &Rig, group: &str, address: &str) -> (bool, bool) {
    let address: IpAddr = address.parse().unwrap();
    let plan = rig.plan_of(group).unwrap();
    let has = plan.instances.iter().any(|one| one.served().any(|served| served == address));
    (has, plan.leaving.contains_key(&address))
}

/// Decides and lets the agents that are not silent carry it out, without waiting for anybody.
fn carry_out(rig: &mut Rig) {
    for _ in 0..5 {
        rig.uptime += PLAN_INTERVAL;
        rig.step();
        rig.agents_report();
    }
}

#[test]
fn an_address_of_another_service_waits_until_every_node_has_let_it_go() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    rig.balancer("old", &["192.0.2.50"]);
    rig.balancer("new", &["192.0.2.51"]);
    rig.settle();
    rig.silent.insert("n2".to_owned());
    rig.shows("old", &[]);
    rig.shows("new", &["192.0.2.50", "192.0.2.51"]);
    carry_out(&mut rig);
    assert_eq!(state(&rig, GROUP, "192.0.2.50"), (false, true), "n2 may hold it");
    assert_eq!(rig.instances(), ["shop/new 1: 192.0.2.51"]);
    rig.silent.clear();
    rig.settle();
    assert_eq!(rig.instances(), ["shop/new 1: 192.0.2.51 192.0.2.50"]);
    assert_eq!(state(&rig, GROUP, "192.0.2.50"), (true, false));
    assert!(rig.announced("new").starts_with("true"));
}

#[test]
fn a_node_that_says_nothing_is_waited_for_and_not_for_ever() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    rig.balancer("old", &["192.0.2.50"]);
    rig.settle();
    rig.silent.insert("n2".to_owned());
    rig.remove("services", "shop/old");
    rig.balancer("new", &["192.0.2.50"]);
    carry_out(&mut rig);
    assert_eq!(state(&rig, GROUP, "192.0.2.50"), (false, true));
    let soon = rig.uptime + Duration::from_secs(20);
    rig.settle();
    assert_eq!(state(&rig, GROUP, "192.0.2.50"), (true, false));
    assert!(rig.uptime >= soon);
}

#[test]
fn an_address_that_returns_to_its_instance_need_not_wait() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    rig.balancer("web", &["192.0.2.50"]);
    rig.settle();
    rig.silent.insert("n2".to_owned());
    rig.remove("services", "shop/web");
    carry_out(&mut rig);
    assert_eq!(state(&rig, GROUP, "192.0.2.50"), (false, true));
    rig.balancer("other", &["192.0.2.50"]);
    carry_out(&mut rig);
    assert_eq!(state(&rig, GROUP, "192.0.2.50"), (true, false), "its slot is the same");
}

#[test]
fn a_service_that_gets_an_instance_of_its_own_leaves_its_slot_first() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    rig.balancer("web", &["192.0.2.50"]);
    rig.settle();
    rig.silent.insert("n2".to_owned());
    rig.endpoints("web", &["n1"]);
    rig.patch("services", "shop/web", &json!({ "spec": { "externalTrafficPolicy": "Local" } }));
    carry_out(&mut rig);
    assert_eq!(state(&rig, GROUP, "192.0.2.50"), (false, true));
    rig.silent.clear();
    rig.settle();
    assert!(
        rig.instances()
            .iter()
            .any(|line| line.starts_with("edge/shop/web") && line.ends_with(": 192.0.2.50"))
    );
    assert!(rig.announced("web").starts_with("true Announced: n1 since"));
}

#[test]
fn an_address_that_goes_to_another_group_leaves_the_first_one_before() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    rig.group_named("dmz", &json!({ "vrrp": {} }));
    rig.balancer("web", &["192.0.2.50"]);
    rig.settle();
    rig.silent.insert("n2".to_owned());
    rig.annotate("web", &json!({ "keepalivedgroup": "infra/dmz" }));
    carry_out(&mut rig);
    assert_eq!(state(&rig, GROUP, "192.0.2.50"), (false, true));
    assert_eq!(state(&rig, "infra/dmz", "192.0.2.50"), (false, false));
    rig.silent.clear();
    rig.settle();
    assert_eq!(state(&rig, "infra/dmz", "192.0.2.50"), (true, false));
    assert!(rig.announced("web").starts_with("true"));
}

#[test]
fn the_addresses_of_a_group_that_is_deleted_wait_for_the_end_of_its_pods() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    rig.group_named("dmz", &json!({ "vrrp": {} }));
    rig.balancer("web", &["192.0.2.50"]);
    rig.settle();
    rig.remove("keepalivedgroups", GROUP);
    rig.annotate("web", &json!({ "keepalivedgroup": "infra/dmz" }));
    carry_out(&mut rig);
    assert_eq!(state(&rig, "infra/dmz", "192.0.2.50"), (false, false));
    rig.settle();
    assert_eq!(state(&rig, "infra/dmz", "192.0.2.50"), (true, false));
}

#[test]
fn an_instance_with_another_router_id_gets_its_addresses_when_all_nodes_have_left_the_old_one() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    rig.balancer("web", &["192.0.2.50"]);
    rig.settle();
    rig.silent.insert("n2".to_owned());
    rig.edit(&json!({ "blacklistRouterIDs": [1] }));
    carry_out(&mut rig);
    assert_eq!(state(&rig, GROUP, "192.0.2.50"), (false, true));
    rig.silent.clear();
    rig.settle();
    assert_eq!(rig.instances(), ["shop/web 2: 192.0.2.50"]);
}

#[test]
fn a_plan_is_not_written_only_to_forget_what_has_left() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    rig.balancer("web", &["192.0.2.50"]);
    rig.settle();
    rig.remove("services", "shop/web");
    rig.settle();
    let generation = rig.plan().generation;
    assert_eq!(state(&rig, GROUP, "192.0.2.50"), (false, true));
    rig.balancer("web", &["192.0.2.51"]);
    rig.settle();
    assert_eq!((rig.plan().generation, rig.plan().leaving), (generation + 1, BTreeMap::new()));
}
