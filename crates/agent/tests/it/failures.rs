//! keepalived dies or hangs: its addresses leave the node, and another node takes them at once.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use landfall_agent::call::{Answer, State};
use landfall_testkit::Bed;
use landfall_testkit::bed::Program;
use landfall_testkit::process::Signal;
use nix::fcntl::OFlag;

use crate::program;
use crate::site::{
    Agent, IDLE, Kind, addresses, foreign, heard, held_by, plain, plan, run_dir, shown, signal,
    write,
};

const INSTANCES: u8 = 2;

/// What happens to keepalived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// All of it is killed at once, so that no part of it can clean up after another.
    Killed,
    ParentKilled,
    ChildKilled,
    Frozen,
}

async fn keepalived_fails(kind: Kind, fate: Fate) {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let plan = plan(&bed, kind, INSTANCES);
    let held = addresses(&plan);
    let sampler = bed.sampler().unwrap();
    let (n1, n2) = (bed.node("n1"), bed.node("n2"));
    write(&plan, n1);
    let agent = Agent::start(n1);
    agent.reaches(State::Master).await;
    held_by(&sampler, &held, "n1").await;
    let other = plain(&plan, n2).await;
    assert_eq!(heard(&other).await, [0; INSTANCES as usize]);
    let strangers = foreign(n1, "192.0.2.77".parse().unwrap());
    let counts = agent.counts().await;
    let before = agent.keepalived();
    assert_eq!(before.len(), 2, "{before:?}");
    match fate {
        Fate::Killed => {
            for id in &before {
                signal(*id, Signal::SIGSTOP);
            }
            for id in &before {
                signal(*id, Signal::SIGKILL);
            }
        }
        Fate::ParentKilled => signal(before[0], Signal::SIGKILL),
        Fate::ChildKilled => signal(before[1], Signal::SIGKILL),
        Fate::Frozen => {
            for id in &before {
                signal(*id, Signal::SIGSTOP);
            }
        }
    }
    held_by(&sampler, &held, "n2").await;
    agent.lets_go(&held).await;
    let again = match fate {
        // Its parent process lives on, and starts another one.
        Fate::ChildKilled => agent.keepalived_other_than(&before[1..]).await,
        Fate::Killed | Fate::ParentKilled | Fate::Frozen => {
            agent.keepalived_other_than(&before).await
        }
    };
    assert_eq!(again[0] == before[0], fate == Fate::ChildKilled);
    agent.reaches(State::Backup).await;
    let (starts, _) = agent.runs().await;
    assert_eq!(starts, if fate == Fate::ChildKilled { 1 } else { 2 });
    let after = agent.counts().await;
    assert_eq!(after.goodbyes - counts.goodbyes, u64::from(INSTANCES));
    let shown = shown(n1);
    for address in strangers {
        assert!(shown.contains(&address), "{address} in {shown}");
    }
    // Each instance has heard it, for a goodbye that cannot be understood is not counted. The process that is
    // told of its parent's death may say it as well before it is killed.
    let heard = heard(&other).await;
    assert!(heard.iter().all(|count| *count >= 1), "{heard:?}");
    sampler.next_sample().await;
    let doubled = sampler.record().all_doubled(&["n1", "n2"]);
    if fate == Fate::Frozen {
        // As long as it may be silent, and until the keeper has noticed that and has acted.
        let is_short = doubled.values().all(|it| it.total <= Duration::from_millis(2250));
        assert!(is_short, "{doubled:?}");
    } else {
        assert!(doubled.is_empty(), "{doubled:?}");
    }
    assert!(agent.terminate().await.success());
}

#[tokio::test]
async fn a_killed_keepalived_is_replaced_at_once() {
    keepalived_fails(Kind::Fast, Fate::Killed).await;
}

#[tokio::test]
async fn a_killed_keepalived_is_replaced_at_once_over_ipv6() {
    keepalived_fails(Kind::FastV6, Fate::Killed).await;
}

#[tokio::test]
async fn a_killed_keepalived_is_replaced_at_once_in_another_multicast_group() {
    keepalived_fails(Kind::FastElsewhere, Fate::Killed).await;
}

#[tokio::test]
async fn a_killed_keepalived_is_replaced_at_once_by_unicast() {
    keepalived_fails(Kind::FastUnicast, Fate::Killed).await;
}

#[tokio::test]
async fn a_killed_keepalived_is_replaced_at_once_by_unicast_over_ipv6() {
    keepalived_fails(Kind::FastUnicastV6, Fate::Killed).await;
}

