//! The first start of keepalived: the worker may know a newer plan.

use landfall_agent::call::{Answer, State};
use landfall_testkit::Bed;

use crate::site::{Agent, Kind, addresses, held_by, plan, write};

#[tokio::test]
async fn keepalived_is_started_when_the_worker_asks_for_it() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let plan = plan(&bed, Kind::Fast, 1);
    let held = addresses(&plan);
    let n1 = bed.node("n1");
    write(&plan, n1);
    let sampler = bed.sampler().unwrap();
    let agent = Agent::with_silent_worker(n1);
    let Answer::Down { .. } = agent.answer().await else { panic!("nothing has asked for it") };
    assert_eq!(agent.keepalived(), [0; 0]);
    agent.keeper.use_configuration().await.unwrap();
    agent.reaches(State::Master).await;
    held_by(&sampler, &held, "n1").await;
    assert!(agent.terminate().await.success());
}

#[tokio::test]
async fn a_worker_that_never_asks_does_not_keep_a_node_from_serving() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let plan = plan(&bed, Kind::Fast, 1);
    write(&plan, bed.node("n1"));
    let agent = Agent::with_silent_worker(bed.node("n1"));
    agent.reaches(State::Master).await;
    assert!(agent.terminate().await.success());
}
