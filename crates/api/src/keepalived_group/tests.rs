//! The wire form, and which specs become settings.

use std::{net::IpAddr, time::Duration};

use proptest::{
    collection::{btree_map, vec},
    prelude::*,
    sample::select,
};
use serde_json::{Map, Value, json};

use super::*;
use crate::fuzzing;

fn spec(json: Value) -> KeepalivedGroupSpec {
    serde_json::from_value(json).unwrap()
}

/// A spec with one field more than it needs.
fn with(field: &str, value: Value) -> KeepalivedGroupSpec {
    let mut spec = json!({"interface": "eth0"});
    spec[field] = value;
    self::spec(spec)
}

fn settings(spec: &KeepalivedGroupSpec) -> GroupSettings {
    spec.settings().unwrap()
}

#[test]
fn the_wire_form_is_the_originals_and_nothing_is_added() {
    for wire in [
        json!({"image": "i", "interface": "ens3"}),
        json!({
            "image": "quay.io/example/keepalived:2.2.7", "interface": "ens4", "interfaceFromIP": "10.0.0.1",
            "nodeSelector": {"node-role.kubernetes.io/worker": ""},
            "passwordAuth": {"secretRef": {"name": "vrrp-auth"}, "secretKey": "password"},
            "verbatimConfig": {"vrrp_iptables": "my-keepalived"}, "blacklistRouterIDs": [1, 2, 5, 3],
            "unicastEnabled": true, "daemonsetPodPriorityClassName": "system-node-critical",
            "daemonsetPodAnnotations": {"a": "false"},
        }),
        json!({
            "image": "i", "interface": "ens3", "interfaceFromIP": "", "daemonsetPodPriorityClassName": "",
            "passwordAuth": {"secretRef": {}, "secretKey": "password"}, "blacklistRouterIDs": [],
            "nodeSelector": {}, "verbatimConfig": {}, "unicastEnabled": false,
        }),
    ] {
        assert_eq!(serde_json::to_value(spec(wire.clone())).unwrap(), wire);
    }
    let short = serde_json::to_value(spec(json!({"interface": "ens3"}))).unwrap();
    let image = "registry.redhat.io/openshift4/ose-keepalived-ipfailover";
    assert_eq!(short, json!({"interface": "ens3", "image": image}));
}

#[test]
fn what_is_left_out_or_empty_has_the_documented_default() {
    let empty = json!({
        "image": "", "interface": "eth0", "interfaceFromIP": "", "daemonsetPodPriorityClassName": "",
        "passwordAuth": {"secretRef": {"name": ""}, "secretKey": ""},
    });
    for spec in [spec(empty), spec(json!({"interface": " eth0 "}))] {
        let settings = settings(&spec);
        assert_eq!(settings.layout, Layout::PerService);
        assert_eq!(settings.device("n1"), &Device::Named("eth0".to_owned()));
        assert_eq!((settings.password.as_ref(), settings.unicast), (None, false));
        assert_eq!((settings.image.as_ref(), settings.priority_class.as_ref()), (None, None));
        assert_eq!((settings.metrics_port, settings.vrrp_version()), (9650, 2));
        assert_eq!(settings.down_timer_adverts(), 3);
        assert_eq!(settings.router_ids().collect::<Vec<_>>(), (1..=255).collect::<Vec<_>>());
        assert!(settings.allows(IpAddr::from([203, 0, 113, 1])));
        let (v4, v6) = settings.multicast_groups();
        assert_eq!((v4.to_string(), v6.to_string()), ("224.0.0.18".into(), "ff02::12".into()));
        assert_eq!(settings.warnings, []);
    }
    let slots = settings(&with("vrrp", json!({})));
    let Layout::Slots(layout) = &slots.layout else { panic!("slots") };
    assert_eq!((layout.count, layout.advert_interval), (8, Duration::from_millis(100)));
    assert_eq!((layout.preempt_after, layout.most_addresses()), (None, None));
    assert_eq!(slots.vrrp_version(), 3);
}

