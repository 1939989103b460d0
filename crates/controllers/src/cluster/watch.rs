//! Watches: each turns the objects of its kind into news for the planner.

use std::{fmt::Debug, future::Future};

use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Node},
    discovery::v1::EndpointSlice,
    networking::v1::ServiceCIDR,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    core::{DeserializeGuard, DynamicObject, PartialObjectMeta},
    runtime::watcher::{Config, Event},
};
use landfall_api::{GroupSegmentMapping, IP, IPGroup, KeepalivedGroup, VirtualIP, keys, name};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{self, error::SendError};

use super::{
    News, address,
    classes::Classes,
    endpoints,
    keepalived::{self, ChildKind},
    lean::LeanService,
    node,
    pool::{self, PoolSource},
    service, virtual_ip,
};
use crate::{
    kinds::{self, Notice, Served},
    ledger::object as claim,
    object::{ObjectKey, Version},
    readiness::Listed,
    store::Watched,
    watch::feed,
};

/// Claims per page of a list. Each page is a round trip and is held in memory as a whole; claims are
/// smaller than Services, so there can be more of them in one than the usual 500.
const CLAIMS_PER_PAGE: u32 = 1000;

/// Where the API server lists its own addresses.
pub(crate) const API_SERVER_NAMESPACE: &str = "default";
/// The slices that do.
pub(crate) const API_SERVER_SLICES: &str = "kubernetes.io/service-name=kubernetes";

