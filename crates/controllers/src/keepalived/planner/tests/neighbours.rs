//! What groups owe each other: addresses and router IDs of one are none of another's.

use super::*;

const A: &str = "infra/a";
const B: &str = "infra/b";

/// Two groups of the same nodes, and a Service of one of them. The other is decided about first.
fn two_groups() -> Rig {
    let mut rig = Rig::new();
    rig.group_named("a", &json!({ "vrrp": { "slots": 1 } }));
    rig.group_named("b", &json!({ "vrrp": { "slots": 1 } }));
    rig.balancer("web", &["192.0.2.50"]);
    asks(&mut rig, B);
    rig.settle();
    assert_eq!((has(&rig, A), has(&rig, B)), (false, true));
    rig
}

fn asks(rig: &mut Rig, group: &str) {
    rig.annotate("web", &json!({ "keepalivedgroup": group }));
}

/// Whether the plan of a group has the address of the Service.
fn has(rig: &Rig, group: &str) -> bool {
    plan_has(&rig.plan_of(group).unwrap())
}

fn plan_has(plan: &Plan) -> bool {
    let address: IpAddr = "192.0.2.50".parse().unwrap();
    plan.instances.iter().any(|one| one.served().any(|served| served == address))
}

/// Decides and lets the agents that are not silent carry it out.
fn carry_out(rig: &mut Rig) {
    for _ in 0..5 {
        rig.uptime += PLAN_INTERVAL;
        rig.step();
        rig.agents_report();
    }
}

/// Decides once, and takes the write of a group's plan out of what is to be done; the rest is done.
fn hold_back(rig: &mut Rig, group: &str) -> Effect {
    rig.uptime += PLAN_INTERVAL;
    let (mut held, others): (Vec<_>, Vec<_>) = rig
        .plan_once()
        .into_iter()
        .partition(|effect| effect.step.writes_plan() && effect.group.to_string() == group);
    for effect in others {
        rig.perform(effect);
    }
    assert_eq!(held.len(), 1, "{held:?}");
    held.remove(0)
}

#[test]
fn an_address_that_went_to_another_group_while_no_operator_ran_leaves_the_first_one_before() {
    let mut rig = two_groups();
    rig.silent.insert("n2".to_owned());
    asks(&mut rig, A);
    rig.restart();
    carry_out(&mut rig);
    assert_eq!((has(&rig, A), has(&rig, B)), (false, false), "n2 may hold it");
    rig.silent.clear();
    rig.settle();
    assert_eq!((has(&rig, A), has(&rig, B)), (true, false));
}

#[test]
fn an_address_whose_plan_is_being_written_joins_no_other_group() {
    let mut rig = two_groups();
    rig.remove("services", "shop/web");
    rig.settle();
    rig.balancer("web", &["192.0.2.50"]);
    asks(&mut rig, A);
    let write = hold_back(&mut rig, A);
    asks(&mut rig, B);
    carry_out(&mut rig);
    assert_eq!((has(&rig, A), has(&rig, B)), (false, false), "a is being written");
    rig.perform(write);
    assert_eq!((has(&rig, A), has(&rig, B)), (true, false));
    rig.settle();
    assert_eq!((has(&rig, A), has(&rig, B)), (false, true));
}

#[test]
fn a_plan_that_was_refused_keeps_no_address_from_other_groups() {
    let mut rig = two_groups();
    rig.remove("services", "shop/web");
    rig.settle();
    rig.balancer("web", &["192.0.2.50"]);
    asks(&mut rig, A);
    let write = hold_back(&mut rig, A);
    asks(&mut rig, B);
    carry_out(&mut rig);
    assert!(!has(&rig, B));
    rig.report(write, Err(Failure::Throttled(Duration::ZERO)));
    carry_out(&mut rig);
    assert!(has(&rig, B));
}

#[test]
fn a_plan_without_an_answer_keeps_its_addresses_until_it_can_no_longer_be_written() {
    let mut rig = two_groups();
    rig.remove("services", "shop/web");
    rig.settle();
    rig.balancer("web", &["192.0.2.50"]);
    asks(&mut rig, A);
    let write = hold_back(&mut rig, A);
    asks(&mut rig, B);
    let began = rig.uptime;
    rig.report(write, Err(Failure::Unknown("no answer".to_owned())));
    while rig.uptime < began + Duration::from_mins(1) {
        rig.uptime += Duration::from_secs(1);
        rig.step();
        rig.agents_report();
        assert!(!has(&rig, B));
    }
    rig.uptime += Duration::from_mins(1);
    carry_out(&mut rig);
    assert_eq!((has(&rig, A), has(&rig, B)), (false, true));
}

/// The router IDs that the status of a group has, sorted.
fn ids(rig: &Rig, group: &str) -> Vec<i64> {
    let ids = rig.status(group)["routerIDs"].as_object().cloned().unwrap_or_default();
    let mut ids: Vec<_> = ids.values().map(|id| id.as_i64().unwrap()).collect();
    ids.sort_unstable();
    ids
}

/// Status and reason of `Degraded`, and its message.
fn degraded(rig: &Rig, group: &str) -> (String, String) {
    let status = rig.status(group);
    let all = status["conditions"].as_array().unwrap();
    let found = all.iter().find(|one| one["type"] == "Degraded").unwrap();
    let text = |field: &str| found[field].as_str().unwrap_or_default();
    (format!("{} {}", text("status"), text("reason")), text("message").to_owned())
}

