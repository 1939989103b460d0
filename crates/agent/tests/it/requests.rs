//! What the worker asks for is done, and the answer tells the truth.

use std::fs::Permissions;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use landfall_agent::call::{Answer, State};
use landfall_testkit::Bed;
use landfall_testkit::process::Signal;

use crate::site::{Agent, Kind, addresses, plan, run_dir, signal, write};

#[tokio::test]
async fn a_configuration_is_in_use_when_the_answer_comes() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let n1 = bed.node("n1");
    // The kubelet makes folders of nodes readable by everybody.
    std::fs::create_dir(run_dir(n1).path()).unwrap();
    std::fs::set_permissions(run_dir(n1).path(), Permissions::from_mode(0o755)).unwrap();
    let agent = Agent::start(n1);
    let Answer::Down { error, .. } = agent.answer().await else { panic!("nothing can run yet") };
    assert_eq!(error, "keepalived has no configuration yet");
    let Answer::Down { .. } = agent.keeper.use_configuration().await.unwrap() else {
        panic!("there is no configuration to use")
    };
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&run_dir(n1).socket()), 0o600);
    assert_eq!(mode(run_dir(n1).path()), 0o700);

    // From none to several, with more addresses each time, and back to none.
    let mut plan = plan(&bed, Kind::Fast, 3);
    let all = std::mem::take(&mut plan.instances);
    let mut pid = None;
    for round in [0_u8, 1, 3, 2, 3, 0, 0, 1] {
        plan.instances = all[..usize::from(round)].to_vec();
        for instance in &mut plan.instances {
            instance.excluded = (50..50 + u16::from(round)).map(Bed::vip4).collect();
        }
        write(&plan, n1);
        let answer = agent.keeper.use_configuration().await.unwrap();
        let Answer::Runs { starts, instances, .. } = answer else { panic!("{answer:?}") };
        assert_eq!(starts, 1);
        let names: Vec<_> = instances.iter().map(|it| it.name.as_str()).collect();
        let expected: Vec<_> = plan.instances.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, expected);
        for (told, instance) in instances.iter().zip(&plan.instances) {
            let expected: Vec<_> =
                instance.addresses_on(0).map(|address| address.to_string()).collect();
            assert_eq!(told.addresses, expected, "round {round}");
            assert_eq!(told.interface, n1.device());
        }
        let now = agent.keepalived()[0];
        assert_eq!(*pid.get_or_insert(now), now);
    }
    // No dump, with a password in it perhaps, is left.
    let tmp = format!("/proc/{}/root/tmp", agent.process.pid());
    let files = std::fs::read_dir(tmp).unwrap().map(|it| it.unwrap().file_name());
    let files: Vec<_> = files.collect();
    assert!(!files.contains(&"keepalived.json".into()), "{files:?}");
    assert!(agent.terminate().await.success());
}

#[tokio::test]
async fn requests_at_the_same_time_are_all_answered() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let plan = plan(&bed, Kind::Fast, 3);
    write(&plan, bed.node("n1"));
    let agent = Agent::start(bed.node("n1"));
    let mut calls = tokio::task::JoinSet::new();
    agent.answer().await;
    for number in 0..40 {
        let keeper = agent.keeper.clone();
        calls.spawn(async move {
            if number % 4 == 0 { keeper.use_configuration().await } else { keeper.report().await }
        });
    }
    while let Some(answer) = calls.join_next().await {
        let answer = answer.unwrap().unwrap();
        let Answer::Runs { instances, .. } = answer else { panic!("{answer:?}") };
        assert_eq!(instances.len(), 3);
    }
    assert!(agent.terminate().await.success());
}

#[tokio::test]
async fn states_are_those_after_the_last_transition() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let plan = plan(&bed, Kind::Fast, 1);
    write(&plan, bed.node("n1"));
    let agent = Agent::start(bed.node("n1"));
    agent.reaches(State::Master).await;
    let file = run_dir(bed.node("n1")).track().join("11");
    std::fs::write(&file, "1").unwrap();
    agent.reaches(State::Fault).await;
    std::fs::write(&file, "0").unwrap();
    agent.reaches(State::Master).await;
    let (_, instances) = agent.runs().await;
    assert!(instances[0].counters.become_master >= 2, "{instances:?}");
    assert!(instances[0].counters.release_master >= 1, "{instances:?}");
    assert!(agent.terminate().await.success());
}

