//! The pools of kube-vip-cloud-provider: a `ConfigMap` with a key per namespace.
//!
//! A text that kube-vip-cloud-provider takes is taken here and means the same. One that it refuses because
//! of a blank, a line break or an empty entry, or because CIDRs and ranges are in one value, is read as
//! it was meant.

mod read;
mod text;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use landfall_ipam::{Family, Pool};

use crate::keys;

/// In place of a namespace: what holds for those without a key of their own.
const GLOBAL: &str = "global";

/// So many characters of a user's text are quoted.
const LONGEST_QUOTE: usize = 64;

/// The pools and settings in the `ConfigMap`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolMap {
    /// The pools that serve any namespace, by key. Of those that are not on request, a namespace has one,
    /// and that of all if its own falls back.
    pub pools: Vec<KeyPool>,
    /// What is odd about keys, and does not keep a pool from serving.
    pub problems: Vec<Problem>,
    /// How many more there were, beyond those in `problems`.
    pub problems_left_out: usize,
    shares: BTreeMap<String, bool>,
    interfaces: BTreeMap<String, String>,
}

/// A key with a pool, and the namespaces it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPool {
    /// The key, such as `cidr-web` or `range-global`.
    pub key: String,
    /// The namespaces it serves, even when the pool cannot be read: no other key replaces it.
    pub namespaces: Scope,
    /// Its addresses, or everything that is wrong with the texts. One entry that cannot be read
    /// rejects them all.
    pub pool: Result<Pool, Vec<Problem>>,
    /// The families whose addresses come from a DHCP server.
    pub leases: Leases,
    /// Whether it serves only those that ask for it.
    pub on_request: bool,
    /// Whether the pool of all is asked when this one gives nothing.
    pub falls_back: bool,
    /// The network interface for its addresses, as it is written, if it has one of its own.
    pub own_interface: Option<String>,
}

/// Some namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This one.
    OnlyOne(String),
    /// All that are not among these.
    AllBut(BTreeSet<String>),
}

impl Scope {
    /// Whether the namespace is one of them.
    pub fn includes(&self, namespace: &str) -> bool {
        match self {
            Self::OnlyOne(one) => one == namespace,
            Self::AllBut(others) => !others.contains(namespace),
        }
    }
}

/// What a pool leaves to DHCP: kube-vip asks for a lease when the address is `0.0.0.0` or `::`.
///
/// These are no addresses of the pool, which does not cover them: any number of Services may have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leases {
    /// Nothing.
    #[default]
    No,
    /// One family; the pool gives the other.
    Of(Family),
    /// Each family by itself. The pool is empty.
    Each,
    /// All by `0.0.0.0`, of whatever family. The pool is empty.
    All,
}

impl Leases {
    /// The text in place of an address of the family, if it is left to DHCP.
    pub fn of(self, family: Family) -> Option<IpAddr> {
        let leased = match self {
            Self::No => None,
            Self::Of(one) => Some(one).filter(|one| *one == family),
            Self::Each => Some(family),
            Self::All => Some(Family::V4),
        };
        leased.map(|family| match family {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        })
    }
}

/// Something odd about a key, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key.
    pub key: String,
    /// What is odd about it.
    pub text: String,
}

impl PoolMap {
    /// The pool that serves a namespace, or does so first.
    pub fn pool_of(&self, namespace: &str) -> Option<&KeyPool> {
        let pools = self.pools.iter().filter(|pool| !pool.on_request);
        let serving = pools.filter(|pool| pool.namespaces.includes(namespace));
        serving.min_by_key(|pool| matches!(pool.namespaces, Scope::AllBut(_)))
    }

    /// Whether Services of a namespace may share IPv4 addresses.
    pub fn shares(&self, namespace: &str) -> bool {
        own_or_global(&self.shares, namespace).copied().unwrap_or(false)
    }

    /// The network interface for addresses of a namespace, as it is written.
    pub fn interface(&self, namespace: &str) -> Option<&str> {
        let name = own_or_global(&self.interfaces, namespace).map(String::as_str);
        name.filter(|name| !name.is_empty())
    }
}

fn own_or_global<'a, V>(values: &'a BTreeMap<String, V>, namespace: &str) -> Option<&'a V> {
    values.get(namespace).or_else(|| values.get(GLOBAL))
}

/// A user's text, or the beginning of it.
pub(crate) fn quote(text: &str) -> String {
    match text.char_indices().nth(LONGEST_QUOTE) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", text.split_at(end).0),
    }
}

/// A truth value as Go's `strconv.ParseBool` reads it.
pub fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// What a Service's annotation for kube-vip says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Addresses {
    /// The first address of each family, in order.
    pub first: Vec<IpAddr>,
    /// An address of a family that has one already.
    pub surplus: Option<IpAddr>,
    /// The beginning of the first entry that is no address: a host name, which kube-vip resolves, or a
    /// slip.
    pub other: Option<String>,
}

/// Reads [`keys::ANNOTATION_KUBE_VIP_ADDRESSES`]: at most one address per family, however many it lists.
pub fn addresses(metadata: &ObjectMeta) -> Addresses {
    let mut read = Addresses::default();
    for entry in keys::entries(metadata, keys::ANNOTATION_KUBE_VIP_ADDRESSES) {
        let Ok(addr) = entry.parse::<IpAddr>() else {
            read.other.get_or_insert_with(|| keys::excerpt(entry));
            continue;
        };
        if read.first.iter().any(|first| first.is_ipv4() == addr.is_ipv4()) {
            read.surplus.get_or_insert(addr);
        } else {
            read.first.push(addr);
        }
    }
    read
}

/// The text for [`keys::ANNOTATION_KUBE_VIP_ADDRESSES`]; kube-vip acts on a change of the order.
pub fn addresses_text(addresses: &[IpAddr]) -> String {
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