/// Two groups, each on nodes of its own.
fn apart(first: &Value, second: &Value) -> Rig {
    let mut rig = Rig::new();
    rig.node("m1", &json!({ "inner": "yes" }), "192.0.2.11");
    rig.group_named("a", first);
    rig.settle();
    let mut second = second.clone();
    second["nodeSelector"] = json!({ "inner": "yes", "edge": null });
    rig.group_named("b", &second);
    rig.settle();
    rig
}

/// Lets both groups have a node in common.
fn join(rig: &mut Rig) {
    rig.node("m1", &json!({ "edge": "yes", "inner": "yes" }), "192.0.2.11");
}

#[test]
fn the_router_ids_of_a_group_that_became_invalid_are_given_to_no_neighbour() {
    let mut rig = Rig::new();
    rig.group_named("a", &json!({ "vrrp": { "slots": 2 } }));
    rig.settle();
    rig.patch("keepalivedgroups", A, &json!({ "spec": { "interface": "{" } }));
    rig.settle();
    rig.group_named("b", &json!({}));
    rig.balancer("web", &["192.0.2.50"]);
    asks(&mut rig, B);
    rig.settle();
    assert_eq!((ids(&rig, A), ids(&rig, B)), (vec![1, 2], vec![3]));
}

#[test]
fn a_router_id_that_nodes_still_use_is_given_to_no_neighbour() {
    let mut rig = Rig::new();
    rig.group_named("a", &json!({}));
    rig.group_named("b", &json!({}));
    rig.balancer("web", &["192.0.2.50"]);
    asks(&mut rig, A);
    rig.settle();
    assert_eq!(ids(&rig, A), [1]);
    rig.remove("services", "shop/web");
    // The status is without the ID, and the plan still has it.
    rig.step();
    let write = hold_back(&mut rig, A);
    assert_eq!(ids(&rig, A), Vec::<i64>::new());
    rig.balancer("other", &["192.0.2.51"]);
    rig.annotate("other", &json!({ "keepalivedgroup": B }));
    rig.step();
    rig.step();
    assert_eq!(ids(&rig, B), [2]);
    rig.perform(write);
    rig.settle();
    assert_eq!(ids(&rig, B), [2]);
}

#[test]
fn a_group_of_slots_gets_ids_that_no_group_of_the_cluster_has_while_such_are_left() {
    let slots =
        |last: u8| json!({ "vrrp": { "slots": 3, "routerIDs": { "first": 1, "last": last } } });
    let rig = apart(&slots(9), &slots(5));
    assert_eq!((ids(&rig, A), ids(&rig, B)), (vec![1, 2, 3], vec![1, 4, 5]));
    // Groups as keepalived-operator had them count from 1.
    let mut rig = apart(&slots(9), &json!({}));
    rig.balancer("web", &["192.0.2.50"]);
    asks(&mut rig, B);
    rig.settle();
    assert_eq!(ids(&rig, B), [1]);
}

#[test]
fn groups_that_come_to_share_a_node_do_not_keep_the_same_ids() {
    let few = json!({ "vrrp": { "slots": 2, "routerIDs": { "first": 1, "last": 2 } } });
    let mut rig = apart(&few, &few);
    assert_eq!((ids(&rig, A), ids(&rig, B)), (vec![1, 2], vec![1, 2]));
    join(&mut rig);
    rig.settle();
    // No other ID is left.
    assert_eq!((ids(&rig, A), ids(&rig, B)), (vec![1, 2], vec![1, 2]));
    for (group, other) in [(A, B), (B, A)] {
        let (state, message) = degraded(&rig, group);
        assert_eq!(state, "True RouterIDsShared");
        assert!(message.contains(&format!("1, 2 of {other}")), "{message}");
    }
    let more = json!({ "spec": { "vrrp": { "routerIDs": { "last": 9 } } } });
    rig.patch("keepalivedgroups", B, &more);
    rig.settle();
    assert_eq!((ids(&rig, A), ids(&rig, B)), (vec![1, 2], vec![3, 4]));
    for group in [A, B] {
        assert_eq!(degraded(&rig, group).0, "False AsExpected");
    }
}

#[test]
fn of_groups_as_the_original_had_them_both_keep_their_ids_and_say_so() {
    let mut rig = apart(&json!({}), &json!({}));
    rig.balancer("web", &["192.0.2.50"]);
    asks(&mut rig, A);
    rig.balancer("other", &["192.0.2.51"]);
    rig.annotate("other", &json!({ "keepalivedgroup": B }));
    rig.settle();
    join(&mut rig);
    rig.settle();
    assert_eq!((ids(&rig, A), ids(&rig, B)), (vec![1], vec![1]));
    assert_eq!(degraded(&rig, A).0, "True RouterIDsShared");
    // What the message says helps.
    rig.patch("keepalivedgroups", B, &json!({ "spec": { "blacklistRouterIDs": [1] } }));
    rig.settle();
    assert_eq!((ids(&rig, A), ids(&rig, B)), (vec![1], vec![2]));
    assert_eq!(degraded(&rig, A).0, "False AsExpected");
}
