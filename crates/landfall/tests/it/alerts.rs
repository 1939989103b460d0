//! Checks the shipped alerts with Prometheus' own tool.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::stage::root;

const RULES: &str = "deploy/prometheus/alerts.yaml";
const CASES: &str = "crates/landfall/tests/fixtures/alerts/cases.yaml";

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The values of this key in a YAML file, wherever it is.
fn values<'a>(yaml: &'a str, key: &str) -> BTreeSet<&'a str> {
    let entries = yaml.lines().map(|line| line.trim_start_matches([' ', '-']));
    entries.filter_map(|entry| entry.strip_prefix(key)?.strip_prefix(": ")).collect()
}

/// The expressions of the guide: the last cell of each row of its table.
fn shown(guide: &str) -> BTreeSet<&str> {
    let rows = guide.lines().filter(|line| line.starts_with("| ") && line.ends_with("` |"));
    rows.filter_map(|row| row.trim_end_matches("` |").rsplit_once("| `")).map(|row| row.1).collect()
}

fn promtool(args: &[&str], path: PathBuf) {
    let run = Command::new("promtool").args(args).arg(path).output();
    let run = run.expect("promtool, of Debian's package prometheus, has to be installed");
    let (said, complained) =
        (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "promtool {args:?}:\n{said}{complained}");
}

#[test]
fn alerts_are_right_with_two_operators_and_not_silent_without_any() {
    promtool(&["check", "rules"], root().join(RULES));
    promtool(&["test", "rules"], root().join(CASES));
    let (rules, cases) = (read(RULES), read(CASES));
    for alert in values(&rules, "alert") {
        assert!(cases.contains(&format!("alertname: {alert}")), "{alert} has no case");
    }
}

#[test]
fn the_guides_show_the_expressions_that_are_tested() {
    let (rules, cases) = (read(RULES), read(CASES));
    let tested: BTreeSet<_> = &values(&rules, "expr") | &values(&cases, "expr");
    assert!(tested.len() > 5, "{tested:?}");
    let guides = ["watch-pools", "announce-services"];
    let guides = guides.map(|guide| read(&format!("docs/guides/{guide}.md")));
    let shown: BTreeSet<_> = guides.iter().flat_map(|guide| shown(guide)).collect();
    assert_eq!(shown, tested);
}

#[test]
fn the_expressions_ask_for_metrics_that_exist() {
    let reference = read("docs/reference/metrics.md");
    let (rules, cases) = (read(RULES), read(CASES));
    let expressions = &values(&rules, "expr") | &values(&cases, "expr");
    for expression in expressions {
        let words = expression.split(|c: char| !c.is_ascii_lowercase() && c != '_');
        let is_metric =
            |word: &&str| word.starts_with("landfall_") || word.starts_with("keepalived_");
        let mut metrics = words.filter(is_metric).peekable();
        assert!(metrics.peek().is_some(), "{expression}");
        for metric in metrics {
            let metric = metric.trim_end_matches("_bucket");
            assert!(reference.contains(&format!("\n| `{metric}` | ")), "{metric}");
        }
    }
}
