//! An address of the plan that a node has already, such as the one that its cloud gave it.

use landfall_testkit::{Bed, wait};

use super::group::{Group, slot};
use super::site::ALL;
use crate::LONG;

#[tokio::test]
async fn an_address_that_a_node_had_before_stays_as_it_is_and_is_reported() {
    let Some(mut group) = Group::new("agent-stranger").await else { return };
    let (before, other) = (Bed::vip4(1), Bed::vip4(2));
    let n1 = group.bed.node("n1").clone();
    n1.ip(&format!("address add {before}/32 dev {}", n1.device())).unwrap();
    group.start("n1");
    let mut plan = group.plan(1, vec![slot(1, &[0], &[before, other])]);
    plan.nodes.truncate(1);
    group.write(&plan).await;
    group.holder(other, &["n1"]).await;
    let error = before.to_string();
    group
        .says("n1", "which address it had before", |node| {
            node.last_error.as_ref().is_some_and(|text| text.contains(&error))
        })
        .await;
    let conf = std::fs::read_to_string(n1.dir().join("run/keepalived.conf")).unwrap();
    assert!(!conf.contains(&error) && conf.contains(&other.to_string()), "{conf}");
    // Neither is it swept.
    assert!(group.agent("n1").terminate(LONG).await.unwrap().success());
    assert!(n1.holds(before).unwrap() && !n1.holds(other).unwrap());

    group.start("n1");
    group.holder(other, &["n1"]).await;
    n1.ip(&format!("address del {before}/32 dev {}", n1.device())).unwrap();
    group.applied(1, &["n1"]).await;
    wait::until("the address, which is free now", LONG, async || n1.holds(before).unwrap())
        .await
        .unwrap();
    assert_eq!(group.holder(other, &ALL).await, "n1");
}
