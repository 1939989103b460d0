//! The plan of a group: what the operator decides and every node carries out.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::String,
    vec::Vec,
};
use core::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The version of the plan's own layout. A node refuses plans of a later one.
pub const FORMAT: u32 = 1;

/// The place of a node in [`Plan::nodes`].
pub type NodeIndex = u32;

/// Everything the nodes of a group need to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// See [`FORMAT`].
    pub format: u32,
    /// Grows with every change of the plan.
    pub generation: i64,
    /// `namespace/name` of the group.
    pub group: String,
    /// The device of nodes that [`Self::interfaces`] does not name.
    pub interface: String,
    /// If set, a node uses the device of its route to this address in place of [`Self::interface`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_from: Option<IpAddr>,
    /// The devices of single nodes, by node name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub interfaces: BTreeMap<String, String>,
    /// Where nodes read the password, if the forms name one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_from: Option<PasswordFrom>,
    /// Lines for `global_defs`, already checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub global_lines: Vec<String>,
    /// The nodes of the group, sorted by name.
    pub nodes: Vec<Node>,
    /// The instances, sorted by name.
    pub instances: Vec<Instance>,
    /// Addresses that nodes with an older plan may still hold. They join no other instance until every node has
    /// let them go.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub leaving: BTreeMap<IpAddr, Leaving>,
    /// Addresses of nodes that a node with an older plan sends no unicast adverts to, each with the generation of the
    /// first plan that has it. Such a node hears no holder, and holds nothing until every node sends to it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub joining: BTreeMap<IpAddr, i64>,
    /// Addresses that nodes no longer have in this plan, and that a node with an older plan may still send unicast
    /// adverts from. They are heard until that node has let its instances go.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub departing: BTreeMap<IpAddr, Departing>,
}

/// An address that a node of the group had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Departing {
    /// The name of the node.
    pub node: String,
    /// The generation of the first plan without the address.
    pub since: i64,
}

/// An address that an instance has given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leaving {
    /// The instance that had it.
    pub instance: String,
    /// The virtual router id of that instance.
    pub router_id: u8,
    /// The generation of the first plan without it.
    pub since: i64,
}

/// A Secret in the group's namespace, and the key of the password in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PasswordFrom {
    /// The name of the Secret.
    pub secret: String,
    /// The key in it.
    pub key: String,
}

/// The name of a password in a plan, which every reader of the Secret derives alike and which tells nothing
/// about the password: not even a digest of eight characters would keep them secret.
pub fn password_name(secret_uid: &str, resource_version: &str) -> String {
    let mut name = String::from(secret_uid);
    name.push('/');
    name.push_str(resource_version);
    name
}

/// A node of the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its internal addresses, at most one of each family.
    pub addresses: Vec<IpAddr>,
}

impl Node {
    /// The node's address of the family that `like` has.
    pub fn address_like(&self, like: IpAddr) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| address.is_ipv4() == like.is_ipv4())
    }
}

/// One virtual router: a set of addresses that one node holds at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// Its name in keepalived's configuration, and in the status of the group.
    pub name: String,
    /// The virtual router id.
    pub router_id: u8,
    /// The generation of the plan that last gave this instance an address. A node that runs an older plan lacks
    /// some of its addresses.
    pub generation: i64,
    /// What all nodes must agree on.
    pub form: Form,
    /// Addresses of either family that are held and not advertised; they may differ between nodes for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<IpAddr>,
    /// The nodes, the preferred one first.
    pub order: Vec<NodeIndex>,
    /// Whether a preferred node takes the addresses back.
    pub preempt: Preempt,
    /// If set, only these nodes may hold the addresses: those with a ready endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_on: Option<Vec<NodeIndex>>,
    /// Lines of the Service, already checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// A change of the form that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
}

