//! The watched objects of the cluster: one store per kind, filled once and lent to every planner.
//!
//! Views are small: they contain what any planner needs of an object. An object of which none needs
//! anything is not kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use kube::core::SelectorExt as _;
use landfall_ipam::{AddrSet, Pool, PoolName, Verdict};

use self::{
    endpoints::SliceView,
    keepalived::{ChildKind, ChildView, GroupView},
    node::NodeView,
    pool::{PoolSource, PoolView},
    service::{Balancer, Leftover, Place, ServiceView},
    virtual_ip::{MappingView, VirtualIpView},
};
use crate::{
    index::Index,
    ledger::Claim,
    object::{ObjectKey, Version},
    store::{Change as StoreChange, Source, Store, Watched},
};

mod address;
pub(crate) mod classes;
pub(crate) mod endpoints;
pub(crate) mod keepalived;
pub(crate) mod lean;
mod list;
pub(crate) mod node;
pub(crate) mod pool;
pub(crate) mod service;
mod start;
pub(crate) mod virtual_ip;
pub(crate) mod watch;

pub use self::list::Error as ListError;
pub(crate) use self::{list::list_all, start::watch_all};

/// The labels of a namespace.
pub(crate) type Labels = BTreeMap<String, String>;

/// A kind of objects that is watched, or the part of it that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Claims,
    Services,
    IpGroups,
    /// The `ConfigMap` of kube-vip's cloud provider.
    PoolMap,
    Namespaces,
    Nodes,
    /// Where the API server lists its own addresses.
    ApiServers,
    ServiceRanges,
    VirtualIps,
    Mappings,
    KeepalivedGroups,
    /// Slices of endpoints, which are watched while there is a keepalived group.
    Endpoints,
    /// Objects that are generated for keepalived groups.
    Children(ChildKind),
}

/// An event of a watch.
#[derive(Debug)]
pub(crate) enum News {
    /// Claims, which the ledger keeps.
    Claims(Watched<IpAddr, Claim>),
    Services(Watched<ObjectKey, ServiceView>),
    Pools(PoolSource, Watched<PoolName, Box<PoolView>>),
    Namespaces(Watched<String, Labels>),
    Nodes(Watched<String, Box<NodeView>>),
    ApiServers(Watched<String, Vec<IpAddr>>),
    /// The ranges of `ServiceCIDR`s. Listed before Services.
    ServiceRanges(Watched<String, AddrSet>),
    VirtualIps(Watched<ObjectKey, VirtualIpView>),
    Mappings(Watched<Arc<str>, MappingView>),
    KeepalivedGroups(Watched<ObjectKey, Box<GroupView>>),
    Endpoints(Watched<ObjectKey, SliceView>),
    Children(ChildKind, Watched<ObjectKey, Box<ChildView>>),
}

/// What the answer to one of our own calls shows of a watched object, before the watch does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    Service(Box<ServiceView>),
    /// The Service that was known at this version does not exist.
    NoService(ObjectKey, Version),
    Pool(Box<PoolView>),
    VirtualIp(Box<VirtualIpView>),
    KeepalivedGroup(Box<GroupView>),
    Child(Box<ChildView>),
}

/// A change of the watched objects. To learn the present state, ask the cluster itself.
#[derive(Debug, PartialEq)]
pub(crate) enum Change {
    /// A Service has a newer version, which replaced this one, or it is no longer kept.
    Service(ObjectKey, Option<Box<ServiceView>>),
    /// A Service of which nothing is kept was changed or deleted.
    OtherService(ObjectKey),
    /// Only a live read can tell whether this Service exists.
    ServiceUnsure(ObjectKey),
    Pool(PoolName, Option<Box<PoolView>>),
    Namespace(String, Option<Labels>),
    Node(String, Option<Box<NodeView>>),
    ApiServer(String, Vec<IpAddr>),
    VirtualIp {
        key: ObjectKey,
        old: Option<Box<VirtualIpView>>,
        /// Whether it is gone because its kind is, so that it may come back with its kind.
        lost: bool,
    },
    Mapping(Arc<str>),
    KeepalivedGroup(ObjectKey, Option<Box<GroupView>>),
    /// The endpoints of this Service changed.
    Endpoints(ObjectKey),
    /// An object that is generated for a keepalived group, or has its label.
    Child(ChildKind, ObjectKey),
    /// A list of this kind is complete.
    Listed(Kind),
    /// The pools changed in a way that matters for allocation.
    PoolsSettled,
}

