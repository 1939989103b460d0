//! The reasons why addresses of a Service are not announced: a closed list, which feeds conditions, events and
//! the docs.

use core::fmt;

/// Why a Service is not announced by a group that should announce it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum NotAnnounced {
    /// There is no such group.
    GroupUnknown,
    /// The group does not announce Services of the namespace.
    NamespaceRefused,
    /// The group does not announce the address.
    RangeRefused,
    /// Another Service is announced with the address.
    AddressConflict,
    /// The group cannot be read from the annotation.
    Unparseable,
    /// No node has the address in its configuration yet.
    NotApplied,
    /// Nodes have it, and none of them holds it.
    NoHolder,
    /// The node that held it last is not heard from.
    HolderSilent,
}

impl NotAnnounced {
    /// All of them, in the order the reference shows them.
    pub const ALL: [Self; 8] = [
        Self::GroupUnknown,
        Self::NamespaceRefused,
        Self::RangeRefused,
        Self::AddressConflict,
        Self::Unparseable,
        Self::NotApplied,
        Self::NoHolder,
        Self::HolderSilent,
    ];

    /// The reason of the condition that is `True`.
    pub const NONE: &str = "Announced";

    /// The word users see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GroupUnknown => "GroupUnknown",
            Self::NamespaceRefused => "NamespaceRefused",
            Self::RangeRefused => "RangeRefused",
            Self::AddressConflict => "AddressConflict",
            Self::Unparseable => "Unparseable",
            Self::NotApplied => "NotApplied",
            Self::NoHolder => "NoHolder",
            Self::HolderSilent => "HolderSilent",
        }
    }

    /// What brings it about.
    pub const fn cause(self) -> &'static str {
        match self {
            Self::GroupUnknown => {
                "The annotation of the Service, or `announce` of its pool, names a `KeepalivedGroup` that does not exist."
            }
            Self::NamespaceRefused => {
                "The group's `allowedNamespaces` does not match the namespace of the Service."
            }
            Self::RangeRefused => {
                "The address lies outside the group's `allowedRanges`, or the namespace of the Service has no right to it, or has too many such addresses in `spec.externalIPs`; or it is one that is never announced: that of a node or of the API server, link-local, loopback or multicast, or an IPv4 address written as an IPv6 one."
            }
            Self::AddressConflict => {
                "Another holder has the address: the one that the ledger names, else the older of two Services."
            }
            Self::Unparseable => {
                "The annotation of the Service is not the `namespace/name` of a group."
            }
            Self::NotApplied => {
                "No node of the group runs a configuration that has the address: the group has no nodes, cannot be used, has no router ID left, has enough instances for single Services of the namespace, or is about to apply it."
            }
            Self::NoHolder => {
                "Nodes of the group have the address, and none of them holds it: all are out of service, or for a Service with `externalTrafficPolicy: Local` none has a ready pod of it."
            }
            Self::HolderSilent => {
                "The node that held the address last is not ready, and no other node has reported that it took over."
            }
        }
    }

    /// The nearest fix.
    pub const fn fix(self) -> &'static str {
        match self {
            Self::GroupUnknown => "Name a group that exists, or create it.",
            Self::NamespaceRefused => {
                "Let the group's `allowedNamespaces` match the namespace, or name another group."
            }
            Self::RangeRefused => {
                "Add the address to the group's `allowedRanges`, or give the Service another address."
            }
            Self::AddressConflict => {
                "Give the Service another address, or delete the other Service."
            }
            Self::Unparseable => {
                "Write `namespace/name` of a group into the annotation, or remove it."
            }
            Self::NotApplied => {
                "Do what the group's conditions `Ready` and `Degraded` say; if they say nothing, wait a moment."
            }
            Self::NoHolder => {
                "See the nodes in the group's status; for a Service with `externalTrafficPolicy: Local`, let a pod of it be ready on one of them."
            }
            Self::HolderSilent => {
                "Bring the node back, or look at the other nodes in the group's status."
            }
        }
    }
}

impl fmt::Display for NotAnnounced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
