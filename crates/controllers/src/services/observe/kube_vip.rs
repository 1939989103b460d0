//! The dialect of kube-vip's cloud provider: what stands on Services, and pools in a `ConfigMap`.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use landfall_api::{
    kube_vip::{self, KeyPool, PoolMap, Problem, Scope},
    words::{
        ANNOTATION_KUBE_VIP_ADDRESSES, ANNOTATION_KUBE_VIP_IGNORE, ANNOTATION_KUBE_VIP_REQUESTED,
        IMPLEMENTATION_KUBE_VIP, LABEL_IMPLEMENTATION, LABEL_KUBE_VIP_ADDRESS,
    },
};
use landfall_ipam::{Family, Pool, PoolName, Refusal};

use super::{
    super::{
        classes::Classes,
        view::{Place, PoolSource, PoolView, Rank},
    },
    label, text, version,
};

/// The kind of pool a key of the `ConfigMap` is, as it stands in a claim's `spec.pool`.
const POOL_KIND: &str = "ConfigMap";

/// What a Service carries of this dialect.
pub(super) struct Carried {
    /// Its annotation, unless it has none or a blank one, which stands for none.
    pub annotated: Option<Annotated>,
    /// Whether it bears the label of those that were given an address.
    pub labelled: bool,
    /// Whether it bears a label of the provider's first versions.
    pub outdated: bool,
    pub ignored: bool,
}

/// What the annotation says.
pub(super) struct Annotated {
    pub addrs: Vec<IpAddr>,
    /// What is wrong with it, if its user must mend it.
    pub problem: Option<Refusal>,
}

impl Carried {
    pub(super) fn by(metadata: &ObjectMeta) -> Self {
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key);
        let value =
            annotation(ANNOTATION_KUBE_VIP_ADDRESSES).filter(|value| !value.trim().is_empty());
        let implementation = label(metadata, LABEL_IMPLEMENTATION);
        Self {
            annotated: value.map(|_| annotated(metadata)),
            labelled: implementation.is_some_and(|value| value == IMPLEMENTATION_KUBE_VIP),
            outdated: label(metadata, LABEL_KUBE_VIP_ADDRESS).is_some(),
            ignored: annotation(ANNOTATION_KUBE_VIP_IGNORE).is_some_and(|value| value == "true"),
        }
    }

    pub(super) const fn place(&self) -> Place {
        if self.annotated.is_some() || self.labelled { Place::Annotation } else { Place::Status }
    }

    /// Whether there is anything of this dialect on it.
    pub(super) const fn is_evident(&self) -> bool {
        self.annotated.is_some() || self.labelled
    }
}

fn annotated(metadata: &ObjectMeta) -> Annotated {
    let (addrs, others) = kube_vip::addresses(metadata);
    let unparseable = (!others.is_empty()).then(|| Refusal::Unparseable {
        field: ANNOTATION_KUBE_VIP_ADDRESSES,
        input: others.join(","),
        expected: "addresses, at most one per family; entries that are none are left to kube-vip",
    });
    let twice = || {
        addrs.iter().enumerate().find_map(|(at, addr)| {
            let mut later = addrs.iter().skip(at.saturating_add(1));
            let same = later.find(|other| Family::of(**other) == Family::of(*addr))?;
            Some(Refusal::TwoOfOneFamily(*addr, *same))
        })
    };
    let problem = unparseable.or_else(twice);
    Annotated { addrs, problem }
}

/// Addresses that are announced for a Service though they are not what it was given: by DHCP, or
/// those from before a move that kube-vip has not noticed yet.
pub(in crate::services) fn announced(object: &Service) -> Vec<IpAddr> {
    let carried = Carried::by(&object.metadata);
    let Some(annotated) = carried.annotated else { return Vec::new() };
    let status = object.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default();
    let requested = object.metadata.annotations.as_ref();
    let requested = requested.and_then(|all| all.get(ANNOTATION_KUBE_VIP_REQUESTED));
    let texts = ingress.iter().filter_map(|entry| entry.ip.as_deref());
    // One per family, as in the annotation with the addresses.
    let texts = texts.chain(requested.iter().flat_map(|listed| listed.split(',')));
    let addrs = texts.filter_map(|text| text.trim().parse::<IpAddr>().ok());
    addrs.filter(|addr| !annotated.addrs.contains(addr) && !addr.is_unspecified()).collect()
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
        view.place = Place::Annotation;
        view.leases = entry.leases;
        view.own_interface = entry.own_interface.as_deref().map(Arc::from);
        view.map = Some(Arc::clone(&map));
        view
    };
    let mut views: Vec<_> = map.pools.iter().map(of_key).collect();
    if views.is_empty() && !map.problems.is_empty() {
        views.push(nobodys(map_name, metadata));
    }
    if let Some(first) = views.first_mut() {
        let more = Some(map.problems_left_out).filter(|count| *count > 0);
        let more = more.map(|count| format!("{count} more keys are odd"));
        first.warnings = map.problems.iter().map(said).chain(more).collect();
    }
    views
}

/// A pool for nobody, which tells what is wrong with a map that has no other.
fn nobodys(map_name: &str, metadata: &ObjectMeta) -> PoolView {
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
    let uid = text(map.uid.as_deref());
    let mut view = PoolView::empty(name, PoolSource::ConfigMap, object.join("/").into(), uid);
    view.version = version(map);
    view
}
