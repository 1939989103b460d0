//! What the real keepalived says about the files.

extern crate std;

use alloc::{format, string::String};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use proptest::{
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};

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
    let mut runner = TestRunner::new(Config::default());
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

/// A group as large as router IDs allow: 2,000 addresses that are not advertised, and the most that an advert of
/// either family has room for.
fn largest() -> Plan {
    let v4 = |id: u8, count: u8| -> Vec<IpAddr> {
        (0..count).map(|last| IpAddr::from([198, 18, id, last])).collect()
    };
    let v6 = |id: u8, count: u16| -> Vec<IpAddr> {
        let address = |last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, u16::from(id), last]);
        (0..count).map(address).collect()
    };
    // An advert of 1,500 bytes has room for 89 IPv6 addresses, and 83 if the device is not there to be asked.
    let one = |id: u8| {
        let transport =
            if id.is_multiple_of(2) { Transport::Unicast } else { Transport::Multicast };
        let (version, advertised) = match id {
            1 => (Version::V3, v6(1, 83)),
            2 => (Version::V2, v4(2, 255)),
            3 => (Version::V3, v4(3, 255)),
            _ => (Version::V3, vec![IpAddr::from([169, 254, 112, id])]),
        };
        let form = Form {
            version,
            advert_millis: if version == Version::V2 { 1000 } else { 100 },
            transport,
            password: (version == Version::V2).then(|| "p1".to_string()),
            advertised,
            anchor: id > 3,
        };
        let excluded =
            if id > 3 && id <= 13 { [v4(id, 100), v6(id, 100)].concat() } else { vec![] };
        Instance { excluded, ..instance(&format!("edge/{id}"), id, form) }
    };
    let mut plan = plan((1..=255).map(one).collect());
    plan.nodes[2] = node("n3", &["192.0.2.3", "2001:db8::3"]);
    plan
}

#[test]
fn keepalived_takes_the_largest_file_without_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let plan = largest();
    let excluded: usize = plan.instances.iter().map(|one| one.excluded.len()).sum();
    assert_eq!((plan.instances.len(), excluded), (255, 2000));
    for node in 0..3 {
        let text = render_on(&plan, node).unwrap();
        reading_back::reads_back(&plan, node, &text);
        assert_silent(dir.path(), &text);
    }
}

/// Whatever a name or a password is made of, keepalived reads the file as it is meant, or there is none.
#[test]
fn keepalived_takes_every_file_with_hostile_names_and_passwords_without_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let mut runner = TestRunner::new(Config::default());
    let mut written = 0;
    for place in (0..4_u8).cycle().take(SAMPLES * 4) {
        let mut plan = plans().new_tree(&mut runner).unwrap().current();
        let text = hostile().new_tree(&mut runner).unwrap().current();
        let (mut interface, mut known) = ("eth0".to_string(), passwords());
        match (place, plan.instances.first_mut()) {
            (0, _) => plan.group = format!("net/{text}"),
            // The name of a device has at most 15 characters.
            (1, _) => interface = text.chars().take(15).collect(),
            (2, Some(first)) => first.name.clone_from(&text),
            (_, _) => known.values_mut().for_each(|password| password.clone_from(&text)),
        }
        let host = Host { interface: &interface, ..on(Some(0), &known) };
        if let Ok(file) = render(&plan, host) {
            written += 1;
            assert_silent(dir.path(), &file);
        }
    }
    assert!(written > SAMPLES / 2, "{written}");
}
