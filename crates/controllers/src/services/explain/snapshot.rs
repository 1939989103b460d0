//! A cluster listed once, to explain Services without an operator.

use std::fmt::Debug;

use kube::{
    Api, Client, Resource, api::ListParams, core::DeserializeGuard, runtime::watcher::Event,
};
use serde::de::DeserializeOwned;

use super::{
    super::{
        lean::LeanService,
        plan::{News, Planner, Settings},
        watch::{self, API_SERVER_NAMESPACE, API_SERVER_SLICES},
    },
    Explanation, explain,
};
use crate::{
    call::{Failure, failure},
    object::ObjectKey,
};

/// Why a cluster could not be listed.
#[derive(Debug, thiserror::Error)]
#[error("listing {kind}")]
pub struct Error {
    kind: &'static str,
    source: Box<kube::Error>,
}

/// Everything that decides about the addresses of Services, as it was when it was listed.
pub struct Snapshot {
    planner: Planner,
}

impl Snapshot {
    /// Lists everything once.
    pub async fn read(client: &Client, settings: Settings) -> Result<Self, Error> {
        let kube_vip = settings.kube_vip.clone();
        let mut planner = Planner::new(settings);
        let all = |client: &Client| Api::all(client.clone());
        let any = ListParams::default();
        // Claims and the ranges of ClusterIPs before Services, as the watches do.
        let ips: Api<DeserializeGuard<_>> = Api::all(client.clone());
        list("ips", ips, &any, &mut planner, watch::claim_news).await?;
        list("servicecidrs", Api::all(client.clone()), &any, &mut planner, watch::range_news)
            .await?;
        let groups: Api<DeserializeGuard<_>> = Api::all(client.clone());
        list("ipgroups", groups, &any, &mut planner, watch::pool_news).await?;
        let map = any.clone().fields(&format!("metadata.name={}", kube_vip.config_map));
        let maps = Api::namespaced(client.clone(), &kube_vip.namespace);
        let classes = &kube_vip.services.classes;
        list("configmaps", maps, &map, &mut planner, |event| watch::map_news(event, classes))
            .await?;
        list("namespaces", all(client), &any, &mut planner, watch::namespace_news).await?;
        list("nodes", Api::all(client.clone()), &any, &mut planner, watch::node_news).await?;
        let slices = any.clone().labels(API_SERVER_SLICES);
        let api = Api::namespaced(client.clone(), API_SERVER_NAMESPACE);
        list("endpointslices", api, &slices, &mut planner, watch::slice_news).await?;
        let virtual_ips: Api<DeserializeGuard<_>> = Api::all(client.clone());
        list("virtualips", virtual_ips, &any, &mut planner, watch::virtual_ip_news).await?;
        let services: Api<LeanService> = Api::all(client.clone());
        list("services", services, &any, &mut planner, watch::service_news).await?;
        planner.take_stock();
        Ok(Self { planner })
    }

    /// Explains a Service; `None` if it is not there, or no `LoadBalancer`.
    pub fn explain(&self, namespace: &str, name: &str) -> Option<Explanation> {
        explain(self.planner.world(), &ObjectKey::new(namespace, name))
    }
}

/// Lists one kind and tells the planner. A kind that is not installed has no objects.
async fn list<K>(
    kind: &'static str,
    api: Api<K>,
    params: &ListParams,
    planner: &mut Planner,
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
        for item in translate(event) {
            planner.on_news(item);
        }
    }
    Ok(())
}
