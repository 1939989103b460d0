//! The texts of the condition `landfall.dev/Announced`: the facts of the case and the nearest fix.

use core::fmt;
use std::{borrow::Cow, collections::BTreeSet, net::IpAddr};

use jiff::Timestamp;

use super::NotAnnounced;
use crate::{keepalived_group::GroupName, problem::Problem};

/// How many obstacles or addresses a text names; a condition's message is bounded.
const MOST_NAMED: usize = 8;

/// Something that keeps an address of a Service, or all of them, from being announced.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Obstacle {
    /// There is no such group.
    GroupUnknown(GroupName),
    /// The group does not announce Services of this namespace.
    NamespaceRefused(GroupName, String),
    /// The group does not announce this address.
    OutsideRanges(GroupName, IpAddr),
    /// No group announces such an address, such as `a loopback address`.
    Unusable(IpAddr, &'static str),
    /// Nothing proves that this Service, or its namespace, has a right to the address.
    NotEntitled(IpAddr, String),
    /// The group announces no more addresses that this namespace chose freely.
    TooManyChosen(GroupName, IpAddr, String, usize),
    /// The address is that of this node.
    AddressOfNode(IpAddr, String),
    /// The address is that of the API server.
    AddressOfApiServer(IpAddr),
    /// This holder has the address, such as `Service shop/mail`.
    AddressConflict(IpAddr, String),
    /// The group cannot be read from the annotation.
    Unparseable(Problem),
    /// The group cannot be used as it is written.
    GroupUnusable(GroupName),
    /// The group has no node.
    NoNodes(GroupName),
    /// Every router ID that the group may use is taken.
    NoRouterId(GroupName),
    /// The Service needs an instance of its own, and the group has as many as it may for Services of this namespace.
    TooManyInstances(GroupName, String, usize),
    /// The group carries as many addresses as its advert interval allows.
    TooManyAddresses(GroupName, usize),
    /// The group carries so many addresses that its plan has no room for more.
    GroupFull(GroupName, usize),
    /// No node has applied this generation, which is the first with the address.
    NotApplied(GroupName, i64),
    /// No node of the group holds the address.
    NoHolder(GroupName, IpAddr),
    /// The Service keeps traffic on the node it arrives at, and has no ready pod on a node of the group.
    NoReadyPod(GroupName),
    /// This node held the address last, and is not ready.
    HolderSilent(IpAddr, String),
}

impl Obstacle {
    /// The word for it.
    pub const fn reason(&self) -> NotAnnounced {
        match self {
            Self::GroupUnknown(_) => NotAnnounced::GroupUnknown,
            Self::NamespaceRefused(..) => NotAnnounced::NamespaceRefused,
            Self::OutsideRanges(..)
            | Self::Unusable(..)
            | Self::NotEntitled(..)
            | Self::TooManyChosen(..)
            | Self::AddressOfNode(..)
            | Self::AddressOfApiServer(_) => NotAnnounced::RangeRefused,
            Self::AddressConflict(..) => NotAnnounced::AddressConflict,
            Self::Unparseable(_) => NotAnnounced::Unparseable,
            Self::GroupUnusable(_)
            | Self::NoNodes(_)
            | Self::NoRouterId(_)
            | Self::TooManyInstances(..)
            | Self::TooManyAddresses(..)
            | Self::GroupFull(..)
            | Self::NotApplied(..) => NotAnnounced::NotApplied,
            Self::NoHolder(..) | Self::NoReadyPod(_) => NotAnnounced::NoHolder,
            Self::HolderSilent(..) => NotAnnounced::HolderSilent,
        }
    }

    /// The address that it is about, if it is about one.
    pub const fn address(&self) -> Option<IpAddr> {
        match self {
            Self::OutsideRanges(_, address)
            | Self::Unusable(address, _)
            | Self::NotEntitled(address, _)
            | Self::TooManyChosen(_, address, ..)
            | Self::AddressOfNode(address, _)
            | Self::AddressOfApiServer(address)
            | Self::AddressConflict(address, _)
            | Self::NoHolder(_, address)
            | Self::HolderSilent(address, _) => Some(*address),
            Self::GroupUnknown(_)
            | Self::NamespaceRefused(..)
            | Self::Unparseable(_)
            | Self::GroupUnusable(_)
            | Self::NoNodes(_)
            | Self::NoRouterId(_)
            | Self::TooManyInstances(..)
            | Self::TooManyAddresses(..)
            | Self::GroupFull(..)
            | Self::NotApplied(..)
            | Self::NoReadyPod(_) => None,
        }
    }

