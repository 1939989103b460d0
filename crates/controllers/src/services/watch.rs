//! Watches: each turns the objects of its kind into news for the planner.

use std::{future::Future, net::IpAddr};

use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Node, Service},
    discovery::v1::EndpointSlice,
    networking::v1::ServiceCIDR,
};
use kube::{
    Api, Client, ResourceExt as _,
    core::{DeserializeGuard, PartialObjectMeta},
    runtime::watcher::{Config, Event},
};
use landfall_api::{IP, IPGroup, VirtualIP, name};
use landfall_ipam::PoolName;
use tokio::sync::mpsc::{self, error::SendError};

use super::{
    KubeVip,
    classes::Classes,
    lean::LeanService,
    observe,
    plan::News,
    view::{ForeignKind, PoolSource},
};
use crate::{
    kinds::{self, Served},
    ledger::{ForeignAddress, object as claim},
    object::{ObjectKey, Version},
    readiness::Listed,
    store::Watched,
    watch::feed,
};

/// Claims per page of a list. Each page is a round trip and is held in memory as a whole; claims are
/// smaller than Services, so there can be more of them in one than the usual 500.
const CLAIMS_PER_PAGE: u32 = 1000;

/// Where the API server lists its own addresses.
pub(super) const API_SERVER_NAMESPACE: &str = "default";
/// The slices that do.
pub(super) const API_SERVER_SLICES: &str = "kubernetes.io/service-name=kubernetes";