/// The newest known objects, with our own writes that no watch has echoed yet.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) services: Store<ObjectKey, ServiceView>,
    pub(crate) pools: BTreeMap<PoolSource, Store<PoolName, PoolView>>,
    /// Namespaces with their labels.
    pub(crate) namespaces: Store<String, Labels>,
    pub(crate) nodes: Store<String, NodeView>,
    /// Slices of endpoints with addresses of the API server.
    pub(crate) api_servers: Store<String, Vec<IpAddr>>,
    /// The ranges of each `ServiceCIDR`.
    pub(crate) service_ranges: Store<String, AddrSet>,
    pub(crate) virtual_ips: Store<ObjectKey, VirtualIpView>,
    pub(crate) mappings: Store<Arc<str>, MappingView>,
    pub(crate) keepalived_groups: Store<ObjectKey, GroupView>,
    endpoints: Store<ObjectKey, SliceView>,
    /// The slices of each Service.
    slices: Index<ObjectKey, ObjectKey>,
    /// Whether slices of endpoints are watched and have been listed.
    endpoints_known: bool,
    /// Objects with the label of a keepalived group.
    children: BTreeMap<ChildKind, Store<ObjectKey, ChildView>>,
    /// The kinds among them that are not installed, or not watched because there is no group.
    missing_kinds: BTreeSet<ChildKind>,
    /// The kinds among them that are watched and have been listed.
    known_children: BTreeSet<ChildKind>,
    /// Pools in the order in which they are asked; unusable ones come last.
    order: Vec<PoolName>,
    /// Pools that share addresses with other pools, and those others.
    overlaps: BTreeMap<PoolName, BTreeSet<PoolName>>,
    /// Whether any pool publishes addresses in kube-vip's annotation.
    annotates: bool,
    pools_changed: bool,
    /// All ranges from which the cluster gives `ClusterIPs`.
    given_ranges: AddrSet,
    no_labels: Labels,
}

impl Cluster {
    /// Whether a kind has been listed at least once. Claims are the ledger's.
    pub(crate) fn has_listed(&self, kind: Kind) -> bool {
        let pools = |source| self.pools.get(&source).is_some_and(Store::listed);
        match kind {
            Kind::Claims => true,
            Kind::Services => self.services.listed(),
            Kind::IpGroups => pools(PoolSource::IpGroups),
            Kind::PoolMap => pools(PoolSource::ConfigMap),
            Kind::Namespaces => self.namespaces.listed(),
            Kind::Nodes => self.nodes.listed(),
            Kind::ApiServers => self.api_servers.listed(),
            Kind::ServiceRanges => self.service_ranges.listed(),
            Kind::VirtualIps => self.virtual_ips.listed(),
            Kind::Mappings => self.mappings.listed(),
            Kind::KeepalivedGroups => self.keepalived_groups.listed(),
            // They are needed only by groups, and the first group begins the watch.
            Kind::Endpoints => self.endpoints_known || !self.has_groups(),
            Kind::Children(kind) => {
                let is_missing = kind == ChildKind::PodMonitor && !self.has_kind(kind);
                is_missing || self.known_children.contains(&kind) || !self.has_groups()
            }
        }
    }

    fn has_groups(&self) -> bool {
        self.keepalived_groups.keys().next().is_some()
    }

    /// A Service of type `LoadBalancer`.
    pub(crate) fn balancer(&self, key: &ObjectKey) -> Option<&Balancer> {
        self.services.get(key)?.balancer.as_deref()
    }

    /// All Services of type `LoadBalancer`.
    pub(crate) fn balancers(&self) -> impl Iterator<Item = &Balancer> {
        self.services.values().filter_map(|view| view.balancer.as_deref())
    }

    /// A Service with marks that are to be removed, and those marks.
    pub(crate) fn leftover(&self, key: &ObjectKey) -> Option<(&ServiceView, &Leftover)> {
        let view = self.services.get(key)?;
        Some((view, view.leftover.as_deref()?))
    }

    /// An object with the label of a keepalived group.
    pub(crate) fn child(&self, kind: ChildKind, key: &ObjectKey) -> Option<&ChildView> {
        self.children.get(&kind)?.get(key)
    }

    /// The nodes with a ready endpoint of a Service.
    pub(crate) fn nodes_with_endpoint(&self, service: &ObjectKey) -> BTreeSet<&str> {
        let slices = self.slices.of(service).filter_map(|slice| self.endpoints.get(slice));
        slices.flat_map(|slice| &slice.nodes).map(|node| &**node).collect()
    }

