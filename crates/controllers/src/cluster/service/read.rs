//! Reads Services. An unreadable part becomes data for the condition of its Service.

use std::{net::IpAddr, sync::Arc};

use k8s_openapi::api::core::v1::Service;
use landfall_api::{
    announce::AnnounceRequest,
    condition, convert,
    keys::{self, ANNOTATION_KUBE_VIP_ADDRESSES, CONDITION_ALLOCATED, CONDITION_ANNOUNCED},
};
use landfall_ipam::Family;

use super::{
    Balancer, FinalizerOwner, Leftover, Place, Request, ServiceView, Setter,
    kube_vip::{self, KubeVipMarks},
    request::{self, Pools},
};
use crate::cluster::{address, keepalived::Announceable};
use crate::object::{ObjectKey, Version, created, uid};

/// Reads everything that any planner needs of a Service.
pub(crate) fn read(object: &Service) -> ServiceView {
    let metadata = &object.metadata;
    let spec = object.spec.as_ref();
    ServiceView {
        key: ObjectKey::of(metadata),
        uid: uid(metadata),
        version: Version::of(metadata),
        deleting: metadata.deletion_timestamp.is_some(),
        balancer: balancer(object).map(Box::new),
        external: external_ips(object),
        cluster_ips: cluster_ips(object),
        leftover: leftover(object).map(Box::new),
        local_traffic: spec.and_then(|spec| spec.external_traffic_policy.as_deref())
            == Some("Local"),
        announceable: announceable(object).map(Box::new),
    }
}

/// What a Service says about being announced by a keepalived group, if it says something and is of a sort
/// that can have addresses.
fn announceable(object: &Service) -> Option<Announceable> {
    let metadata = &object.metadata;
    let request = AnnounceRequest::read(metadata.annotations.as_ref()?);
    request.group.as_ref()?;
    let spec = object.spec.as_ref()?;
    let is_balancer = spec.type_.as_deref() == Some("LoadBalancer");
    let has_external = spec.external_ips.as_ref().is_some_and(|listed| !listed.is_empty());
    let conditions = || object.status.as_ref().and_then(|status| status.conditions.clone());
    (is_balancer || has_external).then(|| Announceable {
        created: created(metadata),
        request,
        conditions: conditions().filter(|_| !is_balancer).unwrap_or_default(),
    })
}

/// The view of a Service of type `LoadBalancer`.
pub(crate) fn balancer(object: &Service) -> Option<Balancer> {
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
    let plain = Balancer {
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
    Some(kube_vip::announced(plain, metadata, spec_ip, single, bad))
}

/// The marks that a replaced operator left on a Service of any type.
fn leftover(object: &Service) -> Option<Leftover> {
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
    let conditions = conditions.filter(|_| former).and_then(|all| {
        let mut others = all.to_vec();
        let mut ours = condition::remove(&mut others, CONDITION_ALLOCATED);
        if announceable(object).is_none() {
            ours |= condition::remove(&mut others, CONDITION_ANNOUNCED);
        }
        ours.then_some(others)
    });
    (any_certain || any_shared || marked || conditions.is_some()).then(|| Leftover {
        finalizers: (any_certain || any_shared)
            .then(|| all.iter().filter(|finalizer| !left(finalizer)).cloned().collect()),
        marked,
        conditions,
        finalizer_owner: shared_too
            .then(|| FinalizerOwner { setter, evident: carried.is_evident() }),
    })
}

/// The addresses in a Service's `spec.externalIPs`, whatever its type, as far as they are read.
fn external_ips(object: &Service) -> Vec<IpAddr> {
    let listed = object.spec.as_ref().and_then(|spec| spec.external_ips.as_deref());
    let listed = listed.unwrap_or_default().iter().take(keys::MOST_EXTERNAL_IPS);
    listed.filter_map(|text| address::read(text)).collect()
}

/// The `ClusterIPs` of a Service, whatever its type.
fn cluster_ips(object: &Service) -> Vec<IpAddr> {
    let listed = object.spec.as_ref().and_then(|spec| spec.cluster_ips.as_deref());
    listed.unwrap_or_default().iter().filter_map(|text| address::read(text)).collect()
}
