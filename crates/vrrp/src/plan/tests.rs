use alloc::{string::ToString, vec};

use super::*;

fn form(version: Version) -> Form {
    Form {
        version,
        advert_millis: 100,
        transport: Transport::Multicast,
        password: None,
        advertised: vec!["169.254.112.1".parse().unwrap()],
        anchor: true,
    }
}

fn plan(addresses: &[&str], nodes: &[&str]) -> Plan {
    let instance = Instance {
        name: "edge/0".to_string(),
        router_id: 1,
        generation: 0,
        form: form(Version::V3),
        excluded: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        order: (0..).take(nodes.len()).collect(),
        preempt: Preempt::Never,
        only_on: None,
        lines: vec![],
        change: None,
    };
    let nodes = nodes.iter().map(|name| Node { name: (*name).to_string(), addresses: vec![] });
    Plan {
        format: FORMAT,
        generation: 0,
        group: "infra/edge".to_string(),
        interface: "eth0".to_string(),
        interface_from: None,
        interfaces: BTreeMap::new(),
        password_from: None,
        global_lines: vec![],
        nodes: nodes.collect(),
        instances: vec![instance],
        leaving: BTreeMap::new(),
        joining: BTreeMap::new(),
        departing: BTreeMap::new(),
    }
}

#[test]
fn the_generation_of_an_instance_grows_only_when_it_gets_an_address() {
    let first = plan(&["192.0.2.1"], &["n1"]).succeeding(None).unwrap();
    assert_eq!((first.generation, first.instances[0].generation), (1, 1));
    assert_eq!(plan(&["192.0.2.1"], &["n1"]).succeeding(Some(&first)), None);
    let node = plan(&["192.0.2.1"], &["n1", "n2"]).succeeding(Some(&first)).unwrap();
    assert_eq!((node.generation, node.instances[0].generation), (2, 1));
    let more = plan(&["192.0.2.1", "192.0.2.2"], &["n1", "n2"]).succeeding(Some(&node)).unwrap();
    assert_eq!((more.generation, more.instances[0].generation), (3, 3));
    let less = plan(&["192.0.2.2"], &["n1", "n2"]).succeeding(Some(&more)).unwrap();
    assert_eq!((less.generation, less.instances[0].generation), (4, 3));
    assert_eq!(plan(&["192.0.2.2"], &["n1", "n2"]).succeeding(Some(&less)), None);
}

#[test]
fn a_change_is_carried_out_by_the_holder_first_while_the_others_are_muted() {
    let plan = plan(&["192.0.2.1"], &["n1", "n2"]);
    let mut instance = plan.instances[0].clone();
    assert!(!plan.is_muted_on(&instance, 0) && !plan.is_muted_on(&instance, 1));
    let change = |step| Some(Change { before: form(Version::V2), holder: 1, step, since: 2 });
    for (step, forms) in [
        (Step::Mute, [Version::V2, Version::V2]),
        (Step::Holder, [Version::V2, Version::V3]),
        (Step::Others, [Version::V3, Version::V3]),
    ] {
        instance.change = change(step);
        assert_eq!([0, 1].map(|node| instance.form_on(node).version), forms, "{step:?}");
        assert_eq!([0, 1].map(|node| plan.is_muted_on(&instance, node)), [true, false], "{step:?}");
    }
}

#[test]
fn an_instance_is_muted_where_no_endpoint_is_ready() {
    let plan = plan(&["192.0.2.1"], &["n1", "n2"]);
    let mut instance = plan.instances[0].clone();
    instance.only_on = Some(vec![1]);
    assert_eq!([0, 1].map(|node| plan.is_muted_on(&instance, node)), [true, false]);
}

#[test]
fn a_unicast_instance_is_muted_on_a_node_that_others_may_not_send_to_yet() {
    let address = |last: u8| IpAddr::from([10, 0, 0, last]);
    let mut plan = plan(&["192.0.2.1"], &["n1", "n2", "n3"]);
    for (last, node) in (1..).zip(&mut plan.nodes) {
        node.addresses = vec![address(last)];
    }
    plan.joining = [(address(2), 5)].into();
    plan.departing = [(address(9), Departing { node: "n9".to_string(), since: 5 })].into();
    plan.departing.insert(address(8), Departing { node: "n1".to_string(), since: 5 });
    let muted = |plan: &Plan| [0, 1, 2].map(|node| plan.is_muted_on(&plan.instances[0], node));
    assert_eq!(muted(&plan), [false; 3]);
    plan.instances[0].form.transport = Transport::Unicast;
    assert_eq!(muted(&plan), [false, true, false]);
    // A node that leaves is heard until it has let go, and no node sends to an address that it had itself.
    let form = &plan.instances[0].form;
    let peers = |node: Option<&Node>| plan.peers(form, node).collect::<Vec<_>>();
    assert_eq!(peers(plan.node(0)), [2, 3, 9].map(address));
    assert_eq!(peers(plan.node(2)), [1, 2, 8, 9].map(address));
    assert_eq!(peers(None), [1, 2, 3, 8, 9].map(address));
}

#[test]
fn a_plan_comes_back_from_its_text_as_it_was() {
    let mut all = plan(&["192.0.2.1", "2001:db8::1"], &["n1", "n2"]);
    all.instances[0].change =
        Some(Change { before: form(Version::V2), holder: 1, step: Step::Holder, since: 2 });
    all.instances[0].preempt = Preempt::AfterSeconds(5);
    let text = serde_json::to_string(&all).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), all);
    let later = text.replacen("\"generation\"", "\"added\":{\"x\":1},\"generation\"", 1);
    assert_eq!(serde_json::from_str::<Plan>(&later).unwrap(), all, "{later}");
}