    /// Whether objects of a kind can be generated.
    pub(crate) fn has_kind(&self, kind: ChildKind) -> bool {
        !self.missing_kinds.contains(&kind)
    }

    /// Pools in the order in which they are asked.
    pub(crate) fn pools_in_order(&self) -> impl Iterator<Item = &PoolView> {
        self.order.iter().filter_map(|name| self.pool(name))
    }

    /// The names of all pools, in the order in which they are asked.
    pub(crate) fn pool_names(&self) -> &[PoolName] {
        &self.order
    }

    pub(crate) fn pool(&self, name: &PoolName) -> Option<&PoolView> {
        self.pools.values().find_map(|pools| pools.get(name))
    }

    pub(crate) fn all_pools(&self) -> impl Iterator<Item = &PoolView> {
        self.pools.values().flat_map(Store::values)
    }

    /// Other pools that share addresses with this one.
    pub(crate) fn overlapping(&self, name: &PoolName) -> Option<&BTreeSet<PoolName>> {
        self.overlaps.get(name)
    }

    /// Whether any pool publishes addresses in kube-vip's annotation.
    pub(crate) const fn annotates(&self) -> bool {
        self.annotates
    }

    /// The ranges from which the cluster gives `ClusterIPs`.
    pub(crate) const fn cluster_ips(&self) -> &AddrSet {
        &self.given_ranges
    }

    pub(crate) fn namespace_labels(&self, namespace: &str) -> &Labels {
        self.namespaces.get(&namespace.to_owned()).unwrap_or(&self.no_labels)
    }

    /// Whether a pool serves objects of a namespace.
    pub(crate) fn serves_namespace(&self, pool: &PoolView, namespace: &str) -> Result<(), Verdict> {
        if pool.scope.as_ref().is_some_and(|scope| !scope.includes(namespace)) {
            return Err(Verdict::OfOtherNamespaces);
        }
        let labels = self.namespace_labels(namespace);
        if pool.namespaces.as_ref().is_some_and(|selector| !selector.matches(labels)) {
            return Err(Verdict::OtherNamespaces);
        }
        Ok(())
    }

    /// How many addresses of a pool a namespace may hold; `None` is no limit.
    pub(crate) fn limit_of(&self, pool: &PoolName, namespace: &str) -> Option<u32> {
        let limit = self.pool(pool)?.quota.as_ref()?.of(namespace)?;
        Some(u32::try_from(limit).unwrap_or_default())
    }

    /// Takes in an event of a watch.
    pub(crate) fn observe(&mut self, news: News) -> Vec<Change> {
        match news {
            News::Claims(_) => Vec::new(),
            News::Services(watched) => self.observe_service(watched),
            News::Pools(source, watched) => {
                let kind = match source {
                    PoolSource::IpGroups => Kind::IpGroups,
                    PoolSource::ConfigMap => Kind::PoolMap,
                };
                let pools = self.pools.entry(source).or_default();
                let changes = pools.observe_only(watched.map(|view| *view));
                let put = |name, old: Option<PoolView>| Change::Pool(name, old.map(Box::new));
                let changes = translated(changes, kind, put);
                self.note_pools(&changes);
                changes
            }
            News::Namespaces(watched) => {
                let changes = self.namespaces.observe_only(watched);
                translated(changes, Kind::Namespaces, Change::Namespace)
            }
            News::Nodes(watched) => {
                let changes = self.nodes.observe_only(watched.map(|view| *view));
                let put = |name, old: Option<_>| Change::Node(name, old.map(Box::new));
                translated(changes, Kind::Nodes, put)
            }
            News::ApiServers(watched) => {
                let changes = self.api_servers.observe_only(watched);
                let put = |name, old: Option<_>| Change::ApiServer(name, old.unwrap_or_default());
                translated(changes, Kind::ApiServers, put)
            }
            News::ServiceRanges(watched) => {
                let ranges = self.service_ranges.observe_only(watched);
                let changed = ranges.iter().any(|change| match change {
                    StoreChange::Put(name, old) => old.as_ref() != self.service_ranges.get(name),
                    StoreChange::Left(..) => true,
                    StoreChange::Unsure(_) | StoreChange::Listed => false,
                });
                if changed {
                    let ranges = self.service_ranges.values();
                    self.given_ranges = ranges.fold(AddrSet::new(), |all, one| all.union(one));
                    self.pools_changed = true;
                }
                let listed = ranges.contains(&StoreChange::Listed);
                listed.then_some(Change::Listed(Kind::ServiceRanges)).into_iter().collect()
            }
            News::VirtualIps(watched) => {
                let lost = matches!(watched, Watched::Unserved);
                let changes = self.virtual_ips.observe_only(watched);
                let put =
                    |key, old: Option<_>| Change::VirtualIp { key, old: old.map(Box::new), lost };
                translated(changes, Kind::VirtualIps, put)
            }
            News::Mappings(watched) => {
                let changes = self.mappings.observe_only(watched);
                translated(changes, Kind::Mappings, |name, _| Change::Mapping(name))
            }
            News::KeepalivedGroups(watched) => {
                let changes = self.keepalived_groups.observe_only(watched.map(|view| *view));
                let put = |key, old: Option<_>| Change::KeepalivedGroup(key, old.map(Box::new));
                translated(changes, Kind::KeepalivedGroups, put)
            }
            News::Endpoints(watched) => self.observe_endpoints(watched),
            News::Children(kind, watched) => {
                match &watched {
                    Watched::Unserved => {
                        self.known_children.remove(&kind);
                        self.missing_kinds.insert(kind);
                    }
                    Watched::ListBegins => drop(self.missing_kinds.remove(&kind)),
                    Watched::ListEnds => drop(self.known_children.insert(kind)),
                    Watched::Present(..) | Watched::Gone(..) => {}
                }
                let children = self.children.entry(kind).or_default();
                let changes = children.observe_only(watched.map(|view| *view));
                translated(changes, Kind::Children(kind), |key, _| Change::Child(kind, key))
            }
        }
    }

