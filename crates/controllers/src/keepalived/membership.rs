//! Nodes that join or leave a group whose adverts go to each node by itself.
//!
//! Nodes do not read a plan at the same moment. A node that the holder sends no adverts to yet would hear no holder,
//! and hold the addresses a second time. So a node that joins holds nothing until the others send to it, and one that
//! leaves is heard until it has let its instances go.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use landfall_vrrp::{Departing, Instance, Node, Plan, Transport};

use super::change::Nodes;

/// What is known of the nodes of a group.
pub(super) struct Membership<'a> {
    /// The plan that nodes carry out now.
    pub before: Option<&'a Plan>,
    pub nodes: Nodes<'a>,
}

/// The addresses of nodes that not every node knows the same way.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Moving {
    pub joining: BTreeMap<IpAddr, i64>,
    pub departing: BTreeMap<IpAddr, Departing>,
    /// Nodes that hold up those that join.
    pub silent: BTreeSet<String>,
}

impl Membership<'_> {
    /// What is to be said about the addresses of nodes in a plan that follows.
    pub(super) fn moving(&self, next: &Plan) -> Moving {
        let Some(before) = self.before.filter(|before| is_unicast(before) || is_unicast(next))
        else {
            return Moving::default();
        };
        let since = before.generation.saturating_add(1);
        let (old, new) = (addresses(&before.nodes), addresses(&next.nodes));
        let mut moving = Moving::default();
        for address in new.keys() {
            let began = match before.joining.get(address) {
                Some(began) => *began,
                None if old.contains_key(address) || before.departing.contains_key(address) => {
                    continue;
                }
                None => since,
            };
            let behind = self.behind(before, began);
            if !behind.is_empty() || began == since {
                moving.joining.insert(*address, began);
                moving.silent.extend(behind);
            }
        }
        let left = old
            .into_iter()
            .map(|(address, node)| (address, Departing { node: node.to_owned(), since }));
        let earlier = before.departing.clone().into_iter().filter(|(_, one)| !self.has_let_go(one));
        moving
            .departing
            .extend(left.chain(earlier).filter(|(address, _)| !new.contains_key(address)));
        moving
    }

    /// The nodes that do not send to an address yet. Those that join themselves hold nothing until they do.
    fn behind(&self, before: &Plan, since: i64) -> BTreeSet<String> {
        let mut behind = self.nodes.behind(Some(before), since);
        let joins = |node: &&Node| {
            node.addresses.iter().any(|address| before.joining.contains_key(address))
        };
        for node in before.nodes.iter().filter(joins) {
            behind.remove(&node.name);
        }
        behind
    }

    fn has_let_go(&self, one: &Departing) -> bool {
        self.nodes.runs(&one.node, one.since) || self.nodes.is_over(one.since)
    }
}

fn is_unicast(plan: &Plan) -> bool {
    let forms = |instance: &Instance| {
        let before = instance.change.as_ref().map(|change| change.before.transport);
        instance.form.transport == Transport::Unicast || before == Some(Transport::Unicast)
    };
    plan.instances.iter().any(forms)
}

fn addresses(nodes: &[Node]) -> BTreeMap<IpAddr, &str> {
    let all = nodes
        .iter()
        .flat_map(|node| node.addresses.iter().map(|address| (*address, node.name.as_str())));
    all.collect()
}
