//! Turns watched objects into views. An unreadable part becomes data for the object's condition.

use std::{net::IpAddr, sync::Arc};

use k8s_openapi::{
    api::{
        core::v1::{Node, Service},
        discovery::v1::EndpointSlice,
        networking::v1::ServiceCIDR,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::core::{DeserializeGuard, Selector};
use landfall_api::{
    IPGroup, IPGroupSpec, IPGroupStatus, VirtualIP, convert,
    keys::{self, ANNOTATION_KUBE_VIP_ADDRESSES},
    virtualip::State,
};
use landfall_ipam::{AddrBlock, AddrSet, Family, PoolName};

use self::{kube_vip::KubeVipMarks, request::Pools};
use super::{
    classes::Classes,
    status,
    view::{FinalizerOwner, Leftover, Place, PoolSource, PoolView, Request, ServiceView, Setter},
};
use crate::{
    ledger::object::IPGROUP,
    object::{ObjectKey, Version, created, uid},
};

pub(super) mod kube_vip;
mod request;

/// A Service, or `None` if it is not of type `LoadBalancer`: the planner need not know it.
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

/// The marks that a replaced operator left on a Service of any type.
pub(super) fn leftover(object: &Service) -> Option<Leftover> {
    let metadata = &object.metadata;
    let spec = object.spec.as_ref();
    let setter = match spec.filter(|spec| spec.type_.as_deref() == Some("LoadBalancer")) {
        Some(spec) => Setter::Class(spec.load_balancer_class.as_deref().map(Arc::from)),
        None => Setter::Former,
    };
    let carried = KubeVipMarks::read(metadata);
    let all = metadata.finalizers.as_deref().unwrap_or_default();
    // A Service with so many finalizers was not served by an operator that we replace.
    let all = if all.len() > keys::MOST_FINALIZERS { &[] } else { all };
    let certain = |finalizer: &String| keys::FINALIZERS_LEFT.contains(&finalizer.as_str());
    let any_certain = all.iter().any(certain);
    // Many operators use this finalizer. It counts only if nothing clearer is left.
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

/// A `VirtualIP` and the address it has, unless it is fully migrated.
///
/// The original operator says `Migrated` even if it failed, and then the finalizers are still there.
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

/// An `IPGroup`. Its errors are kept, one per part, for its condition.
pub(crate) fn pool(object: &DeserializeGuard<IPGroup>) -> PoolView {
    let metadata = match &object.0 {
        Ok(group) => &group.metadata,
        Err(invalid) => &invalid.metadata,
    };
    let object_name = metadata.name.as_deref().unwrap_or_default().into();
    let name = PoolName::new(&format!("{IPGROUP}/{object_name}"));
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

/// `spec.ranges` in one column: the first entries and the number of others.
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

#[cfg(test)]
mod tests;