    fn observe_service(&mut self, watched: Watched<ObjectKey, ServiceView>) -> Vec<Change> {
        let needed = |view| Some(self.in_need(view)).filter(|view| !view.is_empty());
        let watched = watched.filter_map(needed);
        let gone = if let Watched::Gone(key, _) = &watched { Some(key.clone()) } else { None };
        let changes = self.services.observe_only(watched);
        if let Some(key) = gone.filter(|_| changes.is_empty()) {
            return vec![Change::OtherService(key)];
        }
        let unsure = changes.iter().filter_map(|change| match change {
            StoreChange::Unsure(key) => Some(Change::ServiceUnsure(key.clone())),
            StoreChange::Put(..) | StoreChange::Left(..) | StoreChange::Listed => None,
        });
        let unsure: Vec<_> = unsure.collect();
        let changes = translated(changes, Kind::Services, service_put);
        unsure.into_iter().chain(changes).collect()
    }

    fn observe_endpoints(&mut self, watched: Watched<ObjectKey, SliceView>) -> Vec<Change> {
        match &watched {
            Watched::Unserved => self.endpoints_known = false,
            Watched::ListEnds => self.endpoints_known = true,
            Watched::ListBegins | Watched::Present(..) | Watched::Gone(..) => {}
        }
        let mut concerned = BTreeSet::new();
        let mut changes = Vec::new();
        for change in self.endpoints.observe_only(watched) {
            let (key, old) = match change {
                StoreChange::Put(key, old) => (key, old),
                StoreChange::Left(key, old) => (key, Some(old)),
                StoreChange::Unsure(_) => continue,
                StoreChange::Listed => {
                    changes.push(Change::Listed(Kind::Endpoints));
                    continue;
                }
            };
            let new = self.endpoints.get(&key);
            let service = |view: Option<&SliceView>| view.and_then(|view| view.service.clone());
            let (before, after) = (service(old.as_ref()), service(new));
            let same_nodes = new.zip(old.as_ref()).is_some_and(|(new, old)| new.nodes == old.nodes);
            if before == after && same_nodes {
                continue;
            }
            if let Some(service) = before {
                self.slices.remove(&service, &key);
                concerned.insert(service);
            }
            if let Some(service) = after {
                self.slices.insert(service.clone(), key);
                concerned.insert(service);
            }
        }
        concerned.into_iter().map(Change::Endpoints).chain(changes).collect()
    }

    /// The view without `ClusterIPs` that a `ServiceCIDR` covers: its range keeps them from being
    /// given, at no cost per Service, and the API server keeps the range while a `ClusterIP` is in it.
    fn in_need(&self, mut view: ServiceView) -> ServiceView {
        view.cluster_ips.retain(|addr| !self.given_ranges.contains(*addr));
        view
    }

