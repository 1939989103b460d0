//! The keeper as the first process of a container: it reaps what its descendants leave.

use std::fs;
use std::process::Command;

use landfall_agent::call::State;
use landfall_testkit::Bed;
use landfall_testkit::bed::Running;
use landfall_testkit::process::Signal;

use crate::program;
use crate::site::{Agent, DEADLINE, Kind, children, plan, run_dir, signal, write};

#[tokio::test]
async fn orphans_are_reaped_and_its_end_is_the_end_of_all() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let n1 = bed.node("n1");
    write(&plan(&bed, Kind::Fast, 1), n1);
    let list = n1.dir().join("orphans");
    // Each orphan ends when its parent, a shell that starts nothing else, has long ended.
    let orphan = format!("(sh -c 'echo $$ >> {}; sleep 0.1' &)", list.display());
    let script = format!("for number in 1 2 3; do {orphan}; done; exec sleep infinity");
    let inner = program::keeper(run_dir(n1).path(), &["sh", "-c", &script]);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--"]).arg(inner.get_program());
    command.args(inner.get_args());
    let agent = Agent::with_command(n1, command.into());
    agent.reaches(State::Master).await;
    agent
        .until("all orphans to end and to be reaped", async || {
            let started = fs::read_to_string(&list).unwrap_or_default().lines().count();
            let dead: Vec<_> = children(first(&agent)).filter(|it| it.words.is_empty()).collect();
            let all = Running::all().unwrap();
            let sleeping = all.iter().filter(|it| it.words == ["sleep", "0.1"]).count();
            if started == 3 && dead.is_empty() && sleeping == 0 {
                Ok(())
            } else {
                Err(format!("{started} started, {sleeping} run, {dead:?} are not reaped"))
            }
        })
        .await;
    // The kernel protects a first process from signals that it does not handle; these it does.
    signal(first(&agent), Signal::SIGTERM);
    assert!(agent.process.ended(DEADLINE).await.unwrap().success());
    assert_eq!(agent.keepalived(), [0; 0]);
}

/// The keeper itself, which `unshare` has started.
fn first(agent: &Agent) -> u32 {
    children(agent.process.pid()).next().unwrap().pid
}
