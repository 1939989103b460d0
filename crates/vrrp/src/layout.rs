//! The instances for the addresses of a group.
//!
//! In the classic layout, that of the operator that Landfall replaces, each Service has an instance, or one per
//! address. In the layout of slots a fixed number of instances carries all addresses, and what they advertise
//! never changes.
//!
//! Two nodes that disagree on the addresses in an advert both become the holder. Hence a form that an instance
//! has is kept as long as it can be.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::String,
    vec,
    vec::Vec,
};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{
    order::{preference, slot_of},
    plan::{Form, Instance, Node, NodeIndex, Preempt, Transport, Version},
};

/// A Service with addresses that a group announces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// `namespace/name` of the Service.
    pub service: String,
    /// Its addresses, in the order of its own fields.
    pub addresses: Vec<IpAddr>,
    /// Whether each address may be held by another node.
    pub spread: bool,
    /// Lines for its instances, already checked.
    pub lines: Vec<String>,
    /// If set, only these nodes may hold its addresses.
    pub only_on: Option<BTreeSet<NodeIndex>>,
    /// The time between two adverts, if it is not that of the group. Without effect in slots.
    pub advert_millis: Option<u32>,
}

/// What all instances of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The version of the protocol.
    pub version: Version,
    /// The time between two adverts.
    pub advert_millis: u32,
    /// Whether adverts go to each node's own address.
    pub unicast: bool,
    /// Names the password in use.
    pub password: Option<String>,
    /// Whether preferred nodes take addresses back. In the classic layout this is so for spread Services alone.
    pub preempt: Preempt,
    /// The name of the group, without its namespace.
    pub group: String,
    /// The number of slots, or `None` for the classic layout.
    pub slots: Option<u8>,
}

/// The names of the instances that a group needs. In the classic layout even a Service that has no address yet needs
/// one.
pub fn names(settings: &Settings, members: &[Member]) -> BTreeSet<String> {
    let Some(slots) = settings.slots else {
        return members
            .iter()
            .flat_map(|member| {
                let each = member.addresses.iter().map(|address| spread_name(member, *address));
                let spread: Vec<_> = each.filter(|_| member.spread).collect();
                if member.spread { spread } else { vec![member.service.clone()] }
            })
            .collect();
    };
    let own = members.iter().filter_map(|member| own_instance(settings, member));
    (0..slots).map(|slot| slot_name(settings, slot)).chain(own).collect()
}

/// The instance of its own that a Service has beside the slots, if it needs one and has an address.
pub fn own_instance(settings: &Settings, member: &Member) -> Option<String> {
    let needs_one = member.needs_own_instance() && !member.addresses.is_empty();
    (settings.slots.is_some() && needs_one).then(|| own_name(settings, member))
}

/// The names of the instances that carry the addresses of a Service.
pub fn carriers(settings: &Settings, member: &Member) -> BTreeSet<String> {
    match settings.slots {
        None => names(settings, core::slice::from_ref(member)),
        Some(_) if member.needs_own_instance() => {
            own_instance(settings, member).into_iter().collect()
        }
        Some(slots) => {
            let slots = member.addresses.iter().map(|address| slot_of(*address, slots));
            slots.map(|slot| slot_name(settings, slot)).collect()
        }
    }
}

/// The instances of a group, sorted by name. An instance without a router id is left out.
///
/// `before` has the forms that instances are known to have.
pub fn instances(
    settings: &Settings,
    members: &[Member],
    nodes: &[Node],
    ids: &BTreeMap<String, u8>,
    before: &BTreeMap<&str, &Form>,
) -> Vec<Instance> {
    let mut drafts: BTreeMap<String, Draft> = BTreeMap::new();
    match settings.slots {
        None => classic(members, nodes, &mut drafts),
        Some(slots) => slotted(settings, slots, members, &mut drafts),
    }
    let with_ids =
        drafts.into_iter().filter_map(|(name, draft)| Some((*ids.get(&name)?, name, draft)));
    with_ids
        .filter_map(|(id, name, draft)| {
            let form = before.get(name.as_str()).copied();
            draft.finish(settings, name, id, nodes, form)
        })
        .collect()
}

/// An instance before it has a form.
#[derive(Default)]
struct Draft {
    addresses: Vec<IpAddr>,
    anchored: bool,
    spread: bool,
    /// The node that comes first, if that is not left to the hash alone.
    first: Option<NodeIndex>,
    lines: Vec<String>,
    only_on: Option<BTreeSet<NodeIndex>>,
    advert_millis: Option<u32>,
}

fn classic(members: &[Member], nodes: &[Node], drafts: &mut BTreeMap<String, Draft>) {
    for member in members {
        let draft = |addresses| Draft {
            addresses,
            anchored: false,
            spread: member.spread,
            first: None,
            lines: member.lines.clone(),
            only_on: member.only_on.clone(),
            advert_millis: member.advert_millis,
        };
        if member.spread {
            let owners = owners(member, nodes);
            for address in &member.addresses {
                let first = owners.get(address).copied();
                let draft = Draft { first, ..draft(vec![*address]) };
                drafts.insert(spread_name(member, *address), draft);
            }
        } else if !member.addresses.is_empty() {
            drafts.insert(member.service.clone(), draft(member.addresses.clone()));
        }
    }
}

