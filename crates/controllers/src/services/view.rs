//! What the planner knows of the cluster: small views of our own types.

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

/// What a Service asks for beyond "an address".
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) enum Request {
    /// Any address will do.
    #[default]
    Any,
    /// Exactly these, at most one per family.
    Addresses(Vec<IpAddr>),
    /// Something that cannot be granted whatever the pools say.
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

    /// Whether it leaves it to nobody else which address of the family it is.
    pub(crate) fn is_about(&self, family: Family) -> bool {
        matches!(self, Self::Bad(_)) || self.of(family).is_some()
    }
}

/// Where a Service shows its addresses, for whoever announces them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// `.status.loadBalancer.ingress`.
    #[default]
    Status,
    /// The annotation that kube-vip reads. The status is kube-vip's, and the annotation is its
    /// user's as much as ours: what stands there is announced, whoever wrote it.
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
    /// One of the latter that it does not want: `ipFamilyPolicy: SingleStack` says so.
    pub extra_family: Option<Family>,
    /// `ipFamilyPolicy: RequireDualStack`: all families or nothing.
    pub require_all: bool,
    pub request: Request,
    /// Whether its request stands in the spec alone and contradicts what it shows, which its user may
    /// have written as well.
    pub spec_contradicts_annotation: bool,
    /// Pools it asks for, in order; any will do if it names none.
    pub pools: Option<Vec<PoolName>>,
    /// Whether it names them in the words of a program that ran before us: then they are where it gets
    /// an address, and no reason to move one that it has.
    pub pools_left: bool,
    /// Its `spec.externalIPs`.
    pub external: Vec<IpAddr>,
    /// On which terms it would share an address; `None` if with no other Service.
    pub terms: Option<Arc<Terms>>,
    /// Whether its sharing key is of a program for which the key alone meant every namespace.
    pub meant_all: bool,
    /// The same where its namespace lets all its Services share.
    pub terms_by_map: Arc<Terms>,
    pub labels: BTreeMap<String, String>,
    /// Where it shows addresses; the status, as long as it shows none.
    pub place: Place,
    /// The addresses it shows there, in order. In an annotation they are a request as long as neither
    /// a claim nor the status has them: its user may have written them.
    pub shows: Vec<IpAddr>,
    /// The addresses in its status, where it shows its own in an annotation.
    pub announced: Vec<IpAddr>,
    /// Whether its status holds something that is no address, such as another's host name.
    pub ingress_has_hostname: bool,
    /// Whether what goes with its addresses is missing beside them, such as a label.
    pub label_missing: bool,
    /// Whether what stands in the place is its user's to mend before anybody writes there.
    pub annotation_unreadable: bool,
    /// A place that its user does not want it shown in.
    pub opts_out_of: Option<Place>,
    /// All its conditions, ours among them.
    pub conditions: Vec<Condition>,
    /// What it is where the annotation it carries means nothing.
    pub plain: Option<Box<Plain>>,
}

/// What a Service is where kube-vip's annotation means nothing, as far as that differs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plain {
    pub families: Vec<Family>,
    pub request: Request,
    pub ingress_has_hostname: bool,
    /// Whether it bears the label that goes with the annotation.
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

    /// The Service where kube-vip's annotation means nothing.
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

    /// Those of the addresses it shows that are among these, in its own order.
    pub(crate) fn shown_of(&self, addrs: &[IpAddr]) -> Vec<IpAddr> {
        self.shows.iter().copied().filter(|shown| addrs.contains(shown)).collect()
    }
}

/// A Service, of any type, that carries what a replaced operator left behind, or what we wrote on it
/// when it was of type `LoadBalancer`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Leftover {
    pub uid: Arc<str>,
    pub version: Version,
    pub deleting: bool,
    /// Its finalizers without those of replaced operators, if it has any of theirs.
    pub finalizers: Option<Vec<String>>,
    /// Whether it shows addresses in an annotation though it is no `LoadBalancer` any more.
    pub marked: bool,
    /// Its conditions without ours, if it has ours and is no `LoadBalancer` any more.
    pub conditions: Option<Vec<Condition>>,
    /// Set if a finalizer among them is one that many operators use.
    pub finalizer_owner: Option<FinalizerOwner>,
}

