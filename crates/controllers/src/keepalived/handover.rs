//! Addresses that go from one instance to another, or from one group to another.
//!
//! Nodes do not read a plan at the same moment. If an instance got an address in the same plan in which another one
//! loses it, a node with the new plan and a node with the old one would both hold it. So the address leaves first,
//! and joins when every node has let it go.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use landfall_vrrp::{Instance, Leaving, Plan};

/// The instance that carries an address: one of the same name with another router ID is another one.
type Carrier<'a> = (&'a str, u8);

/// What is known of addresses that other instances have or had.
pub(super) struct Others<'a> {
    /// The plan that nodes carry out now.
    pub before: Option<&'a Plan>,
    /// Whether every node of the plan has carried out this generation, or was waited for long enough.
    pub passed: &'a dyn Fn(i64) -> bool,
    /// Addresses that other groups may still hold.
    pub elsewhere: &'a BTreeSet<IpAddr>,
}

impl<'a> Others<'a> {
    /// The addresses of these instances that may not join them yet.
    pub(super) fn waiting(&self, instances: &[Instance]) -> BTreeSet<IpAddr> {
        let (carried, left) = (self.carried(), self.left());
        let waits = |carrier: Carrier<'_>, address: &IpAddr| match carried.get(address) {
            Some(before) => *before != carrier,
            None => {
                left.get(address).is_some_and(|before| *before != carrier)
                    || self.elsewhere.contains(address)
            }
        };
        let all = instances.iter().flat_map(|instance| {
            instance.served().filter(move |address| waits(carrier(instance), address))
        });
        all.collect()
    }

    /// The addresses that nodes with an older plan than one with these instances may still hold.
    pub(super) fn leaving(&self, instances: &[Instance]) -> BTreeMap<IpAddr, Leaving> {
        let Some(before) = self.before else { return BTreeMap::new() };
        let next = carriers(instances);
        let stays = |(address, one): &(&IpAddr, &Leaving)| {
            next.contains_key(*address) || (self.passed)(one.since)
        };
        let earlier = before.leaving.iter().filter(|entry| !stays(entry));
        let earlier = earlier.map(|(address, one)| (*address, one.clone()));
        let now = carriers(&before.instances).into_iter();
        let now = now.filter(|(address, carrier)| next.get(address) != Some(carrier));
        let since = before.generation.saturating_add(1);
        let now = now.map(|(address, (instance, router_id))| {
            (address, Leaving { instance: instance.to_owned(), router_id, since })
        });
        earlier.chain(now).collect()
    }

    /// Addresses that have left their instances, and that some node may still hold.
    pub(super) fn lingering(&self) -> BTreeSet<IpAddr> {
        self.left().into_keys().collect()
    }

    fn carried(&self) -> BTreeMap<IpAddr, Carrier<'a>> {
        self.before.map(|plan| carriers(&plan.instances)).unwrap_or_default()
    }

    fn left(&self) -> BTreeMap<IpAddr, Carrier<'a>> {
        let left = self.before.iter().flat_map(|plan| &plan.leaving);
        let left = left.filter(|(_, one)| !(self.passed)(one.since));
        left.map(|(address, one)| (*address, (one.instance.as_str(), one.router_id))).collect()
    }
}

/// Which instance carries which address.
fn carriers(instances: &[Instance]) -> BTreeMap<IpAddr, Carrier<'_>> {
    let of = |instance| Instance::may_be_held(instance).map(move |addr| (addr, carrier(instance)));
    instances.iter().flat_map(of).collect()
}

fn carrier(instance: &Instance) -> Carrier<'_> {
    (&instance.name, instance.router_id)
}
