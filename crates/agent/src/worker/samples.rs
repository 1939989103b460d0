//! Plans for the tests of the worker.

use landfall_vrrp::{FORMAT, Form, Instance, Node, Plan, Preempt, Transport, Version};

pub(super) fn form(advertised: &[&str]) -> Form {
    Form {
        version: Version::V3,
        advert_millis: 100,
        transport: Transport::Multicast,
        password: None,
        advertised: advertised.iter().map(|text| text.parse().unwrap()).collect(),
        anchor: false,
    }
}

pub(super) fn instance(name: &str, router_id: u8, form: Form) -> Instance {
    Instance {
        name: name.to_owned(),
        router_id,
        generation: 1,
        form,
        excluded: vec![],
        order: vec![0, 1],
        preempt: Preempt::Never,
        only_on: None,
        lines: vec![],
        change: None,
    }
}

/// Of the group `net/edge` with nodes `n1` and `n2`.
pub(super) fn plan(instances: Vec<Instance>) -> Plan {
    let node = |name: &str, addresses: [&str; 2]| Node {
        name: name.to_owned(),
        addresses: addresses.map(|text| text.parse().unwrap()).into(),
    };
    Plan {
        format: FORMAT,
        generation: 1,
        group: "net/edge".to_owned(),
        interface: "eth0".to_owned(),
        interface_from: None,
        interfaces: [].into(),
        password_from: None,
        global_lines: vec![],
        nodes: vec![
            node("n1", ["192.0.2.1", "2001:db8::1"]),
            node("n2", ["192.0.2.2", "2001:db8::2"]),
        ],
        instances,
        leaving: [].into(),
        joining: [].into(),
        departing: [].into(),
    }
}