    /// Takes in what the answer to one of our own calls shows.
    ///
    /// An object that is no longer known was removed by newer news. If it is back, the watch will show
    /// it.
    pub(crate) fn learn(&mut self, seen: Seen) -> Vec<Change> {
        let change = match seen {
            Seen::Service(view) => {
                if self.services.get(&view.key).is_none() {
                    return Vec::new();
                }
                let view = self.in_need(*view);
                let (key, version) = (view.key.clone(), view.version);
                if view.is_empty() {
                    let old = self.services.left(&key, version);
                    old.map(|old| service_put(key, Some(old)))
                } else {
                    let put = self.services.put(key.clone(), version, view, Source::Own);
                    put.then(|old| service_put(key, old))
                }
            }
            Seen::NoService(key, version) => {
                let old = self.services.deleted(&key, version);
                old.map(|old| service_put(key, Some(old)))
            }
            Seen::Pool(view) => {
                let Some(pools) = self.pools.get_mut(&view.source) else { return Vec::new() };
                if pools.get(&view.name).is_none() {
                    return Vec::new();
                }
                let (name, version) = (view.name.clone(), view.version);
                let put = pools.put(name.clone(), version, *view, Source::Own);
                put.then(|old| Change::Pool(name, old.map(Box::new)))
            }
            Seen::VirtualIp(view) => {
                if self.virtual_ips.get(&view.key).is_none() {
                    return Vec::new();
                }
                let (key, version) = (view.key.clone(), view.version);
                let put = self.virtual_ips.put(key.clone(), version, *view, Source::Own);
                let change = |old: Option<VirtualIpView>| Change::VirtualIp {
                    key,
                    old: old.map(Box::new),
                    lost: false,
                };
                put.then(change)
            }
            Seen::KeepalivedGroup(view) => {
                if self.keepalived_groups.get(&view.key).is_none() {
                    return Vec::new();
                }
                let (key, version) = (view.key.clone(), view.version);
                let put = self.keepalived_groups.put(key.clone(), version, *view, Source::Own);
                put.then(|old| Change::KeepalivedGroup(key, old.map(Box::new)))
            }
            Seen::Child(view) => {
                let (kind, key, version) = (view.kind, view.key.clone(), view.version);
                let children = self.children.entry(kind).or_default();
                let put = children.put(key.clone(), version, *view, Source::Own);
                put.then(|_| Change::Child(kind, key))
            }
        };
        let changes: Vec<_> = change.into_iter().collect();
        self.note_pools(&changes);
        changes
    }

    /// Notes whether pools changed in a way that matters. Our own status writes do not.
    fn note_pools(&mut self, changes: &[Change]) {
        for change in changes {
            let Change::Pool(name, old) = change else { continue };
            let same = self.pool(name).zip(old.as_deref());
            self.pools_changed |= !same.is_some_and(|(new, old)| new.is_same_as(old));
        }
    }

    /// Whether pools changed since the last call.
    pub(crate) fn take_pools_changed(&mut self) -> bool {
        std::mem::take(&mut self.pools_changed)
    }

    /// The pools that can give addresses.
    pub(crate) fn usable_pools(&self) -> Vec<Pool> {
        self.all_pools().filter_map(|view| view.pool.as_ref().ok()).cloned().collect()
    }

    /// Sets the order of pools: by rank, else as in the book, and unusable ones last.
    pub(crate) fn set_order<'a>(
        &mut self,
        usable: impl Iterator<Item = &'a Pool>,
        overlaps: BTreeMap<PoolName, BTreeSet<PoolName>>,
    ) {
        let invalid = self.all_pools().filter(|view| view.pool.is_err());
        let invalid: Vec<_> = invalid.map(|view| view.name.clone()).collect();
        let mut order: Vec<_> = usable.map(|pool| pool.name.clone()).chain(invalid).collect();
        order.sort_by_key(|name| self.pool(name).map(|view| view.rank));
        (self.order, self.overlaps) = (order, overlaps);
        let annotates = self.all_pools().any(|view| view.place == Place::Annotation);
        self.annotates = annotates;
    }
}

fn service_put(key: ObjectKey, old: Option<ServiceView>) -> Change {
    Change::Service(key, old.map(Box::new))
}

/// The changes of a store, as changes of the cluster.
fn translated<K, V>(
    changes: Vec<StoreChange<K, V>>,
    kind: Kind,
    put: impl Fn(K, Option<V>) -> Change,
) -> Vec<Change> {
    let translate = |change| match change {
        StoreChange::Put(key, old) => Some(put(key, old)),
        StoreChange::Left(key, old) => Some(put(key, Some(old))),
        StoreChange::Unsure(_) => None,
        StoreChange::Listed => Some(Change::Listed(kind)),
    };
    changes.into_iter().filter_map(translate).collect()
}

#[cfg(test)]
mod tests;
