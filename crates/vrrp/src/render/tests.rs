mod arbitrary;
mod reading_back;
mod real;

use alloc::{string::ToString, vec, vec::Vec};

use proptest::prelude::*;

use self::arbitrary::{passwords, plans};
use super::*;
use crate::{
    conf,
    plan::{Change, FORMAT, Node, Step, password_name},
};

const RUN_DIR: &str = "/run/landfall";

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn node(name: &str, texts: &[&str]) -> Node {
    Node { name: name.to_string(), addresses: addresses(texts) }
}

fn form(advertised: &[&str]) -> Form {
    Form {
        version: Version::V2,
        advert_millis: 1000,
        transport: Transport::Multicast,
        password: None,
        advertised: addresses(advertised),
        anchor: false,
    }
}

fn instance(name: &str, router_id: u8, form: Form) -> Instance {
    Instance {
        name: name.to_string(),
        router_id,
        generation: 1,
        form,
        excluded: vec![],
        order: vec![0, 1, 2],
        preempt: Preempt::Never,
        only_on: None,
        lines: vec![],
        change: None,
    }
}

fn plan(instances: Vec<Instance>) -> Plan {
    Plan {
        format: FORMAT,
        generation: 1,
        group: "net/edge".to_string(),
        interface: "eth0".to_string(),
        interface_from: None,
        interfaces: BTreeMap::new(),
        password_from: None,
        global_lines: vec![],
        nodes: vec![
            node("n1", &["192.0.2.1", "2001:db8::1"]),
            node("n2", &["192.0.2.2", "2001:db8::2"]),
            node("n3", &["192.0.2.3"]),
        ],
        instances,
        leaving: BTreeMap::new(),
        joining: BTreeMap::new(),
        departing: BTreeMap::new(),
    }
}

fn on(node: Option<NodeIndex>, passwords: &BTreeMap<String, String>) -> Host<'_> {
    Host { node, interface: "eth0", run_dir: RUN_DIR, passwords }
}

fn render_on(plan: &Plan, node: NodeIndex) -> Result<String, Error> {
    render(plan, on(Some(node), &passwords()))
}

/// The lines inside the first instance of a file.
fn body(text: &str) -> Vec<&str> {
    let lines = text.lines().skip_while(|line| !line.starts_with("vrrp_instance")).skip(1);
    lines.take_while(|line| *line != "}").map(str::trim).collect()
}

#[test]
fn a_file_of_slots_is_written_in_full() {
    let anchor =
        Form { version: Version::V3, advert_millis: 100, anchor: true, ..form(&["169.254.112.7"]) };
    let mut slot = instance("edge/0", 7, anchor);
    slot.excluded = addresses(&["198.51.100.7", "2001:db8::7"]);
    slot.preempt = Preempt::AfterSeconds(5);
    let text = render_on(&plan(vec![slot]), 1).unwrap();
    let expected = "\
global_defs {
    router_id edge
    dynamic_interfaces
    vrrp_check_unicast_src
    vrrp_higher_prio_send_advert true
    vrrp_garp_master_refresh 30
    vrrp_garp_master_refresh_repeat 1
    vrrp_garp_master_repeat 1
    vrrp_garp_master_delay 1
    vrrp_notify_fifo \"/run/landfall/notify\"
    fifo_write_vrrp_states_on_reload
}
track_file mute-7 {
    file \"/run/landfall/track/7\"
    weight 0
}
vrrp_instance edge/0 {
    state BACKUP
    interface eth0
    virtual_router_id 7
    priority 128
    version 3
    advert_int 0.1
    preempt_delay 5
    track_file {
        mute-7
    }
    virtual_ipaddress {
        169.254.112.7/32 scope link
    }
    virtual_ipaddress_excluded {
        198.51.100.7
        2001:db8::7
    }
}
";
    assert_eq!(text, expected);
}

#[test]
fn a_node_that_the_plan_does_not_name_has_no_instances() {
    let text =
        render(&plan(vec![instance("ns/a", 1, form(&["192.0.2.9"]))]), on(None, &passwords()));
    let file = conf::parse(&text.unwrap()).unwrap();
    assert_eq!(conf::instances(&file).count(), 0);
    assert_eq!(file.iter().map(conf::Statement::keyword).collect::<Vec<_>>(), ["global_defs"]);
}

#[test]
fn settings_of_the_group_replace_our_own() {
    let mut plan = plan(vec![instance("ns/a", 1, form(&["192.0.2.9"]))]);
    plan.global_lines =
        vec!["vrrp_garp_master_refresh 60".to_string(), "vrrp_iptables x".to_string()];
    let text = render_on(&plan, 0).unwrap();
    let refresh: Vec<_> =
        text.lines().filter(|line| line.trim().starts_with("vrrp_garp_master_refresh ")).collect();
    assert_eq!(refresh, ["    vrrp_garp_master_refresh 60"]);
    assert!(text.contains("    vrrp_iptables x\n"), "{text}");
    // At adverts of a second there is time for all of keepalived's announcements.
    assert!(!text.contains("vrrp_garp_master_repeat"), "{text}");
}

