//! The settings of a group, plain and complete.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use landfall_ipam::AddrSet;

use crate::{problem::Problem, verbatim::Lines};

const MOST_AT_SHORT_ADVERTS: usize = 1000;
/// All router IDs that there are.
pub(super) const ROUTER_IDS: RangeInclusive<u8> = 1..=255;

/// A group that can be used.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSettings {
    /// How addresses are divided among VRRP instances.
    pub layout: Layout,
    /// The device of a node that nothing else is said about.
    pub default_device: Device,
    /// The device that `interface` names, which counts where no route is to be followed.
    pub named_device: Option<String>,
    /// Devices of single nodes.
    pub devices: BTreeMap<String, Device>,
    /// The nodes of the group, by their labels.
    pub node_selector: BTreeMap<String, String>,
    /// Where the password is, if there is one.
    pub password: Option<PasswordSource>,
    /// Lines for `global_defs`.
    pub lines: Lines,
    /// Router IDs that are never used.
    pub excluded_router_ids: BTreeSet<u8>,
    /// Whether adverts go to each node by itself.
    pub unicast: bool,
    /// The image to run instead of Landfall's own.
    pub image: Option<String>,
    /// The priority class of the pods.
    pub priority_class: Option<String>,
    /// The annotations of the pods.
    pub pod_annotations: BTreeMap<String, String>,
    /// Namespaces whose Services are announced; all of them if there is no selector.
    pub allowed_namespaces: Option<LabelSelector>,
    /// Addresses that are announced; all of them if there is no set.
    pub(super) allowed_ranges: Option<AddrSet>,
    /// The port of the metrics.
    pub metrics_port: u16,
    /// What was left out because it cannot be used, while the rest can.
    pub warnings: Vec<Problem>,
}

/// How addresses are divided among VRRP instances.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Layout {
    /// An instance per Service, or per address of it, as keepalived-operator had them.
    PerService,
    /// A fixed number of instances.
    Slots(Slots),
}

impl Layout {
    /// The router IDs among which instances may get theirs.
    pub(super) fn router_ids(&self) -> RangeInclusive<u8> {
        match self {
            Self::PerService => ROUTER_IDS,
            Self::Slots(slots) => slots.router_ids.clone(),
        }
    }
}

/// A fixed number of instances.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Slots {
    /// How many.
    pub count: u8,
    /// The time between two adverts of a holder.
    pub advert_interval: Duration,
    /// How long a node that comes back waits before it takes its addresses; `None` if it never does.
    pub preempt_after: Option<Duration>,
    /// The router IDs that may be used.
    pub router_ids: RangeInclusive<u8>,
}

impl Slots {
    /// Shorter adverts leave no time to announce more than [`Self::most_addresses`].
    pub const SHORT_ADVERTS: Duration = Duration::from_millis(100);

    /// How many addresses there may be, if that is limited.
    pub fn most_addresses(&self) -> Option<usize> {
        (self.advert_interval < Self::SHORT_ADVERTS).then_some(MOST_AT_SHORT_ADVERTS)
    }
}

/// A key of a Secret in the group's namespace.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PasswordSource {
    /// Name of the Secret.
    pub secret: String,
    /// The key in it.
    pub key: String,
}

impl PasswordSource {
    /// The key where the group names none.
    pub const DEFAULT_KEY: &str = "password";
}

/// How a node finds the device on which it holds addresses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Device {
    /// It is this one.
    Named(String),
    /// It is the one over which the node reaches this address.
    Towards(IpAddr),
}

impl GroupSettings {
    /// The device of a node.
    pub fn device(&self, node: &str) -> &Device {
        self.devices.get(node).unwrap_or(&self.default_device)
    }

    /// Whether the group announces the address, as far as `allowedRanges` is concerned.
    pub fn allows(&self, address: IpAddr) -> bool {
        self.allowed_ranges.as_ref().is_none_or(|allowed| allowed.contains(address))
    }

    /// The router IDs that instances may get, the lowest first.
    pub fn router_ids(&self) -> impl Iterator<Item = u8> {
        self.layout.router_ids().filter(|id| !self.excluded_router_ids.contains(id))
    }

    /// The version of VRRP that IPv4 instances speak; IPv6 always speaks 3.
    pub fn vrrp_version(&self) -> u8 {
        match self.layout {
            Layout::Slots(_) => 3,
            Layout::PerService => {
                self.lines.get("vrrp_version").and_then(|text| text.parse().ok()).unwrap_or(2)
            }
        }
    }

    /// The multicast groups to which adverts go.
    pub fn multicast_groups(&self) -> (Ipv4Addr, Ipv6Addr) {
        let v4 = self.lines.get("vrrp_mcast_group4").and_then(|text| text.parse().ok());
        let v6 = self.lines.get("vrrp_mcast_group6").and_then(|text| text.parse().ok());
        (
            v4.unwrap_or(Ipv4Addr::new(224, 0, 0, 18)),
            v6.unwrap_or(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x12)),
        )
    }

    /// How many adverts must be missing before a node takes over.
    pub fn down_timer_adverts(&self) -> u8 {
        let set = self.lines.get("vrrp_down_timer_adverts");
        set.and_then(|text| text.parse().ok()).unwrap_or(3)
    }
}
