//! Turns watched objects into views. A part that cannot be read is data, carried to the condition.

use std::{net::IpAddr, sync::Arc};

use k8s_openapi::{
    api::{
        core::v1::{Node, Service},
        discovery::v1::EndpointSlice,
        networking::v1::ServiceCIDR,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time},
};
use kube::core::{DeserializeGuard, Selector};
use landfall_api::{
    Holder, IP, IPGroup, IPGroupSpec, IPGroupStatus, ReservedFor, Use, VirtualIP, convert,
    keys::{self, ANNOTATION_KUBE_VIP_ADDRESSES, ANNOTATION_OWNER, LABEL_GSM, LABEL_IPGROUP},
    name,
    virtualip::State,
};
use landfall_ipam::{AddrBlock, AddrSet, Family, PoolName};

use self::{kube_vip::KubeVipMarks, request::Pools};
use super::{
    classes::Classes,
    status,
    view::{
        ClaimView, FinalizerOwner, HolderView, Leftover, Place, PoolSource, PoolView, Request,
        Reservation, ServiceView, Setter, Tenure,
    },
};
use crate::object::{ObjectKey, Version, created, label, uid};

pub(super) mod kube_vip;
mod request;

/// The kind of pool an `IPGroup` is, as it stands in a claim's `spec.pool`.
const POOL_KIND: &str = "IPGroup";

/// A Service, or `None` if it is not of type `LoadBalancer`: then the planner need not know it.
pub(crate) fn service(object: &Service) -> Option<ServiceView> {
    let spec = object.spec.as_ref().filter(|spec| spec.type_.as_deref() == Some("LoadBalancer"))?;
    let metadata = &object.metadata;
    let status = object.status.as_ref();
    let ingress = status
        .and_then(|status| status.load_balancer.as_ref())
        .and_then(|balancer| balancer.ingress.as_deref())
        .unwrap_or_default();
    let mut in_status: Vec<IpAddr> =
        ingress.iter().filter_map(|entry| entry.ip.as_deref()?.parse().ok()).collect();
    in_status.shrink_to_fit();
    let families: Vec<Family> = spec
        .ip_families
        .iter()
        .flatten()
        .map(|family| if family == "IPv6" { Family::V6 } else { Family::V4 })
        .collect();
    let families = if families.is_empty() { vec![Family::V4] } else { families };
    let (terms, pools) = (convert::sharing_terms(metadata, spec), Pools::read(metadata));
    let labels = request::labels(metadata);
    let bad = terms.as_ref().err();
    let bad = bad.or_else(|| pools.as_ref().err()).or_else(|| labels.as_ref().err()).cloned();
    let terms = terms.ok().flatten();
    let meant_all = terms.as_ref().is_some_and(|read| read.meant_all);
    let pools = pools.unwrap_or_default();
    let spec_ip = spec.load_balancer_ip.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let plain = ServiceView {
        key: ObjectKey::of(metadata),
        uid: uid(metadata),
        version: Version::of(metadata),
        created: created(metadata),
        deleting: metadata.deletion_timestamp.is_some(),
        class: spec.load_balancer_class.as_deref().map(Arc::from),
        require_all: spec.ip_family_policy.as_deref() == Some("RequireDualStack"),
        extra_family: None,
        spec_contradicts_annotation: false,
        request: match &bad {
            Some(refusal) => Request::Bad(refusal.clone()),
            None => match request::addresses(metadata, spec_ip, &families) {
                Request::Any => {
                    let keys = [keys::ADDRESS_REQUESTS_LEFT, &[ANNOTATION_KUBE_VIP_ADDRESSES]];
                    request::addresses_left(metadata, &keys.concat(), &families, &in_status)
                }
                asked @ (Request::Addresses(_) | Request::Bad(_)) => asked,
            },
        },
        families,
        pools: pools.names,
        pools_left: pools.left,
        external: external_ips(object),
        meant_all,
        terms: terms.map(|read| Arc::new(read.terms)),
        terms_by_map: convert::terms_by_map(spec).into(),
        labels: labels.unwrap_or_default(),
        place: Place::Status,
        ingress_has_hostname: in_status.len() < ingress.len(),
        label_missing: false,
        annotation_unreadable: false,
        opts_out_of: None,
        shows: in_status,
        announced: Vec::new(),
        conditions: status.and_then(|status| status.conditions.clone()).unwrap_or_default(),
        plain: None,
    };
    let single = spec.ip_family_policy.as_deref() == Some("SingleStack");
    Some(kube_vip::service(plain, metadata, spec_ip, single, bad))
}