#[tokio::test]
async fn a_killed_keepalived_is_replaced_at_once_in_version_2_with_a_password() {
    keepalived_fails(Kind::Old, Fate::Killed).await;
}

#[tokio::test]
async fn a_killed_parent_process_takes_the_rest_with_it() {
    keepalived_fails(Kind::Fast, Fate::ParentKilled).await;
}

#[tokio::test]
async fn a_killed_vrrp_process_is_replaced_at_once() {
    keepalived_fails(Kind::Fast, Fate::ChildKilled).await;
}

#[tokio::test]
async fn a_killed_vrrp_process_is_replaced_at_once_in_version_2() {
    keepalived_fails(Kind::Old, Fate::ChildKilled).await;
}

#[tokio::test]
async fn a_frozen_keepalived_loses_its_addresses() {
    keepalived_fails(Kind::Fast, Fate::Frozen).await;
}

#[tokio::test]
async fn a_keepalived_that_freezes_while_it_is_told_to_read_loses_its_addresses_as_soon() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let plan = plan(&bed, Kind::Fast, INSTANCES);
    let held = addresses(&plan);
    let sampler = bed.sampler().unwrap();
    let n1 = bed.node("n1");
    write(&plan, n1);
    let agent = Agent::start(n1);
    agent.reaches(State::Master).await;
    held_by(&sampler, &held, "n1").await;
    let _other = plain(&plan, bed.node("n2")).await;
    let before = agent.keepalived();
    let begin = Instant::now();
    for id in &before {
        signal(*id, Signal::SIGSTOP);
    }
    let answer = agent.keeper.use_configuration().await.unwrap();
    assert!(matches!(answer, Answer::Down { .. }), "{answer:?}");
    agent.lets_go(&held).await;
    // A second by the watchdog, and the rest for a busy machine.
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    held_by(&sampler, &held, "n2").await;
    agent.keepalived_other_than(&before).await;
    assert!(agent.terminate().await.success());
}

/// Starts a program with its errors going to a pipe that is full, and that nothing reads.
const UNREAD: &str = r#"
mkfifo "$0"
exec 9<> "$0"
dd if=/dev/zero of="$0" oflag=nonblock bs=4096 count=10000 2> /dev/null
exec "$@" 2>&9
"#;

#[tokio::test]
async fn a_log_that_is_not_read_keeps_nothing_from_being_done() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let plan = plan(&bed, Kind::Fast, INSTANCES);
    let held = addresses(&plan);
    let sampler = bed.sampler().unwrap();
    let n1 = bed.node("n1");
    write(&plan, n1);
    let keeper = program::keeper(run_dir(n1).path(), &IDLE);
    let mut command = Command::new("sh");
    command.args(["-c", UNREAD]).arg(n1.dir().join("full")).arg(keeper.get_program());
    command.args(keeper.get_args());
    let agent = Agent::with_command(n1, Program::new(command).confined());
    agent.reaches(State::Master).await;
    held_by(&sampler, &held, "n1").await;

    // Nor does it matter to keepalived when its keeper reads nothing.
    let before = agent.keepalived();
    agent.process.suspend().unwrap();
    let mut log = OpenOptions::new();
    let log = log.write(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let mut log = log.open(run_dir(n1).path().join("log")).unwrap();
    while log.write(&[b'\n'; 4096]).is_ok() {}
    let answered = Path::new("/proc").join(before[1].to_string()).join("root/tmp/keepalived.json");
    let ask = Command::new("keepalived").arg("--signum=JSON").output().unwrap().stdout;
    let ask = String::from_utf8(ask).unwrap();
    // It says that it has been asked, and then answers.
    let told = Command::new("sh")
        .args(["-c", r#"kill -s "$0" "$1""#, ask.trim(), &before[1].to_string()])
        .status();
    assert!(told.unwrap().success());
    agent
        .until("keepalived to answer", async || {
            let text = std::fs::read(&answered).map_err(|error| error.to_string())?;
            serde_json::from_slice::<serde_json::Value>(&text).map_err(|error| error.to_string())
        })
        .await;
    agent.process.resume().unwrap();
    agent.reaches(State::Master).await;
    assert_eq!(agent.keepalived(), before);

    let _other = plain(&plan, bed.node("n2")).await;
    for id in &before {
        signal(*id, Signal::SIGSTOP);
    }
    agent.lets_go(&held).await;
    held_by(&sampler, &held, "n2").await;
    agent.keepalived_other_than(&before).await;
    assert!(agent.terminate().await.success());
}