/// Watches claims.
pub(super) fn claims(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> {
    let api: Api<DeserializeGuard<IP>> = Api::all(client);
    let config = Config::default().page_size(CLAIMS_PER_PAGE);
    feed("ips", (api, config), news, listed, claim_news)
}

/// What an event tells of claims.
pub(super) fn claim_news(event: Event<DeserializeGuard<IP>>) -> Vec<News> {
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

/// Watches Services; those that are not of type `LoadBalancer` count as absent.
pub(super) fn services(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> {
    let api: Api<LeanService> = Api::all(client);
    feed("services", (api, Config::default()), news, listed, service_news)
}

/// What an event tells of Services: of their addresses, of others that they have, of what was left on
/// them.
pub(super) fn service_news(event: Event<LeanService>) -> Vec<News> {
    let (watched, outside, left) = match event {
        Event::Init => (
            Watched::ListBegins,
            SERVICE_ADDRESSES.map(|_| Watched::ListBegins),
            Watched::ListBegins,
        ),
        Event::InitDone => {
            (Watched::ListEnds, SERVICE_ADDRESSES.map(|_| Watched::ListEnds), Watched::ListEnds)
        }
        Event::Apply(object) | Event::InitApply(object) => {
            let object = Service::from(object);
            let watched = match observe::service(&object) {
                Some(view) => Watched::Present(view.key.clone(), view.version, view),
                None => gone(&object),
            };
            let left = match observe::leftover(&object) {
                Some(left) => Watched::Present(ObjectKey::of(&object.metadata), left.version, left),
                None => gone(&object),
            };
            let external = observe::external_ips(&object);
            let cluster_ips = observe::cluster_ips(&object);
            (watched, outside_ips(&object, [external, cluster_ips]), left)
        }
        Event::Delete(object) => {
            let object = Service::from(object);
            (gone(&object), outside_ips(&object, Default::default()), gone(&object))
        }
    };
    let outside = SERVICE_ADDRESSES.into_iter().zip(outside);
    let outside = outside.map(|(kind, watched)| News::ForeignAddresses(kind, watched));
    // What is left comes last of a list: by then all is known of the Service that is needed to
    // judge it.
    let (watched, left) = (News::Services(watched), News::Leftovers(left));
    [watched].into_iter().chain(outside).chain([left]).collect()
}

/// The kinds of addresses that a Service has without a claim, see [`outside_ips`].
const SERVICE_ADDRESSES: [ForeignKind; 2] = [ForeignKind::ExternalIps, ForeignKind::ClusterIps];

/// Addresses that a Service has without a claim: external ones and `ClusterIPs`.
fn outside_ips(
    object: &Service,
    addrs: [Vec<IpAddr>; 2],
) -> [Watched<ForeignAddress, Vec<IpAddr>>; 2] {
    let metadata = &object.metadata;
    let (key, version) = (ObjectKey::of(metadata), Version::of(metadata));
    let uid = metadata.uid.as_deref().unwrap_or_default().into();
    let [external, cluster_ips] = addrs;
    [
        Watched::has(ForeignAddress::External(key.clone(), uid), version, external),
        Watched::has(ForeignAddress::ClusterIp(key), version, cluster_ips),
    ]
}

/// Watches the ranges from which the API server gives `ClusterIPs`, if it serves them.
pub(super) async fn service_ranges(
    client: Client,
    served: Served,
    news: mpsc::Sender<News>,
    listed: Listed,
) {
    let watching = || async {
        let api: Api<ServiceCIDR> = Api::all(client.clone());
        let watch = (api, Config::default());
        feed("servicecidrs", watch, news.clone(), listed.clone(), range_news).await;
    };
    let none = || async {
        for item in [Watched::ListBegins, Watched::ListEnds] {
            news.send(News::ServiceRanges(item)).await?;
        }
        listed.done();
        Ok::<(), SendError<News>>(())
    };
    kinds::whenever_served(served, watching, none).await;
}

/// What an event tells of the ranges of `ClusterIPs`.
pub(super) fn range_news(event: Event<ServiceCIDR>) -> Vec<News> {
    let version = |object: &ServiceCIDR| Version::of(&object.metadata);
    vec![News::ServiceRanges(match event {
        Event::Init => Watched::ListBegins,
        Event::InitDone => Watched::ListEnds,
        Event::Apply(object) | Event::InitApply(object) => {
            let ranges = observe::service_ranges(&object);
            Watched::Present(object.name_any(), version(&object), ranges)
        }
        Event::Delete(object) => Watched::Gone(object.name_any(), version(&object)),
    })]
}

/// Watches nodes, for the addresses they have.
pub(super) fn nodes(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> {
    feed("nodes", (Api::all(client), Config::default()), news, listed, node_news)
}

/// What an event tells of the addresses of nodes.
pub(super) fn node_news(event: Event<Node>) -> Vec<News> {
    foreign_news(ForeignKind::Nodes, event, |node| {
        let who = ForeignAddress::Node(node.name_any());
        Watched::has(who, Version::of(&node.metadata), observe::node_addresses(node))
    })
}

/// Watches `VirtualIP`s that still have their address, while the kind is served.
pub(super) async fn virtual_ips(
    client: Client,
    served: Served,
    news: mpsc::Sender<News>,
    listed: Listed,
) {
    let kind = ForeignKind::VirtualIps;
    let watching = || async {
        let watch = (Api::all(client.clone()), Config::default());
        feed("virtualips", watch, news.clone(), listed.clone(), virtual_ip_news).await;
    };
    let none = || async {
        for item in [Watched::ListBegins, Watched::ListEnds] {
            news.send(News::ForeignAddresses(kind, item)).await?;
        }
        listed.done();
        Ok::<(), SendError<News>>(())
    };
    kinds::whenever_served(served, watching, none).await;
}

/// What an event tells of the addresses of `VirtualIP`s.
pub(super) fn virtual_ip_news(event: Event<DeserializeGuard<VirtualIP>>) -> Vec<News> {
    foreign_news(ForeignKind::VirtualIps, event, |object| {
        let (key, version, addr) = observe::virtual_ip(object);
        Watched::has(ForeignAddress::VirtualIp(key), version, addr.into_iter().collect())
    })
}

/// Watches the addresses of the API server itself.
pub(super) fn api_servers(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> {
    let config = Config::default().labels(API_SERVER_SLICES);
    let api = Api::namespaced(client, API_SERVER_NAMESPACE);
    feed("endpointslices", (api, config), news, listed, slice_news)
}

/// What an event tells of the addresses of the API server itself.
pub(super) fn slice_news(event: Event<EndpointSlice>) -> Vec<News> {
    foreign_news(ForeignKind::ApiServers, event, |slice| {
        let who = ForeignAddress::ApiServer(slice.name_any());
        Watched::has(who, Version::of(&slice.metadata), observe::endpoint_addresses(slice))
    })
}

/// What an event tells of objects that have addresses which are not ours to give.
fn foreign_news<K>(
    kind: ForeignKind,
    event: Event<K>,
    read: impl Fn(&K) -> Watched<ForeignAddress, Vec<IpAddr>>,
) -> Vec<News> {
    let watched = match event {
        Event::Init => Watched::ListBegins,
        Event::InitDone => Watched::ListEnds,
        Event::Apply(object) | Event::InitApply(object) => read(&object),
        Event::Delete(object) => match read(&object) {
            Watched::Present(who, version, _) | Watched::Gone(who, version) => {
                Watched::Gone(who, version)
            }
            Watched::ListBegins | Watched::ListEnds => return Vec::new(),
        },
    };
    vec![News::ForeignAddresses(kind, watched)]
}

fn gone<V>(object: &Service) -> Watched<ObjectKey, V> {
    Watched::Gone(ObjectKey::of(&object.metadata), Version::of(&object.metadata))
}

/// Watches the one `ConfigMap` that holds pools. Each of its versions is a list of them.
pub(super) fn pool_map(
    client: Client,
    kube_vip: &KubeVip,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> + use<> {
    let api: Api<ConfigMap> = Api::namespaced(client, &kube_vip.namespace);
    let config = Config::default().fields(&format!("metadata.name={}", kube_vip.config_map));
    let classes = kube_vip.services.classes.clone();
    feed("configmaps", (api, config), news, listed, move |event| map_news(event, &classes))
}

/// What an event tells of the pools in a `ConfigMap`, for Services of some classes.
pub(super) fn map_news(event: Event<ConfigMap>, classes: &Classes) -> Vec<News> {
    let (begins, ends) = (Watched::ListBegins, Watched::ListEnds);
    let pools = |map: &ConfigMap| {
        let views = observe::kube_vip::pools(map, classes).into_iter();
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

/// Watches pools.
pub(super) fn pools(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> {
    let api: Api<DeserializeGuard<IPGroup>> = Api::all(client);
    feed("ipgroups", (api, Config::default()), news, listed, pool_news)
}

/// What an event tells of pools.
pub(super) fn pool_news(event: Event<DeserializeGuard<IPGroup>>) -> Vec<News> {
    let is = |group| {
        let view = observe::pool(&group);
        (view.name.clone(), view.version, view)
    };
    vec![News::Pools(
        PoolSource::IpGroups,
        match event {
            Event::Init => Watched::ListBegins,
            Event::InitDone => Watched::ListEnds,
            Event::Apply(group) | Event::InitApply(group) => {
                let (name, version, view): (PoolName, _, _) = is(group);
                Watched::Present(name, version, Box::new(view))
            }
            Event::Delete(group) => {
                let (name, version, _) = is(group);
                Watched::Gone(name, version)
            }
        },
    )]
}

/// Watches the labels of namespaces, and nothing else of them.
pub(super) fn namespaces(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(client);
    feed("namespaces", (api, Config::default()), news, listed, namespace_news)
}

/// What an event tells of the labels of namespaces.
pub(super) fn namespace_news(event: Event<PartialObjectMeta<Namespace>>) -> Vec<News> {
    let key = |meta: &PartialObjectMeta<Namespace>| {
        (meta.metadata.name.clone().unwrap_or_default(), Version::of(&meta.metadata))
    };
    vec![News::Namespaces(match event {
        Event::Init => Watched::ListBegins,
        Event::InitDone => Watched::ListEnds,
        Event::Apply(meta) | Event::InitApply(meta) => {
            let (name, version) = key(&meta);
            Watched::Present(name, version, meta.metadata.labels.unwrap_or_default())
        }
        Event::Delete(meta) => {
            let (name, version) = key(&meta);
            Watched::Gone(name, version)
        }
    })]
}
