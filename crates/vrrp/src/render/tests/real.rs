//! What the real keepalived says about the files.

extern crate std;

use alloc::string::String;
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use proptest::{strategy::ValueTree as _, test_runner::TestRunner};

use super::{arbitrary::plans, *};

const SAMPLES: usize = 48;

/// Lets keepalived check a file.
fn check(dir: &Path, text: &str) -> Output {
    let path = dir.join("keepalived.conf");
    fs::write(&path, text).unwrap();
    Command::new("keepalived")
        .args(["--config-test", "--vrrp", "--use-file"])
        .arg(&path)
        .output()
        .expect("keepalived is installed")
}

fn assert_silent(dir: &Path, text: &str) {
    let output = check(dir, text);
    let words = [output.stdout, output.stderr].concat();
    let words = String::from_utf8_lossy(&words);
    assert!(output.status.success() && words.is_empty(), "{}: {words}\n{text}", output.status);
}

#[test]
fn keepalived_takes_every_file_without_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let mut runner = TestRunner::deterministic();
    for _ in 0..SAMPLES {
        let plan = plans().new_tree(&mut runner).unwrap().current();
        for node in 0..u32::try_from(plan.nodes.len()).unwrap() {
            assert_silent(dir.path(), &render_on(&plan, node).unwrap());
        }
        assert_silent(dir.path(), &render(&plan, on(None, &BTreeMap::new())).unwrap());
    }
}

#[test]
fn keepalived_complains_about_a_file_with_a_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let text = render_on(&plan(vec![instance("ns/a", 1, form(&["192.0.2.9"]))]), 0).unwrap();
    assert_silent(dir.path(), &text);
    for (right, wrong) in [("virtual_router_id 1", "virtual_router_id 0"), ("nopreempt", "nopremt")]
    {
        let output = check(dir.path(), &text.replace(right, wrong));
        assert!(!output.status.success() || !output.stderr.is_empty(), "{wrong}");
    }
}
