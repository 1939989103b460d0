//! Properties of every text and object of a user, as functions that panic where one does not hold.
//!
//! Random tests and the targets in `fuzz/` call the same ones.
#![expect(clippy::missing_panics_doc, reason = "to panic is what they are for")]

use std::{collections::BTreeMap, net::IpAddr};

use k8s_openapi::{api::core::v1::ServiceSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use landfall_ipam::{AddrBlock, AddrRange, AddrSet, Book, Family, PoolName, clash, fuzzing};
use serde_json::Value;

use crate::{
    HolderKind::Service,
    IPGroupSpec, KeepalivedGroupSpec,
    announce::AnnounceRequest,
    convert,
    keepalived_group::{Device, Layout},
    keys,
    kube_vip::PoolMap,
    name, text,
    verbatim::{self, ReadLines},
};

/// The longest text that may be said about a text of any length.
const LONGEST_PROBLEM: usize = 4096;

/// A name that is read is the name that is written, or it is refused by its own words.
pub fn name(text: &str) {
    match name::parse(text) {
        Ok(address) => assert_eq!(name::of(address), text),
        Err(error) => assert!(error.to_string().contains(&format!("{text:?}")), "{error}"),
    }
}

/// The spec of a pool is refused, or becomes a pool or the words why not, and is written as it was read.
pub fn ipgroup(spec: Value) {
    let Ok(spec) = serde_json::from_value::<IPGroupSpec>(spec) else { return };
    match convert::pool(PoolName::new("IPGroup/wild"), &spec) {
        Ok(read) => assert!(!read.pool.ranges().is_empty()),
        Err(problems) => {
            assert!(!problems.is_empty() && problems.iter().all(|text| !text.is_empty()));
        }
    }
    let read = serde_json::to_value(&spec).and_then(serde_json::from_value::<IPGroupSpec>);
    assert_eq!(read.ok().as_ref(), Some(&spec));
}

/// Terms that are read are the same for the same text, and two that have them agree or are told why not.
pub fn sharing(one: &(ObjectMeta, ServiceSpec), other: &(ObjectMeta, ServiceSpec)) {
    let namespace =
        |(metadata, _): &(ObjectMeta, ServiceSpec)| metadata.namespace.clone().unwrap_or_default();
    let read = |(metadata, spec): &(ObjectMeta, ServiceSpec)| {
        let terms = convert::sharing_terms(metadata, spec);
        assert_eq!(terms, convert::sharing_terms(metadata, spec));
        if let Err(refusal) = &terms {
            assert!(!text::refusal(Service, refusal).is_empty());
        }
        terms.ok().flatten()
    };
    let (terms, others) = (read(one), read(other));
    let (here, there) = (namespace(one), namespace(other));
    let (terms, others) = (terms.map(|read| read.terms), others.map(|read| read.terms));
    let (here, there) = ((&*here, terms.as_ref()), (&*there, others.as_ref()));
    fuzzing::consent(here, there);
    if let Some(clash) = clash(here, there) {
        assert!(!text::clash(Service, &clash).is_empty());
    }
}

/// Every address that kube-vip's `ConfigMap` gives is written in it, one key serves a namespace, and messages
/// about unreadable text are short.
pub fn pool_map(data: &BTreeMap<String, String>) {
    let map = PoolMap::read(pool_name, data);
    for found in &map.pools {
        match &found.pool {
            Err(problems) => assert!(!problems.is_empty()),
            Ok(pool) => {
                assert_eq!(pool.name, pool_name(&found.key));
                let named = named(data.get(&found.key).map(String::as_str).unwrap_or_default());
                let left = named.difference(pool.ranges());
                let leased = Family::BOTH.into_iter().filter_map(|family| found.leases.of(family));
                let leased: AddrSet = leased.collect();
                assert_eq!(left, leased, "all that is named and not leased");
                assert!(pool.ranges().difference(&named).is_empty(), "nothing else");
                let owner = found.key.split_once('-').map_or("", |(_, owner)| owner);
                let excluded = data.get(&format!("exclude-{owner}"));
                let excluded = excluded.map(|text| self::named(text)).unwrap_or_default();
                assert_eq!(pool.auto_assign, !owner.contains('.'));
                let mut book = Book::new();
                book.replace_pools([pool.clone()]);
                for family in Family::BOTH {
                    for _ in 0..300 {
                        let Ok(addr) = book.first_free(&pool.name, family, false) else { break };
                        assert!(named.contains(addr) && !ends_in_0_or_255(addr), "{addr}");
                        assert!(!excluded.contains(addr), "{addr} is excluded");
                        book.take(addr);
                    }
                }
            }
        }
    }
    for namespace in ["web", "shop", "global", "other"] {
        let pools = map.pools.iter().filter(|pool| !pool.on_request);
        let serving = pools.filter(|pool| pool.namespaces.includes(namespace)).count();
        let falls_back = map.pool_of(namespace).is_some_and(|pool| pool.falls_back);
        assert!(serving <= if falls_back { 2 } else { 1 }, "{namespace}");
        let keys = [
            format!("cidr-{namespace}"),
            "cidr-global".to_owned(),
            format!("range-{namespace}"),
            "range-global".to_owned(),
        ];
        let first = keys.iter().find(|key| data.contains_key(*key));
        assert_eq!(map.pool_of(namespace).map(|pool| &pool.key), first);
    }
    for problem in &map.problems {
        assert!(data.contains_key(&problem.key), "{problem:?}");
    }
    let about_pools = map.pools.iter().filter_map(|found| found.pool.as_ref().err()).flatten();
    for problem in about_pools.chain(&map.problems) {
        assert!(problem.text.len() < LONGEST_PROBLEM, "{}", problem.text);
    }
}

/// The name of the pool of a key.
pub(crate) fn pool_name(key: &str) -> PoolName {
    PoolName::new(&format!("ConfigMap/kubevip/{key}"))
}

/// The addresses that a text which was accepted names, read in another way.
fn named(text: &str) -> AddrSet {
    let entries = text.split([',', '\n']).filter(|entry| !entry.trim().is_empty());
    let ranges = entries.filter_map(|entry| match entry.split_once('-') {
        None => entry.trim().parse::<AddrBlock>().ok().map(AddrBlock::range),
        Some((first, last)) => {
            let end = |end: &str| end.trim().split('%').next()?.parse::<IpAddr>().ok();
            AddrRange::new(end(first)?, end(last)?)
        }
    });
    ranges.collect()
}

fn ends_in_0_or_255(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V4(addr) if matches!(addr.octets(), [.., 0 | 255]))
}

