//! Reads claims from `IP` objects and writes them back.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{ResourceExt as _, core::DeserializeGuard};
use landfall_api::{
    Holder, HolderKind, IP, IPSpec, ReservedFor, Use, convert,
    keys::{self, ANNOTATION_HOLDERS, ANNOTATION_OWNER, LABEL_GSM, LABEL_IPGROUP},
    name,
};
use landfall_ipam::PoolName;
use serde_json::{Value, json};

use super::claim::{Claim, HolderEntry, Reservation, Tenure};
use crate::object::{ObjectKey, Version, label, uid};

/// The kind of pool that is an `IPGroup`, as a claim's `spec.pool` names it.
pub(crate) const IPGROUP: &str = "IPGroup";
/// The same for a `GroupSegmentMapping`.
pub(crate) const MAPPING: &str = "GroupSegmentMapping";

/// Reads an `IP`; `None` if its name is no address: such an object takes no address.
pub(crate) fn read(object: &DeserializeGuard<IP>) -> Option<Claim> {
    let (metadata, spec) = match &object.0 {
        Ok(ip) => (&ip.metadata, Ok(&ip.spec)),
        Err(invalid) => (&invalid.metadata, Err(&invalid.error)),
    };
    let addr = name::parse(metadata.name.as_deref()?).ok()?;
    let purpose = spec.ok().and_then(|spec| spec.use_.as_deref());
    let purpose = purpose.map_or(Some(Use::LoadBalancer), Use::read);
    let tenure = match (spec, spec.ok().and_then(unknown)) {
        (Err(error), _) => {
            Tenure::WithoutHolder(format!("an IP object that cannot be read ({error})"))
        }
        (Ok(_), Some(text)) => Tenure::Other(text),
        (Ok(spec), None) if !spec.holders.is_empty() => tenure(&spec.holders),
        (Ok(spec), None) if spec.reserved_for.is_some() => Tenure::Held(Vec::new()),
        (Ok(_), None) if purpose != Some(Use::LoadBalancer) => Tenure::Held(Vec::new()),
        (Ok(_), None) => legacy_tenure(metadata),
    };
    let status = object.0.as_ref().ok().and_then(|ip| ip.status.as_ref());
    let reserved = spec.ok().and_then(|spec| spec.reserved_for.as_ref()).and_then(reservation);
    let labelled = || label(metadata, LABEL_IPGROUP).map(|group| format!("{IPGROUP}/{group}"));
    let pool = spec.ok().and_then(|spec| spec.pool.clone()).or_else(labelled);
    Some(Claim {
        addr,
        uid: uid(metadata),
        version: Version::of(metadata),
        purpose,
        pool: pool.map(|pool| PoolName::new(&pool)),
        reserved,
        tenure,
        node: status.and_then(|status| status.node.as_deref()).map(Arc::from),
    })
}

fn tenure(holders: &[Holder]) -> Tenure {
    // `map_while` alone would reserve room for four; almost every claim has one holder.
    let mut entries = Vec::with_capacity(holders.len());
    entries.extend(holders.iter().map_while(entry));
    if entries.len() == holders.len() {
        return Tenure::Held(entries);
    }
    Tenure::Other(names(holders))
}

/// A description of a claim with a use, or a reservation for a kind of holder, that this version does not know.
/// Another version wrote it, and only that one knows what may be done with the address.
fn unknown(spec: &IPSpec) -> Option<String> {
    let purpose = spec.use_.as_deref().filter(|word| Use::read(word).is_none());
    let kept = spec.reserved_for.as_ref().and_then(|kept| Some((kept, kept.kind.as_deref()?)));
    let kept = kept.filter(|(_, kind)| HolderKind::read(kind).is_none());
    let text = match (purpose, kept) {
        (None, None) => return None,
        (Some(word), _) => format!("an IP object for {word}"),
        (None, Some((kept, kind))) => {
            let whom = [kept.namespace.as_str(), kept.name.as_deref().unwrap_or("*")];
            let whom: Vec<_> = whom.into_iter().filter(|part| !part.is_empty()).collect();
            format!("a reservation for {kind} {}", whom.join("/"))
        }
    };
    Some(if spec.holders.is_empty() { text } else { names(&spec.holders) })
}