/// What a replaced operator left on a Service, whatever its type.
pub(super) fn leftover(object: &Service) -> Option<Leftover> {
    let metadata = &object.metadata;
    let spec = object.spec.as_ref();
    let setter = match spec.filter(|spec| spec.type_.as_deref() == Some("LoadBalancer")) {
        Some(spec) => Setter::Class(spec.load_balancer_class.as_deref().map(Arc::from)),
        None => Setter::Former,
    };
    let carried = KubeVipMarks::read(metadata);
    let all = metadata.finalizers.as_deref().unwrap_or_default();
    // Somebody who writes so many has not been served by an operator that we replace.
    let all = if all.len() > keys::MOST_FINALIZERS { &[] } else { all };
    let certain = |finalizer: &String| keys::FINALIZERS_LEFT.contains(&finalizer.as_str());
    let any_certain = all.iter().any(certain);
    // Many operators use this one. It is looked at when nothing clearer is left.
    let any_shared = all.iter().any(|finalizer| finalizer == keys::FINALIZER_CLOUD_PROVIDER);
    let shared_too = any_shared && (carried.is_evident() || !any_certain);
    let left = |finalizer: &String| {
        certain(finalizer) || (shared_too && finalizer == keys::FINALIZER_CLOUD_PROVIDER)
    };
    let former = setter == Setter::Former;
    let marked = carried.labelled && former;
    let conditions = object.status.as_ref().and_then(|status| status.conditions.as_deref());
    let conditions = conditions.filter(|_| former).and_then(status::without_ours);
    (any_certain || any_shared || marked || conditions.is_some()).then(|| Leftover {
        uid: uid(metadata),
        version: Version::of(metadata),
        deleting: metadata.deletion_timestamp.is_some(),
        finalizers: (any_certain || any_shared)
            .then(|| all.iter().filter(|finalizer| !left(finalizer)).cloned().collect()),
        marked,
        conditions,
        finalizer_owner: shared_too
            .then(|| FinalizerOwner { setter, evident: carried.is_evident() }),
    })
}

/// The addresses in a Service's `spec.externalIPs`, whatever its type, as far as they are read.
pub(crate) fn external_ips(object: &Service) -> Vec<IpAddr> {
    let listed = object.spec.as_ref().and_then(|spec| spec.external_ips.as_deref());
    let listed = listed.unwrap_or_default().iter().take(keys::MOST_EXTERNAL_IPS);
    listed.filter_map(|text| text.parse().ok()).collect()
}

/// The `ClusterIPs` of a Service, whatever its type.
pub(super) fn cluster_ips(object: &Service) -> Vec<IpAddr> {
    let listed = object.spec.as_ref().and_then(|spec| spec.cluster_ips.as_deref());
    listed.unwrap_or_default().iter().filter_map(|text| text.parse().ok()).collect()
}

/// The ranges from which the API server gives `ClusterIPs`.
pub(super) fn service_ranges(object: &ServiceCIDR) -> AddrSet {
    let listed = object.spec.as_ref().and_then(|spec| spec.cidrs.as_deref());
    let blocks = listed.unwrap_or_default().iter().filter_map(|text| text.parse().ok());
    blocks.map(AddrBlock::range).collect()
}

/// The addresses of a node.
pub(super) fn node_addresses(object: &Node) -> Vec<IpAddr> {
    let listed = object.status.as_ref().and_then(|status| status.addresses.as_deref());
    listed.unwrap_or_default().iter().filter_map(|entry| entry.address.parse().ok()).collect()
}

/// The addresses in a slice of endpoints.
pub(super) fn endpoint_addresses(object: &EndpointSlice) -> Vec<IpAddr> {
    let listed = object.endpoints.iter().flat_map(|endpoint| &endpoint.addresses);
    listed.filter_map(|text| text.parse().ok()).collect()
}

/// A `VirtualIP` and the address it has, unless it is migrated and nothing of it is left.
///
/// The original operator says `Migrated` also when it failed, and then the finalizers are still
/// there.
pub(super) fn virtual_ip(
    object: &DeserializeGuard<VirtualIP>,
) -> (ObjectKey, Version, Option<IpAddr>) {
    let (metadata, status) = match &object.0 {
        Ok(virtual_ip) => (&virtual_ip.metadata, virtual_ip.status.as_ref()),
        Err(invalid) => (&invalid.metadata, None),
    };
    let done = metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
        && status.is_some_and(|status| {
            status.state.as_deref() == Some(State::Migrated.as_str())
                && status.cloned_service.as_deref().is_none_or(str::is_empty)
        });
    let addr = status.and_then(|status| status.address()?.parse().ok());
    (ObjectKey::of(metadata), Version::of(metadata), addr.filter(|_| !done))
}

