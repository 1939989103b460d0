//! One view per Service, with a facet for each thing that a planner may need of it.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use landfall_api::HolderKind;
use landfall_ipam::{Family, PoolName, Refusal, Terms};

pub(crate) use self::read::{balancer, read};
use crate::{
    cluster::keepalived::Announceable,
    ledger::HolderEntry,
    object::{ObjectKey, Version},
};

mod kube_vip;
mod read;
mod request;
#[cfg(test)]
mod tests;

/// A Service, of any type. One without any facet is not kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServiceView {
    pub key: ObjectKey,
    pub uid: Arc<str>,
    pub version: Version,
    pub deleting: bool,
    /// Set if it is of type `LoadBalancer`.
    pub balancer: Option<Box<Balancer>>,
    /// Its `spec.externalIPs`.
    pub external: Vec<IpAddr>,
    /// Its `ClusterIPs`, except those in the range of a `ServiceCIDR`.
    pub cluster_ips: Vec<IpAddr>,
    /// Marks that replaced operators left on it, or we when it was of type `LoadBalancer`.
    pub leftover: Option<Box<Leftover>>,
    /// Whether its traffic stays on the node that it arrives at.
    pub local_traffic: bool,
    /// Set if it asks a keepalived group to announce it, and could have addresses.
    pub announceable: Option<Box<Announceable>>,
}

impl ServiceView {
    /// Whether no planner needs anything of it.
    pub(crate) const fn is_empty(&self) -> bool {
        self.balancer.is_none()
            && self.external.is_empty()
            && self.cluster_ips.is_empty()
            && self.leftover.is_none()
            && self.announceable.is_none()
    }

    /// All its conditions, as far as a planner needs them.
    pub(crate) fn conditions(&self) -> &[Condition] {
        let of_balancer = self.balancer.as_ref().map(|balancer| balancer.conditions.as_slice());
        let of_others = || self.announceable.as_ref().map(|asked| asked.conditions.as_slice());
        of_balancer.or_else(of_others).unwrap_or_default()
    }

    /// The addresses in its status, which no user can write. Only one of type `LoadBalancer` has any.
    pub(crate) fn in_status(&self) -> &[IpAddr] {
        self.balancer.as_ref().map(|balancer| balancer.in_status()).unwrap_or_default()
    }
}

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
    /// well as we do: kube-vip announces its content in either case.
    Annotation,
}

/// A Service of type `LoadBalancer`: the minimum that allocation needs of it.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "as many as a Service can say")]
pub(crate) struct Balancer {
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

impl Balancer {
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

    /// The entry that names it in a claim, as it is known now.
    pub(crate) fn holder_entry(&self) -> HolderEntry {
        HolderEntry {
            uid: Some(self.uid.clone()),
            class: self.class.clone(),
            seen: Some(self.version),
            terms: self.terms.clone(),
            asked_pools: self.pools.clone().filter(|_| !self.pools_left).unwrap_or_default(),
            ..HolderEntry::new(HolderKind::Service, self.key.clone())
        }
    }

    /// The shown addresses that are among these, in the Service's own order.
    pub(crate) fn shown_of(&self, addrs: &[IpAddr]) -> Vec<IpAddr> {
        self.shows.iter().copied().filter(|shown| addrs.contains(shown)).collect()
    }
}

/// The marks on a Service of any type that a replaced operator left, or that we wrote when it was of type
/// `LoadBalancer`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Leftover {
    /// The other finalizers, if it has any of a replaced operator.
    pub finalizers: Option<Vec<String>>,
    /// Whether it shows addresses in an annotation though it is no longer a `LoadBalancer`.
    pub marked: bool,
    /// Its other conditions, if it has one of ours that says nothing of it any more.
    pub conditions: Option<Vec<Condition>>,
    /// Set if the finalizer to remove is one that many operators use.
    pub finalizer_owner: Option<FinalizerOwner>,
}

/// The possible owner of a finalizer that many operators use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FinalizerOwner {
    /// The program that may have set it.
    pub setter: Setter,
    /// Whether other marks on the Service show that an operator like ours served it.
    pub evident: bool,
}

/// The program that may have set a finalizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Setter {
    /// The one that serves Services of this class.
    Class(Option<Arc<str>>),
    /// The one that served it before: it is no longer a `LoadBalancer` and has no class.
    Former,
}
