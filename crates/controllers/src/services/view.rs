//! Small views of Services and pools, with only what the planner needs.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::Selector;
use landfall_api::{
    IPGroupStatus, Quota,
    kube_vip::{Leases, PoolMap, Scope},
};
use landfall_ipam::{Family, Pool, PoolName, Refusal, Terms};

use super::classes::Classes;
use crate::object::{ObjectKey, Version};

/// The addresses that a Service asks for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) enum Request {
    /// Any address will do.
    #[default]
    Any,
    /// Exactly these, at most one per family.
    Addresses(Vec<IpAddr>),
    /// A request that no pool could grant.
    Bad(Refusal),
}

impl From<Vec<IpAddr>> for Request {
    fn from(addrs: Vec<IpAddr>) -> Self {
        if addrs.is_empty() { Self::Any } else { Self::Addresses(addrs) }
    }
}

impl Request {
    /// The asked-for address of a family.
    pub(crate) fn of(&self, family: Family) -> Option<IpAddr> {
        match self {
            Self::Addresses(addrs) => {
                addrs.iter().copied().find(|addr| Family::of(*addr) == family)
            }
            Self::Any | Self::Bad(_) => None,
        }
    }

    /// Whether it determines the address of the family.
    pub(crate) fn is_about(&self, family: Family) -> bool {
        matches!(self, Self::Bad(_)) || self.of(family).is_some()
    }
}

/// Where a Service shows its addresses, for the program that announces them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// `.status.loadBalancer.ingress`.
    #[default]
    Status,
    /// The annotation that kube-vip reads. The status is kube-vip's, and users write the annotation as
    /// well as we do: kube-vip announces its content, whoever wrote it.
    Annotation,
}

/// A Service of type `LoadBalancer`: the minimum the planner needs of it.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "as many as a Service can say")]
pub(crate) struct ServiceView {
    pub key: ObjectKey,
    pub uid: Arc<str>,
    pub version: Version,
    pub created: Timestamp,
    pub deleting: bool,
    pub class: Option<Arc<str>>,
    /// The families it has, in its own order, and those of addresses in its annotation.
    pub families: Vec<Family>,
    /// One of the latter that it does not want, by `ipFamilyPolicy: SingleStack`.
    pub extra_family: Option<Family>,
    /// `ipFamilyPolicy: RequireDualStack`: all families or nothing.
    pub require_all: bool,
    pub request: Request,
    /// Whether its request is in the spec alone and contradicts the addresses it shows, which its user
    /// may have written as well.
    pub spec_contradicts_annotation: bool,
    /// Pools it asks for, in order; any will do if it names none.
    pub pools: Option<Vec<PoolName>>,
    /// Whether it names them by the keys of a program that ran before us: then they decide where it
    /// gets an address, and are no reason to move one that it has.
    pub pools_left: bool,
    /// Its `spec.externalIPs`.
    pub external: Vec<IpAddr>,
    /// The terms on which it would share an address; `None` if it would not.
    pub terms: Option<Arc<Terms>>,
    /// Whether its sharing key is that of a program for which the key alone meant every namespace.
    pub meant_all: bool,
    /// Its terms where its namespace lets all its Services share.
    pub terms_by_map: Arc<Terms>,
    pub labels: BTreeMap<String, String>,
    /// Where it shows addresses; the status if it shows none.
    pub place: Place,
    /// The addresses it shows there, in order. In an annotation they are a request while neither a
    /// claim nor the status has them: its user may have written them.
    pub shows: Vec<IpAddr>,
    /// The addresses in its status, if it shows its own in an annotation.
    pub announced: Vec<IpAddr>,
    /// Whether its status contains an entry that is no address, such as a host name of another program.
    pub ingress_has_hostname: bool,
    /// Whether the label that goes with its addresses is missing or outdated.
    pub label_missing: bool,
    /// Whether its annotation is unreadable, so that its user must correct it before any write.
    pub annotation_unreadable: bool,
    /// A place in which its user does not want addresses published.
    pub opts_out_of: Option<Place>,
    /// All its conditions, ours among them.
    pub conditions: Vec<Condition>,
    /// Its view without kube-vip's annotation, if it has one.
    pub plain: Option<Box<Plain>>,
}

/// The fields of a Service that differ where kube-vip's annotation is ignored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plain {
    pub families: Vec<Family>,
    pub request: Request,
    pub ingress_has_hostname: bool,
    /// Whether it has the label that goes with the annotation.
    pub marked: bool,
}

impl ServiceView {
    /// The addresses in its status, which no user can write.
    pub(crate) fn in_status(&self) -> &[IpAddr] {
        match self.place {
            Place::Status => &self.shows,
            Place::Annotation => &self.announced,
        }
    }

    /// The Service as seen where kube-vip's annotation is ignored.
    pub(crate) fn without_annotation(mut self) -> Self {
        let Some(plain) = self.plain.take() else { return self };
        let Plain { families, request, ingress_has_hostname, marked: _ } = *plain;
        let shows = std::mem::take(&mut self.announced);
        Self {
            families,
            request,
            shows,
            ingress_has_hostname,
            place: Place::Status,
            extra_family: None,
            spec_contradicts_annotation: false,
            label_missing: false,
            annotation_unreadable: false,
            ..self
        }
    }

    /// The shown addresses that are among these, in the Service's own order.
    pub(crate) fn shown_of(&self, addrs: &[IpAddr]) -> Vec<IpAddr> {
        self.shows.iter().copied().filter(|shown| addrs.contains(shown)).collect()
    }
}

