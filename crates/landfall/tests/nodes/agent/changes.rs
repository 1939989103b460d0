//! Changes that nodes carry out one after the other.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams};
use landfall_api::keepalived_group::{GuardStep, InstanceState};
use landfall_testkit::{Bed, wait};
use landfall_vrrp::{Change, Form, PasswordFrom, Plan, Step, Version, password_name};

use super::group::{Group, NAME, slot};
use crate::LONG;

const ALL: [&str; 3] = ["n1", "n2", "n3"];

/// Writes the Secret, and returns the name that plans have for its password.
pub(super) async fn set_password(group: &Group, password: &str) -> String {
    let secret = Secret {
        metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
        data: Some([("password".to_owned(), ByteString(password.into()))].into()),
        ..Secret::default()
    };
    let params = PatchParams::apply("test").force();
    let secrets = group.api::<Secret>();
    let made = secrets.patch(NAME, &params, &Patch::Apply(&secret)).await.unwrap();
    let metadata = made.metadata;
    password_name(&metadata.uid.unwrap(), &metadata.resource_version.unwrap())
}

/// The plan after this one, at another step of a change or after it.
fn at_step(plan: &Plan, before: &Form, holder: &str, step: Option<Step>) -> Plan {
    let mut next = plan.clone();
    next.generation += 1;
    let (holder, since) = (plan.node_index(holder).unwrap(), next.generation);
    let change = |step| Change { before: before.clone(), holder, step, since };
    next.instances[0].change = step.map(change);
    next
}

#[tokio::test]
async fn a_password_changes_step_by_step_and_no_address_is_held_twice() {
    let Some(group) = Group::with_agents("agent-password").await else { return };
    let vip = Bed::vip4(1);
    let name = set_password(&group, "first-one").await;
    let mut instance = slot(1, &[0, 1, 2], &[]);
    instance.form = Form {
        version: Version::V2,
        advert_millis: 1000,
        password: Some(name),
        advertised: vec![vip],
        anchor: false,
        ..instance.form
    };
    let before = instance.form.clone();
    let mut plan = group.plan(1, vec![instance]);
    plan.password_from = Some(PasswordFrom { secret: NAME.to_owned(), key: "password".to_owned() });
    group.write(&plan).await;
    group.applied(1, &ALL).await;
    let holder = group.holder(vip, &ALL).await;
    let others = group.bed.names_without(&holder);
    let sampler = group.bed.sampler().unwrap();

    plan.instances[0].form.password = Some(set_password(&group, "second").await);
    for (step, expected) in [
        (Step::Mute, GuardStep::InFault),
        (Step::Holder, GuardStep::InFault),
        (Step::Others, GuardStep::Reloaded),
    ] {
        plan = at_step(&plan, &before, &holder, Some(step));
        group.write(&plan).await;
        group.applied(plan.generation, &ALL).await;
        for name in &others {
            group
                .says(name, "its step", |node| {
                    let step = node.guard.as_ref().map(|guard| guard.step);
                    step == Some(expected) && node.state_of("edge/1") == InstanceState::Fault
                })
                .await;
        }
    }
    plan = at_step(&plan, &before, &holder, None);
    group.write(&plan).await;
    group.applied(plan.generation, &ALL).await;
    for name in &others {
        group.says(name, "that it waits again", |node| node.instances.is_empty()).await;
        let run = group.bed.node(name).dir().join("run");
        let read = |file: &str| std::fs::read_to_string(run.join(file)).unwrap();
        assert!(read("keepalived.conf").contains("auth_pass \"second\""));
        assert!(!read("passwords.json").contains("first"), "an old password is still known");
        let log = group.agent(name).log_tail(10_000);
        assert!(!log.contains("second") && !log.contains("first-on"), "{log}");
    }
    sampler.next_sample().await;
    let record = sampler.record();
    assert_eq!(record.holdings(vip).len(), 1, "{:?}", record.holdings(vip));
    assert!(record.all_doubled(&ALL).is_empty(), "{:?}", record.all_doubled(&ALL));
}

#[tokio::test]
async fn a_holder_that_dies_in_the_middle_of_a_change_is_replaced() {
    let Some(group) = Group::with_agents("agent-silence").await else { return };
    let vip = Bed::vip4(1);
    let mut plan = group.plan(1, vec![slot(1, &[0, 1, 2], &[vip])]);
    group.write(&plan).await;
    group.applied(1, &ALL).await;
    let holder = group.holder(vip, &ALL).await;
    let others = group.bed.names_without(&holder);
    let before = plan.instances[0].form.clone();
    plan.instances[0].form.advertised = vec!["169.254.112.99".parse().unwrap()];
    for step in [Step::Mute, Step::Holder] {
        plan = at_step(&plan, &before, &holder, Some(step));
        group.write(&plan).await;
        group.applied(plan.generation, &ALL).await;
        for name in &others {
            group
                .says(name, "its step", |node| {
                    node.guard.as_ref().map(|guard| guard.step) == Some(GuardStep::InFault)
                })
                .await;
        }
    }
    // As long as the holder is heard, in whichever form, nothing ends: not in many times ten adverts.
    let is_quiet = async || group.proxy.idle() > Duration::from_secs(5);
    wait::until("a while without a report", LONG, is_quiet).await.unwrap();
    for name in &others {
        let guard = group.reported(name).await.unwrap().guard.unwrap();
        assert_eq!(guard.step, GuardStep::InFault);
    }
    let sampler = group.bed.sampler().unwrap();
    let died = group.bed.node(&holder).power_off().unwrap();
    let second = group.holder(vip, &others).await;
    let taken = sampler.record().taken(vip, &holder, died).unwrap();
    assert_eq!(taken.node, second);
    for name in &others {
        group
            .says(name, "that the wait has ended", |node| {
                node.guard.as_ref().map(|guard| guard.step) == Some(GuardStep::Ended)
            })
            .await;
    }
    sampler.next_sample().await;
    let doubled = sampler.record().all_doubled(&others);
    assert!(doubled.is_empty(), "{doubled:?}");
    plan = at_step(&plan, &before, &second, Some(Step::Mute));
    group.write(&plan).await;
    group.applied(plan.generation, &others).await;
    let third = *others.iter().find(|name| **name != second).unwrap();
    group
        .says(third, "that it waits for the next holder", |node| {
            node.guard.as_ref().map(|guard| guard.step) == Some(GuardStep::InFault)
        })
        .await;
    assert_eq!(group.holder(vip, &others).await, second);
}