/// An `IP`, or `None` if its name is no address: then it takes none.
pub(super) fn claim(object: &DeserializeGuard<IP>) -> Option<ClaimView> {
    let (metadata, spec) = match &object.0 {
        Ok(ip) => (&ip.metadata, Ok(&ip.spec)),
        Err(invalid) => (&invalid.metadata, Err(&invalid.error)),
    };
    let addr = name::parse(metadata.name.as_deref()?).ok()?;
    let tenure = match spec {
        Err(error) => Tenure::Nobody(format!("an IP object that cannot be read ({error})")),
        Ok(spec) if !spec.holders.is_empty() => tenure(&spec.holders),
        Ok(spec) if spec.reserved_for.is_some() => Tenure::Services(Vec::new()),
        Ok(spec) if spec.use_ == Some(Use::Reserved) => {
            Tenure::Other("a reservation for nobody".to_owned())
        }
        Ok(_) => legacy_tenure(metadata),
    };
    let reserved = spec.ok().and_then(|spec| spec.reserved_for.as_ref()).map(|to| Reservation {
        namespace: to.namespace.clone(),
        name: to.name.clone(),
        expires: to.expires.as_ref().map(|time| time.0),
        retained: to.retained == Some(true),
    });
    let labelled = || label(metadata, LABEL_IPGROUP).map(|group| format!("{POOL_KIND}/{group}"));
    let pool = spec.ok().and_then(|spec| spec.pool.clone()).or_else(labelled);
    Some(ClaimView {
        addr,
        uid: uid(metadata),
        version: Version::of(metadata),
        pool: pool.map(|pool| PoolName::new(&pool)),
        reserved,
        tenure,
    })
}

fn tenure(holders: &[Holder]) -> Tenure {
    // What is collected by trial gets room for four, and almost every claim has one holder.
    let mut views = Vec::with_capacity(holders.len());
    views.extend(holders.iter().map_while(holder));
    let all = views.len() == holders.len();
    all.then_some(views).map_or_else(
        || {
            let names: Vec<_> = holders
                .iter()
                .map(|holder| match &holder.namespace {
                    Some(namespace) => format!("{} {namespace}/{}", holder.kind, holder.name),
                    None => format!("{} {}", holder.kind, holder.name),
                })
                .collect();
            Tenure::Other(names.join(", "))
        },
        Tenure::Services,
    )
}

fn holder(holder: &Holder) -> Option<HolderView> {
    let namespace = holder.namespace.as_deref().filter(|_| holder.kind == "Service")?;
    Some(HolderView {
        key: ObjectKey::new(namespace, &holder.name),
        uid: holder.uid.as_deref().map(Arc::from),
        class: holder.load_balancer_class.as_deref().map(Arc::from),
        seen: holder.seen_version.as_deref().map(|seen| Version::read(Some(seen))),
        terms: convert::holder_terms(holder).map(Arc::new),
        asked_pools: holder.asked_pools.iter().map(|name| PoolName::new(name)).collect(),
        replaces: holder.replaces.as_deref().and_then(|text| text.parse().ok()),
        legacy: false,
    })
}

/// Whose a claim with an empty spec is: the original operator kept that in label and annotation.
fn legacy_tenure(metadata: &ObjectMeta) -> Tenure {
    let owner = metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION_OWNER));
    match owner {
        // The owner text has no kind: with the label `gsm` it is a VirtualIP's.
        Some(owner) if label(metadata, LABEL_GSM).is_some() => {
            Tenure::Other(format!("VirtualIP {owner}"))
        }
        Some(owner) => ObjectKey::parse(owner).map_or_else(
            || Tenure::Nobody(format!("an IP object whose owner reads {owner:?}")),
            |key| {
                Tenure::Services(vec![HolderView {
                    key,
                    uid: None,
                    class: None,
                    seen: None,
                    terms: None,
                    asked_pools: Vec::new(),
                    replaces: None,
                    legacy: true,
                }])
            },
        ),
        None => Tenure::Nobody("an IP object that names no holder".to_owned()),
    }
}