/// What two nodes must agree on, or both of them hold the addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Form {
    /// The version of the protocol.
    pub version: Version,
    /// The time between two adverts. Whole seconds in version 2, whole hundredths of a second in version 3.
    pub advert_millis: u32,
    /// How adverts reach the other nodes.
    pub transport: Transport,
    /// Names the password in use without telling it, see [`password_name`]. Only version 2 has passwords.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// The addresses in each advert, all of one family, never empty.
    pub advertised: Vec<IpAddr>,
    /// Whether [`Self::advertised`] is an anchor: a link-local address that serves no Service.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub anchor: bool,
}

/// The version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Version {
    /// RFC 3768.
    V2,
    /// RFC 5798.
    V3,
}

/// How adverts reach the other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// To the multicast address of the protocol.
    Multicast,
    /// To the internal address of each other node.
    Unicast,
}

/// Whether a preferred node takes the addresses back from the node that holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Preempt {
    /// The addresses stay where they are.
    Never,
    /// As soon as it is up.
    AtOnce,
    /// After it has been up for so many seconds.
    AfterSeconds(u32),
}

/// A change of an instance's form that nodes carry out one after the other, because two nodes of different
/// forms would both hold the addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The form before the change.
    pub before: Form,
    /// The node that holds the addresses and goes first.
    pub holder: NodeIndex,
    /// How far the change has come.
    pub step: Step,
    /// The generation of the plan that began the step.
    pub since: i64,
}

/// How far a change has come. All nodes but the holder stay in state FAULT until it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Step {
    /// Every node uses the old form; all but the holder enter FAULT.
    Mute,
    /// The holder uses the new form, the others use the old one.
    Holder,
    /// Every node uses the new form.
    Others,
}

impl Plan {
    /// The place of a node.
    pub fn node_index(&self, name: &str) -> Option<NodeIndex> {
        let place = self.nodes.iter().position(|node| node.name == name)?;
        NodeIndex::try_from(place).ok()
    }

    /// The node at a place.
    pub fn node(&self, index: NodeIndex) -> Option<&Node> {
        self.nodes.get(usize::try_from(index).ok()?)
    }

    /// This plan as the successor of another: with the next generation, and with the generations of instances that
    /// got no address. `None` if nothing changed.
    #[must_use]
    pub fn succeeding(mut self, before: Option<&Self>) -> Option<Self> {
        let Some(before) = before else {
            self.generation = 1;
            self.instances.iter_mut().for_each(|instance| instance.generation = 1);
            return Some(self);
        };
        self.generation = before.generation;
        let old: BTreeMap<_, _> =
            before.instances.iter().map(|old| (old.name.as_str(), old)).collect();
        let next = before.generation.saturating_add(1);
        for instance in &mut self.instances {
            let old = old.get(instance.name.as_str());
            let had: BTreeSet<_> = old.into_iter().flat_map(|old| old.served()).collect();
            let is_whole = |old: &&&Instance| {
                old.router_id == instance.router_id
                    && instance.served().all(|address| had.contains(&address))
            };
            instance.generation = old.filter(is_whole).map_or(next, |old| old.generation);
        }
        // Addresses that have left are forgotten when something else changes.
        let leaving = core::mem::replace(&mut self.leaving, before.leaving.clone());
        if self == *before {
            return None;
        }
        self.leaving = leaving;
        self.generation = next;
        Some(self)
    }

    /// This plan with a generation later than one that nodes may have seen.
    #[must_use]
    pub fn later_than(mut self, seen: i64) -> Self {
        let next = seen.saturating_add(1);
        self.generation = next;
        self.instances.iter_mut().for_each(|instance| instance.generation = next);
        self
    }

    /// The names of all passwords that a node may need: those of the forms, and of the forms before a change.
    pub fn password_names(&self) -> impl Iterator<Item = &str> {
        let forms = self.instances.iter().flat_map(|instance| {
            let before = instance.change.as_ref().map(|change| &change.before);
            core::iter::once(&instance.form).chain(before)
        });
        forms.filter_map(|form| form.password.as_deref())
    }

