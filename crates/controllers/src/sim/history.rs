//! The changes of the simulated API server, and how watches deliver them.

use std::{collections::BTreeSet, net::IpAddr};

use landfall_ipam::PoolName;

use super::{
    ApiServer,
    api_server::{Foreign, SOURCE},
};
use crate::{
    cluster::{
        Labels, News,
        node::NodeView,
        pool::{PoolSource, PoolView},
        service::ServiceView,
        virtual_ip::{MappingView, VirtualIpView},
    },
    ledger::Claim,
    object::{ObjectKey, Version},
    store::Watched,
};

/// The watches of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Claims,
    Services,
    Pools,
    Namespaces,
    /// Nodes, and the API server itself.
    Foreign,
    /// The old kinds.
    VirtualIps,
}

pub(crate) const KINDS: [Kind; 6] =
    [Kind::Claims, Kind::Services, Kind::Pools, Kind::Namespaces, Kind::Foreign, Kind::VirtualIps];

/// One change, as watches will deliver it.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Claim(IpAddr, Version, Option<Claim>),
    Service(ObjectKey, Version, Option<Box<ServiceView>>),
    Pool(Box<PoolView>),
    NoPool(PoolName, Version),
    Namespace(String, Version, Labels),
    Node(String, Version, Vec<IpAddr>),
    ApiServer(String, Version, Vec<IpAddr>),
    VirtualIp(ObjectKey, Version, Option<Box<VirtualIpView>>),
    Mapping(Box<MappingView>),
}

impl Change {
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::Claim(..) => Kind::Claims,
            Self::Service(..) => Kind::Services,
            Self::Pool(_) | Self::NoPool(..) => Kind::Pools,
            Self::Namespace(..) => Kind::Namespaces,
            Self::Node(..) | Self::ApiServer(..) => Kind::Foreign,
            Self::VirtualIp(..) | Self::Mapping(_) => Kind::VirtualIps,
        }
    }

    pub(crate) fn news(&self) -> News {
        match self.clone() {
            Self::Claim(addr, version, claim) => News::Claims(watched(addr, version, claim)),
            Self::Service(key, version, view) => {
                News::Services(watched(key, version, view.map(|view| *view)))
            }
            Self::Pool(pool) => {
                News::Pools(SOURCE, Watched::Present(pool.name.clone(), pool.version, pool))
            }
            Self::NoPool(name, version) => News::Pools(SOURCE, Watched::Gone(name, version)),
            Self::Namespace(name, version, labels) => {
                News::Namespaces(Watched::Present(name, version, labels))
            }
            Self::Node(name, version, addrs) => {
                News::Nodes(Watched::Present(name, version, Box::new(node(addrs))))
            }
            Self::ApiServer(name, version, addrs) => {
                News::ApiServers(Watched::Present(name, version, addrs))
            }
            Self::VirtualIp(key, version, view) => {
                News::VirtualIps(watched(key, version, view.map(|view| *view)))
            }
            Self::Mapping(view) => {
                News::Mappings(Watched::Present(view.name.clone(), view.version, *view))
            }
        }
    }
}

fn watched<K, V>(key: K, version: Version, value: Option<V>) -> Watched<K, V> {
    match value {
        Some(value) => Watched::Present(key, version, value),
        None => Watched::Gone(key, version),
    }
}

impl ApiServer {
    /// Everything that a first list of a watch shows.
    pub(crate) fn list(&self, kind: Kind) -> Vec<News> {
        match kind {
            Kind::Claims => {
                let claims = self.claims.values();
                listed(claims.map(|claim| (claim.addr, claim.version, claim.clone())), News::Claims)
            }
            Kind::Services => {
                let foreign = self.foreign.keys().filter_map(|who| match who {
                    Foreign::External(key) | Foreign::ClusterIp(key) => Some(key),
                    Foreign::Node(_) | Foreign::ApiServer(_) => None,
                });
                let keys: BTreeSet<_> = self.services.keys().chain(foreign).collect();
                let views = keys.into_iter().filter_map(|key| self.service_view(key));
                listed(views.map(|view| (view.key.clone(), view.version, view)), News::Services)
            }
            Kind::Pools => {
                let pools = self
                    .pools
                    .values()
                    .map(|pool| (pool.name.clone(), pool.version, Box::new(pool.clone())));
                let mut news = listed(pools, |watched| News::Pools(SOURCE, watched));
                news.extend(listed([], |watched| News::Pools(PoolSource::ConfigMap, watched)));
                news
            }
            Kind::Namespaces => {
                let all = self.namespaces.iter();
                let all =
                    all.map(|(name, (version, labels))| (name.clone(), *version, labels.clone()));
                listed(all, News::Namespaces)
            }
            Kind::Foreign => {
                let nodes = self.foreign.iter().filter_map(|(who, (version, addrs))| {
                    let Foreign::Node(name) = who else { return None };
                    Some((name.clone(), *version, Box::new(node(addrs.clone()))))
                });
                let servers = self.foreign.iter().filter_map(|(who, (version, addrs))| {
                    let Foreign::ApiServer(name) = who else { return None };
                    Some((name.clone(), *version, addrs.clone()))
                });
                let mut news = listed(nodes, News::Nodes);
                news.extend(listed(servers, News::ApiServers));
                let ranges = [("kubernetes".to_owned(), Version(1), self.service_ranges.clone())];
                news.extend(listed(ranges, News::ServiceRanges));
                news
            }
            Kind::VirtualIps => {
                let all = self.virtual_ips.values();
                let all = all.map(|view| (view.key.clone(), view.version, view.clone()));
                let mut news = listed(all, News::VirtualIps);
                let all = self.mappings.values();
                let all = all.map(|view| (view.name.clone(), view.version, view.clone()));
                news.extend(listed(all, News::Mappings));
                news
            }
        }
    }
}

/// A whole list, as its watch delivers it.
fn listed<K, V>(
    items: impl IntoIterator<Item = (K, Version, V)>,
    news: impl Fn(Watched<K, V>) -> News,
) -> Vec<News> {
    let items = items.into_iter();
    let present = items.map(|(key, version, value)| Watched::Present(key, version, value));
    let all = [Watched::ListBegins].into_iter().chain(present).chain([Watched::ListEnds]);
    all.map(news).collect()
}

/// A node with these addresses.
fn node(addresses: Vec<IpAddr>) -> NodeView {
    NodeView { addresses, ..NodeView::default() }
}
