//! The dialect of kube-vip's cloud provider: its marks on Services, and pools in a `ConfigMap`.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use landfall_api::{
    keys::{
        self, ANNOTATION_KUBE_VIP_ADDRESSES, ANNOTATION_KUBE_VIP_IGNORE, IMPLEMENTATION_KUBE_VIP,
        LABEL_IMPLEMENTATION, LABEL_KUBE_VIP_ADDRESS,
    },
    kube_vip::{self, Addresses, KeyPool, PoolMap, Problem, Scope},
};
use landfall_ipam::{Family, Pool, PoolName, Refusal};

use super::{
    super::{
        classes::Classes,
        view::{Place, Plain, PoolSource, PoolView, Rank, Request, ServiceView},
    },
    request,
};
use crate::object::{Version, label, uid};

/// The kind of pool that is a key of the `ConfigMap`, as a claim's `spec.pool` names it.
const POOL_KIND: &str = "ConfigMap";

/// The marks of this dialect on a Service.
pub(super) struct KubeVipMarks {
    /// Its annotation, unless it has none or a blank one.
    annotated: Option<Addresses>,
    /// Whether it has the label of Services that were given an address.
    pub labelled: bool,
    /// Whether it has a label of the provider's first versions.
    outdated: bool,
    ignored: bool,
}

impl KubeVipMarks {
    pub(super) fn read(metadata: &ObjectMeta) -> Self {
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key);
        let value =
            annotation(ANNOTATION_KUBE_VIP_ADDRESSES).filter(|value| !value.trim().is_empty());
        let implementation = label(metadata, LABEL_IMPLEMENTATION);
        Self {
            annotated: value.map(|_| kube_vip::addresses(metadata)),
            labelled: implementation.is_some_and(|value| value == IMPLEMENTATION_KUBE_VIP),
            outdated: label(metadata, LABEL_KUBE_VIP_ADDRESS).is_some(),
            ignored: annotation(ANNOTATION_KUBE_VIP_IGNORE).is_some_and(|value| value == "true"),
        }
    }

    /// Whether it has any mark of this dialect.
    pub(super) const fn is_evident(&self) -> bool {
        self.annotated.is_some() || self.labelled
    }
}

/// The error in the annotation, if its user must correct it.
fn problem(annotated: &Addresses) -> Option<Refusal> {
    let unparseable = annotated.other.as_ref().map(|other| Refusal::Unparseable {
        field: ANNOTATION_KUBE_VIP_ADDRESSES,
        input: other.clone(),
        expected: "addresses, at most one per family; entries that are none are left to kube-vip",
    });
    let twice = || {
        let surplus = annotated.surplus?;
        let same = |addr: &&IpAddr| Family::of(**addr) == Family::of(surplus);
        Some(Refusal::TwoOfOneFamily(*annotated.first.iter().find(same)?, surplus))
    };
    unparseable.or_else(twice)
}

/// A Service as seen where this dialect is in use, with its plain view inside.
pub(super) fn service(
    plain: ServiceView,
    metadata: &ObjectMeta,
    spec_ip: Option<&str>,
    single: bool,
    bad: Option<Refusal>,
) -> ServiceView {
    let carried = KubeVipMarks::read(metadata);
    let opts_out_of = carried.ignored.then_some(Place::Annotation);
    if !carried.is_evident() {
        return ServiceView { opts_out_of, ..plain };
    }
    let is_annotated = carried.annotated.is_some();
    let annotated = carried.annotated.unwrap_or_default();
    let problem = problem(&annotated);
    let mut families = plain.families.clone();
    let mut extra_family = None;
    for family in annotated.first.iter().map(|addr| Family::of(*addr)) {
        // It was given one address of each family, or its user wrote them.
        if !families.contains(&family) {
            families.push(family);
            extra_family = single.then_some(family);
        }
    }
    // An address in both was written by the program that gave it.
    let spec_ip = spec_ip
        .filter(|text| !text.parse().is_ok_and(|addr: IpAddr| annotated.first.contains(&addr)));
    let annotation_unreadable = problem.is_some();
    let request = match problem.or(bad) {
        Some(refusal) => Request::Bad(refusal),
        None => request::addresses(metadata, spec_ip, &families),
    };
    let by_spec_alone = keys::entries(metadata, keys::ANNOTATION_ADDRESSES).next().is_none();
    let spec_contradicts_annotation = spec_ip.is_some()
        && by_spec_alone
        && annotated.first.iter().any(|addr| request.of(Family::of(*addr)).is_some());
    ServiceView {
        families,
        extra_family,
        spec_contradicts_annotation,
        request,
        place: Place::Annotation,
        ingress_has_hostname: false,
        label_missing: is_annotated && (!carried.labelled || carried.outdated),
        annotation_unreadable,
        opts_out_of,
        shows: annotated.first,
        announced: plain.shows.clone(),
        plain: Some(Box::new(Plain {
            families: plain.families,
            request: plain.request,
            ingress_has_hostname: plain.ingress_has_hostname,
            marked: carried.labelled,
        })),
        ..plain
    }
}