#[test]
fn a_change_of_form_is_carried_out_node_by_node() {
    let mut changing = instance("ns/a", 1, form(&["192.0.2.9", "192.0.2.10"]));
    changing.excluded = addresses(&["192.0.2.10"]);
    let mut holders_lines = Vec::new();
    for step in [Step::Mute, Step::Holder, Step::Others] {
        changing.change = Some(Change { before: form(&["192.0.2.9"]), holder: 1, step, since: 1 });
        let plan = plan(vec![changing.clone()]);
        let is_new = |node| {
            let text = render_on(&plan, node).unwrap();
            let file = conf::parse(&text).unwrap();
            let found = conf::instances(&file).next().unwrap();
            // The address is held before and after the change.
            assert_eq!([found.advertised.as_slice(), &found.excluded].concat().len(), 2, "{text}");
            found.advertised.len() == 2
        };
        holders_lines.push((is_new(0), is_new(1), is_new(2)));
    }
    assert_eq!(holders_lines, [(false, false, false), (false, true, false), (true, true, true)]);
}

#[test]
fn unicast_adverts_go_to_every_other_node_of_the_family() {
    let unicast = |first: &str| Form { transport: Transport::Unicast, ..form(&[first]) };
    let v4 = plan(vec![instance("ns/a", 1, unicast("198.51.100.9"))]);
    let text = render_on(&v4, 1).unwrap();
    let lines = body(&text);
    let from = lines.iter().position(|line| line.starts_with("unicast_src_ip")).unwrap();
    let expected = [
        "unicast_src_ip 192.0.2.2",
        "unicast_fault_no_peer",
        "unicast_peer {",
        "192.0.2.1",
        "192.0.2.3",
        "}",
    ];
    assert_eq!(lines[from..from + expected.len()], expected);
    let v6 = Form { version: Version::V3, ..unicast("2001:db8::9") };
    let v6 = plan(vec![instance("ns/a", 1, v6)]);
    let text = render_on(&v6, 0).unwrap();
    assert!(body(&text).contains(&"2001:db8::2"), "{text}");
    let error = render_on(&v6, 2).unwrap_err();
    assert_eq!(error, Error::AddressMissing("ns/a".to_string(), "IPv6"));
}

#[test]
fn a_file_is_refused_rather_than_written_wrongly() {
    let fine = || plan(vec![instance("ns/a", 1, form(&["192.0.2.9"]))]);
    let name =
        |name: &str| Plan { instances: vec![instance(name, 1, form(&["192.0.2.9"]))], ..fine() };
    let line = |line: &str| Plan { global_lines: vec![line.to_string()], ..fine() };
    let own_line = |line: &str| {
        let mut plan = fine();
        plan.instances[0].lines = vec![line.to_string()];
        plan
    };
    let password = |name: &str| {
        let mut plan = fine();
        plan.instances[0].form.password = Some(name.to_string());
        plan
    };
    let mut disordered = fine();
    disordered.instances[0].order = vec![1, 2];
    for (case, plan, expected) in [
        ("a brace in a name", name("ns/a {"), Error::Unsafe("name of an instance")),
        ("an empty name", name(""), Error::Unsafe("name of an instance")),
        ("a variable in a name", name("ns/$A"), Error::Unsafe("name of an instance")),
        ("a group", Plan { group: "net/e f".to_string(), ..fine() }, Error::Unsafe("group name")),
        ("two lines", line("a\nnotify x"), Error::Unsafe("line")),
        ("a block", line("}"), Error::Unsafe("line")),
        ("a program", line("notify_master /bin/true"), Error::Unsafe("line")),
        ("another file", line("reload_check_config /tmp/log"), Error::Unsafe("line")),
        ("a quoted program", own_line("\"notify\" /bin/true"), Error::Unsafe("line")),
        ("a conditional program", own_line("@n1 notify /bin/true"), Error::Unsafe("line")),
        ("another file", line("include /etc/passwd"), Error::Unsafe("line")),
        ("a definition", line("$A = include"), Error::Unsafe("line")),
        ("two lines of a Service", own_line("a\rb"), Error::Unsafe("line")),
        ("no rank", disordered, Error::NodeUnknown("ns/a".to_string())),
        ("no password", password("other"), Error::PasswordUnknown("ns/a".to_string())),
        ("a quote in a password", password("quoted"), Error::PasswordUnusable),
    ] {
        let mut known = passwords();
        known.insert("quoted".to_string(), "a\"b".to_string());
        assert_eq!(render(&plan, on(Some(0), &known)), Err(expected), "{case}");
    }
    let known = BTreeMap::new();
    let host = Host { interface: "eth0 {", ..on(Some(0), &known) };
    assert_eq!(render(&fine(), host), Err(Error::Unsafe("device name")));
    let strange = Plan { interface: "eth0\n".to_string(), ..fine() };
    assert_eq!(render_for_all(&strange, None), Err(Error::Unsafe("device name")));
}

