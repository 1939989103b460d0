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
    let mut instance = plan(&["192.0.2.1"], &["n1", "n2"]).instances.remove(0);
    assert!(!instance.is_muted_on(0) && !instance.is_muted_on(1));
    let change = |step| Some(Change { before: form(Version::V2), holder: 1, step, since: 2 });
    for (step, forms) in [
        (Step::Mute, [Version::V2, Version::V2]),
        (Step::Holder, [Version::V2, Version::V3]),
        (Step::Others, [Version::V3, Version::V3]),
    ] {
        instance.change = change(step);
        assert_eq!([0, 1].map(|node| instance.form_on(node).version), forms, "{step:?}");
        assert_eq!([0, 1].map(|node| instance.is_muted_on(node)), [true, false], "{step:?}");
    }
}

#[test]
fn an_instance_is_muted_where_no_endpoint_is_ready() {
    let mut instance = plan(&["192.0.2.1"], &["n1", "n2"]).instances.remove(0);
    instance.only_on = Some(vec![1]);
    assert_eq!([0, 1].map(|node| instance.is_muted_on(node)), [true, false]);
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