/// An `IPGroup`. Whatever is wrong with it is kept, part by part, for its condition.
pub(crate) fn pool(object: &DeserializeGuard<IPGroup>) -> PoolView {
    let metadata = match &object.0 {
        Ok(group) => &group.metadata,
        Err(invalid) => &invalid.metadata,
    };
    let object_name = metadata.name.as_deref().unwrap_or_default().into();
    let name = PoolName::new(&format!("{POOL_KIND}/{object_name}"));
    let mut view = PoolView::empty(name.clone(), PoolSource::IpGroups, object_name, uid(metadata));
    view.version = Version::of(metadata);
    view.status = Some(IPGroupStatus::default());
    view.generation = metadata.generation;
    match &object.0 {
        Err(invalid) => view.pool = Err(vec![invalid.error.clone()]),
        Ok(group) => {
            let mut problems = Vec::new();
            let read = convert::pool(name, &group.spec).map_err(|error| problems = error).ok();
            view.namespaces = selector(
                "namespaceSelector",
                group.spec.namespace_selector.as_ref(),
                &mut problems,
            );
            view.services =
                selector("serviceSelector", group.spec.service_selector.as_ref(), &mut problems);
            match group.spec.retain_for() {
                Ok(time) => view.retain_for = time,
                Err(error) => problems.push(error.to_string()),
            }
            view.pool = match read {
                Some(read) if problems.is_empty() => {
                    (view.unreadable, view.warnings) = (read.unreadable, read.warnings);
                    Ok(read.pool)
                }
                Some(_) | None => Err(problems),
            };
            view.classes = Classes::only(group.spec.load_balancer_class.as_deref());
            view.quota.clone_from(&group.spec.quota);
            view.ignored = ignored(&group.spec);
            view.ranges = ranges_in_short(&group.spec.ranges);
            view.status = Some(group.status.clone().unwrap_or_default());
        }
    }
    view
}

fn selector(
    field: &str,
    selector: Option<&LabelSelector>,
    problems: &mut Vec<String>,
) -> Option<Selector> {
    match Selector::try_from(selector?.clone()) {
        Ok(selector) => Some(selector),
        Err(error) => {
            problems.push(format!("{field}: {error}"));
            None
        }
    }
}

/// `spec.ranges` in one column: the first entries and how many more.
fn ranges_in_short(ranges: &[String]) -> Option<String> {
    const SHOWN: usize = 2;
    let shown: Vec<_> = ranges.iter().take(SHOWN).map(|entry| entry.trim()).collect();
    let more = match ranges.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" +{more}"),
    };
    (!shown.is_empty()).then(|| format!("{}{more}", shown.join(",")))
}

fn ignored(spec: &IPGroupSpec) -> Vec<&'static str> {
    spec.announce.as_ref().map(|_| "announce").into_iter().collect()
}

/// A holder as it is written into a claim.
pub(crate) fn holder_object(view: &HolderView) -> Holder {
    let terms = view.terms.as_deref().cloned().unwrap_or_default();
    Holder {
        kind: "Service".to_owned(),
        namespace: Some(view.key.namespace().to_owned()),
        name: view.key.name().to_owned(),
        uid: view.uid.as_deref().map(str::to_owned),
        ports: terms.ports,
        sharing_key: terms.key,
        sharing_with: terms.with,
        local_traffic: terms.local.then_some(true),
        selector: terms.selector,
        other_pods: terms.other_pods.then_some(true),
        asked_pools: view.asked_pools.iter().map(ToString::to_string).collect(),
        replaces: view.replaces.map(|addr| addr.to_string()),
        load_balancer_class: view.class.as_deref().map(str::to_owned),
        seen_version: view.seen.map(|seen| seen.to_string()),
    }
}

/// Several holders in one column: the first and how many more. One alone needs no such text.
pub(super) fn holders_in_short(holders: &[HolderView]) -> Option<String> {
    let (first, others) = holders.split_first().filter(|(_, others)| !others.is_empty())?;
    Some(format!("{} +{}", first.key, others.len()))
}

/// A reservation as it is written into a claim.
pub(super) fn reservation_object(view: &Reservation) -> ReservedFor {
    ReservedFor {
        namespace: view.namespace.clone(),
        name: view.name.clone(),
        expires: view.expires.map(Time),
        retained: view.retained.then_some(true),
    }
}

/// The value of the label `ipgroup` for a pool, where its name fits into a label.
pub(crate) fn pool_label(pool: &PoolName) -> Option<&str> {
    let group = pool.as_str().strip_prefix(POOL_KIND)?.strip_prefix('/')?;
    keys::ipgroup_label(group)
}

#[cfg(test)]
mod tests;