#[tokio::test]
async fn a_dump_that_is_older_than_a_transition_is_not_believed() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    // Five seconds until a keepalived that was stopped counts as lost.
    let plan = plan(&bed, Kind::Old, 1);
    let held = addresses(&plan);
    let n1 = bed.node("n1");
    write(&plan, n1);
    let agent = Agent::start(n1);
    agent.reaches(State::Master).await;
    let file = run_dir(n1).track().join("11");
    // What the keeper has been told of a dump counts no longer.
    std::fs::write(&file, "1").unwrap();
    agent.lets_go(&held).await;
    std::fs::write(&file, "0").unwrap();
    agent
        .until("the node to hold its addresses again", async || {
            let has = |it: &IpAddr| n1.holds(*it).unwrap();
            if held.iter().all(has) { Ok(()) } else { Err("not yet") }
        })
        .await;

    let child = agent.keepalived()[1];
    signal(child, Signal::SIGSTOP);
    let keeper = agent.keeper.clone();
    let mut calls = tokio::task::JoinSet::new();
    calls.spawn(async move { keeper.report().await });
    let status = |field: &str| -> String {
        let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap();
        status.lines().find_map(|line| line.strip_prefix(field)).unwrap().trim().to_owned()
    };
    agent
        .until("the keeper to ask", async || {
            let pending = u64::from_str_radix(&status("ShdPnd:"), 16).unwrap();
            // The question is a signal of the real-time kind.
            if pending >> 31 > 0 { Ok(()) } else { Err("it has not") }
        })
        .await;
    agent.process.suspend().unwrap();
    signal(child, Signal::SIGCONT);
    let dump = format!("/proc/{child}/root/tmp/keepalived.json");
    agent
        .until("a dump", async || {
            let text = std::fs::read(&dump).map_err(|error| error.to_string())?;
            serde_json::from_slice::<serde_json::Value>(&text).map_err(|error| error.to_string())
        })
        .await;
    std::fs::write(&file, "1").unwrap();
    agent.lets_go(&held).await;
    agent.process.resume().unwrap();
    let answer = calls.join_next().await.unwrap().unwrap().unwrap();
    let Answer::Runs { instances, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(instances[0].state, State::Fault);
    assert!(agent.terminate().await.success());
}

#[tokio::test]
async fn a_keepalived_that_keeps_dying_is_reported_and_a_better_configuration_cures_it() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let n1 = bed.node("n1");
    let plan = plan(&bed, Kind::Fast, 1);
    write(&plan, n1);
    let good = std::fs::read_to_string(run_dir(n1).configuration()).unwrap();
    let bad = good.replace("virtual_router_id 11", "virtual_router_id 0");
    assert_ne!(good, bad);
    std::fs::write(run_dir(n1).configuration(), bad).unwrap();
    let agent = Agent::start(n1);
    agent
        .until("a failure to be reported", async || match agent.answer().await {
            Answer::Down { error, .. } if error == "keepalived has ended" => Ok(()),
            other @ (Answer::Runs { .. } | Answer::Down { .. }) => Err(format!("{other:?}")),
        })
        .await;
    write(&plan, n1);
    agent
        .until("keepalived to run", async || match agent.keeper.use_configuration().await {
            Ok(Answer::Runs { instances, .. }) if instances.len() == 1 => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    agent.reaches(State::Master).await;
    assert!(agent.terminate().await.success());
}

#[tokio::test]
async fn a_keepalived_that_does_not_read_its_configuration_is_replaced() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let plan = plan(&bed, Kind::Fast, 1);
    write(&plan, bed.node("n1"));
    let agent = Agent::start(bed.node("n1"));
    agent.reaches(State::Master).await;
    let before = agent.keepalived();
    let begin = Instant::now();
    signal(before[0], Signal::SIGSTOP);
    let Answer::Down { error, .. } = agent.keeper.use_configuration().await.unwrap() else {
        panic!("it cannot have read it")
    };
    assert_eq!(error, "keepalived does not read its configuration");
    // What holds addresses is given a few seconds, not the time that a first start may need.
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
    agent.keepalived_other_than(&before).await;
    agent.reaches(State::Master).await;
    assert!(agent.terminate().await.success());
}
