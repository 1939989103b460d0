//! Plans of every kind, for property tests.

use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::{collection::vec as vec_of, prelude::*, sample::subsequence};

use crate::plan::{
    Change, FORMAT, Form, Instance, Node, NodeIndex, PasswordFrom, Plan, Preempt, Step, Transport,
    Version,
};

/// All passwords that [`plans`] name.
pub(super) fn passwords() -> BTreeMap<String, String> {
    let all = [("p1", "s3cr3tpw"), ("p2", "a# !c{}")];
    all.map(|(name, password)| (name.to_string(), password.to_string())).into()
}

/// Plans of both layouts, with every transport, version and family, and changes at every step.
pub(super) fn plans() -> impl Strategy<Value = Plan> {
    (2..5_u8).prop_flat_map(|nodes| {
        let drafts = vec_of(draft(nodes), 0..6);
        (drafts, any::<bool>(), any::<bool>()).prop_map(move |(drafts, verbatim, slots)| Plan {
            format: FORMAT,
            generation: 1,
            group: "net/edge".to_string(),
            interface: "lo".to_string(),
            interface_from: None,
            interfaces: BTreeMap::new(),
            password_from: Some(PasswordFrom {
                secret: "vrrp".to_string(),
                key: "password".to_string(),
            }),
            global_lines: if verbatim {
                vec!["vrrp_garp_master_refresh 60".to_string()]
            } else {
                vec![]
            },
            nodes: (1..=nodes).map(node).collect(),
            instances: (1..).zip(drafts).map(|(id, draft)| draft.finish(id, slots)).collect(),
            leaving: BTreeMap::new(),
            joining: BTreeMap::new(),
            departing: BTreeMap::new(),
        })
    })
}

fn node(number: u8) -> Node {
    let v4 = Ipv4Addr::new(192, 0, 2, number);
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into());
    Node { name: format!("n{number}"), addresses: vec![v4.into(), v6.into()] }
}

#[derive(Clone, Debug)]
struct Draft {
    is_v4: bool,
    forms: (FormDraft, FormDraft),
    step: Option<(Step, NodeIndex)>,
    excluded: (u8, u8),
    order: Vec<NodeIndex>,
    preempt: Preempt,
    only_on: Option<Vec<NodeIndex>>,
    with_line: bool,
}

#[derive(Clone, Debug)]
struct FormDraft {
    is_v3: bool,
    interval: u32,
    unicast: bool,
    password: Option<&'static str>,
    addresses: u8,
}

fn draft(nodes: u8) -> impl Strategy<Value = Draft> {
    let indexes: Vec<NodeIndex> = (0..nodes.into()).collect();
    let steps = vec![Step::Mute, Step::Holder, Step::Others];
    let step = (proptest::sample::select(steps), 0..NodeIndex::from(nodes));
    let preempt =
        [Preempt::Never, Preempt::AtOnce, Preempt::AfterSeconds(1), Preempt::AfterSeconds(900)];
    let some = indexes.clone();
    (
        any::<bool>(),
        (form(), form()),
        proptest::option::of(step),
        (0..5_u8, 0..5_u8),
        Just(indexes).prop_shuffle(),
        proptest::sample::select(preempt.to_vec()),
        proptest::option::of(subsequence(some, 0..=usize::from(nodes))),
        any::<bool>(),
    )
        .prop_map(|(is_v4, forms, step, excluded, order, preempt, only_on, with_line)| Draft {
            is_v4,
            forms,
            step,
            excluded,
            order,
            preempt,
            only_on,
            with_line,
        })
}

fn form() -> impl Strategy<Value = FormDraft> {
    let passwords = proptest::sample::select(vec![None, Some("p1"), Some("p2")]);
    (any::<bool>(), 1..41_u32, any::<bool>(), passwords, 1..4_u8).prop_map(
        |(is_v3, interval, unicast, password, addresses)| FormDraft {
            is_v3,
            interval,
            unicast,
            password,
            addresses,
        },
    )
}

impl Draft {
    fn finish(self, router_id: u8, slots: bool) -> Instance {
        let form = self.forms.0.finish(router_id, self.is_v4, slots);
        let change = self.step.map(|(step, holder)| Change {
            before: self.forms.1.finish(router_id, self.is_v4, slots),
            holder,
            step,
            since: 1,
        });
        // Those of a classic instance overlap with what the other form advertises.
        let v4 = (0..self.excluded.0).map(|last| address(router_id, true, last));
        let v6 = (0..self.excluded.1).map(|last| address(router_id, false, last));
        Instance {
            name: if slots { format!("edge/{router_id}") } else { format!("ns/svc{router_id}") },
            router_id,
            generation: 1,
            form,
            excluded: v4.chain(v6).collect(),
            order: self.order,
            preempt: self.preempt,
            only_on: self.only_on,
            lines: if self.with_line { vec!["track_src_ip".to_string()] } else { vec![] },
            change,
        }
    }
}

impl FormDraft {
    fn finish(&self, router_id: u8, is_v4: bool, anchor: bool) -> Form {
        // Version 2 has no IPv6, and counts whole seconds.
        let is_v2 = is_v4 && !self.is_v3;
        let advertised = if anchor && is_v4 {
            vec![Ipv4Addr::new(169, 254, 112, router_id).into()]
        } else if anchor {
            vec![Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0x112, router_id.into()).into()]
        } else {
            (0..self.addresses).map(|last| address(router_id, is_v4, last)).collect()
        };
        Form {
            version: if is_v2 { Version::V2 } else { Version::V3 },
            advert_millis: self.interval * if is_v2 { 1000 } else { 30 },
            transport: if self.unicast { Transport::Unicast } else { Transport::Multicast },
            password: self.password.filter(|_| is_v2).map(ToString::to_string),
            advertised,
            anchor,
        }
    }
}

fn address(router_id: u8, is_v4: bool, last: u8) -> IpAddr {
    if is_v4 {
        Ipv4Addr::new(198, 51, router_id, last).into()
    } else {
        Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, router_id.into(), last.into()).into()
    }
}
