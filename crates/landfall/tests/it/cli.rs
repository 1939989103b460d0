//! The command line of the binary, run as from a shell.

use std::io;
use std::process::{Command, Output};

fn landfall(flags: &[&str], variables: &[(&str, &str)]) -> io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_landfall"))
        .args(flags)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn variables_count_and_flags_override_them() {
    let variable = [("LANDFALL_KUBECONFIG", "/nonexistent/variable")];
    let output = landfall(&["operator"], &variable).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/nonexistent/variable"), "{}", stderr(&output));

    let output = landfall(&["operator", "--kubeconfig=/nonexistent/flag"], &variable).unwrap();
    assert!(stderr(&output).contains("/nonexistent/flag"), "{}", stderr(&output));

    let both =
        [("LANDFALL_KUBECONFIG", "/nonexistent/variable"), ("KUBECONFIG", "/nonexistent/kubectl")];
    let output = landfall(&["operator"], &both).unwrap();
    assert!(stderr(&output).contains("/nonexistent/variable"), "{}", stderr(&output));

    let output = landfall(&["operator"], &[("KUBECONFIG", "/nonexistent/kubectl")]).unwrap();
    assert!(stderr(&output).contains("/nonexistent/kubectl"), "{}", stderr(&output));
}

#[test]
fn without_any_cluster_the_error_says_what_to_do() {
    let output = landfall(&["operator"], &[]).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("--kubeconfig") && text.contains("service account"), "{text}");
}

#[test]
fn wrong_values_are_usage_errors_that_list_the_right_ones() {
    for (variable, value, expected) in [
        ("LANDFALL_CONTROLLERS", "services,dns", "possible values: services"),
        ("LANDFALL_LEADER_ELECT", "perhaps", "LEADER_ELECT"),
        ("LANDFALL_ADMIN_ADDR", "here", "--admin-addr"),
        ("LANDFALL_LOG_FORMAT", "xml", "possible values: text, json"),
        ("LANDFALL_LOG_LEVEL", "verbose", "`verbose` is not a level"),
        ("LANDFALL_REPAIR", "amend", "possible values: fix, report"),
        ("KUBEVIP_ENABLE_LOADBALANCERCLASS", "yes", "`yes` is neither `true` nor `false`"),
    ] {
        let output = landfall(&["operator"], &[(variable, value)]).unwrap();
        assert_eq!(output.status.code(), Some(2), "{variable}");
        let text = stderr(&output).replace("leader-elect", "LEADER_ELECT");
        assert!(text.contains(expected), "{variable}: {text}");
    }
}

#[test]
fn the_first_word_for_fixing_works_as_a_variable() {
    let variables = [("LANDFALL_REPAIR", "mend"), ("LANDFALL_KUBECONFIG", "/nonexistent/k")];
    let output = landfall(&["operator"], &variables).unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

#[test]
fn flags_without_effect_are_named_in_one_line_and_unknown_ones_are_errors() {
    let flags = ["operator", "--cloud-provider=kubevip", "-v=2", "--kubeconfig=/nonexistent/k"];
    let text = stderr(&landfall(&flags, &[]).unwrap());
    let told: Vec<_> = text.lines().filter(|line| line.contains("no effect")).collect();
    assert!(matches!(told[..], [line] if line.contains("cloud-provider,v")), "{text}");

    for flag in ["--cloud-providers=kubevip", "--leader-elect-lease-duration=5s"] {
        let output = landfall(&["operator", flag], &[]).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flag}: {}", stderr(&output));
    }
}

#[test]
fn the_log_is_json_if_asked() {
    let flags = ["operator", "--log-format=json", "--kubeconfig=/nonexistent/k"];
    let text = stderr(&landfall(&flags, &[]).unwrap());
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["level"], "ERROR");
    assert!(last["hint"].as_str().unwrap().contains("--kubeconfig"), "{last}");
}
