//! Reads which addresses and pools a Service asks for, from our keys and those of earlier programs.

use std::{collections::BTreeMap, net::IpAddr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use landfall_api::keys;
use landfall_ipam::{Family, PoolName, Refusal};

use super::Request;
use crate::ledger::object::IPGROUP;

/// The expected form of a requested address.
const AN_ADDRESS: &str = "an address such as 10.0.0.5 or fd00::5";

/// The addresses a Service asks for, by annotation and by `spec.loadBalancerIP`, which may agree or
/// complete each other but not contradict.
pub(super) fn addresses(metadata: &ObjectMeta, spec: Option<&str>, families: &[Family]) -> Request {
    read(metadata, spec, families).map_or_else(Request::Bad, Request::from)
}

fn read(
    metadata: &ObjectMeta,
    spec: Option<&str>,
    families: &[Family],
) -> Result<Vec<IpAddr>, Refusal> {
    let listed = keys::bounded_entries(metadata, keys::ANNOTATION_ADDRESSES)?;
    let listed = listed.into_iter().map(|text| (keys::ANNOTATION_ADDRESSES, text));
    let mut addrs: Vec<IpAddr> = Vec::new();
    for (field, text) in listed.chain(spec.map(|text| ("spec.loadBalancerIP", text))) {
        let addr = parse(field, text)?;
        if !families.contains(&Family::of(addr)) {
            return Err(Refusal::WrongFamily(addr));
        }
        match addrs.iter().find(|other| Family::of(**other) == Family::of(addr)) {
            Some(other) if *other == addr => {}
            Some(other) => return Err(Refusal::TwoOfOneFamily(*other, addr)),
            None => addrs.push(addr),
        }
    }
    Ok(addrs)
}

/// The same from the keys of other programs, some of which let a Service list several addresses of a
/// family: the one that it shows counts, else the first.
pub(super) fn addresses_left(
    metadata: &ObjectMeta,
    keys: &[&'static str],
    families: &[Family],
    shows: &[IpAddr],
) -> Request {
    let written = |key: &&&'static str| keys::entries(metadata, key).next().is_some();
    let Some(key) = keys.iter().find(written) else { return Request::Any };
    let listed = keys::bounded_entries(metadata, key)
        .and_then(|texts| texts.into_iter().map(|text| parse(key, text)).collect());
    let listed: Vec<IpAddr> = match listed {
        Ok(listed) => listed,
        Err(refusal) => return Request::Bad(refusal),
    };
    let of_family = |family: &Family| {
        let of_family = |addr: &&IpAddr| Family::of(**addr) == *family;
        let mut shown = listed.iter().filter(of_family).filter(|addr| shows.contains(addr));
        shown.next().or_else(|| listed.iter().find(of_family)).copied()
    };
    let addrs: Vec<_> = families.iter().filter_map(of_family).collect();
    match listed.first() {
        Some(first) if addrs.is_empty() => Request::Bad(Refusal::WrongFamily(*first)),
        Some(_) | None => addrs.into(),
    }
}

fn parse(field: &'static str, text: &str) -> Result<IpAddr, Refusal> {
    let expected = AN_ADDRESS;
    text.parse().map_err(|_| Refusal::Unparseable { field, input: keys::excerpt(text), expected })
}

/// The pools a Service asks for.
#[derive(Default)]
pub(super) struct Pools {
    /// In order; any will do if it names none.
    pub names: Option<Vec<PoolName>>,
    /// Whether it names them by the keys of a program that ran before us.
    pub left: bool,
}

impl Pools {
    /// A bare name is that of an `IPGroup`.
    pub(super) fn read(metadata: &ObjectMeta) -> Result<Self, Refusal> {
        let ours = keys::bounded_entries(metadata, keys::ANNOTATION_POOL)?;
        let left = ours.is_empty();
        let names = if left { pools_left(metadata)? } else { ours };
        let pools = names.iter().map(|name| {
            if name.contains('/') {
                PoolName::new(name)
            } else {
                PoolName::new(&format!("{IPGROUP}/{name}"))
            }
        });
        Ok(Self {
            left: left && !names.is_empty(),
            names: (!names.is_empty()).then(|| pools.collect()),
        })
    }
}

fn pools_left(metadata: &ObjectMeta) -> Result<Vec<&str>, Refusal> {
    let written = |key: &&&'static str| keys::entries(metadata, key).next().is_some();
    let key = keys::POOL_REQUESTS_LEFT.iter().find(written);
    key.map_or(Ok(Vec::new()), |key| keys::bounded_entries(metadata, key))
}

/// A Service's labels, unless there are too many.
pub(super) fn labels(metadata: &ObjectMeta) -> Result<BTreeMap<String, String>, Refusal> {
    let Some(labels) = &metadata.labels else { return Ok(BTreeMap::new()) };
    if labels.len() > keys::MOST_LABELS {
        let (field, input) = ("metadata.labels", format!("{} labels", labels.len()));
        return Err(Refusal::Unparseable { field, input, expected: "at most 128 labels" });
    }
    Ok(labels.clone())
}
