//! The agent of a node is told to stop, and says what has become of the node's addresses.

use landfall_api::keepalived_group::InstanceState;
use landfall_testkit::Bed;

use super::group::{Group, slot};
use crate::LONG;

#[tokio::test]
async fn an_agent_that_has_ended_is_reported_to_hold_nothing() {
    let Some(mut group) = Group::new("agent-ended").await else { return };
    group.start("n1");
    let mut plan = group.plan(1, vec![slot(1, &[0], &[Bed::vip4(1)]), slot(2, &[0], &[])]);
    plan.nodes.truncate(1);
    group.write(&plan).await;
    for name in ["edge/1", "edge/2"] {
        let what = format!("that it holds {name}");
        group.says("n1", &what, |node| node.state_of(name) == InstanceState::Master).await;
    }
    assert!(group.agent("n1").terminate(LONG).await.unwrap().success());
    // No agent is left that could report it later.
    let last = group.reported("n1").await.unwrap();
    assert!(last.instances.is_empty(), "{last:?}\n{}", group.agent("n1").log_tail(60));
    assert!(last.last_error.is_some(), "{last:?}");
}
