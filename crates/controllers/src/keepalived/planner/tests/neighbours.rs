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
    others.into_iter().for_each(|effect| rig.perform(effect));
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
