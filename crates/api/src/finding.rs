//! The findings of repair: a closed list, which feeds events, metrics and the docs.

use core::fmt;

use landfall_ipam::Violation;

/// A way in which ledger and Services can disagree, or in which something was left behind.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Finding {
    /// A Service shows an address of a pool, and no claim names it.
    ShownWithoutClaim,
    /// A claim names a Service that does not show the address.
    NeverShown,
    /// A claim names a Service that is not there.
    HolderGone,
    /// A claim names no holder.
    HeldByNobody,
    /// A Service shows one address twice.
    ShownTwice,
    /// Two Services show one address and do not agree to share it.
    SharedWithoutConsent,
    /// A replaced operator left its finalizer on a Service.
    FinalizerLeft,
    /// A Service shows several addresses of one family.
    SeveralShown,
    /// A Service lists an address of a pool in `spec.externalIPs` to which its namespace has no right.
    ExternalIPIgnored,
}

impl Finding {
    /// All of them, in the order the reference shows them.
    pub const ALL: [Self; 9] = [
        Self::ShownWithoutClaim,
        Self::NeverShown,
        Self::HolderGone,
        Self::HeldByNobody,
        Self::ShownTwice,
        Self::SharedWithoutConsent,
        Self::FinalizerLeft,
        Self::SeveralShown,
        Self::ExternalIPIgnored,
    ];

    /// The word users see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ShownWithoutClaim => "ShownWithoutClaim",
            Self::NeverShown => "NeverShown",
            Self::HolderGone => "HolderGone",
            Self::HeldByNobody => "HeldByNobody",
            Self::ShownTwice => "ShownTwice",
            Self::SharedWithoutConsent => "SharedWithoutConsent",
            Self::FinalizerLeft => "FinalizerLeft",
            Self::SeveralShown => "SeveralShown",
            Self::ExternalIPIgnored => "ExternalIPIgnored",
        }
    }

    /// What brings it about.
    pub const fn cause(self) -> &'static str {
        match self {
            Self::ShownWithoutClaim => {
                "Another allocator gave the address before Landfall came, or the `IP` object was deleted by hand."
            }
            Self::NeverShown => {
                "An operator ended between its two writes, the Service's status was wiped, or a second claim was left behind."
            }
            Self::HolderGone => {
                "The Service was deleted while no operator ran, or a backup brought the claim before the Service."
            }
            Self::HeldByNobody => "An `IP` object was written that names no holder.",
            Self::ShownTwice => "The Service's status was written by hand.",
            Self::SharedWithoutConsent => {
                "Another allocator gave the address twice, or a Service's status was written by hand."
            }
            Self::FinalizerLeft => "vip-allocator-operator served the Service.",
            Self::SeveralShown => {
                "Another allocator gave the Service several addresses of one family (Cilium's `lbipam.cilium.io/ips`, PureLB's `multiPool`)."
            }
            Self::ExternalIPIgnored => {
                "The pool does not serve the Service's namespace, or the namespace's quota is used up."
            }
        }
    }

    /// How it is repaired.
    pub const fn repair(self) -> &'static str {
        match self {
            Self::ShownWithoutClaim => {
                "The address is entered in the ledger for the Service, which is not written."
            }
            Self::NeverShown => {
                "The address is shown if the Service can still want it; otherwise the claim is released."
            }
            Self::HolderGone => {
                "The claim waits for the Service (`--orphan-grace`) and is then released."
            }
            Self::HeldByNobody => {
                "Nothing: the address counts as taken. Delete the `IP` object, or let it reserve the address (`spec.reservedFor`)."
            }
            Self::ShownTwice => "The status is written again.",
            Self::SharedWithoutConsent => {
                "No Service is moved. Delete one of the Services, let it ask for another address, or let both agree to share."
            }
            Self::FinalizerLeft => {
                "The finalizer is taken off once the ledger is right about the Service."
            }
            Self::SeveralShown => {
                "All of them are entered in the ledger and stay for as long as the Service shows them. It is given no more."
            }
            Self::ExternalIPIgnored => {
                "The address does not count as taken and may be given to a Service that the pool serves."
            }
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<&Violation> for Finding {
    fn from(violation: &Violation) -> Self {
        match violation {
            Violation::ShownWithoutClaim(..) => Self::ShownWithoutClaim,
            Violation::NeverShown(..) => Self::NeverShown,
            Violation::HolderGone(..) => Self::HolderGone,
            // An address has one name, so two claims on it are one that surely names no holder.
            Violation::HeldByNobody(_) | Violation::ClaimedTwice(_) => Self::HeldByNobody,
            Violation::ShownTwice(..) => Self::ShownTwice,
            Violation::SharedWithoutConsent(..) => Self::SharedWithoutConsent,
        }
    }
}