/// All holders, for people.
fn names(holders: &[Holder]) -> String {
    let names = holders.iter().map(|holder| match &holder.namespace {
        Some(namespace) => format!("{} {namespace}/{}", holder.kind, holder.name),
        None => format!("{} {}", holder.kind, holder.name),
    });
    names.collect::<Vec<_>>().join(", ")
}

fn entry(holder: &Holder) -> Option<HolderEntry> {
    let kind = HolderKind::read(&holder.kind)?;
    let key = match holder.namespace.as_deref() {
        Some(namespace) if kind.is_namespaced() => ObjectKey::new(namespace, &holder.name),
        None if !kind.is_namespaced() => ObjectKey::cluster_scoped(&holder.name),
        Some(_) | None => return None,
    };
    Some(HolderEntry {
        uid: holder.uid.as_deref().map(Arc::from),
        class: holder.load_balancer_class.as_deref().map(Arc::from),
        seen: holder.seen_version.as_deref().map(|seen| Version::read(Some(seen))),
        terms: convert::holder_terms(holder).map(Arc::new),
        asked_pools: holder.asked_pools.iter().map(|name| PoolName::new(name)).collect(),
        replaces: holder.replaces.as_deref().and_then(|text| text.parse().ok()),
        ..HolderEntry::new(kind, key)
    })
}

/// The holder of a claim with an empty spec: the original operator wrote it in a label and an
/// annotation.
fn legacy_tenure(metadata: &ObjectMeta) -> Tenure {
    let owner = metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION_OWNER));
    let Some(owner) = owner else {
        return Tenure::WithoutHolder("an IP object that names no holder".to_owned());
    };
    // The owner annotation has no kind; with the label `gsm` the owner is a VirtualIP.
    let of_virtual_ip = label(metadata, LABEL_GSM).is_some();
    let kind = if of_virtual_ip { HolderKind::VirtualIp } else { HolderKind::Service };
    match ObjectKey::parse(owner) {
        Some(key) => {
            Tenure::Held(vec![HolderEntry { legacy: true, ..HolderEntry::new(kind, key) }])
        }
        None if of_virtual_ip => Tenure::Other(format!("VirtualIP {owner}")),
        None => Tenure::WithoutHolder(format!("an IP object whose owner reads {owner:?}")),
    }
}

/// A reservation; `None` if this version does not know the kind of holder that it is for.
fn reservation(to: &ReservedFor) -> Option<Reservation> {
    Some(Reservation {
        kind: to.kind.as_deref().map_or(Some(HolderKind::Service), HolderKind::read)?,
        namespace: to.namespace.clone(),
        name: to.name.clone(),
        expires: to.expires.as_ref().map(|time| time.0),
        retained: to.retained == Some(true),
    })
}

/// A holder as it is written into a claim.
pub(crate) fn holder(entry: &HolderEntry) -> Holder {
    let terms = entry.terms.as_deref().cloned().unwrap_or_default();
    let namespace = Some(entry.key.namespace()).filter(|_| entry.kind.is_namespaced());
    Holder {
        kind: entry.kind.as_str().to_owned(),
        namespace: namespace.map(str::to_owned),
        name: entry.key.name().to_owned(),
        uid: entry.uid.as_deref().map(str::to_owned),
        ports: terms.ports,
        sharing_key: terms.key,
        sharing_with: terms.with,
        local_traffic: terms.local.then_some(true),
        selector: terms.selector,
        other_pods: terms.other_pods.then_some(true),
        asked_pools: entry.asked_pools.iter().map(ToString::to_string).collect(),
        replaces: entry.replaces.map(|addr| addr.to_string()),
        load_balancer_class: entry.class.as_deref().map(str::to_owned),
        seen_version: entry.seen.map(|seen| seen.to_string()),
    }
}