#[test]
fn what_a_group_says_is_what_its_settings_are() {
    let all = settings(&spec(json!({
        "image": "quay.io/example/keepalived:2.2.7", "interface": "ens4", "interfaceFromIP": "fd00::1",
        "interfaces": {"n1": "bond0.100"}, "passwordAuth": {"secretRef": {"name": "vrrp-auth"}, "secretKey": "key"},
        "verbatimConfig": {"vrrp_mcast_group4": "239.1.2.3", "vrrp_mcast_group6": "ff12::9", "vrrp_down_timer_adverts": "5"},
        "blacklistRouterIDs": [12, 300, 0, -1], "allowedRanges": ["10.0.0.0/24", " 10.1.0.5 ", "fd00::/64"],
        "metricsPort": 9651, "nodeSelector": {"vips": "true"},
        "vrrp": {"advertInterval": "30ms", "slots": 3, "preempt": true, "preemptDelay": "1m30s", "routerIDs": {"first": 11, "last": 14}},
    })));
    assert_eq!(all.device("n1"), &Device::Named("bond0.100".to_owned()));
    assert_eq!(all.device("n2"), &Device::Towards("fd00::1".parse().unwrap()));
    let Layout::Slots(slots) = &all.layout else { panic!("slots") };
    assert_eq!((slots.count, slots.preempt_after), (3, Some(Duration::from_secs(90))));
    assert_eq!(slots.most_addresses(), Some(1000));
    assert_eq!(all.router_ids().collect::<Vec<_>>(), [11, 13, 14]);
    let password = PasswordSource { secret: "vrrp-auth".into(), key: "key".into() };
    assert_eq!(all.password, Some(password));
    assert_eq!(all.image.as_deref(), Some("quay.io/example/keepalived:2.2.7"));
    assert_eq!((all.metrics_port, all.down_timer_adverts()), (9651, 5));
    let (v4, v6) = all.multicast_groups();
    assert_eq!((v4.to_string(), v6.to_string()), ("239.1.2.3".into(), "ff12::9".into()));
    for (address, allowed) in [
        ("10.0.0.7", true),
        ("10.1.0.5", true),
        ("10.1.0.6", false),
        ("fd00::7", true),
        ("fd01::7", false),
    ] {
        assert_eq!(all.allows(address.parse().unwrap()), allowed, "{address}");
    }
    let warned: Vec<_> = all.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warned,
        ["300", "0", "-1"].map(|id| format!(
            "blacklistRouterIDs: {id} is no router ID and excludes nothing. Remove it."
        ))
    );
}

#[test]
fn a_group_that_cannot_be_used_is_told_every_fault_with_its_fix() {
    let device = "is no network device. Name a device such as eth0, of at most 15 letters";
    for (case, spec, field, said) in [
        ("no interface", with("interface", json!("")), "interface", device),
        ("no spec", spec(json!({"interface": ""})), "interface", "\"\" is no network device"),
        ("a long name", with("interface", json!("enp0s31f6.40000x")), "interface", device),
        ("a slash", with("interface", json!("a/b")), "interface", device),
        ("a brace", with("interface", json!("eth0 {")), "interface", device),
        ("a line", with("interface", json!("eth0\nnotify x")), "interface", device),
        ("a comment", with("interface", json!("eth0#1")), "interface", device),
        ("dots", with("interface", json!("..")), "interface", device),
        ("loopback", with("interface", json!("lo")), "interface", "lo reaches no other node"),
        ("one node's", with("interfaces", json!({"n1": "eth 0"})), "interfaces", device),
        (
            "no address",
            with("interfaceFromIP", json!("gw")),
            "interfaceFromIP",
            "\"gw\" is no IP address",
        ),
        (
            "to itself",
            with("interfaceFromIP", json!("127.0.0.1")),
            "interfaceFromIP",
            "leads over no device",
        ),
        (
            "mapped",
            with("interfaceFromIP", json!("::ffff:127.0.0.1")),
            "interfaceFromIP",
            "leads over no device",
        ),
        (
            "a range",
            with("allowedRanges", json!(["10.0.0.0/24", "x"])),
            "allowedRanges",
            "\"x\" is no CIDR",
        ),
        (
            "no port",
            with("metricsPort", json!(0)),
            "metricsPort",
            "Set it to a number from 1 to 65535",
        ),
        ("a large port", with("metricsPort", json!(65536)), "metricsPort", "it is no port"),
        (
            "no slot",
            with("vrrp", json!({"slots": 0})),
            "vrrp.slots",
            "Set it to a number from 1 to 64",
        ),
        ("many slots", with("vrrp", json!({"slots": 65})), "vrrp.slots", "from 1 to 64"),
        (
            "a long delay",
            with("vrrp", json!({"preemptDelay": "1001s"})),
            "vrrp.preemptDelay",
            "at most 1000s",
        ),
        (
            "backwards",
            with("vrrp", json!({"routerIDs": {"first": 9, "last": 8}})),
            "vrrp.routerIDs",
            "first not above last",
        ),
        (
            "ID 0",
            with("vrrp", json!({"routerIDs": {"first": 0}})),
            "vrrp.routerIDs",
            "numbers from 1 to 255",
        ),
        (
            "ID 256",
            with("vrrp", json!({"routerIDs": {"last": 256}})),
            "vrrp.routerIDs",
            "numbers from 1 to 255",
        ),
        (
            "too few IDs",
            with("vrrp", json!({"slots": 4, "routerIDs": {"first": 11, "last": 13}})),
            "vrrp.routerIDs",
            "4 slots need as many router IDs, and 3 are left",
        ),
    ] {
        let problems = spec.settings().unwrap_err();
        let [problem] = &problems[..] else { panic!("{case}: {problems:?}") };
        assert_eq!(problem.field, field, "{case}");
        assert!(problem.to_string().contains(said), "{case}: {problem}");
    }
    let two = spec(json!({"interface": "", "metricsPort": 0})).settings().unwrap_err();
    assert_eq!(
        two.iter().map(|problem| problem.field).collect::<Vec<_>>(),
        ["interface", "metricsPort"]
    );
}