/// Watches claims.
pub(crate) fn claims(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> {
    let api: Api<DeserializeGuard<IP>> = Api::all(client);
    let config = Config::default().page_size(CLAIMS_PER_PAGE);
    feed("ips", (api, config), news, listed, claim_news)
}

/// What an event tells of claims.
pub(crate) fn claim_news(event: Event<DeserializeGuard<IP>>) -> Vec<News> {
    let addr = |ip: &DeserializeGuard<IP>| match &ip.0 {
        Ok(ip) => name::parse(ip.metadata.name.as_deref()?).ok(),
        Err(invalid) => name::parse(invalid.metadata.name.as_deref()?).ok(),
    };
    let version = |ip: &DeserializeGuard<IP>| match &ip.0 {
        Ok(ip) => Version::of(&ip.metadata),
        Err(invalid) => Version::of(&invalid.metadata),
    };
    let watched = match event {
        Event::Init => Some(Watched::ListBegins),
        Event::InitDone => Some(Watched::ListEnds),
        Event::Apply(ip) | Event::InitApply(ip) => {
            claim::read(&ip).map(|claim| Watched::Present(claim.addr, claim.version, claim))
        }
        Event::Delete(ip) => addr(&ip).map(|addr| Watched::Gone(addr, version(&ip))),
    };
    watched.map(News::Claims).into_iter().collect()
}

/// Watches Services.
pub(crate) fn services(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> {
    let api: Api<LeanService> = Api::all(client);
    feed("services", (api, Config::default()), news, listed, service_news)
}

/// What an event tells of Services.
pub(crate) fn service_news(event: Event<LeanService>) -> Vec<News> {
    let read = |object: LeanService| service::read(&object.into());
    let watched = each(event, read, |view| (view.key.clone(), view.version));
    vec![News::Services(watched)]
}

/// Watches the ranges from which the API server gives `ClusterIPs`, if it serves them.
pub(crate) async fn service_ranges(
    client: Client,
    served: Served,
    news: mpsc::Sender<News>,
    listed: Listed,
) {
    let api: Api<ServiceCIDR> = Api::all(client);
    while_served("servicecidrs", api, served, news, listed, News::ServiceRanges, range_news).await;
}

/// What an event tells of the ranges of `ClusterIPs`.
pub(crate) fn range_news(event: Event<ServiceCIDR>) -> Vec<News> {
    let watched = each(event, |object| object, named);
    vec![News::ServiceRanges(watched.map(|object| address::service_ranges(&object)))]
}

/// Watches nodes.
pub(crate) fn nodes(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> {
    feed("nodes", (Api::all(client), Config::default()), news, listed, node_news)
}

/// What an event tells of nodes.
pub(crate) fn node_news(event: Event<Node>) -> Vec<News> {
    let watched = each(event, |object| object, named);
    vec![News::Nodes(watched.map(|object| Box::new(node::read(object))))]
}

/// Watches the addresses of the API server itself.
pub(crate) fn api_servers(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> {
    let config = Config::default().labels(API_SERVER_SLICES);
    let api = Api::namespaced(client, API_SERVER_NAMESPACE);
    feed("endpointslices", (api, config), news, listed, slice_news)
}

/// What an event tells of the addresses of the API server itself.
pub(crate) fn slice_news(event: Event<EndpointSlice>) -> Vec<News> {
    let watched = each(event, |object| object, named);
    vec![News::ApiServers(watched.map(|object| address::endpoint_addresses(&object)))]
}

/// Watches `VirtualIP`s, while their kind is served: their claims can outlive it.
pub(crate) async fn virtual_ips(
    client: Client,
    served: Served,
    news: mpsc::Sender<News>,
    listed: Listed,
) {
    let api: Api<DeserializeGuard<VirtualIP>> = Api::all(client);
    while_served("virtualips", api, served, news, listed, News::VirtualIps, virtual_ip_news).await;
}

/// What an event tells of `VirtualIP`s. One that cannot be read counts as absent.
pub(crate) fn virtual_ip_news(event: Event<DeserializeGuard<VirtualIP>>) -> Vec<News> {
    let watched = each(
        event,
        |object| object,
        |object| (ObjectKey::of(object.meta()), Version::of(object.meta())),
    );
    vec![News::VirtualIps(watched.filter_map(virtual_ip::read))]
}

/// Watches mappings, while their kind is served.
pub(crate) async fn mappings(
    client: Client,
    served: Served,
    news: mpsc::Sender<News>,
    listed: Listed,
) {
    let api: Api<DeserializeGuard<GroupSegmentMapping>> = Api::all(client);
    let kind = "groupsegmentmappings";
    while_served(kind, api, served, news, listed, News::Mappings, mapping_news).await;
}

/// What an event tells of mappings.
pub(crate) fn mapping_news(event: Event<DeserializeGuard<GroupSegmentMapping>>) -> Vec<News> {
    let read = |object: DeserializeGuard<GroupSegmentMapping>| virtual_ip::read_mapping(&object);
    vec![News::Mappings(each(event, read, |view| (view.name.clone(), view.version)))]
}

/// Watches keepalived groups, while their kind is served, and tells whether there is any.
pub(crate) async fn keepalived_groups(
    client: Client,
    served: Served,
    news: mpsc::Sender<News>,
    listed: Listed,
    any: Notice,
) {
    let api: Api<DeserializeGuard<KeepalivedGroup>> = Api::all(client);
    let kind = "keepalivedgroups";
    let of_kind = |watched| {
        any.tell(false);
        News::KeepalivedGroups(watched)
    };
    let translate = |event: Event<DeserializeGuard<KeepalivedGroup>>| {
        match &event {
            Event::InitApply(_) | Event::Apply(_) => any.tell(true),
            Event::InitDone => any.tell_first(false),
            Event::Init | Event::Delete(_) => {}
        }
        group_news(event)
    };
    while_served(kind, api, served, news, listed, of_kind, translate).await;
}

/// Watches the endpoints of all Services while there is a keepalived group, because only groups need them.
pub(crate) async fn endpoints(
    client: Client,
    served: Served,
    news: mpsc::Sender<News>,
    listed: Listed,
) {
    let api: Api<EndpointSlice> = Api::all(client);
    while_served("endpoints", api, served, news, listed, News::Endpoints, endpoint_news).await;
}

/// What an event tells of the endpoints of a Service.
pub(crate) fn endpoint_news(event: Event<EndpointSlice>) -> Vec<News> {
    vec![News::Endpoints(each(event, endpoints::read, |view| (view.key.clone(), view.version)))]
}

/// What an event tells of keepalived groups.
pub(crate) fn group_news(event: Event<DeserializeGuard<KeepalivedGroup>>) -> Vec<News> {
    let read = |object| Box::new(keepalived::read(object));
    vec![News::KeepalivedGroups(each(event, read, |view| (view.key.clone(), view.version)))]
}

/// Watches the objects of one kind that have the label of a keepalived group, while `served` says that there
/// can be any.
pub(crate) async fn children(
    client: Client,
    kind: ChildKind,
    served: Served,
    news: mpsc::Sender<News>,
    listed: Listed,
) {
    let api: Api<DynamicObject> = Api::all_with(client, &kind.resource());
    let watching = || {
        let watch = (api.clone(), Config::default().labels(keys::LABEL_KEEPALIVED_GROUP));
        feed(kind.plural(), watch, news.clone(), listed.clone(), |event| child_news(kind, event))
    };
    let none = || async {
        news.send(News::Children(kind, Watched::Unserved)).await?;
        listed.done();
        Ok::<(), SendError<News>>(())
    };
    kinds::whenever_served(served, watching, none).await;
}

/// What an event tells of the objects with the label of a keepalived group.
pub(crate) fn child_news(kind: ChildKind, event: Event<DynamicObject>) -> Vec<News> {
    let read = |object| Box::new(keepalived::read_child(kind, object));
    let watched = each(event, read, |view| (view.key.clone(), view.version));
    vec![News::Children(kind, watched)]
}

/// Watches a kind while it is served. Without the kind there are no objects.
async fn while_served<K, Id, View>(
    kind: &'static str,
    api: Api<K>,
    served: Served,
    news: mpsc::Sender<News>,
    listed: Listed,
    of_kind: impl Fn(Watched<Id, View>) -> News,
    translate: impl Fn(Event<K>) -> Vec<News>,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let watching = || {
        let watch = (api.clone(), Config::default());
        feed(kind, watch, news.clone(), listed.clone(), &translate)
    };
    let none = || async {
        news.send(of_kind(Watched::Unserved)).await?;
        listed.done();
        Ok::<(), SendError<News>>(())
    };
    kinds::whenever_served(served, watching, none).await;
}

/// What an event tells of one object, by its identity.
fn each<K, Id, View>(
    event: Event<K>,
    read: impl FnOnce(K) -> View,
    identity: impl FnOnce(&View) -> (Id, Version),
) -> Watched<Id, View> {
    match event {
        Event::Init => Watched::ListBegins,
        Event::InitDone => Watched::ListEnds,
        Event::Apply(object) | Event::InitApply(object) => {
            let view = read(object);
            let (id, version) = identity(&view);
            Watched::Present(id, version, view)
        }
        Event::Delete(object) => {
            let (id, version) = identity(&read(object));
            Watched::Gone(id, version)
        }
    }
}

/// The name and version of a cluster-scoped object, or of one in a known namespace.
fn named<K: Resource>(object: &K) -> (String, Version) {
    (object.name_any(), Version::of(object.meta()))
}

/// Watches the one `ConfigMap` that holds pools. Each of its versions is a list of them.
pub(crate) fn pool_map(
    client: Client,
    map: &PoolMapPlace,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> + use<> {
    let api: Api<ConfigMap> = Api::namespaced(client, &map.namespace);
    let config = Config::default().fields(&format!("metadata.name={}", map.name));
    let classes = map.classes.clone();
    feed("configmaps", (api, config), news, listed, move |event| map_news(event, &classes))
}

/// Where the `ConfigMap` with kube-vip's pools is, and the classes of the Services that they serve.
#[derive(Clone, Debug)]
pub(crate) struct PoolMapPlace {
    pub namespace: String,
    pub name: String,
    pub classes: Classes,
}

/// What an event tells of the pools in a `ConfigMap`, for Services of some classes.
pub(crate) fn map_news(event: Event<ConfigMap>, classes: &Classes) -> Vec<News> {
    let (begins, ends) = (Watched::ListBegins, Watched::ListEnds);
    let pools = |map: &ConfigMap| {
        let views = pool::map::read(map, classes).into_iter();
        views.map(|view| Watched::Present(view.name.clone(), view.version, Box::new(view)))
    };
    let items: Vec<_> = match event {
        Event::Init => vec![begins],
        Event::InitApply(map) => pools(&map).collect(),
        Event::InitDone => vec![ends],
        Event::Apply(map) => [begins].into_iter().chain(pools(&map)).chain([ends]).collect(),
        Event::Delete(_) => vec![begins, ends],
    };
    items.into_iter().map(|item| News::Pools(PoolSource::ConfigMap, item)).collect()
}

/// Watches `IPGroup`s.
pub(crate) fn pools(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> {
    let api: Api<DeserializeGuard<IPGroup>> = Api::all(client);
    feed("ipgroups", (api, Config::default()), news, listed, pool_news)
}

/// What an event tells of `IPGroup`s.
pub(crate) fn pool_news(event: Event<DeserializeGuard<IPGroup>>) -> Vec<News> {
    let read = |group| Box::new(pool::read(&group));
    let watched = each(event, read, |view| (view.name.clone(), view.version));
    vec![News::Pools(PoolSource::IpGroups, watched)]
}

/// Watches the labels of namespaces, and nothing else of them.
pub(crate) fn namespaces(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(client);
    feed("namespaces", (api, Config::default()), news, listed, namespace_news)
}

/// What an event tells of the labels of namespaces.
pub(crate) fn namespace_news(event: Event<PartialObjectMeta<Namespace>>) -> Vec<News> {
    let watched = each(event, |object| object, named);
    vec![News::Namespaces(watched.map(|object| object.metadata.labels.unwrap_or_default()))]
}