/// A Service, of any type, with marks that a replaced operator left, or that we wrote when it was of
/// type `LoadBalancer`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Leftover {
    pub uid: Arc<str>,
    pub version: Version,
    pub deleting: bool,
    /// The other finalizers, if it has any of a replaced operator.
    pub finalizers: Option<Vec<String>>,
    /// Whether it shows addresses in an annotation though it is no longer a `LoadBalancer`.
    pub marked: bool,
    /// Its other conditions, if it has ours and is no longer a `LoadBalancer`.
    pub conditions: Option<Vec<Condition>>,
    /// Set if the finalizer to remove is one that many operators use.
    pub finalizer_owner: Option<FinalizerOwner>,
}

/// The possible owner of a finalizer that many operators use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FinalizerOwner {
    /// The program that may have set it.
    pub setter: Setter,
    /// Whether other marks on the Service show that an operator like ours served it.
    pub evident: bool,
}

/// The program that may have set a finalizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Setter {
    /// The one that serves Services of this class.
    Class(Option<Arc<str>>),
    /// The one that served it before: it is no longer a `LoadBalancer` and has no class.
    Former,
}

/// The watches that pools come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PoolSource {
    IpGroups,
    /// Keys of the `ConfigMap` of kube-vip's cloud provider.
    ConfigMap,
}

impl PoolSource {
    pub(crate) const ALL: [Self; 2] = [Self::IpGroups, Self::ConfigMap];
}

/// Which pools are asked for a Service that names none: those of the first rank in which a pool is
/// meant for it, and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Meant for its namespace alone.
    OfNamespace,
    Usual,
    /// For Services that no earlier rank serves.
    Fallback,
    /// Only for Services that name it.
    OnRequest,
}

/// A pool: its addresses and the Services it serves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PoolView {
    pub name: PoolName,
    pub source: PoolSource,
    /// The object's own name, without its kind.
    pub object: Arc<str>,
    pub uid: Arc<str>,
    pub version: Version,
    pub generation: Option<i64>,
    /// The pool, or its errors, one per part.
    pub pool: Result<Pool, Vec<String>>,
    pub namespaces: Option<Selector>,
    /// The namespaces that it names, if it does.
    pub scope: Option<Scope>,
    pub services: Option<Selector>,
    pub classes: Classes,
    pub rank: Rank,
    /// Whether Services that it is meant for are served from pools of a later rank if it gives nothing.
    /// Those pools publish in the same place: a full pool must not change which program announces.
    pub falls_back: bool,
    /// Where addresses are published on the Services that it serves.
    pub place: Place,
    /// Which families it leaves to DHCP.
    pub leases: Leases,
    /// The network interface on which its addresses are announced; an empty name leaves the choice to
    /// the announcing program. `None` means that of the namespace.
    pub own_interface: Option<Arc<str>>,
    /// The other settings of its `ConfigMap`.
    pub map: Option<Arc<PoolMap>>,
    pub quota: Option<Quota>,
    /// How long the address of a deleted Service waits for a new Service of its name.
    pub retain_for: Option<Duration>,
    /// Fields that are set and that this version ignores.
    pub ignored: Vec<&'static str>,
    /// A short form of its ranges, unless `segment` is all there is.
    pub ranges: Option<String>,
    /// Entries of its lists that cannot be read and are ignored.
    pub unreadable: Vec<String>,
    /// Parts of its definition that are probably mistakes, though it is usable.
    pub warnings: Vec<String>,
    /// Its current status, if it has one.
    pub status: Option<IPGroupStatus>,
}

impl PoolView {
    /// A pool without addresses that serves every Service.
    pub(crate) fn empty(
        name: PoolName,
        source: PoolSource,
        object: Arc<str>,
        uid: Arc<str>,
    ) -> Self {
        Self {
            name,
            source,
            object,
            uid,
            version: Version::default(),
            generation: None,
            pool: Err(Vec::new()),
            namespaces: None,
            scope: None,
            services: None,
            classes: Classes::default(),
            rank: Rank::Usual,
            falls_back: false,
            place: Place::Status,
            leases: Leases::No,
            own_interface: None,
            map: None,
            quota: None,
            retain_for: None,
            ignored: Vec::new(),
            ranges: None,
            unreadable: Vec::new(),
            warnings: Vec::new(),
            status: None,
        }
    }

    /// Whether it gives the same addresses to the same Services as the other. A status write keeps the
    /// generation; pools without a generation are compared.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        match (self.generation, other.generation) {
            (Some(one), Some(another)) => self.uid == other.uid && one == another,
            (None, None) => *self == Self { version: self.version, ..other.clone() },
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// Whether it contains an address.
    pub(crate) fn covers(&self, addr: IpAddr) -> bool {
        self.pool.as_ref().is_ok_and(|pool| pool.contains(addr))
    }

    /// The network interface for the addresses that it gives to a namespace.
    pub(crate) fn interface(&self, namespace: &str) -> Option<&str> {
        match &self.own_interface {
            Some(own) => Some(own.as_ref()).filter(|name| !name.is_empty()),
            None => self.map.as_ref()?.interface(namespace),
        }
    }
}

/// The watches that foreign addresses come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ForeignKind {
    Nodes,
    ApiServers,
    ExternalIps,
    VirtualIps,
    ClusterIps,
}

impl ForeignKind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Nodes, Self::ApiServers, Self::ExternalIps, Self::VirtualIps, Self::ClusterIps];
}