#[test]
fn an_interface_that_nothing_uses_need_not_be_one() {
    let settings = settings(&spec(json!({"interface": "", "interfaceFromIP": "10.20.30.1"})));
    assert_eq!(settings.device("n1"), &Device::Towards(IpAddr::from([10, 20, 30, 1])));
    let mapped = with("interfaceFromIP", json!("::ffff:10.20.30.1")).settings().unwrap();
    assert_eq!(mapped.device("n1"), settings.device("n1"));
}

#[test]
fn advert_intervals_are_those_that_keepalived_counts() {
    for (text, millis) in [
        ("30ms", 30),
        ("100ms", 100),
        ("250ms", 250),
        ("1s", 1000),
        ("1s500ms", 1500),
        ("40s", 40_000),
        ("40000ms", 40_000),
        ("39s1000ms", 40_000),
    ] {
        let read = with("vrrp", json!({"advertInterval": text})).settings().unwrap();
        let Layout::Slots(slots) = read.layout else { panic!("slots") };
        assert_eq!(slots.advert_interval, Duration::from_millis(millis), "{text}");
    }
    for text in [
        "",
        "s",
        "ms",
        "20ms",
        "35ms",
        "0.1s",
        "100",
        "41s",
        "40s10ms",
        "1m",
        "1s 5ms",
        "+1s",
        "-1s",
        "1s1s",
        "100ms1s",
        "1h",
        "000100ms",
        "001s",
        "99999999999999999999s",
        "100msms",
        "é",
    ] {
        let problems = with("vrrp", json!({"advertInterval": text})).settings().unwrap_err();
        let said = problems[0].to_string();
        assert!(said.starts_with(&format!("vrrp.advertInterval: {text:?} is no time")), "{said}");
    }
}

#[test]
fn lines_that_are_refused_leave_the_group_usable() {
    let lines = json!({"notify_master": "/bin/sh", "vrrp_version": "3", "log_unknown_vrids": ""});
    let old = settings(&with("verbatimConfig", lines.clone()));
    assert_eq!((old.warnings.len(), old.vrrp_version()), (1, 3));
    let spec =
        spec(json!({"interface": "eth0", "verbatimConfig": lines, "vrrp": {"preemptDelay": "5s"}}));
    let new = settings(&spec);
    let warned: Vec<_> = new.warnings.iter().map(|problem| problem.fault.as_str()).collect();
    assert_eq!(
        warned,
        [
            "it has no effect without preempt: true",
            "\"notify_master\" would run a program or send mail on the nodes",
            "vrrp_version has no effect together with vrrp, which sets it",
        ]
    );
    assert_eq!(
        new.lines.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["log_unknown_vrids"]
    );
}

#[test]
fn a_group_whose_name_is_no_label_is_told_so() {
    let mut group = KeepalivedGroup::new(&"g".repeat(63), with("unicastEnabled", json!(true)));
    assert!(group.settings().unwrap().unicast);
    group.metadata.name = Some("g".repeat(64));
    group.spec.interface = String::new();
    let problems = group.settings().unwrap_err();
    let fields: Vec<_> = problems.iter().map(|problem| problem.field).collect();
    assert_eq!(fields, ["metadata.name", "interface"]);
}