/// Whether a pool is from a `ConfigMap`, which may be gone.
pub(in crate::services) fn is_of_map(pool: &PoolName) -> bool {
    pool.as_str().strip_prefix(POOL_KIND).is_some_and(|rest| rest.starts_with('/'))
}

/// The pools of a `ConfigMap`, for Services of some classes.
pub(in crate::services) fn pools(object: &ConfigMap, classes: &Classes) -> Vec<PoolView> {
    let metadata = &object.metadata;
    let map_name = metadata.name.as_deref().unwrap_or_default();
    let named = |key: &str| PoolName::new(&format!("{POOL_KIND}/{map_name}/{key}"));
    let empty = BTreeMap::new();
    let map = Arc::new(PoolMap::read(named, object.data.as_ref().unwrap_or(&empty)));
    let said = |problem: &Problem| format!("{}: {}", problem.key, problem.text);
    let of_key = |entry: &KeyPool| {
        let rank = match &entry.namespaces {
            _ if entry.on_request => Rank::OnRequest,
            Scope::OnlyOne(_) => Rank::OfNamespace,
            Scope::AllBut(_) => Rank::Fallback,
        };
        let mut view = empty_view(named(&entry.key), metadata);
        view.pool = entry.pool.clone().map_err(|problems| problems.iter().map(said).collect());
        if let Ok(pool) = &mut view.pool {
            pool.priority = match rank {
                Rank::OfNamespace => i32::MIN,
                Rank::Usual | Rank::Fallback | Rank::OnRequest => i32::MAX,
            };
        }
        view.scope = Some(entry.namespaces.clone());
        view.classes = classes.clone();
        view.rank = rank;
        view.falls_back = entry.falls_back;
        view.leases = entry.leases;
        view.own_interface = entry.own_interface.as_deref().map(Arc::from);
        view.map = Some(Arc::clone(&map));
        view
    };
    let mut views: Vec<_> = map.pools.iter().map(of_key).collect();
    if views.is_empty() && !map.problems.is_empty() {
        views.push(placeholder_pool(map_name, metadata));
    }
    if let Some(first) = views.first_mut() {
        let more = Some(map.problems_left_out).filter(|count| *count > 0);
        let more = more.map(|count| format!("{count} more keys are odd"));
        first.warnings = map.problems.iter().map(said).chain(more).collect();
    }
    views
}

/// A pool that serves no Service and reports the errors of a map without any other pool.
fn placeholder_pool(map_name: &str, metadata: &ObjectMeta) -> PoolView {
    let name = PoolName::new(&format!("{POOL_KIND}/{map_name}"));
    let mut view = empty_view(name.clone(), metadata);
    view.pool = Ok(Pool::new(name, [], []));
    view.scope = Some(Scope::OnlyOne(String::new()));
    view.rank = Rank::OnRequest;
    view
}

/// A pool of the map without addresses.
fn empty_view(name: PoolName, map: &ObjectMeta) -> PoolView {
    let object = [&map.namespace, &map.name].map(|text| text.as_deref().unwrap_or_default());
    let uid = uid(map);
    let mut view = PoolView::empty(name, PoolSource::ConfigMap, object.join("/").into(), uid);
    view.version = Version::of(map);
    view.place = Place::Annotation;
    view
}