/// Whose a finalizer may be that many operators use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FinalizerOwner {
    /// Who may have set it.
    pub setter: Setter,
    /// Whether the Service tells otherwise that it was served the way we do.
    pub evident: bool,
}

/// Who may have set a finalizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Setter {
    /// Whoever serves Services of this class.
    Class(Option<Arc<str>>),
    /// Whoever served it before: it is no `LoadBalancer` any more, and bears no class.
    Former,
}

/// The watches that tell of pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PoolSource {
    IpGroups,
    /// Keys of the `ConfigMap` of kube-vip's cloud provider.
    ConfigMap,
}

impl PoolSource {
    pub(crate) const ALL: [Self; 2] = [Self::IpGroups, Self::ConfigMap];
}

/// Which pools are asked for a Service that names none: those of the first rank in which one is
/// meant for it, and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Meant for its namespace alone.
    OfNamespace,
    Usual,
    /// For whoever is left.
    Fallback,
    /// For nobody who does not name it.
    OnRequest,
}

/// A pool: its addresses and whom it serves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PoolView {
    pub name: PoolName,
    pub source: PoolSource,
    /// The object's own name, without its kind.
    pub object: Arc<str>,
    pub uid: Arc<str>,
    pub version: Version,
    pub generation: Option<i64>,
    /// The pool, or what is wrong with it, part by part.
    pub pool: Result<Pool, Vec<String>>,
    pub namespaces: Option<Selector>,
    /// Namespaces by name, where a pool names them.
    pub scope: Option<Scope>,
    pub services: Option<Selector>,
    pub classes: Classes,
    pub rank: Rank,
    /// Whether those for whom it is meant are served from pools of a later rank if it gives nothing.
    /// These show addresses in the same place as it does: nobody changes who announces him because
    /// a pool is full.
    pub falls_back: bool,
    /// Where those that it serves show their addresses.
    pub place: Place,
    /// Which families it leaves to DHCP.
    pub leases: Leases,
    /// The network interface on which its addresses are announced, whoever gets them; an empty name
    /// leaves that to whoever announces. Without one it is that of the namespace.
    pub own_interface: Option<Arc<str>>,
    /// What else its `ConfigMap` says.
    pub map: Option<Arc<PoolMap>>,
    pub quota: Option<Quota>,
    /// How long the address of a deleted Service waits for it.
    pub retain_for: Option<Duration>,
    /// Fields that are set but that this version does not act on.
    pub ignored: Vec<&'static str>,
    /// Its ranges in a few words, unless its `segment` is all there is.
    pub ranges: Option<String>,
    /// Entries of its lists that cannot be read, and count for nothing.
    pub unreadable: Vec<String>,
    /// What in its words is not as it was meant, though it can be used.
    pub warnings: Vec<String>,
    /// What its status says now, if it has one.
    pub status: Option<IPGroupStatus>,
}

impl PoolView {
    /// A pool without addresses that serves everybody.
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

    /// Whether it gives the same addresses to the same Services as this one. A change of status alone
    /// keeps the generation; a pool without one is compared.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        match (self.generation, other.generation) {
            (Some(one), Some(another)) => self.uid == other.uid && one == another,
            (None, None) => *self == Self { version: self.version, ..other.clone() },
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// Whether an address is one of its own.
    pub(crate) fn covers(&self, addr: IpAddr) -> bool {
        self.pool.as_ref().is_ok_and(|pool| pool.contains(addr))
    }

    /// The network interface on which addresses are announced that it gave to a namespace.
    pub(crate) fn interface(&self, namespace: &str) -> Option<&str> {
        match &self.own_interface {
            Some(own) => Some(own.as_ref()).filter(|name| !name.is_empty()),
            None => self.map.as_ref()?.interface(namespace),
        }
    }
}

/// The watches that tell of foreign addresses.
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
