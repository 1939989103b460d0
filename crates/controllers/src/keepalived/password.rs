//! The password of a group, by name: the operator never reads it.

use landfall_api::{GroupSettings, keepalived_group::PasswordSource};
use landfall_vrrp::{Plan, conf};

/// What is known of the password that a group's instances use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Password {
    /// The group has none.
    NotUsed,
    /// The Secret has not been looked at yet.
    Unknown,
    /// There is no such Secret.
    Missing,
    /// It is in this version of the Secret.
    Named(String),
}

impl Password {
    /// Its name for the nodes.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Named(name) => Some(name),
            Self::NotUsed | Self::Unknown | Self::Missing => None,
        }
    }
}

/// Whether instances with these settings have a password. Only version 2 of the protocol has any.
pub(super) fn is_used_by(settings: &GroupSettings) -> bool {
    settings.vrrp_version() == 2
}

/// Where the password of a group is, if one is used: by the group as it is written, or by what its nodes run until
/// then, which is the plan or else the file of an operator that ran before.
///
/// Its name has the version of the Secret, because nothing else of a Secret can be seen without its content. So even an
/// edit of its labels gives the password another name, and all instances that use it change once more.
pub(super) fn source<'a>(
    settings: &'a GroupSettings,
    plan: Option<&Plan>,
    file: Option<&str>,
) -> Option<&'a PasswordSource> {
    let runs = || match plan {
        Some(plan) => plan.password_names().next().is_some(),
        None => file
            .and_then(|text| conf::parse(text).ok())
            .is_some_and(|file| conf::instances(&file).any(|instance| instance.password.is_some())),
    };
    settings.password.as_ref().filter(|_| is_used_by(settings) || runs())
}
