//! Lists every kind once, for callers without an operator.

use std::fmt::Debug;

use kube::{
    Api, Client, Resource,
    api::ListParams,
    core::{DeserializeGuard, DynamicObject},
    runtime::watcher::Event,
};
use landfall_api::keys;
use serde::de::DeserializeOwned;

use super::{
    Kind, News,
    lean::LeanService,
    watch::{self, API_SERVER_NAMESPACE, API_SERVER_SLICES, PoolMapPlace},
};
use crate::call::{Failure, failure};

/// Why a cluster could not be listed.
#[derive(Debug, thiserror::Error)]
#[error("listing {kind}")]
pub struct Error {
    kind: &'static str,
    source: Box<kube::Error>,
}

/// Lists these kinds, in the order of the watches: claims and the ranges of `ClusterIPs` before Services.
pub(crate) async fn list_all(
    client: &Client,
    kinds: &[Kind],
    map: &PoolMapPlace,
    mut hear: impl FnMut(News),
) -> Result<(), Error> {
    let any = ListParams::default();
    let mut kinds = kinds.to_vec();
    kinds.sort_by_key(|kind| match kind {
        Kind::Claims | Kind::ServiceRanges => 0,
        Kind::Services => 2,
        Kind::IpGroups
        | Kind::PoolMap
        | Kind::Namespaces
        | Kind::Nodes
        | Kind::ApiServers
        | Kind::VirtualIps
        | Kind::Mappings
        | Kind::KeepalivedGroups
        | Kind::Endpoints
        | Kind::Children(_) => 1,
    });
    for kind in kinds {
        match kind {
            Kind::Claims => {
                let api: Api<DeserializeGuard<_>> = Api::all(client.clone());
                list("ips", api, &any, &mut hear, watch::claim_news).await?;
            }
            Kind::Services => {
                let api: Api<LeanService> = Api::all(client.clone());
                list("services", api, &any, &mut hear, watch::service_news).await?;
            }
            Kind::IpGroups => {
                let api: Api<DeserializeGuard<_>> = Api::all(client.clone());
                list("ipgroups", api, &any, &mut hear, watch::pool_news).await?;
            }
            Kind::PoolMap => {
                let named = any.clone().fields(&format!("metadata.name={}", map.name));
                let api = Api::namespaced(client.clone(), &map.namespace);
                let news = |event| watch::map_news(event, &map.classes);
                list("configmaps", api, &named, &mut hear, news).await?;
            }
            Kind::Namespaces => {
                let api = Api::all(client.clone());
                list("namespaces", api, &any, &mut hear, watch::namespace_news).await?;
            }
            Kind::Nodes => {
                let api = Api::all(client.clone());
                list("nodes", api, &any, &mut hear, watch::node_news).await?;
            }
            Kind::ApiServers => {
                let slices = any.clone().labels(API_SERVER_SLICES);
                let api = Api::namespaced(client.clone(), API_SERVER_NAMESPACE);
                list("endpointslices", api, &slices, &mut hear, watch::slice_news).await?;
            }
            Kind::ServiceRanges => {
                let api = Api::all(client.clone());
                list("servicecidrs", api, &any, &mut hear, watch::range_news).await?;
            }
            Kind::VirtualIps => {
                let api: Api<DeserializeGuard<_>> = Api::all(client.clone());
                list("virtualips", api, &any, &mut hear, watch::virtual_ip_news).await?;
            }
            Kind::Mappings => {
                let api: Api<DeserializeGuard<_>> = Api::all(client.clone());
                list("groupsegmentmappings", api, &any, &mut hear, watch::mapping_news).await?;
            }
            Kind::KeepalivedGroups => {
                let api: Api<DeserializeGuard<_>> = Api::all(client.clone());
                list("keepalivedgroups", api, &any, &mut hear, watch::group_news).await?;
            }
            Kind::Endpoints => {
                let api = Api::all(client.clone());
                list("endpointslices", api, &any, &mut hear, watch::endpoint_news).await?;
            }
            Kind::Children(kind) => {
                let labelled = any.clone().labels(keys::LABEL_KEEPALIVED_GROUP);
                let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource());
                let news = |event| watch::child_news(kind, event);
                list(kind.plural(), api, &labelled, &mut hear, news).await?;
            }
        }
    }
    Ok(())
}

/// Lists one kind. A kind that is not installed has no objects.
async fn list<K>(
    kind: &'static str,
    api: Api<K>,
    params: &ListParams,
    hear: &mut impl FnMut(News),
    translate: impl Fn(Event<K>) -> Vec<News>,
) -> Result<(), Error>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let items = match api.list(params).await {
        Ok(list) => list.items,
        Err(error) if failure(&error) == Failure::NotFound => Vec::new(),
        Err(error) => return Err(Error { kind, source: Box::new(error) }),
    };
    let events = items.into_iter().map(Event::InitApply);
    for event in [Event::Init].into_iter().chain(events).chain([Event::InitDone]) {
        translate(event).into_iter().for_each(&mut *hear);
    }
    Ok(())
}
