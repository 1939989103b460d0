//! The kinds of objects that can hold an address.

use core::fmt;

/// The kind of a holder, as `kind` in `holders` and `reservedFor` of an `IP` names it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum HolderKind {
    /// A Service of type `LoadBalancer`.
    #[default]
    Service,
    /// A `VirtualIP` of vip-allocator-operator.
    VirtualIp,
    /// A Namespace whose traffic leaves the cluster with the address.
    Namespace,
    /// A node that a floating address follows.
    Node,
    /// A pool that keeps the address for itself.
    Pool,
}

impl HolderKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Service, Self::VirtualIp, Self::Namespace, Self::Node, Self::Pool];

    /// The kind as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::VirtualIp => "VirtualIP",
            Self::Namespace => "Namespace",
            Self::Node => "Node",
            Self::Pool => "Pool",
        }
    }

    /// Reads a kind; `None` if there is no such kind of holder.
    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Whether objects of the kind lie in a namespace.
    pub const fn is_namespaced(self) -> bool {
        match self {
            Self::Service | Self::VirtualIp => true,
            Self::Namespace | Self::Node | Self::Pool => false,
        }
    }
}

impl fmt::Display for HolderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_as_it_is_written_and_others_are_not() {
        for kind in HolderKind::ALL {
            assert_eq!(HolderKind::read(kind.as_str()), Some(kind));
        }
        assert_eq!(HolderKind::read("service"), None);
        assert_eq!(HolderKind::read(""), None);
    }
}