#[test]
fn a_password_is_cut_to_what_the_protocol_carries() {
    for (text, expected) in [
        ("short", Ok("short")),
        ("s3cr3tpw-and-more", Ok("s3cr3tpw")),
        ("a# !c{}", Ok("a# !c{}")),
        ("with newline", Ok("with new")),
        ("abc\n", Ok("abc")),
        ("abc\r\n", Ok("abc")),
        ("sevenäöü", Ok("seven\u{e4}")),
        ("", Err(Error::PasswordUnusable)),
        ("\n", Err(Error::PasswordUnusable)),
        ("a\"b", Err(Error::PasswordUnusable)),
        ("a\\b", Err(Error::PasswordUnusable)),
        ("a\tb", Err(Error::PasswordUnusable)),
        ("12345678\"", Ok("12345678")),
    ] {
        assert_eq!(usable_password(text), expected, "{text:?}");
    }
}

#[test]
fn intervals_have_as_many_decimals_as_they_need() {
    for (millis, expected) in
        [(1000, "1"), (100, "0.1"), (250, "0.25"), (30, "0.03"), (40_950, "40.95"), (1010, "1.01")]
    {
        assert_eq!(seconds(millis), expected);
    }
}

#[test]
fn the_file_for_all_nodes_is_that_of_the_replaced_operator() {
    let with_password = Form { password: Some("p1".to_string()), ..form(&["192.0.2.9"]) };
    let mut one = instance("ns/a", 1, with_password);
    one.lines = vec!["track_src_ip".to_string()];
    one.form.transport = Transport::Unicast;
    let plan = plan(vec![one]);
    let text = render_for_all(&plan, Some("s3cr3tpw")).unwrap();
    let file = conf::parse(&text).unwrap();
    let found = conf::instances(&file).next().unwrap();
    // Its own address among them: the file is the same for every node.
    assert_eq!(found.peers, addresses(&["192.0.2.1", "192.0.2.2", "192.0.2.3"]));
    assert_eq!(found.password.as_deref(), Some("s3cr3tpw"));
    assert!(body(&text).contains(&"track_src_ip"), "{text}");
    assert!(!text.contains("track_file") && !text.contains("priority"), "{text}");
    let without = render_for_all(&plan, None).unwrap();
    assert!(!without.contains("auth"), "{without}");
}

#[test]
fn the_name_of_a_password_depends_on_the_version_of_its_secret() {
    assert_eq!(password_name("uid", "7"), "uid/7");
}

/// Text as somebody writes it who wants more in the file than its place has.
fn hostile() -> impl Strategy<Value = alloc::string::String> {
    let piece = prop_oneof![
        "[ -~]{0,12}",
        proptest::sample::select(vec![
            " {",
            "}",
            "\n",
            "\r",
            "\0",
            "\"",
            "#",
            "!",
            "$A",
            "~SEQ",
            "@n1 ",
            "include /x",
            "notify /x",
            "vrrp_script s",
            "nopreempt",
            "\u{85}",
            "\u{2028}",
            "edge/1",
            "track_src_ip",
        ])
        .prop_map(ToString::to_string),
    ];
    proptest::collection::vec(piece, 0..4).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn hostile_text_in_a_plan_is_refused_or_stays_in_its_place(
        plan in plans(),
        text in hostile(),
        place in 0..6_u8,
    ) {
        let mut plan = plan;
        let (mut interface, mut known) = ("eth0".to_string(), passwords());
        match (place, plan.instances.first_mut()) {
            (0, _) => plan.group = alloc::format!("net/{text}"),
            (1, _) => plan.global_lines = vec![text.clone()],
            (2, _) => interface.clone_from(&text),
            (3, Some(first)) => first.name.clone_from(&text),
            (4, Some(first)) => first.lines = vec![text.clone()],
            (_, _) => known.values_mut().for_each(|password| password.clone_from(&text)),
        }
        let host = Host { interface: &interface, ..on(Some(0), &known) };
        let Ok(file) = render(&plan, host) else { return Ok(()) };
        let file = conf::parse(&file).unwrap();
        let names: Vec<_> = conf::instances(&file).map(|instance| instance.name).collect();
        let planned: Vec<_> = plan.instances.iter().map(|instance| instance.name.clone()).collect();
        prop_assert_eq!(names, planned);
        let expected = ["global_defs", "track_file", "vrrp_instance"];
        let block = |statement: &conf::Statement| statement.block.clone();
        let inner = file.iter().flat_map(block).chain(file.iter().flat_map(block).flat_map(|it| block(&it)));
        prop_assert!(file.iter().all(|statement| expected.contains(&statement.keyword())));
        for statement in inner {
            let keyword = statement.keyword();
            let is_ours = keyword == "vrrp_notify_fifo" || keyword == "fifo_write_vrrp_states_on_reload";
            prop_assert!(is_ours || !keyword.contains("notify") && !keyword.contains("script"));
            prop_assert!(!keyword.contains("include"), "{keyword}");
        }
    }

    #[test]
    fn a_file_reads_back_as_what_the_plan_says_for_the_node(plan in plans()) {
        for node in 0..u32::try_from(plan.nodes.len()).unwrap() {
            reading_back::reads_back(&plan, node, &render_on(&plan, node).unwrap());
        }
        reading_back::prefers_nodes_in_order(&plan);
    }
}
