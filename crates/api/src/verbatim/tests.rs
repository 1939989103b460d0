//! Which lines are accepted, and that nothing else gets through.

use proptest::{collection::btree_map, prelude::*, sample::select};
use serde_json::json;

use super::*;
use crate::fuzzing;

fn group(lines: &[(&str, &str)]) -> ReadLines {
    let config = lines.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    of_group(&config.collect())
}

fn written(lines: &Lines) -> Vec<String> {
    lines.iter().map(ToString::to_string).collect()
}

#[test]
fn the_lines_that_running_groups_have_are_kept() {
    let read = group(&[
        ("script_user", "root"),
        ("vrrp_garp_master_refresh", "60"),
        ("vrrp_iptables", "my-keepalived"),
    ]);
    assert_eq!(read.refused, []);
    let all = ["script_user root", "vrrp_garp_master_refresh 60", "vrrp_iptables my-keepalived"];
    assert_eq!(written(&read.lines), all);
    let of_agents: Vec<_> = read.lines.of_agents().map(ToString::to_string).collect();
    assert_eq!(of_agents, ["vrrp_garp_master_refresh 60"], "what has no effect is left out");

    let read = of_service(r#"{"track_src_ip": "", "advert_int": "2"}"#);
    assert_eq!(read.refused, []);
    assert_eq!(written(&read.lines), ["advert_int 2", "track_src_ip"]);
    let mut lines = read.lines;
    assert_eq!(lines.fit_slots(), ["advert_int"]);
    assert_eq!(written(&lines), ["track_src_ip"]);
    assert_eq!((lines.get("track_src_ip"), lines.get("advert_int")), (Some(""), None));
}

#[test]
fn a_value_is_one_that_the_keyword_takes_or_the_line_is_refused() {
    for (key, value, expected) in [
        ("vrrp_iptables", "", Some("vrrp_iptables")),
        ("vrrp_iptables", " in \t out ", Some("vrrp_iptables in out")),
        ("vrrp_iptables", "in out more", None),
        ("vrrp_iptables", "in\nout", None),
        ("vrrp_iptables", "in {", None),
        ("vrrp_iptables", "\"in\"", None),
        ("vrrp_iptables", "in # out", None),
        ("vrrp_iptables", "!in", None),
        ("vrrp_iptables", "$IN", None),
        ("vrrp_iptables", "@in", None),
        ("vrrp_iptables", "-in", None),
        ("script_user", "", None),
        ("script_user", "root root", Some("script_user root root")),
        ("vrrp_garp_master_refresh", "060", Some("vrrp_garp_master_refresh 60")),
        ("vrrp_garp_master_refresh", "+60", None),
        ("vrrp_garp_master_refresh", "-1", None),
        ("vrrp_garp_master_refresh", "60s", None),
        ("vrrp_garp_master_refresh", "86401", None),
        ("vrrp_garp_master_refresh", "99999999999999999999", None),
        ("vrrp_garp_master_refresh", "", None),
        ("vrrp_garp_extra_if", "all 100", Some("vrrp_garp_extra_if all 100")),
        ("vrrp_garp_extra_if", "100", Some("vrrp_garp_extra_if 100")),
        ("vrrp_garp_extra_if", "all", None),
        ("vrrp_garp_interval", "0.0010", Some("vrrp_garp_interval 0.001")),
        ("vrrp_garp_interval", "1", Some("vrrp_garp_interval 1")),
        ("vrrp_garp_interval", "0", None),
        ("vrrp_garp_interval", ".5", None),
        ("vrrp_garp_interval", "1e-3", None),
        ("vrrp_higher_prio_send_advert", "", Some("vrrp_higher_prio_send_advert")),
        ("vrrp_higher_prio_send_advert", "on", Some("vrrp_higher_prio_send_advert on")),
        ("vrrp_higher_prio_send_advert", "1", None),
        ("vrrp_priority", "-20", Some("vrrp_priority -20")),
        ("vrrp_priority", "--20", None),
        ("max_auto_priority", "", Some("max_auto_priority")),
        ("dynamic_interfaces", "allow_if_changes", Some("dynamic_interfaces allow_if_changes")),
        ("dynamic_interfaces", "eth0", None),
        ("vrrp_rx_bufs_policy", "MTU", Some("vrrp_rx_bufs_policy MTU")),
        ("vrrp_rx_bufs_policy", "", None),
        ("vrrp_mcast_group4", "224.0.0.19", Some("vrrp_mcast_group4 224.0.0.19")),
        ("vrrp_mcast_group4", "10.0.0.1", None),
        ("vrrp_mcast_group6", "FF02::13", Some("vrrp_mcast_group6 ff02::13")),
        ("vrrp_mcast_group6", "ff05::13", None),
        ("log_unknown_vrids", "", Some("log_unknown_vrids")),
        ("log_unknown_vrids", "x", None),
        ("vrrp_version", "3", Some("vrrp_version 3")),
        ("vrrp_version", "4", None),
        ("vrrp_strict", "", None),
        ("router_id", "x", None),
        ("Vrrp_version", "3", None),
        (" vrrp_version", "3", None),
        ("", "", None),
    ] {
        let read = group(&[(key, value)]);
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(written(&read.lines), expected, "{key:?} {value:?}");
        assert_eq!(read.refused.len(), 1 - expected.len(), "{key:?} {value:?}");
    }
}

#[test]
fn a_refused_line_is_told_the_reason_and_the_fix() {
    for (annotation, message) in [
        (
            r#"{"notify_master": "/bin/sh"}"#,
            r#""notify_master" would run a program or send mail on the nodes. Remove it; there may be advert_int and track_src_ip."#,
        ),
        (
            r#"{"include": "/etc/passwd"}"#,
            r#""include" would read or write files of the nodes. Remove it; there may be advert_int and track_src_ip."#,
        ),
        (
            r#"{"a\n}": ""}"#,
            r#""a\n}" is no keyword. Remove it; there may be advert_int and track_src_ip."#,
        ),
        (
            r#"{"nopreempt": ""}"#,
            r#""nopreempt" is not one of the keywords that are accepted here. Remove it; there may be advert_int and track_src_ip."#,
        ),
        (
            r#"{"advert_int": "0.1"}"#,
            r#"advert_int takes a whole number from 1 to 40, not "0.1". Write that there, or remove the line."#,
        ),
        (
            r#"{"track_src_ip": "x\n}\nvrrp_script y {"}"#,
            r#"track_src_ip takes no value, not "x\n}\nvrrp_script y {". Write that there, or remove the line."#,
        ),
    ] {
        let read = of_service(annotation);
        assert!(read.lines.is_empty(), "{annotation}");
        let [problem] = &read.refused[..] else { panic!("{annotation}: {:?}", read.refused) };
        let said = problem.to_string();
        let said = said.strip_prefix("keepalived-operator.redhat-cop.io/verbatimconfig: ");
        assert_eq!(said, Some(message), "{annotation}");
    }
    let of_group = group(&[("a", "1")]).refused[0].to_string();
    assert!(of_group.starts_with("verbatimConfig: \"a\" is not one of"), "{of_group}");
    assert!(of_group.ends_with("docs/reference/verbatim.md lists the keywords."), "{of_group}");
}

#[test]
fn an_annotation_that_is_no_object_of_texts_counts_for_nothing_as_a_whole() {
    let long = format!(r#"{{"track_src_ip": "", "a": "{}"}}"#, "x".repeat(keys::LONGEST_VALUE));
    for annotation in [
        "",
        "x",
        "[]",
        "5",
        r#""track_src_ip""#,
        r#"{"a": 1}"#,
        r#"{"track_src_ip": "", "a": 1}"#,
        r#"{"track_src_ip": {}}"#,
        r#"{"track_src_ip": ""} x"#,
        &"[".repeat(10_000),
        &long,
    ] {
        let read = of_service(annotation);
        assert_eq!((read.lines.is_empty(), read.refused.len()), (true, 1), "{annotation:.80}");
        assert!(read.refused[0].to_string().len() < 400, "{annotation:.80}");
    }
    for annotation in ["null", "{}", " {} "] {
        assert_eq!(of_service(annotation), ReadLines::default(), "{annotation}");
    }
    let bare = of_service(r#"{"track_src_ip": null}"#);
    assert_eq!(written(&bare.lines), ["track_src_ip"], "as the original read it");
}

#[test]
fn one_refused_line_takes_no_other_with_it_and_many_are_counted() {
    let mut object: BTreeMap<_, _> = (0..500).map(|n| (format!("x{n}"), json!(""))).collect();
    object.insert("track_src_ip".to_owned(), json!(""));
    let read = of_service(&serde_json::to_string(&object).unwrap());
    assert_eq!(written(&read.lines), ["track_src_ip"]);
    assert_eq!(read.refused.len(), MOST_PROBLEMS + 1);
    assert!(read.refused[MOST_PROBLEMS].fault.starts_with("492 more lines"), "{:?}", read.refused);
}

#[test]
fn the_tables_have_no_keyword_twice_and_none_that_could_do_harm() {
    for table in [OF_GROUPS, OF_SERVICES] {
        let names: std::collections::BTreeSet<_> =
            table.iter().map(|keyword| keyword.name).collect();
        assert_eq!(names.len(), table.len());
        for keyword in table {
            assert!(keyword.meaning.ends_with('.'), "{keyword:?}");
            assert!(keyword.inert || !keyword.name.contains("script"), "{keyword:?}");
            for part in ["notify", "include", "fifo", "file", "smtp", "snmp", "dbus", "strict"] {
                assert!(!keyword.name.contains(part), "{keyword:?}");
            }
        }
    }
}

fn key() -> impl Strategy<Value = String> {
    let known = OF_GROUPS.iter().chain(OF_SERVICES).map(|keyword| keyword.name);
    prop_oneof![
        4 => select(known.collect::<Vec<_>>()).prop_map(str::to_owned),
        1 => "(notify|vrrp|include|script|track)[a-z_ \\n{}#!]{0,12}",
        1 => "\\PC{0,12}",
    ]
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => Just(String::new()),
        3 => "-?[0-9]{1,8}(\\.[0-9]{1,7})?",
        2 => "(all |true|off|MTU|allow_if_changes|root|224\\.0\\.0\\.9|ff02::5)[ 0-9]{0,3}",
        2 => "[a-z0-9._ \\t\\n\\r{}\"'#!$@/-]{0,20}",
        1 => "\\PC{0,300}",
    ]
}

proptest! {
    #[test]
    fn nothing_outside_the_list_gets_through(config in btree_map(key(), value(), 0..8)) {
        fuzzing::verbatim(&config);
        let annotation = serde_json::to_string(&config).unwrap();
        fuzzing::announce_request(&annotation, &annotation, &annotation);
    }

    #[test]
    fn no_annotation_panics(group in "\\PC*", spread in "\\PC*", lines in "\\PC*|[{}\\[\\]\":,a-z0-9 ]*") {
        fuzzing::announce_request(&group, &spread, &lines);
    }
}
