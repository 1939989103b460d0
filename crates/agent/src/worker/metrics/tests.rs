use std::{
    collections::BTreeSet,
    io::Write as _,
    process::{Command, Stdio},
};

use super::{
    super::{history::Past, samples, view::Running},
    *,
};
use crate::call::Counts;

fn view() -> View {
    let report = InstanceReport {
        name: "ns/\"a\\".to_owned(),
        interface: "eth0".to_owned(),
        router_id: 7,
        state: State::Master,
        counters: Counters {
            advert_rcvd: 101,
            advert_sent: 102,
            become_master: 103,
            release_master: 104,
            packet_len_err: 105,
            advert_interval_err: 106,
            ip_ttl_err: 107,
            invalid_type_rcvd: 108,
            addr_list_err: 109,
            invalid_authtype: 110,
            authtype_mismatch: 111,
            auth_failure: 112,
            pri_zero_rcvd: 113,
            pri_zero_sent: 114,
        },
        ..InstanceReport::default()
    };
    let past = Past { transitions: 3, is_doubled: true, times_doubled: 2 };
    View {
        running: Some(Running { plan: samples::plan(vec![]).into(), node: Some(0) }),
        keepalived: Health::Runs,
        instances: vec![(report, past)],
        counts: Counts { goodbyes: 8, swept: 9 },
        reloads: 4,
        ..View::default()
    }
}

#[test]
fn every_metric_has_its_value_and_labels() {
    let page = page(&view());
    for line in [
        "keepalived_up 1",
        "landfall_agent_generation 1",
        "landfall_agent_reloads_total 4",
        "landfall_agent_reload_failures_total 0",
        "landfall_agent_goodbyes_total 8",
        "landfall_agent_swept_total 9",
        r#"landfall_agent_state{name="ns/\"a\\",intf="eth0",vrid="7"} 2"#,
        r#"landfall_agent_transitions_total{name="ns/\"a\\",intf="eth0",vrid="7"} 3"#,
        r#"landfall_agent_duplicate_master{name="ns/\"a\\",intf="eth0",vrid="7"} 1"#,
        r#"keepalived_vrrp_advert_sent{name="ns/\"a\\",intf="eth0",vrid="7",state="MASTER"} 102"#,
        r#"keepalived_vrrp_ip_ttl_err{name="ns/\"a\\",intf="eth0",vrid="7",state="MASTER"} 107"#,
        "# TYPE keepalived_vrrp_advert_sent counter",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is missing in\n{page}");
    }
}

#[test]
fn each_counter_of_keepalived_is_read_from_its_own_field() {
    let view = view();
    let counters = serde_json::to_value(view.instances[0].0.counters).unwrap();
    let fields = counters.as_object().unwrap();
    assert_eq!(fields.len(), COUNTERS.len());
    let page = page(&view);
    for (field, value) in fields {
        // Fields are written as `advertRcvd`, metrics as `advert_rcvd`.
        let name = field.chars().fold(String::new(), |name, c| match c {
            'A'..='Z' => name + "_" + &c.to_lowercase().to_string(),
            _ => name + &c.to_string(),
        });
        let metric = format!("keepalived_vrrp_{name}{{");
        let line = page.lines().find(|line| line.starts_with(&metric)).unwrap();
        assert!(line.ends_with(&format!(" {value}")), "{field}: {line}");
    }
}

#[test]
fn dashboards_of_the_replaced_exporter_find_their_names() {
    let names: BTreeSet<_> = descriptions().map(|description| description.name).collect();
    assert_eq!(names.len(), 24);
    let theirs = "advert_rcvd advert_sent become_master release_master packet_len_err \
        advert_interval_err ip_ttl_err invalid_type_rcvd addr_list_err invalid_authtype \
        authtype_mismatch auth_failure pri_zero_rcvd pri_zero_sent";
    for name in theirs.split_whitespace() {
        assert!(names.contains(format!("keepalived_vrrp_{name}").as_str()), "{name}");
    }
    let page = page(&view());
    let told = |line: &str| {
        line.strip_prefix("# TYPE ").and_then(|it| it.split(' ').next()).map(str::to_owned)
    };
    let order: Vec<_> = page.lines().filter_map(told).collect();
    assert_eq!(order, descriptions().map(|it| it.name.to_owned()).collect::<Vec<_>>());
}

#[test]
fn a_keepalived_that_is_down_shows_no_states() {
    let down = View { keepalived: Health::Down("it died".to_owned()), ..view() };
    let page = page(&down);
    assert!(page.contains("\nkeepalived_up 0\n"), "{page}");
    assert!(!page.contains("name="), "{page}");
}

#[test]
fn prometheus_reads_the_page() {
    for view in [view(), View::default()] {
        let mut tool = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("promtool is installed");
        tool.stdin.take().unwrap().write_all(page(&view).as_bytes()).unwrap();
        let output = tool.wait_with_output().unwrap();
        let words = String::from_utf8(output.stderr).unwrap();
        // It would have the replaced exporter's counters end in `_total`; nothing else is wrong.
        let complaints: Vec<_> = words
            .lines()
            .filter(|line| {
                !(line.starts_with("keepalived_vrrp_") && line.contains("should have \"_total\""))
            })
            .collect();
        assert_eq!(complaints, Vec::<&str>::new());
    }
}