    /// Whether a node must stay in state FAULT, so that it cannot hold the addresses of an instance.
    pub fn is_muted_on(&self, instance: &Instance, node: NodeIndex) -> bool {
        instance.waits_for_holder_on(node)
            || instance.is_kept_off(node)
            || self.waits_for_peers(instance, node)
    }

    /// Whether other nodes may send a node no adverts of an instance yet.
    pub fn waits_for_peers(&self, instance: &Instance, node: NodeIndex) -> bool {
        let form = instance.form_on(node);
        let own = || form.address_of(self.node(node)?);
        form.transport == Transport::Unicast
            && own().is_some_and(|address| self.joining.contains_key(&address))
    }

    /// The addresses that a node sends the adverts of a form to and hears them from, if they go to each node by itself.
    /// Without a node, those of all.
    pub fn peers<'a>(
        &'a self,
        form: &'a Form,
        node: Option<&'a Node>,
    ) -> impl Iterator<Item = IpAddr> + 'a {
        let is_other = move |name: &str| node.is_none_or(|node| node.name != name);
        let members = self.nodes.iter().filter(move |other| is_other(&other.name));
        let members = members.filter_map(|other| form.address_of(other));
        let departing = self.departing.iter().filter(move |(address, one)| {
            is_other(&one.node)
                && form.advertised.first().is_some_and(|like| like.is_ipv4() == address.is_ipv4())
        });
        members.chain(departing.map(|(address, _)| *address))
    }

    /// The group's own name, without its namespace.
    pub fn group_name(&self) -> &str {
        self.group.split_once('/').map_or(self.group.as_str(), |(_, name)| name)
    }
}

impl Instance {
    /// The form that a node uses now.
    pub fn form_on(&self, node: NodeIndex) -> &Form {
        match &self.change {
            Some(change) if !change.is_new_on(node) => &change.before,
            Some(_) | None => &self.form,
        }
    }

    /// Whether a node stays in state FAULT because of a change that another node goes first with.
    pub fn waits_for_holder_on(&self, node: NodeIndex) -> bool {
        self.change.as_ref().is_some_and(|change| change.holder != node)
    }

    /// Whether a node may not hold the addresses, since it has no endpoint that is ready.
    pub fn is_kept_off(&self, node: NodeIndex) -> bool {
        self.only_on.as_ref().is_some_and(|nodes| !nodes.contains(&node))
    }

    /// All addresses that a node holds while it is the holder, anchors included.
    pub fn addresses_on(&self, node: NodeIndex) -> impl Iterator<Item = IpAddr> {
        self.form_on(node).advertised.iter().chain(&self.excluded).copied()
    }

    /// The addresses of Services that some node may hold: those of the form before a change are among them.
    pub fn may_be_held(&self) -> impl Iterator<Item = IpAddr> {
        let before = self.change.as_ref().map(|change| &change.before).filter(|form| !form.anchor);
        self.served().chain(before.into_iter().flat_map(|form| form.advertised.iter().copied()))
    }

    /// The addresses that serve Services.
    pub fn served(&self) -> impl Iterator<Item = IpAddr> {
        let advertised = (!self.form.anchor).then_some(&self.form.advertised);
        // While the form changes, an address may be in both lists.
        let excluded =
            self.excluded.iter().filter(|address| !self.form.advertised.contains(address));
        advertised.into_iter().flatten().chain(excluded).copied()
    }
}

impl Form {
    /// The address of a node that adverts are sent from, and to if they go to each node by itself.
    pub fn address_of(&self, node: &Node) -> Option<IpAddr> {
        self.advertised.first().and_then(|first| node.address_like(*first))
    }
}

impl Change {
    fn is_new_on(&self, node: NodeIndex) -> bool {
        match self.step {
            Step::Mute => false,
            Step::Holder => node == self.holder,
            Step::Others => true,
        }
    }
}

#[cfg(test)]
mod tests;
