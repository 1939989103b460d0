//! Every line that a user may add is one that the real keepalived takes without a word.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::Path,
    process::Command,
};

use landfall_api::verbatim::{self, Keyword, OF_GROUPS, OF_SERVICES, Takes};
use landfall_testkit::tools;

const KEEPALIVED: &str = "/usr/sbin/keepalived";

/// The smallest, the largest and the other values of a keyword.
fn values(takes: Takes) -> Vec<String> {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    match takes {
        Takes::Nothing => texts(&[""]),
        Takes::Switch => texts(&["", "true", "false", "on", "off", "yes", "no"]),
        Takes::Whole(least, most) => vec![least.to_string(), most.to_string()],
        Takes::MaybeWhole(least, most) => vec![String::new(), least.to_string(), most.to_string()],
        Takes::AllAndWhole(least, most) => vec![least.to_string(), format!("all {most}")],
        Takes::Seconds(least, most) => {
            let seconds = |micros: u64| format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
            vec![seconds(least), seconds(most)]
        }
        Takes::Word(words) => texts(words),
        Takes::MaybeWord(word) => texts(&["", word]),
        Takes::Names(least, most) => {
            (least..=most).map(|count| vec!["root"; count].join(" ")).collect()
        }
        Takes::Multicast4 => texts(&["224.0.0.19", "239.255.255.255"]),
        Takes::Multicast6 => texts(&["ff02::13", "FF12::13"]),
    }
}

/// What keepalived says about a configuration, with its exit code.
fn judge(folder: &Path, global: &str, instance: &str) -> (Option<i32>, String) {
    let path = folder.join("keepalived.conf");
    // `dynamic_interfaces`, because no device is the same on all machines.
    let text = format!(
        "global_defs {{\n router_id edge\n dynamic_interfaces\n {global}\n}}\n\
         vrrp_instance shop/web {{\n interface none0\n virtual_router_id 7\n {instance}\n \
         virtual_ipaddress {{\n 192.0.2.5\n }}\n}}\n\
         vrrp_instance shop/six {{\n interface none0\n virtual_router_id 8\n {instance}\n \
         virtual_ipaddress {{\n 2001:db8::5\n }}\n}}\n"
    );
    fs::write(&path, text).unwrap();
    let output = Command::new(KEEPALIVED).arg("-t").arg("-f").arg(&path).output().unwrap();
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.code(), said.concat())
}

fn lines(keyword: &Keyword, of_group: bool) -> Vec<String> {
    let written = |value: String| {
        let read = if of_group {
            verbatim::of_group(&BTreeMap::from([(keyword.name.to_owned(), value.clone())]))
        } else {
            verbatim::of_service(&serde_json::json!({keyword.name: value}).to_string())
        };
        assert_eq!(read.refused, [], "{} {value}", keyword.name);
        let line = read.lines.iter().next().map(ToString::to_string);
        line.unwrap_or_else(|| panic!("{} {value} is accepted", keyword.name))
    };
    values(keyword.takes).into_iter().map(written).collect()
}

#[test]
fn keepalived_takes_every_line_that_agents_render_without_a_word() {
    if !Path::new(KEEPALIVED).exists() {
        assert!(tools::may_skip(), "{KEEPALIVED} is missing");
        writeln!(io::stderr(), "skipped: {KEEPALIVED} is missing (apt-get install keepalived)")
            .unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let judge = |global: &str, instance: &str| judge(folder.path(), global, instance);
    assert_eq!(judge("", ""), (Some(0), String::new()));
    assert_ne!(judge("nonsense 5", "").0, Some(0), "the check can fail");
    assert_ne!(
        judge("", "advert_int 41").0,
        Some(0),
        "in an instance as well, where it is one of version 3"
    );
    let mut judged = 0;
    for keyword in OF_GROUPS.iter().filter(|keyword| !keyword.inert) {
        for line in lines(keyword, true) {
            assert_eq!(judge(&line, ""), (Some(0), String::new()), "{line}");
            judged += 1;
        }
    }
    for keyword in OF_SERVICES {
        for line in lines(keyword, false) {
            assert_eq!(judge("", &line), (Some(0), String::new()), "{line}");
            judged += 1;
        }
    }
    assert!(judged > 60, "{judged}");
}
