//! The password of a group, by name: the operator never reads it.

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
