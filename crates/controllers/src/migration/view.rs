//! What the planner knows of each object: its own small types.

use std::{fmt, net::IpAddr, sync::Arc};

use landfall_api::{ReservedFor, VirtualIPStatus, keys, virtualip::State};
use landfall_ipam::{Pool, PoolName};

use crate::object::{ObjectKey, Version};

/// What the name of a copy ends with.
pub(super) const CLONE_SUFFIX: &str = "-keepalived-clone";

/// One `VirtualIP`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct VirtualIpView {
    pub key: ObjectKey,
    pub uid: Arc<str>,
    pub version: Version,
    pub deleting: bool,
    /// All of them, ours and others'.
    pub finalizers: Vec<String>,
    /// Whether its migration was asked for.
    pub migrate: bool,
    /// The Service that the user names.
    pub service: String,
    /// The address that the user names.
    pub wanted: Option<String>,
    pub status: VirtualIPStatus,
}

impl VirtualIpView {
    pub(super) fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|one| one == finalizer)
    }

    /// Whether one of ours is left.
    pub(super) fn is_held(&self) -> bool {
        self.has_finalizer(keys::FINALIZER_VIRTUALIP_IP)
            || self.has_finalizer(keys::FINALIZER_VIRTUALIP_SERVICE)
    }

    pub(super) fn state(&self) -> Option<State> {
        State::read(self.status.state.as_deref()?)
    }

    /// The stage of its migration that the status tells, if it tells one.
    pub(super) fn stage(&self) -> Option<State> {
        self.state().filter(|state| match state {
            State::Preparing
            | State::Reassociating
            | State::Converting
            | State::Assigning
            | State::CleaningUp => true,
            State::CreatingIp | State::Exposing | State::Valid | State::Error | State::Migrated => {
                false
            }
        })
    }

    /// Whether it is to become a Service, or claims to have.
    pub(super) fn is_migrating(&self) -> bool {
        self.migrate || self.stage().is_some() || self.state() == Some(State::Migrated)
    }

    /// The Service that has or will have the address.
    pub(super) fn target(&self) -> ObjectKey {
        let exposed = self.status.service.as_deref().filter(|name| !name.is_empty());
        ObjectKey::new(self.key.namespace(), exposed.unwrap_or(&self.service))
    }

    /// The copy: where the status says, else where it is made.
    pub(super) fn clone_key(&self) -> ObjectKey {
        let told = self.status.cloned_service.as_deref().filter(|name| !name.is_empty());
        let made = || format!("{}{CLONE_SUFFIX}", self.key.name());
        ObjectKey::new(self.key.namespace(), &told.map_or_else(made, str::to_owned))
    }
}

/// One `IP`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClaimView {
    pub addr: IpAddr,
    pub uid: Arc<str>,
    pub version: Version,
    pub whose: Whose,
    pub reserved: Option<ReservedFor>,
}

/// Whose a claim is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    VirtualIp(Named),
    /// Services; `whole` if the claim was written by us and not by the original.
    Services {
        named: Vec<Named>,
        whole: bool,
    },
    /// Nobody's yet: it is kept for whom its reservation says.
    Kept,
    /// Somebody else's, described for people.
    Other(String),
}

/// Somebody whom a claim names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub key: ObjectKey,
    /// Missing in claims of the original.
    pub uid: Option<String>,
}

impl Named {
    pub(super) fn is(&self, key: &ObjectKey, uid: &str) -> bool {
        self.key == *key && self.uid.as_deref().is_none_or(|named| named == uid)
    }
}

impl ClaimView {
    /// Whether it is this very `VirtualIP`'s.
    pub(super) fn is_of(&self, vip: &VirtualIpView) -> bool {
        matches!(&self.whose, Whose::VirtualIp(named) if named.is(&vip.key, &vip.uid))
    }

    /// The `VirtualIP` whose it is, by name.
    pub(super) const fn named_virtual_ip(&self) -> Option<&ObjectKey> {
        match &self.whose {
            Whose::VirtualIp(named) => Some(&named.key),
            Whose::Services { .. } | Whose::Kept | Whose::Other(_) => None,
        }
    }

    /// Whether it names this Service, alone or among others. A Service that is gone has no uid.
    pub(super) fn names(&self, service: &ObjectKey, uid: Option<&str>) -> bool {
        match &self.whose {
            Whose::Services { named, .. } => {
                named.iter().any(|one| uid.map_or(one.key == *service, |uid| one.is(service, uid)))
            }
            Whose::VirtualIp(_) | Whose::Kept | Whose::Other(_) => false,
        }
    }

    /// Whether it is kept for this Service by name and for good, as a migration keeps it.
    pub(super) fn is_kept_for(&self, service: &ObjectKey) -> bool {
        self.reserved.as_ref().is_some_and(|kept| {
            kept.expires.is_none()
                && kept.namespace == service.namespace()
                && kept.name.as_deref() == Some(service.name())
        })
    }

    /// Whether nobody but this Service has or is to have it.
    pub(super) fn is_only_for(&self, service: &ObjectKey) -> bool {
        match &self.whose {
            Whose::Services { named, .. } => named.iter().all(|one| one.key == *service),
            Whose::Kept => self.is_kept_for(service),
            Whose::VirtualIp(_) | Whose::Other(_) => false,
        }
    }
}

impl fmt::Display for ClaimView {
    /// Who has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.whose {
            Whose::VirtualIp(named) => write!(f, "VirtualIP {}", named.key),
            Whose::Services { named, .. } => {
                let keys: Vec<_> = named.iter().map(|one| one.key.as_str()).collect();
                write!(f, "Service {}", keys.join(", "))
            }
            Whose::Kept => f.write_str("a reservation"),
            Whose::Other(text) => f.write_str(text),
        }
    }
}

/// One `GroupSegmentMapping`.
#[derive(Clone, Debug)]
pub(super) struct MappingView {
    pub name: Arc<str>,
    pub version: Version,
    pub keepalived_group: String,
    pub segment: String,
    /// Its addresses, or what is wrong with it.
    pub pool: Result<Pool, Vec<String>>,
}

impl MappingView {
    /// Its name among all pools.
    pub(super) fn pool_name(name: &str) -> PoolName {
        PoolName::new(&format!("GroupSegmentMapping/{name}"))
    }
}