#[test]
fn an_instance_that_is_not_reported_waits() {
    let node: GroupNode = serde_json::from_value(json!({
        "node": "n1", "generation": 4, "instances": [
            {"name": "net/edge/0", "state": "MASTER", "since": "2027-01-15T08:00:00Z"},
            {"name": "net/edge/1", "state": "FAULT", "since": "2027-01-15T08:00:00Z"},
        ],
        "guard": {"generation": 4, "step": "InFault"},
    }))
    .unwrap();
    assert_eq!(node.state_of("net/edge/0"), InstanceState::Master);
    assert_eq!(node.state_of("net/edge/1"), InstanceState::Fault);
    assert_eq!(node.state_of("net/edge/2"), InstanceState::Backup);
    assert_eq!(node.guard.unwrap().step, GuardStep::InFault);
    for state in
        [InstanceState::Init, InstanceState::Backup, InstanceState::Master, InstanceState::Fault]
    {
        assert_eq!(serde_json::to_value(state).unwrap(), json!(state.as_str()));
    }
}

/// A text that may stand in a field, or not.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => select(&["eth0", "10.0.0.1", "fd00::/64", "10.0.0.0/24", "100ms", "1s", "45s", "password", ""][..]).prop_map(str::to_owned),
        1 => "[0-9]{1,4}(ms|s|m)",
        1 => "[a-z0-9.:/{}#\\n -]{0,20}",
        1 => "\\PC{0,20}",
    ]
}

fn value() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..300).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
        vec(text(), 0..4).prop_map(Value::from),
        vec(-2_i64..300, 0..9).prop_map(Value::from),
    ];
    let names = select(&FIELDS[..]).prop_map(str::to_owned);
    leaf.prop_recursive(2, 12, 5, move |inner| {
        btree_map(names.clone(), inner, 0..5)
            .prop_map(|fields| Value::Object(fields.into_iter().collect()))
    })
    .boxed()
}

const FIELDS: [&str; 21] = [
    "image",
    "interface",
    "interfaceFromIP",
    "nodeSelector",
    "passwordAuth",
    "secretRef",
    "name",
    "verbatimConfig",
    "blacklistRouterIDs",
    "unicastEnabled",
    "vrrp",
    "advertInterval",
    "slots",
    "preempt",
    "preemptDelay",
    "routerIDs",
    "first",
    "last",
    "allowedRanges",
    "metricsPort",
    "interfaces",
];

/// One of these, or now and then any text.
fn mostly(right: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop_oneof![9 => select(right).prop_map(str::to_owned), 1 => text()]
}

/// A spec whose fields are mostly right.
fn likely() -> impl Strategy<Value = Value> {
    let interval = mostly(&["30ms", "100ms", "1s", "1s500ms"]);
    let slots = prop_oneof![9 => 1_i32..65, 1 => any::<i32>()];
    let ids = (1_i32..60, 50_i32..256);
    let vrrp = (interval, slots, any::<bool>(), mostly(&["0s", "45s", "5m"]), ids).prop_map(
        |(advert, slots, preempt, delay, (first, last))| {
            json!({
                "advertInterval": advert, "slots": slots, "preempt": preempt, "preemptDelay": delay,
                "routerIDs": {"first": first, "last": last},
            })
        },
    );
    let device = || mostly(&["eth0", "bond0.100", "br-ex"]);
    let lines =
        btree_map(mostly(&["vrrp_version", "vrrp_mcast_group4", "script_user"]), text(), 0..3);
    (
        device(),
        mostly(&["10.0.0.1", "fd00::1"]),
        prop_oneof![Just(json!({})), vrrp],
        vec(mostly(&["10.0.0.0/24", "fd00::/64", "10.0.0.1-10.0.0.9"]), 0..3),
        vec(-2_i64..300, 0..200),
        btree_map("[a-z0-9]{1,5}", device(), 0..3),
        lines,
        prop_oneof![9 => 1_i32..65_536, 1 => any::<i32>()],
    )
        .prop_map(|(interface, from, vrrp, ranges, blacklist, interfaces, lines, port)| {
            json!({
                "interface": interface, "interfaceFromIP": from, "vrrp": vrrp, "allowedRanges": ranges,
                "blacklistRouterIDs": blacklist, "interfaces": interfaces, "verbatimConfig": lines,
                "metricsPort": port,
            })
        })
}

proptest! {
    #[test]
    fn any_json_is_refused_or_becomes_settings(
        fields in btree_map(select(&FIELDS[..]).prop_map(str::to_owned), value(), 0..8)
    ) {
        fuzzing::keepalived_group(Value::Object(fields.into_iter().collect::<Map<_, _>>()));
    }

    #[test]
    fn a_likely_spec_is_refused_or_becomes_settings(spec in likely(), drop in vec(select(&FIELDS[..]), 0..8)) {
        let Value::Object(mut fields) = spec else { panic!("an object") };
        fields.retain(|field, _| field == "interface" || !drop.contains(&field.as_str()));
        fuzzing::keepalived_group(Value::Object(fields));
    }
}
