//! The pools in the `ConfigMap` of kube-vip's cloud provider.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use landfall_api::kube_vip::{KeyPool, PoolMap, Problem, Scope};
use landfall_ipam::{Pool, PoolName};

use super::{PoolSource, PoolView, Rank};
use crate::{
    cluster::{classes::Classes, service::Place},
    object::{Version, uid},
};

/// The kind of pool that is a key of the `ConfigMap`, as a claim's `spec.pool` names it.
const POOL_KIND: &str = "ConfigMap";

/// Whether a pool is from a `ConfigMap`, which may be gone.
pub(crate) fn is_of_map(pool: &PoolName) -> bool {
    pool.as_str().strip_prefix(POOL_KIND).is_some_and(|rest| rest.starts_with('/'))
}

/// The pools of a `ConfigMap`, for Services of some classes.
pub(crate) fn read(object: &ConfigMap, classes: &Classes) -> Vec<PoolView> {
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
