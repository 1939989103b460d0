//! A device without IPv6.

use landfall_api::keepalived_group::GuardStep;
use landfall_testkit::Bed;
use landfall_vrrp::{Change, Step};

use super::group::{Group, slot};
use super::site::ALL;

#[tokio::test]
async fn without_ipv6_a_holder_that_dies_in_the_middle_of_a_change_is_replaced() {
    let Some(mut group) = Group::new("agent-deaf").await else { return };
    for node in group.bed.nodes() {
        // IPv6 needs packets of at least 1280 bytes, and the kernel takes it off the device.
        node.ip(&format!("link set {} mtu 1200", node.device())).unwrap();
    }
    for name in ALL {
        group.start(name);
    }
    let vip = Bed::vip4(1);
    let mut plan = group.plan(1, vec![slot(1, &[0, 1, 2], &[vip])]);
    group.write(&plan).await;
    group.applied(1, &ALL).await;
    let holder = group.holder(vip, &ALL).await;
    let others = group.bed.names_without(&holder);
    plan.generation = 2;
    plan.instances[0].change = Some(Change {
        before: plan.instances[0].form.clone(),
        holder: plan.node_index(&holder).unwrap(),
        step: Step::Mute,
        since: 2,
    });
    plan.instances[0].form.advertised = vec!["169.254.112.99".parse().unwrap()];
    group.write(&plan).await;
    let at_step = async |expected: GuardStep| {
        for name in &others {
            let what = format!("{expected:?}");
            group
                .says(name, &what, |node| {
                    node.guard.as_ref().map(|guard| guard.step) == Some(expected)
                })
                .await;
        }
    };
    at_step(GuardStep::InFault).await;
    group.applied(2, &others).await;
    group.bed.node(&holder).power_off().unwrap();
    at_step(GuardStep::Ended).await;
    group.holder(vip, &others).await;
}
