//! Small views of `VirtualIP`s and mappings, with only what the planner needs.

use std::sync::Arc;

use landfall_api::{VirtualIPStatus, keys, virtualip::State};
use landfall_ipam::{Pool, PoolName};

use crate::{
    ledger::object::MAPPING,
    object::{ObjectKey, Version},
};

/// The suffix of a copy's name.
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

    /// Whether it has a finalizer of ours.
    pub(super) fn is_held(&self) -> bool {
        self.has_finalizer(keys::FINALIZER_VIRTUALIP_IP)
            || self.has_finalizer(keys::FINALIZER_VIRTUALIP_SERVICE)
    }

    pub(super) fn state(&self) -> Option<State> {
        State::read(self.status.state.as_deref()?)
    }

    /// The stage of its migration according to the status, if there is one.
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

    /// Whether it is to become a Service, or its status says that it has.
    pub(super) fn is_migrating(&self) -> bool {
        self.migrate || self.stage().is_some() || self.state() == Some(State::Migrated)
    }

    /// The Service that has or will have the address.
    pub(super) fn target(&self) -> ObjectKey {
        let exposed = self.status.service.as_deref().filter(|name| !name.is_empty());
        ObjectKey::new(self.key.namespace(), exposed.unwrap_or(&self.service))
    }

    /// The copy: the one that the status names, else by its default name.
    pub(super) fn clone_key(&self) -> ObjectKey {
        let told = self.status.cloned_service.as_deref().filter(|name| !name.is_empty());
        let made = || format!("{}{CLONE_SUFFIX}", self.key.name());
        ObjectKey::new(self.key.namespace(), &told.map_or_else(made, str::to_owned))
    }
}

/// One `GroupSegmentMapping`.
#[derive(Clone, Debug)]
pub(super) struct MappingView {
    pub name: Arc<str>,
    pub version: Version,
    pub keepalived_group: String,
    pub segment: String,
    /// Its addresses, or its errors.
    pub pool: Result<Pool, Vec<String>>,
}

impl MappingView {
    /// Its name as a pool.
    pub(super) fn pool_name(name: &str) -> PoolName {
        PoolName::new(&format!("{MAPPING}/{name}"))
    }
}
