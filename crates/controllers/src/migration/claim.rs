//! Whether a claim belongs to a `VirtualIP`, and which Service has it or will have it.

use std::net::IpAddr;

use landfall_api::{HolderKind, Use};
use landfall_ipam::PoolName;

use crate::cluster::virtual_ip::{MappingView, VirtualIpView};
use crate::{
    ledger::{Claim, HolderEntry, Reservation, Tenure},
    object::{ObjectKey, Version},
};

/// The claim of a `VirtualIP`, given from this mapping.
pub(super) fn for_virtual_ip(
    (addr, version): (IpAddr, Version),
    vip: &VirtualIpView,
    mapping: Option<&MappingView>,
) -> Claim {
    let holder = HolderEntry {
        uid: Some(vip.uid.clone()),
        ..HolderEntry::new(HolderKind::VirtualIp, vip.key.clone())
    };
    let pool = mapping.map(|mapping| MappingView::pool_name(&mapping.name));
    Claim { version, ..Claim::new(addr, Use::LoadBalancer, pool, holder) }
}

/// The claim of a Service, given from this pool, and reserved for it even while it shows nothing.
pub(super) fn for_service(
    (addr, version): (IpAddr, Version),
    holder: HolderEntry,
    pool: PoolName,
) -> Claim {
    let reservation = Reservation {
        kind: HolderKind::Service,
        namespace: holder.key.namespace().to_owned(),
        name: Some(holder.key.name().to_owned()),
        expires: None,
        retained: false,
    };
    let claim = Claim::new(addr, Use::LoadBalancer, Some(pool), holder);
    Claim { version, reserved: Some(reservation), ..claim }
}

impl Claim {
    fn of_virtual_ip(&self) -> Option<&HolderEntry> {
        match &self.tenure {
            Tenure::Held(holders) => match holders.as_slice() {
                [holder] if holder.kind == HolderKind::VirtualIp && !self.has_another_use() => {
                    Some(holder)
                }
                _ => None,
            },
            Tenure::Other(_) | Tenure::WithoutHolder(_) => None,
        }
    }

    /// Whether it belongs to exactly this `VirtualIP`.
    pub(super) fn is_of(&self, vip: &VirtualIpView) -> bool {
        self.of_virtual_ip().is_some_and(|holder| holder.names(&vip.key, &vip.uid))
    }

    /// The `VirtualIP` that holds it, by name.
    pub(super) fn named_virtual_ip(&self) -> Option<&ObjectKey> {
        self.of_virtual_ip().map(|holder| &holder.key)
    }

    /// Whether it names this Service, alone or among others. A Service that is gone has no uid.
    pub(super) fn names(&self, service: &ObjectKey, uid: Option<&str>) -> bool {
        let named = |holder: &HolderEntry| {
            uid.map_or(holder.key == *service, |uid| holder.names(service, uid))
        };
        self.services().iter().any(named)
    }

    /// Whether the original operator wrote it, for a Service.
    pub(super) fn is_of_the_original(&self) -> bool {
        self.services().iter().any(|holder| holder.legacy)
    }

    /// Whether it is reserved for this Service by name and without an end, as a migration does.
    pub(super) fn is_kept_for(&self, service: &ObjectKey) -> bool {
        let by_name = |kept: &Reservation| kept.expires.is_none() && kept.name.is_some();
        self.is_reserved_for(service) && self.reserved.as_ref().is_some_and(by_name)
    }

    /// Whether only this Service has it or is to have it.
    pub(super) fn is_only_for(&self, service: &ObjectKey) -> bool {
        let services = self.services();
        let is_its_own = !services.is_empty() && services.iter().all(|one| one.key == *service);
        is_its_own || (self.waits_for().is_some() && self.is_kept_for(service))
    }
}
