//! The old kinds: `VirtualIP`s, and the `GroupSegmentMapping`s that give them addresses.

use std::{net::IpAddr, sync::Arc};

use kube::core::DeserializeGuard;
use landfall_api::{
    GroupSegmentMapping, IPGroupSpec, VirtualIP, VirtualIPStatus, convert,
    keys::{self, ANNOTATION_MIGRATE},
    virtualip::State,
};
use landfall_ipam::{Pool, PoolName};

use crate::{
    ledger::object::MAPPING,
    object::{ObjectKey, Version, uid},
};

/// The suffix of a copy's name.
pub(crate) const CLONE_SUFFIX: &str = "-keepalived-clone";

/// One `VirtualIP`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VirtualIpView {
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
    pub(crate) fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|one| one == finalizer)
    }

    /// Whether it has a finalizer of ours.
    pub(crate) fn is_held(&self) -> bool {
        self.has_finalizer(keys::FINALIZER_VIRTUALIP_IP)
            || self.has_finalizer(keys::FINALIZER_VIRTUALIP_SERVICE)
    }

    pub(crate) fn state(&self) -> Option<State> {
        State::read(self.status.state.as_deref()?)
    }

    /// The stage of its migration according to the status, if there is one.
    pub(crate) fn stage(&self) -> Option<State> {
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

    /// Whether it is to become a Service, or its status says that it has.
    pub(crate) fn is_migrating(&self) -> bool {
        self.migrate || self.stage().is_some() || self.state() == Some(State::Migrated)
    }

    /// Whether it has what it asked for, so that no change of pools helps it.
    pub(crate) fn is_at_rest(&self) -> bool {
        match self.state() {
            Some(State::Valid) => !self.migrate,
            Some(State::Migrated) => !self.is_held(),
            Some(_) | None => false,
        }
    }

    /// The address that it has, unless it is fully migrated.
    ///
    /// The original operator says `Migrated` even if it failed, and then the finalizers are still there.
    pub(crate) fn holds(&self) -> Option<IpAddr> {
        let copied = self.status.cloned_service.as_deref().is_some_and(|name| !name.is_empty());
        let done = self.finalizers.is_empty() && self.state() == Some(State::Migrated) && !copied;
        self.status.address()?.parse().ok().filter(|_| !done)
    }

    /// The Service that has or will have the address.
    pub(crate) fn target(&self) -> ObjectKey {
        let exposed = self.status.service.as_deref().filter(|name| !name.is_empty());
        ObjectKey::new(self.key.namespace(), exposed.unwrap_or(&self.service))
    }

    /// The copy: the one that the status names, else by its default name.
    pub(crate) fn clone_key(&self) -> ObjectKey {
        let told = self.status.cloned_service.as_deref().filter(|name| !name.is_empty());
        let made = || format!("{}{CLONE_SUFFIX}", self.key.name());
        ObjectKey::new(self.key.namespace(), &told.map_or_else(made, str::to_owned))
    }
}

/// One `GroupSegmentMapping`.
#[derive(Clone, Debug)]
pub(crate) struct MappingView {
    pub name: Arc<str>,
    pub version: Version,
    pub keepalived_group: String,
    pub segment: String,
    /// Its addresses, or its errors.
    pub pool: Result<Pool, Vec<String>>,
}

impl MappingView {
    /// Its name as a pool.
    pub(crate) fn pool_name(name: &str) -> PoolName {
        PoolName::new(&format!("{MAPPING}/{name}"))
    }
}

/// A `VirtualIP`, or `None` if it cannot be read: then there is nothing to do for it.
pub(crate) fn read(object: DeserializeGuard<VirtualIP>) -> Option<VirtualIpView> {
    let object = object.0.ok()?;
    let annotations = object.metadata.annotations.as_ref();
    let status = object.status.unwrap_or_default();
    Some(VirtualIpView {
        key: ObjectKey::of(&object.metadata),
        uid: uid(&object.metadata),
        version: Version::of(&object.metadata),
        deleting: object.metadata.deletion_timestamp.is_some(),
        migrate: annotations.is_some_and(|all| all.contains_key(ANNOTATION_MIGRATE)),
        finalizers: object.metadata.finalizers.unwrap_or_default(),
        service: object.spec.service,
        wanted: object.spec.ip.filter(|ip| !ip.is_empty()),
        status,
    })
}

/// A `GroupSegmentMapping`. Its errors are kept.
pub(crate) fn read_mapping(object: &DeserializeGuard<GroupSegmentMapping>) -> MappingView {
    let metadata = match &object.0 {
        Ok(mapping) => &mapping.metadata,
        Err(invalid) => &invalid.metadata,
    };
    let name: Arc<str> = metadata.name.as_deref().unwrap_or_default().into();
    let pool_name = MappingView::pool_name(&name);
    let (keepalived_group, segment, pool) = match &object.0 {
        Ok(mapping) => (
            mapping.spec.keepalived_group.clone(),
            mapping.spec.segment.clone(),
            convert::pool(pool_name, &IPGroupSpec::from(&mapping.spec)).map(|read| read.pool),
        ),
        Err(invalid) => (String::new(), String::new(), Err(vec![invalid.error.clone()])),
    };
    MappingView { name, version: Version::of(metadata), keepalived_group, segment, pool }
}
