//! The agent is told to stop: it leaves nothing behind.

use landfall_agent::call::State;
use landfall_testkit::Bed;
use landfall_testkit::process::Signal;

use crate::site::{
    Agent, DEADLINE, Kind, addresses, heard, held_by, plain, plan, run_dir, shown, signal, write,
};

#[tokio::test]
async fn an_agent_that_is_told_to_stop_hands_its_addresses_over() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let plan = plan(&bed, Kind::Fast, 2);
    let held = addresses(&plan);
    let sampler = bed.sampler().unwrap();
    for stop in [Signal::SIGTERM, Signal::SIGINT] {
        write(&plan, bed.node("n1"));
        let agent = Agent::start(bed.node("n1"));
        agent.reaches(State::Master).await;
        held_by(&sampler, &held, "n1").await;
        let other = plain(&plan, bed.node("n2")).await;
        agent.process.signal(stop).unwrap();
        assert!(agent.process.ended(DEADLINE).await.unwrap().success(), "{stop}");
        agent.lets_go(&held).await;
        assert_eq!(agent.keepalived(), [0; 0]);
        held_by(&sampler, &held, "n2").await;
        assert_eq!(heard(&other).await, [1, 1]);
        other.terminate().await.unwrap();
    }
    sampler.next_sample().await;
    let doubled = sampler.record().all_doubled(&["n1", "n2"]);
    assert!(doubled.is_empty(), "{doubled:?}");
}

#[tokio::test]
async fn a_keepalived_that_does_not_stop_is_killed_and_its_addresses_are_handed_over() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let plan = plan(&bed, Kind::Old, 1);
    let held = addresses(&plan);
    write(&plan, bed.node("n1"));
    let agent = Agent::start(bed.node("n1"));
    agent.reaches(State::Master).await;
    // Its VRRP process goes on for as long as it is not told.
    signal(agent.keepalived()[0], Signal::SIGSTOP);
    let other = plain(&plan, bed.node("n2")).await;
    assert!(agent.terminate().await.success());
    assert_eq!(agent.keepalived(), [0; 0]);
    let left = shown(bed.node("n1"));
    assert!(held.iter().all(|it| !left.contains(&format!("{it}/"))), "{left}");
    assert_eq!(heard(&other).await, [1]);
}

#[tokio::test]
async fn the_worker_is_told_to_stop_when_everything_is_swept() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let plan = plan(&bed, Kind::Fast, 2);
    let n1 = bed.node("n1");
    write(&plan, n1);
    let list = n1.dir().join("at-the-end");
    let script = format!(
        "trap 'ip -brief address show > {}; kill $!; exit' TERM; sleep infinity & wait",
        list.display()
    );
    let agent = Agent::with_worker(n1, &["sh", "-c", &script]);
    agent.reaches(State::Master).await;
    assert!(agent.terminate().await.success());
    let left = std::fs::read_to_string(&list).unwrap();
    assert!(left.contains(&n1.ipv4().to_string()), "{left}");
    for address in addresses(&plan) {
        assert!(!left.contains(&format!("{address}/")), "{address} in {left}");
    }
}

#[tokio::test]
async fn an_agent_without_a_configuration_stops_at_once() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let agent = Agent::start(bed.node("n1"));
    agent.answer().await;
    assert!(agent.terminate().await.success());
    assert!(!run_dir(bed.node("n1")).pid_file().exists());
}