/// The node that each address of a spread Service prefers: the first one of its hash that does not prefer as many
/// addresses of the Service as its share.
fn owners(member: &Member, nodes: &[Node]) -> BTreeMap<IpAddr, NodeIndex> {
    let may_hold =
        |index: &NodeIndex| member.only_on.as_ref().is_none_or(|all| all.contains(index));
    let able = (0..).zip(nodes).filter(|(index, _)| may_hold(index)).count();
    let addresses: BTreeSet<IpAddr> = member.addresses.iter().copied().collect();
    let share = addresses.len().div_ceil(able.max(1));
    let mut owned: BTreeMap<NodeIndex, usize> = BTreeMap::new();
    let mut owners = BTreeMap::new();
    for address in addresses {
        let order = preference(&spread_name(member, address), nodes);
        let mut able = order.into_iter().filter(may_hold);
        let first = able.find(|index| owned.get(index).is_none_or(|count| *count < share));
        if let Some(first) = first {
            let count = owned.entry(first).or_default();
            *count = count.saturating_add(1);
            owners.insert(address, first);
        }
    }
    owners
}

fn slotted(
    settings: &Settings,
    slots: u8,
    members: &[Member],
    drafts: &mut BTreeMap<String, Draft>,
) {
    let empty = || Draft { anchored: true, ..Draft::default() };
    for slot in 0..slots {
        drafts.insert(slot_name(settings, slot), empty());
    }
    for member in members {
        if member.needs_own_instance() {
            let draft = Draft {
                addresses: member.addresses.clone(),
                lines: member.lines.clone(),
                only_on: member.only_on.clone(),
                ..empty()
            };
            drafts.insert(own_name(settings, member), draft);
        } else {
            for address in &member.addresses {
                let name = slot_name(settings, slot_of(*address, slots));
                drafts.entry(name).or_insert_with(empty).addresses.push(*address);
            }
        }
    }
}

impl Member {
    /// Whether its addresses cannot share an instance with those of other Services: the state of the instance
    /// would depend on it.
    fn needs_own_instance(&self) -> bool {
        self.only_on.is_some() || !self.lines.is_empty()
    }
}

impl Draft {
    fn finish(
        self,
        settings: &Settings,
        name: String,
        router_id: u8,
        nodes: &[Node],
        before: Option<&Form>,
    ) -> Option<Instance> {
        let mut addresses = self.addresses;
        addresses.sort_unstable();
        addresses.dedup();
        let advertised = if self.anchored {
            vec![anchor(router_id, nodes)]
        } else {
            advertised(&addresses, before)?
        };
        addresses.retain(|address| !advertised.contains(address));
        let is_v4 = advertised.first().is_some_and(IpAddr::is_ipv4);
        // Adverts over IPv6 exist in version 3 only.
        let version = if is_v4 { settings.version } else { Version::V3 };
        let family = |node: &&Node| node.addresses.iter().any(|address| address.is_ipv4() == is_v4);
        let has_peers = nodes.iter().filter(family).count() > 1;
        let form = Form {
            version,
            advert_millis: self.advert_millis.unwrap_or(settings.advert_millis),
            transport: if settings.unicast && has_peers {
                Transport::Unicast
            } else {
                Transport::Multicast
            },
            password: settings.password.clone().filter(|_| version == Version::V2),
            advertised,
            anchor: self.anchored,
        };
        let mut order = preference(&name, nodes);
        if let Some(first) = self.first {
            order.retain(|index| *index != first);
            order.insert(0, first);
        }
        let preempt = match settings.slots {
            None if self.spread => Preempt::AtOnce,
            None => Preempt::Never,
            Some(_) => settings.preempt,
        };
        Some(Instance {
            name,
            router_id,
            generation: 0,
            form,
            excluded: addresses,
            order,
            preempt,
            only_on: self.only_on.map(|nodes| nodes.into_iter().collect()),
            lines: self.lines,
            change: None,
        })
    }
}

/// What an instance advertises: what it did before as far as it still has it, or else its first address.
fn advertised(addresses: &[IpAddr], before: Option<&Form>) -> Option<Vec<IpAddr>> {
    let still = before.into_iter().flat_map(|form| &form.advertised);
    let still: Vec<_> = still.filter(|address| addresses.contains(address)).copied().collect();
    if still.is_empty() { addresses.first().map(|first| vec![*first]) } else { Some(still) }
}

/// A link-local address of the instance's own, in IPv4 unless no node has an IPv4 address.
fn anchor(router_id: u8, nodes: &[Node]) -> IpAddr {
    let mut addresses = nodes.iter().flat_map(|node| &node.addresses).peekable();
    if addresses.peek().is_none() || addresses.any(IpAddr::is_ipv4) {
        IpAddr::V4(Ipv4Addr::new(169, 254, 112, router_id))
    } else {
        IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0x112, u16::from(router_id)))
    }
}

fn spread_name(member: &Member, address: IpAddr) -> String {
    format!("{}/{address}", member.service)
}

fn slot_name(settings: &Settings, slot: u8) -> String {
    format!("{}/{slot}", settings.group)
}

fn own_name(settings: &Settings, member: &Member) -> String {
    format!("{}/{}", settings.group, member.service)
}

#[cfg(test)]
mod tests;