/// A reservation as it is written into a claim.
fn reserved_for(reservation: &Reservation) -> ReservedFor {
    let kind = Some(reservation.kind).filter(|kind| *kind != HolderKind::Service);
    ReservedFor {
        kind: kind.map(|kind| kind.as_str().to_owned()),
        namespace: reservation.namespace.clone(),
        name: reservation.name.clone(),
        expires: reservation.expires.map(Time),
        retained: reservation.retained.then_some(true),
    }
}

/// The object to create for a new claim.
pub(crate) fn object(claim: &Claim) -> IP {
    let mut ip = IP::new(
        &name::of(claim.addr),
        IPSpec {
            address: Some(claim.addr.to_string()),
            use_: claim.purpose.map(|purpose| purpose.as_str().to_owned()),
            pool: claim.pool.as_ref().map(ToString::to_string),
            holders: claim.holders().iter().map(holder).collect(),
            reserved_for: claim.reserved.as_ref().map(reserved_for),
        },
    );
    for (key, value) in annotations(claim) {
        if let Some(value) = value {
            ip.annotations_mut().insert(key.to_owned(), value);
        }
    }
    for (key, value) in labels(claim) {
        if let Some(value) = value {
            ip.labels_mut().insert(key.to_owned(), value);
        }
    }
    ip
}

/// The patch that turns an existing object into this claim in one write, so that no reader sees a
/// mixture of two claims.
pub(crate) fn patch(claim: &Claim) -> Value {
    let object = |pairs: [(&str, Option<String>); 2]| -> Value {
        pairs.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect()
    };
    let holders: Vec<_> = claim.holders().iter().map(holder).collect();
    json!({
        "metadata": {"labels": object(labels(claim)), "annotations": object(annotations(claim))},
        "spec": {
            "address": claim.addr,
            "use": claim.purpose.map(Use::as_str),
            "pool": claim.pool.as_ref().map(PoolName::as_str),
            "holders": Some(holders).filter(|holders| !holders.is_empty()),
            "reservedFor": claim.reserved.as_ref().map(reserved_for),
        },
    })
}

/// The first holder, as the original operator wrote it, and a short list if there are several.
fn annotations(claim: &Claim) -> [(&'static str, Option<String>); 2] {
    let holders = claim.holders();
    let owner = holders.first().map(|entry| entry.key.to_string());
    let several = holders.split_first().filter(|(_, others)| !others.is_empty());
    let in_short = several.map(|(first, others)| format!("{} +{}", first.key, others.len()));
    [(ANNOTATION_OWNER, owner), (ANNOTATION_HOLDERS, in_short)]
}

/// The labels by which claims are found. A claim of a `VirtualIP` always has its label, even with an
/// empty value: it may be the only way left to find such claims.
fn labels(claim: &Claim) -> [(&'static str, Option<String>); 2] {
    let of_virtual_ip = claim.holders().iter().any(|entry| entry.kind == HolderKind::VirtualIp);
    let pool = claim.pool.as_ref();
    if of_virtual_ip {
        let mapping = pool.and_then(|pool| label_of(pool, MAPPING)).unwrap_or_default();
        return [(LABEL_GSM, Some(mapping.to_owned())), (LABEL_IPGROUP, None)];
    }
    let group = pool.and_then(|pool| label_of(pool, IPGROUP)).map(str::to_owned);
    [(LABEL_GSM, None), (LABEL_IPGROUP, group)]
}

/// The name of a pool of this kind, if it is valid as a label value.
fn label_of<'a>(pool: &'a PoolName, kind: &str) -> Option<&'a str> {
    let name = pool.as_str().strip_prefix(kind)?.strip_prefix('/')?;
    keys::ipgroup_label(name)
}

#[cfg(test)]
mod tests;
