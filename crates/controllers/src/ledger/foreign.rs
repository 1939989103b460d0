//! Objects outside the ledger whose addresses must never be given.

use std::{fmt, sync::Arc};

use crate::object::ObjectKey;

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
