//! The keeper dies: nothing moves, and the next keeper goes on with the same keepalived.

use landfall_agent::call::{Answer, State};
use landfall_testkit::bed::{self, Running};
use landfall_testkit::process::Signal;
use landfall_testkit::{Bed, wait};

use crate::site::{
    Agent, DEADLINE, IDLE, Kind, addresses, children, foreign, heard, held_by, plain, plan, shown,
    signal, write,
};

#[tokio::test]
async fn a_keeper_that_is_killed_moves_nothing_and_the_next_one_goes_on_where_it_was() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let plan = plan(&bed, Kind::Fast, 2);
    let held = addresses(&plan);
    let sampler = bed.sampler().unwrap();
    write(&plan, bed.node("n1"));
    let first = Agent::start(bed.node("n1"));
    first.reaches(State::Master).await;
    held_by(&sampler, &held, "n1").await;
    let _other = plain(&plan, bed.node("n2")).await;
    let before = first.keepalived();
    first.process.kill().unwrap();
    let second = Agent::start(bed.node("n1"));
    second.reaches(State::Master).await;
    assert_eq!(second.runs().await.0, 0);
    assert_eq!(second.keepalived(), before);
    let record = sampler.record();
    for address in &held {
        let nodes: Vec<_> = record.holdings(*address).iter().map(|it| it.node.as_str()).collect();
        assert_eq!(nodes, ["n1"], "{address}");
    }
    // It looks after it as if it had started it.
    for id in &before {
        signal(*id, Signal::SIGSTOP);
    }
    for id in &before {
        signal(*id, Signal::SIGKILL);
    }
    held_by(&sampler, &held, "n2").await;
    second.keepalived_other_than(&before).await;
    assert_eq!(second.counts().await.goodbyes, 2);
    assert!(second.terminate().await.success());
}

#[tokio::test]
async fn a_keepalived_without_instances_is_adopted_like_any_other() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let n1 = bed.node("n1");
    // Without instances from the start it has no VRRP process; when they have gone it still has one.
    for count in [0, 1] {
        let mut plan = plan(&bed, Kind::Fast, count);
        write(&plan, n1);
        let first = Agent::start(n1);
        first.runs().await;
        if count > 0 {
            first.reaches(State::Master).await;
            plan.instances.clear();
            write(&plan, n1);
            let answer = first.keeper.use_configuration().await.unwrap();
            assert!(matches!(answer, Answer::Runs { .. }), "{answer:?}");
        }
        let before = first.keepalived();
        first.process.kill().unwrap();
        let second = Agent::start(n1);
        second.runs().await;
        let answer = second.keeper.use_configuration().await.unwrap();
        let Answer::Runs { starts: 0, .. } = answer else { panic!("{count}: {answer:?}") };
        assert_eq!(second.keepalived(), before);
        assert!(second.terminate().await.success());
    }
}

#[tokio::test]
async fn a_keeper_that_finds_no_keepalived_sweeps_and_says_no_goodbye() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let plan = plan(&bed, Kind::Fast, 2);
    let held = addresses(&plan);
    let n1 = bed.node("n1");
    write(&plan, n1);
    let first = Agent::start(n1);
    first.reaches(State::Master).await;
    let other = plain(&plan, bed.node("n2")).await;
    n1.kill_programs().unwrap();
    // By now another node holds everything, and a third one might take a goodbye for that node's.
    other.reaches("group/1", bed::State::Master, DEADLINE).await.unwrap();
    std::fs::remove_file(crate::site::run_dir(n1).configuration()).unwrap();
    let second = Agent::start(n1);
    second.lets_go(&held).await;
    let counts = second.counts().await;
    assert_eq!((counts.goodbyes, usize::try_from(counts.swept).unwrap()), (0, held.len() + 2));
    assert_eq!(heard(&other).await, [0, 0]);
    assert!(second.terminate().await.success());
}

#[tokio::test]
async fn what_a_killed_agent_left_on_the_node_is_removed_at_the_next_start() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let plan = plan(&bed, Kind::Fast, 2);
    let held = addresses(&plan);
    let n1 = bed.node("n1");
    write(&plan, n1);
    let first = Agent::start(n1);
    first.reaches(State::Master).await;
    let strangers = foreign(n1, "192.0.2.77".parse().unwrap());
    n1.kill_programs().unwrap();
    let left = shown(n1);
    assert!(held.iter().all(|it| left.contains(&it.to_string())), "{left}");
    // Without a configuration nothing can put them back.
    std::fs::remove_file(crate::site::run_dir(n1).configuration()).unwrap();
    let second = Agent::start(n1);
    second.lets_go(&held).await;
    let swept = second.counts().await.swept;
    assert_eq!(usize::try_from(swept).unwrap(), held.len() + plan.instances.len());
    let shown = shown(n1);
    for address in strangers {
        assert!(shown.contains(&address), "{address} in {shown}");
    }
    assert!(second.terminate().await.success());
}

#[tokio::test]
async fn a_keepalived_whose_parent_process_died_with_the_keeper_is_replaced() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let plan = plan(&bed, Kind::Fast, 1);
    write(&plan, bed.node("n1"));
    let first = Agent::start(bed.node("n1"));
    first.reaches(State::Master).await;
    let before = first.keepalived();
    // Frozen, so that it does not notice.
    signal(before[1], Signal::SIGSTOP);
    signal(before[0], Signal::SIGKILL);
    first.process.kill().unwrap();
    let second = Agent::start(bed.node("n1"));
    second.keepalived_other_than(&before).await;
    second.reaches(State::Master).await;
    assert_eq!(second.runs().await.0, 1);
    assert!(second.terminate().await.success());
}

#[tokio::test]
async fn a_worker_that_ends_is_started_again_and_ends_with_its_keeper() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let plan = plan(&bed, Kind::Fast, 1);
    let n1 = bed.node("n1");
    write(&plan, n1);
    let list = n1.dir().join("workers");
    let script =
        format!("echo $$ >> {}; test $(wc -l < {0}) -ge 4 && exec sleep infinity", list.display());
    let agent = Agent::with_worker(n1, &["sh", "-c", &script]);
    agent.reaches(State::Master).await;
    let before = agent.keepalived();
    agent
        .until("a worker that lasts", async || {
            let started = std::fs::read_to_string(&list).unwrap_or_default().lines().count();
            if started == 4 { Ok(()) } else { Err(format!("{started} were started")) }
        })
        .await;
    assert_eq!(agent.keepalived(), before);
    let worker = agent
        .until("the worker", async || {
            let mut workers = children(agent.process.pid()).filter(|it| it.words == IDLE);
            workers.next().ok_or("none")
        })
        .await;
    agent.process.kill().unwrap();
    wait::until("the worker to end", DEADLINE, async || !Running::all().unwrap().contains(&worker))
        .await
        .unwrap();
    assert_eq!(agent.keepalived(), before);
}

#[tokio::test]
async fn a_second_keeper_in_the_same_folder_is_refused() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let first = Agent::start(bed.node("n1"));
    first.answer().await;
    let second = Agent::with_worker(bed.node("n1"), &IDLE);
    let status = second.process.ended(DEADLINE).await.unwrap();
    assert!(!status.success());
    assert!(
        second.process.log_tail(50).contains("another agent uses"),
        "{}",
        second.process.log_tail(50)
    );
    first.answer().await;
    assert!(first.terminate().await.success());
}
