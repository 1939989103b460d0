//! A node comes back, and the plan that it has on disk is an old one.

use std::time::Duration;

use landfall_testkit::Bed;
use landfall_testkit::proxy::Action;
use landfall_vrrp::{Form, Transport, Version};

use super::group::{Group, slot};
use super::site::ALL;

/// Longer than a node waits for adverts, and not as long as it waits for the API server.
const DELAY: Duration = Duration::from_millis(1500);

/// Lets a form change while a node is off, and an address leave; then the node comes back.
async fn comes_back_to(namespace: &str, change: impl FnOnce(&mut Form)) {
    let Some(mut group) = Group::with_agents(namespace).await else { return };
    let (stays, leaves) = (Bed::vip4(1), Bed::vip4(2));
    let mut plan = group.plan(1, vec![slot(1, &[0, 1, 2], &[stays, leaves])]);
    group.write(&plan).await;
    group.applied(1, &ALL).await;
    let holder = group.holder(stays, &ALL).await;
    let others = group.bed.names_without("n3");
    group.bed.node("n3").power_off().unwrap();
    if holder == "n3" {
        group.holder(stays, &others).await;
    }
    plan.generation = 2;
    plan.instances[0].excluded = vec![stays];
    change(&mut plan.instances[0].form);
    group.write(&plan).await;
    group.applied(2, &others).await;
    let holder = group.holder(stays, &others).await;

    group.bed.node("n3").power_on().await.unwrap();
    let sampler = group.bed.sampler().unwrap();
    let proxy = group.start_apart("n3").await;
    proxy.add_rule(|_| Some(Action::Delay(DELAY)));
    group.applied(2, &["n3"]).await;
    group.ready("n3").await;
    sampler.next_sample().await;
    let record = sampler.record();
    assert!(record.all_doubled(&ALL).is_empty(), "{:?}", record.all_doubled(&ALL));
    assert_eq!(record.holders(stays), [holder]);
    assert!(record.holdings(leaves).is_empty(), "{:?}", record.holdings(leaves));
}

#[tokio::test]
async fn a_node_that_was_off_while_adverts_became_unicast_holds_nothing_twice() {
    comes_back_to("agent-cold-unicast", |form| form.transport = Transport::Unicast).await;
}

#[tokio::test]
async fn a_node_that_was_off_while_the_version_changed_holds_nothing_twice() {
    comes_back_to("agent-cold-version", |form| {
        (form.version, form.advert_millis) = (Version::V2, 1000);
    })
    .await;
}