    /// The nearest fix, as a sentence.
    pub fn fix(&self) -> Cow<'static, str> {
        match self {
            Self::Unusable(..) | Self::AddressOfNode(..) | Self::AddressOfApiServer(_) => {
                "Give the Service another address.".into()
            }
            Self::NotEntitled(..) => {
                "Let the pool that has the address serve the namespace, or give the Service another address.".into()
            }
            Self::TooManyChosen(..) => {
                "Give the Service an address of a pool, or list fewer addresses in `spec.externalIPs`.".into()
            }
            Self::Unparseable(problem) => format!("{}.", problem.fix).into(),
            Self::GroupUnusable(_) => "Correct the group as its `Ready` condition says.".into(),
            Self::NoNodes(_) => {
                "Let the group's `nodeSelector` match nodes on which its pods can run.".into()
            }
            Self::NoRouterId(_) => {
                "Give the group the field `vrrp` or more router IDs (`vrrp.routerIDs`, `blacklistRouterIDs`), or remove one of its Services.".into()
            }
            Self::TooManyInstances(..) => {
                "Let the Service share an instance: set `externalTrafficPolicy: Cluster` and remove its lines for keepalived.".into()
            }
            Self::TooManyAddresses(..) => {
                "Set `vrrp.advertInterval` of the group to 100ms or more, or name another group.".into()
            }
            Self::GroupFull(..) => "Name another group.".into(),
            Self::NotApplied(..) => {
                "Wait a moment; if nothing changes, look at `nodes` in the group's status.".into()
            }
            Self::NoHolder(..) => "Look at `nodes` in the group's status.".into(),
            Self::NoReadyPod(_) => {
                "Let a pod of the Service be ready on a node of the group, or set `externalTrafficPolicy: Cluster`.".into()
            }
            Self::GroupUnknown(_)
            | Self::NamespaceRefused(..)
            | Self::OutsideRanges(..)
            | Self::AddressConflict(..)
            | Self::HolderSilent(..) => self.reason().fix().into(),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GroupUnknown(group) => write!(f, "there is no KeepalivedGroup {group}"),
            Self::NamespaceRefused(group, namespace) => {
                write!(f, "{group} does not announce Services of namespace {namespace}")
            }
            Self::OutsideRanges(group, address) => {
                write!(f, "{address} is outside the allowedRanges of {group}")
            }
            Self::Unusable(address, what) => {
                write!(f, "{address} is {what}, which no group announces")
            }
            Self::NotEntitled(address, namespace) => {
                write!(f, "namespace {namespace} has no right to {address}")
            }
            Self::TooManyChosen(group, address, namespace, most) => write!(
                f,
                "{address} is beyond the {most} addresses in no pool that {group} announces for spec.externalIPs of namespace {namespace}"
            ),
            Self::AddressOfNode(address, node) => {
                write!(f, "{address} is an address of node {node}")
            }
            Self::AddressOfApiServer(address) => {
                write!(f, "{address} is an address of the API server")
            }
            Self::AddressConflict(address, other) => {
                write!(f, "{address} is held by {other}")
            }
            Self::Unparseable(problem) => write!(f, "{}: {}", problem.field, problem.fault),
            Self::GroupUnusable(group) => write!(f, "{group} cannot be used as it is written"),
            Self::NoNodes(group) => write!(f, "{group} has no node"),
            Self::NoRouterId(group) => write!(f, "{group} has no router ID left"),
            Self::TooManyInstances(group, namespace, most) => write!(
                f,
                "{group} has {most} VRRP instances for single Services of namespace {namespace}, as many as it may"
            ),
            Self::TooManyAddresses(group, most) => {
                write!(f, "{group} carries {most} addresses, as many as its advertInterval allows")
            }
            Self::GroupFull(group, count) => {
                write!(f, "{group} carries {count} addresses, and its plan has no room for more")
            }
            Self::NotApplied(group, generation) => {
                write!(f, "no node of {group} runs generation {generation} yet")
            }
            Self::NoHolder(group, address) => write!(f, "no node of {group} holds {address}"),
            Self::NoReadyPod(group) => {
                write!(f, "no node of {group} has a ready pod of the Service")
            }
            Self::HolderSilent(address, node) => {
                write!(f, "node {node}, which held {address}, is not ready")
            }
        }
    }
}

/// The reason and the message of a Service that is not fully announced, or `None` if nothing is in its way. With
/// several obstacles it has the word and the fix of the first in the order of [`NotAnnounced::ALL`].
pub fn not_announced(obstacles: &[Obstacle]) -> Option<(NotAnnounced, String)> {
    let mut sorted: Vec<_> = obstacles.iter().collect();
    sorted.sort_by_key(|obstacle| obstacle.reason());
    let first = sorted.first()?;
    let facts = listed(sorted.iter().map(ToString::to_string).collect());
    Some((first.reason(), format!("{facts}. {}", first.fix())))
}

/// The message of a Service whose addresses are all held: each with the node, and since when that has it.
pub fn announced(held: &[(IpAddr, &str, Timestamp)]) -> String {
    let nodes: BTreeSet<_> = held.iter().map(|(_, node, _)| node).collect();
    let since = held.iter().map(|(.., since)| since).max();
    match (nodes.first(), since) {
        (Some(node), Some(since)) if nodes.len() == 1 => format!("{node} since {since:.0}"),
        _ => {
            let each = held.iter();
            let each = each.map(|(addr, node, since)| format!("{addr}: {node} since {since:.0}"));
            listed(each.collect())
        }
    }
}

fn listed(mut texts: Vec<String>) -> String {
    let more = texts.len().saturating_sub(MOST_NAMED);
    texts.truncate(MOST_NAMED);
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    texts.join("; ")
}
