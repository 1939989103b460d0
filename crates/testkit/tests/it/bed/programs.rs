use std::fs;
use std::path::Path;
use std::process::Command;

use landfall_testkit::bed::{Node, Program, Running};
use landfall_testkit::{Process, wait};

use super::{DEADLINE, bed};

/// Set for the process that is killed, and inherited by everything it starts.
const MARK: &str = "LANDFALL_TEST_OF_A_KILLED_BED";

fn shell(script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]);
    shell
}

/// Runs a script and returns its output once it says that it is done.
async fn said(node: &Node, program: impl Into<Program>, log: &str) -> String {
    let process = node.run(program, log).unwrap();
    wait::until(format!("the end of {log}"), DEADLINE, async || {
        if process.is_running() { Err(process.log_tail(50)) } else { Ok(process.log_tail(50)) }
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn programs_have_a_tmp_and_a_run_of_their_own_and_see_what_they_are_shown() {
    let Some(bed) = bed().await else { return };
    let node = bed.node("n1");
    let mine = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    fs::write(mine.path().join("mine"), "shown").unwrap();
    let script = format!(
        "touch /tmp/theirs /run/theirs {}/here; ls /run; cat {}/mine; ip -brief address",
        node.dir().display(),
        mine.path().display(),
    );
    let said_shown = said(node, Program::new(shell(&script)).sees(mine.path()), "shown.log").await;
    for wanted in ["theirs", "shown", "10.77.0.1/16"] {
        assert!(said_shown.contains(wanted), "{wanted}: {said_shown}");
    }
    assert!(node.dir().join("here").exists());
    assert!(!Path::new("/tmp/theirs").exists() && !Path::new("/run/theirs").exists());

    let said_alone =
        said(node, shell(&format!("ls -A /run; cat {}/mine", mine.path().display())), "alone.log")
            .await;
    assert!(said_alone.contains("No such file"), "{said_alone}");
    assert!(!said_alone.contains("theirs"), "{said_alone}");
}

#[tokio::test]
async fn programs_of_one_container_share_their_files() {
    let Some(bed) = bed().await else { return };
    let node = bed.node("n1");
    let inside = |script: &str| Program::new(shell(script)).in_container("agent").confined();
    said(node, inside("echo first > /tmp/mark"), "first.log").await;
    assert_eq!(fs::read_to_string(node.dir().join("agent/tmp/mark")).unwrap(), "first\n");
    let again = said(node, inside("cat /tmp/mark; touch /run/second"), "second.log").await;
    assert_eq!(again, "first");
    assert!(node.dir().join("agent/run/second").exists());
    let other = Program::new(shell("cat /tmp/mark")).in_container("other");
    let other = said(node, other, "other.log").await;
    assert!(other.contains("No such file"), "{other}");
}

#[tokio::test]
async fn a_confined_program_has_three_rights_and_cannot_write_the_root() {
    let Some(bed) = bed().await else { return };
    let node = bed.node("n1");
    let script = "grep -E '^(CapEff|CapBnd|CapAmb|NoNewPrivs)' /proc/self/status
        touch /tmp/x /run/x && echo writes
        touch /etc/landfall-test || echo refused
        ip address add 10.77.9.9/32 dev eth0 && echo adds
        mount -t tmpfs tmpfs /mnt || echo may not mount";
    let said = said(node, Program::new(shell(script)).confined(), "confined.log").await;
    // NET_BROADCAST, NET_ADMIN and NET_RAW.
    let rights = format!("{:016x}", (1 << 11) | (1 << 12) | (1 << 13));
    assert_eq!(said.matches(&rights).count(), 3, "{said}");
    for wanted in ["NoNewPrivs:\t1", "writes", "refused", "adds", "may not mount"] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
}

#[tokio::test]
async fn a_program_that_asks_too_much_says_so_in_its_log() {
    let Some(bed) = bed().await else { return };
    let node = bed.node("n1");
    let said = said(node, Command::new("no-such-program"), "missing.log").await;
    assert!(said.contains("no-such-program"), "{said}");
    let error = node.output(shell("echo why >&2; exit 3")).unwrap_err().to_string();
    assert!(error.contains("why") && error.contains('3'), "{error}");
}

#[tokio::test]
async fn processes_are_found_by_their_files_and_killed_at_once() {
    let Some(bed) = bed().await else { return };
    let node = bed.node("n1");
    let file = node.dir().join("followed");
    fs::write(&file, "").unwrap();
    let mut parent = Command::new("sh");
    parent.args(["-c", r#"tail -f "$0" & exec tail -f "$0""#]).arg(&file);
    let process = node.run(parent, "tail.log").unwrap();
    let found = wait::until("both processes", DEADLINE, async || {
        let found = Running::of("tail", &file).unwrap();
        if found.len() == 2 { Ok(found) } else { Err(format!("{found:?}")) }
    })
    .await
    .unwrap();
    assert_eq!(found[0].pid, process.pid());
    assert_eq!(found[1].parent, process.pid());
    Running::kill_at_once(&found).unwrap();
    assert!(!process.ended(DEADLINE).await.unwrap().success());
    let is_gone = async || Running::of("tail", &file).unwrap().is_empty();
    wait::until("the end of both", DEADLINE, is_gone).await.unwrap();
}

/// The processes that inherited the mark.
fn marked(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter(|entry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
        })
        .map(|entry| fs::read_to_string(entry.path().join("comm")).unwrap_or_default())
        .collect()
}

/// The victim of the test below.
#[tokio::test]
#[ignore = "runs until it is killed by another test"]
async fn stays_until_it_is_killed() {
    let dir = std::env::var_os(MARK).expect("it is started by the other test");
    let bed = bed().await.expect("the other test has a bed");
    let node = bed.node("n1");
    // A daemon that nothing but its process namespace holds.
    let _parent = node.run(shell("setsid -f sleep 1000; exec sleep 1000"), "daemon.log").unwrap();
    wait::until("a daemon", DEADLINE, async || {
        let sleeps = node.output(shell("cat /proc/[0-9]*/comm")).map_err(|e| e.to_string())?;
        if sleeps.matches("sleep").count() == 3 { Ok(()) } else { Err(sleeps) }
    })
    .await
    .unwrap();
    fs::write(Path::new(&dir).join("ready"), bed.dir().as_os_str().as_encoded_bytes()).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn nothing_is_left_of_a_bed_whose_test_is_killed() {
    let Some(_possible) = bed().await else { return };
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().display().to_string();
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", "bed::programs::stays_until_it_is_killed", "--ignored"]);
    victim.env(MARK, &mark);
    let victim = Process::spawn(&victim, &dir.path().join("log")).unwrap();
    let ready = dir.path().join("ready");
    wait::until("its bed", DEADLINE, async || {
        if victim.is_running() {
            fs::read_to_string(&ready).map_err(|e| e.to_string())
        } else {
            Err(victim.log_tail(50))
        }
    })
    .await
    .unwrap();
    let files = fs::read_to_string(&ready).unwrap();
    let running = marked(&mark);
    assert!(running.iter().filter(|name| *name == "sleep\n").count() >= 6, "{running:?}");
    victim.kill().unwrap();
    wait::until("the end of everything it started", DEADLINE, async || {
        let left = marked(&mark);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await
    .unwrap();
    assert!(!Path::new(&files).exists());
}