/// The lines of a group: each that is accepted is a keyword of the list and a value without anything that means
/// something else in keepalived's configuration, and reads back as itself.
pub fn verbatim(config: &BTreeMap<String, String>) {
    let read = verbatim::of_group(config);
    lines(&read, verbatim::OF_GROUPS);
    for line in read.lines.iter() {
        assert!(config.contains_key(line.keyword.name), "{line}");
        assert_eq!(line.keyword.takes.read(&line.value).as_ref(), Some(&line.value));
    }
}

/// The annotations of a Service: the same for its lines, and its group is one or is refused by its own words.
pub fn announce_request(group: &str, spread: &str, config: &str) {
    let annotations = [
        (keys::ANNOTATION_KEEPALIVED_GROUP, group),
        (keys::ANNOTATION_SPREAD_VIPS, spread),
        (keys::ANNOTATION_VERBATIM_CONFIG, config),
    ];
    let annotations =
        annotations.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let read = AnnounceRequest::read(&annotations);
    match read.group {
        Some(Ok(name)) => assert_eq!(name.to_string(), group),
        Some(Err(problem)) => assert!(problem.to_string().len() < LONGEST_PROBLEM, "{problem}"),
        None => unreachable!("a group is asked for"),
    }
    assert_eq!(read.spread, spread == "true");
    lines(&read.lines, verbatim::OF_SERVICES);
}

/// The spec of a group is refused with the fields concerned, or becomes settings that can be rendered.
pub fn keepalived_group(spec: Value) {
    let Ok(spec) = serde_json::from_value::<KeepalivedGroupSpec>(spec) else { return };
    match spec.settings() {
        Err(problems) => {
            assert!(!problems.is_empty());
            for problem in problems {
                let text = problem.to_string();
                assert!(text.starts_with(problem.field) && text.len() < LONGEST_PROBLEM, "{text}");
            }
        }
        Ok(settings) => {
            for node in spec.interfaces.keys().map(String::as_str).chain(["other"]) {
                match settings.device(node) {
                    Device::Towards(address) => assert!(!address.is_loopback()),
                    Device::Named(name) => {
                        let plain = |letter: char| {
                            letter.is_ascii_alphanumeric() || "._+-".contains(letter)
                        };
                        assert!((1..16).contains(&name.len()) && name.chars().all(plain), "{name}");
                    }
                }
            }
            assert!(!settings.router_ids().any(|id| id == 0));
            if let Layout::Slots(slots) = &settings.layout {
                assert!((1..=64).contains(&slots.count));
                assert!(settings.router_ids().count() >= usize::from(slots.count));
                assert_eq!(slots.advert_interval.as_millis() % 10, 0);
                assert_eq!(settings.lines.get("vrrp_version"), None);
            }
            assert!(settings.metrics_port > 0);
            let (v4, v6) = settings.multicast_groups();
            assert!(v4.is_multicast() && v6.is_multicast());
        }
    }
    let read = serde_json::to_value(&spec).and_then(serde_json::from_value::<KeepalivedGroupSpec>);
    assert_eq!(read.ok().as_ref(), Some(&spec));
}

fn lines(read: &ReadLines, allowed: &[verbatim::Keyword]) {
    for line in read.lines.iter() {
        assert!(allowed.iter().any(|keyword| keyword == line.keyword), "{line}");
        let plain = |letter: char| letter.is_ascii_alphanumeric() || " ._:-".contains(letter);
        assert!(line.value.chars().all(plain), "{line}");
    }
    for problem in &read.refused {
        assert!(problem.to_string().len() < LONGEST_PROBLEM, "{problem}");
    }
}
