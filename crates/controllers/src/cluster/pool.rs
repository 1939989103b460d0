//! Pools: one view for all sources, and how an `IPGroup` is read.

use std::{net::IpAddr, sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{DeserializeGuard, Selector};
use landfall_api::{
    IPGroup, IPGroupSpec, IPGroupStatus, Quota, convert,
    kube_vip::{Leases, PoolMap, Scope},
};
use landfall_ipam::{Pool, PoolName};

use super::{classes::Classes, service::Place};
use crate::{
    ledger::object::IPGROUP,
    object::{ObjectKey, Version, uid},
};

pub(crate) mod map;
#[cfg(test)]
mod tests;

/// The watches that pools come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PoolSource {
    IpGroups,
    /// Keys of the `ConfigMap` of kube-vip's cloud provider.
    ConfigMap,
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
    /// The keepalived group that announces the Services it serves.
    pub announce: Option<ObjectKey>,
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
            announce: None,
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

/// An `IPGroup`. Its errors are kept, one per part, for its condition.
pub(crate) fn read(object: &DeserializeGuard<IPGroup>) -> PoolView {
    let metadata = match &object.0 {
        Ok(group) => &group.metadata,
        Err(invalid) => &invalid.metadata,
    };
    let object_name = metadata.name.as_deref().unwrap_or_default().into();
    let name = PoolName::new(&format!("{IPGROUP}/{object_name}"));
    let mut view = PoolView::empty(name.clone(), PoolSource::IpGroups, object_name, uid(metadata));
    view.version = Version::of(metadata);
    view.status = Some(IPGroupStatus::default());
    view.generation = metadata.generation;
    match &object.0 {
        Err(invalid) => view.pool = Err(vec![invalid.error.clone()]),
        Ok(group) => {
            let mut problems = Vec::new();
            let read = convert::pool(name, &group.spec).map_err(|error| problems = error).ok();
            view.namespaces = selector(
                "namespaceSelector",
                group.spec.namespace_selector.as_ref(),
                &mut problems,
            );
            view.services =
                selector("serviceSelector", group.spec.service_selector.as_ref(), &mut problems);
            match group.spec.retain_for() {
                Ok(time) => view.retain_for = time,
                Err(error) => problems.push(error.to_string()),
            }
            view.pool = match read {
                Some(read) if problems.is_empty() => {
                    (view.unreadable, view.warnings) = (read.unreadable, read.warnings);
                    Ok(read.pool)
                }
                Some(_) | None => Err(problems),
            };
            view.classes = Classes::only(group.spec.load_balancer_class.as_deref());
            view.quota.clone_from(&group.spec.quota);
            view.announce = announce(&group.spec);
            view.ranges = ranges_in_short(&group.spec.ranges);
            view.status = Some(group.status.clone().unwrap_or_default());
        }
    }
    view
}

fn selector(
    field: &str,
    selector: Option<&LabelSelector>,
    problems: &mut Vec<String>,
) -> Option<Selector> {
    match Selector::try_from(selector?.clone()) {
        Ok(selector) => Some(selector),
        Err(error) => {
            problems.push(format!("{field}: {error}"));
            None
        }
    }
}

/// `spec.ranges` in one column: the first entries and the number of others.
fn ranges_in_short(ranges: &[String]) -> Option<String> {
    const SHOWN: usize = 2;
    let shown: Vec<_> = ranges.iter().take(SHOWN).map(|entry| entry.trim()).collect();
    let more = match ranges.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" +{more}"),
    };
    (!shown.is_empty()).then(|| format!("{}{more}", shown.join(",")))
}

/// The keepalived group that a pool names.
fn announce(spec: &IPGroupSpec) -> Option<ObjectKey> {
    ObjectKey::parse(spec.announce.as_ref()?.keepalived_group.as_deref()?)
}
