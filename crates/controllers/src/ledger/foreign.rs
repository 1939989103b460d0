//! Objects outside the ledger whose addresses must never be given.

use std::{fmt, net::IpAddr, sync::Arc};

use super::{Change, Ledger};
use crate::{
    cluster::{Change as ClusterChange, Cluster, service::ServiceView, virtual_ip::VirtualIpView},
    object::ObjectKey,
};

/// The uid of a Service and the addresses in its `spec.externalIPs`.
type Listed = (Arc<str>, Vec<IpAddr>);

/// An object outside the ledger that has addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ForeignAddress {
    Node(String),
    /// The API server itself, by the name of the slice that lists its addresses.
    ApiServer(String),
    /// A Service, by its name and uid, that lists the address in `spec.externalIPs`.
    External(ObjectKey, Arc<str>),
    /// A `VirtualIP` that is not migrated yet, by its `namespace/name`.
    VirtualIp(ObjectKey),
    /// A Service that has the address as a `ClusterIP`.
    ClusterIp(ObjectKey),
}

impl ForeignAddress {
    /// Whether it is this Service's own entry in `spec.externalIPs`.
    pub(crate) fn is(&self, service: &ObjectKey) -> bool {
        matches!(self, Self::External(key, _) if key == service)
    }
}

impl fmt::Display for ForeignAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "Node {name}"),
            Self::ApiServer(_) => f.write_str("the API server"),
            Self::External(key, _) => write!(f, "Service {key}, which has it in spec.externalIPs"),
            Self::VirtualIp(key) => write!(f, "VirtualIP {key}"),
            Self::ClusterIp(key) => write!(f, "Service {key}, whose ClusterIP it is"),
        }
    }
}

impl Ledger {
    /// Takes in a change of the cluster: which addresses Services show, and which belong to objects
    /// outside the ledger.
    pub(crate) fn heard(&mut self, cluster: &Cluster, change: &ClusterChange) {
        match change {
            ClusterChange::Service(key, old) => {
                let new = cluster.services.get(key);
                let shows = |view: &ServiceView| view.in_status().to_vec();
                let shown = (old.as_deref().map(shows), new.map(shows));
                self.show(key, &shown.0.unwrap_or_default(), &shown.1.unwrap_or_default());
                let cluster_ips = |view: &ServiceView| view.cluster_ips.clone();
                let given = (old.as_deref().map(cluster_ips), new.map(cluster_ips));
                let who = ForeignAddress::ClusterIp(key.clone());
                self.replace_foreign(
                    &who,
                    &given.0.unwrap_or_default(),
                    &given.1.unwrap_or_default(),
                );
                let external = |view: &ServiceView| (view.uid.clone(), view.external.clone());
                self.list_external(key, old.as_deref().map(external), new.map(external));
            }
            ClusterChange::Namespace(name, old) => {
                if old.as_ref() != cluster.namespaces.get(name) {
                    self.externals.recheck(name);
                }
            }
            ClusterChange::Node(name, old) => {
                let old = old.as_ref().map_or(&[][..], |old| &old.addresses);
                let new = cluster.nodes.get(name).map_or(&[][..], |new| &new.addresses);
                self.replace_foreign(&ForeignAddress::Node(name.clone()), old, new);
            }
            ClusterChange::ApiServer(name, old) => {
                let new = cluster.api_servers.get(name).cloned().unwrap_or_default();
                self.replace_foreign(&ForeignAddress::ApiServer(name.clone()), old, &new);
            }
            ClusterChange::VirtualIp { key, old, .. } => {
                let holds = |view: &VirtualIpView| view.holds().into_iter().collect::<Vec<_>>();
                let old = old.as_deref().map(holds).unwrap_or_default();
                let new = cluster.virtual_ips.get(key).map(holds).unwrap_or_default();
                self.replace_foreign(&ForeignAddress::VirtualIp(key.clone()), &old, &new);
            }
            ClusterChange::OtherService(_)
            | ClusterChange::ServiceUnsure(_)
            | ClusterChange::Pool(..)
            | ClusterChange::Mapping(_)
            | ClusterChange::KeepalivedGroup(..)
            | ClusterChange::Child(..)
            | ClusterChange::Endpoints(_)
            | ClusterChange::Listed(_)
            | ClusterChange::PoolsSettled => {}
        }
    }

    /// A Service shows the new addresses in its status instead of the old ones.
    fn show(&mut self, key: &ObjectKey, old: &[IpAddr], new: &[IpAddr]) {
        // An unspecified address asks for a lease: it is no address, and any Service may show it.
        let gone = old.iter().filter(|addr| !new.contains(addr));
        let came = new.iter().filter(|addr| !old.contains(addr) && !addr.is_unspecified());
        for addr in gone {
            if self.shown.remove(addr, key) {
                self.tell(Change::Shown(*addr));
                self.settle(*addr);
            }
        }
        for addr in came {
            if self.shown.insert(*addr, key.clone()) {
                self.tell(Change::Shown(*addr));
                self.settle(*addr);
            }
        }
    }

    /// An object outside the ledger has the new addresses instead of the old ones.
    fn replace_foreign(&mut self, who: &ForeignAddress, old: &[IpAddr], new: &[IpAddr]) {
        for addr in old.iter().filter(|addr| !new.contains(addr)) {
            self.outside.remove(addr, who);
            self.outside_changed(*addr);
        }
        for addr in new.iter().filter(|addr| !old.contains(addr)) {
            self.outside.insert(*addr, who.clone());
            self.outside_changed(*addr);
        }
    }

    /// A Service, by its uid, lists the new addresses in `spec.externalIPs` instead of the old ones.
    fn list_external(&mut self, key: &ObjectKey, old: Option<Listed>, new: Option<Listed>) {
        let same = old == new;
        for (listed, is_new) in [(old, false), (new, true)] {
            let Some((uid, addrs)) = listed.filter(|(_, addrs)| !same && !addrs.is_empty()) else {
                continue;
            };
            let who = (key.clone(), uid);
            let (gone, came): (&[_], &[_]) = if is_new { (&[], &addrs) } else { (&addrs, &[]) };
            self.externals.set(&who, gone, came);
            for addr in addrs {
                self.tell(Change::Shown(addr));
            }
        }
    }

    /// An object outside the ledger has an address, or no longer has it.
    pub(super) fn outside_changed(&mut self, addr: IpAddr) {
        self.settle(addr);
        self.tell(Change::Outside(addr));
    }
}
