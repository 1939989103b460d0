//! Why somebody gets no address, or not the one asked for.

use alloc::{string::String, vec::Vec};
use core::{fmt, net::IpAddr};

use crate::{Clash, Family, Never, PoolName};

/// The closed list of reasons, fit for a condition's `reason` and for a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Every pool that would serve is full.
    Exhausted,
    /// Pools have room, but none of them serves this one.
    NotSelected,
    /// The asked-for address is excluded.
    Excluded,
    /// The asked-for address belongs to somebody else.
    TakenBy,
    /// The asked-for address is kept for somebody else.
    Reserved,
    /// The asked-for address has a holder with whom this one may not share it.
    SharingRefused,
    /// The asked-for address lies in no pool.
    OutsideEveryPool,
    /// No pool has addresses of the wanted family.
    FamilyMissing,
    /// The pools that would serve give no more.
    Draining,
    /// What was asked for cannot be read.
    Unparseable,
    /// The namespace holds as many addresses as it may.
    QuotaExceeded,
    /// No pool serves the class.
    ClassUnknown,
    /// The asked-for pools do not exist.
    PoolUnknown,
    /// The pools that would serve are themselves invalid.
    PoolInvalid,
    /// There is no pool at all.
    NoPool,
    /// The API server refuses to write the claim.
    LedgerRefused,
    /// The API server refuses to write the Service.
    ServiceRefused,
}

impl Reason {
    /// All reasons, for tables and documentation.
    pub const ALL: [Self; 17] = [
        Self::Exhausted,
        Self::NotSelected,
        Self::Excluded,
        Self::TakenBy,
        Self::Reserved,
        Self::SharingRefused,
        Self::OutsideEveryPool,
        Self::FamilyMissing,
        Self::Draining,
        Self::Unparseable,
        Self::QuotaExceeded,
        Self::ClassUnknown,
        Self::PoolUnknown,
        Self::PoolInvalid,
        Self::NoPool,
        Self::LedgerRefused,
        Self::ServiceRefused,
    ];

    /// The word users see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "Exhausted",
            Self::NotSelected => "NotSelected",
            Self::Excluded => "Excluded",
            Self::TakenBy => "TakenBy",
            Self::Reserved => "Reserved",
            Self::SharingRefused => "SharingRefused",
            Self::OutsideEveryPool => "OutsideEveryPool",
            Self::FamilyMissing => "FamilyMissing",
            Self::Draining => "Draining",
            Self::Unparseable => "Unparseable",
            Self::QuotaExceeded => "QuotaExceeded",
            Self::ClassUnknown => "ClassUnknown",
            Self::PoolUnknown => "PoolUnknown",
            Self::PoolInvalid => "PoolInvalid",
            Self::NoPool => "NoPool",
            Self::LedgerRefused => "LedgerRefused",
            Self::ServiceRefused => "ServiceRefused",
        }
    }

    /// What brings this about.
    pub const fn cause(self) -> &'static str {
        match self {
            Self::Exhausted => "Every pool that may serve the Service has all its addresses taken.",
            Self::NotSelected => {
                "There are pools, but their selectors or `autoAssign: false` leave the Service out."
            }
            Self::Excluded => {
                "The asked-for address is excluded by a pool that covers it, or held back by `avoidEnds`, or one that no Service can have: unspecified, loopback, multicast, broadcast, or of a range from which the cluster gives ClusterIPs."
            }
            Self::TakenBy => {
                "The asked-for address is held by somebody else; the message names the holder."
            }
            Self::Reserved => {
                "The asked-for address is kept for somebody else, by an administrator or after a deletion (`retainFor`)."
            }
            Self::SharingRefused => {
                "The Service would share an address, but not with those who have it: a key, a namespace, a port or the traffic policy is in the way; the message names the Service and what it is."
            }
            Self::OutsideEveryPool => "No pool covers the asked-for address.",
            Self::FamilyMissing => {
                "No pool that may serve the Service has addresses of that family."
            }
            Self::Draining => {
                "The pools that may serve the Service are set to `drain` and give no more."
            }
            Self::Unparseable => {
                "What the Service asks for cannot be read, such as an address that is none, or is more than one address of a family."
            }
            Self::QuotaExceeded => {
                "The namespace holds as many addresses of the pool as the pool's `quota` allows."
            }
            Self::ClassUnknown => {
                "None of the pools that the Service may use serves its `spec.loadBalancerClass`, or all serve some class and the Service has none."
            }
            Self::PoolUnknown => "The annotation `landfall.dev/pool` names no pool that exists.",
            Self::PoolInvalid => {
                "The pools that may serve the Service cannot be used; their `Ready` condition says why."
            }
            Self::NoPool => {
                "The cluster has no `IPGroup`, and kube-vip's `ConfigMap` has no key for the namespace or for all."
            }
            Self::LedgerRefused => {
                "The API server refuses to write the `IP` object, for instance because of RBAC, a policy, a webhook or a missing CRD."
            }
            Self::ServiceRefused => {
                "The API server refuses to write the Service itself: kube-vip's annotation, or the removal of what a replaced operator left. The role for it is not bound, or a policy or a webhook says no."
            }
        }
    }

    /// What a person can do about it.
    pub const fn fix(self) -> &'static str {
        match self {
            Self::Exhausted => {
                "Add addresses to a pool (`ranges`), add a pool, or delete a Service."
            }
            Self::NotSelected => {
                "Change the pool's selectors or the labels of the Service or its namespace, or ask for one of the pool's addresses if it is `autoAssign: false`."
            }
            Self::Excluded => "Ask for another address, or remove the exclusion if there is one.",
            Self::TakenBy => "Ask for another address, or delete the holder.",
            Self::Reserved => {
                "Ask for another address, wait until the reservation ends, or let an administrator delete the `IP` object."
            }
            Self::SharingRefused => {
                "Use other ports, or give both Services the same `landfall.dev/sharing-key` and let each name the other's namespace in `landfall.dev/sharing-with`; or ask for another address."
            }
            Self::OutsideEveryPool => {
                "Ask for an address inside a pool, or add a range that covers it to a pool."
            }
            Self::FamilyMissing => "Add a range of that family to a pool.",
            Self::Draining => "Set `drain: false` on a pool, or add a pool.",
            Self::Unparseable => "Write what the message expects there, or remove it.",
            Self::QuotaExceeded => {
                "Delete a Service of the namespace, or raise the pool's `quota`; the oldest that waits is served at once."
            }
            Self::ClassUnknown => {
                "Set `loadBalancerClass` of a pool to that of the Service, or add a pool without one for Services without one."
            }
            Self::PoolUnknown => "Name a pool that exists, or create it.",
            Self::PoolInvalid => "Mend the pool as its `Ready` condition says.",
            Self::NoPool => "Create an `IPGroup`, or a key of the `ConfigMap`.",
            Self::LedgerRefused => {
                "Remove what refuses the write, as the message says; the operator tries again by itself."
            }
            Self::ServiceRefused => {
                "Let the operator patch Services (`deploy/rbac-services.yaml`), or remove what refuses the write; the operator tries again by itself."
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What one pool says to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The request names other pools.
    NotAsked,
    /// There is no such pool.
    Missing,
    /// It serves another `loadBalancerClass`.
    OtherClass,
    /// It is that of certain namespaces by its very name, and this is none of them.
    OfOtherNamespaces,
    /// Its `namespaceSelector` does not match.
    OtherNamespaces,
    /// The Service wants nothing that is shown where its addresses are.
    Ignored,
    /// Its `serviceSelector` does not match.
    OtherServices,
    /// It serves only those that ask for one of its addresses.
    OnRequestOnly,
    /// It has no address of the family.
    NoFamily(Family),
    /// It cannot be used as it is written.
    Invalid,
    /// It gives no more.
    Draining,
    /// The namespace holds as many of its addresses as it may.
    OverQuota(u32),
    /// All its addresses of the family are taken.
    Full(Family),
}

impl Verdict {
    /// The reason this verdict stands for when it is the nearest to a "yes".
    pub const fn reason(self) -> Reason {
        match self {
            Self::NotAsked
            | Self::OfOtherNamespaces
            | Self::OtherNamespaces
            | Self::Ignored
            | Self::OtherServices
            | Self::OnRequestOnly => Reason::NotSelected,
            Self::OtherClass => Reason::ClassUnknown,
            Self::Missing => Reason::PoolUnknown,
            Self::OverQuota(_) => Reason::QuotaExceeded,
            Self::NoFamily(_) => Reason::FamilyMissing,
            Self::Invalid => Reason::PoolInvalid,
            Self::Draining => Reason::Draining,
            Self::Full(_) => Reason::Exhausted,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("the Service asks for other pools"),
            Self::Missing => f.write_str("there is no such pool"),
            Self::OverQuota(limit) => {
                write!(f, "the namespace may hold {limit} of its addresses and does")
            }
            Self::OfOtherNamespaces => f.write_str("it is for other namespaces"),
            Self::OtherNamespaces => f.write_str("its namespaceSelector does not match"),
            Self::Ignored => f.write_str("the Service tells kube-vip to ignore it"),
            Self::OtherServices => f.write_str("its serviceSelector does not match"),
            Self::OtherClass => f.write_str("it serves another loadBalancerClass"),
            Self::OnRequestOnly => f.write_str("it serves only requests for its addresses"),
            Self::NoFamily(family) => write!(f, "it has no {family} address"),
            Self::Invalid => f.write_str("it is invalid"),
            Self::Draining => f.write_str("it is draining"),
            Self::Full(family) => write!(f, "all its {family} addresses are taken"),
        }
    }
}

/// A "no" with everything a person needs to turn it into a "yes".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// What was asked for cannot be read.
    Unparseable {
        /// Where it stands, as in `spec.loadBalancerIP`.
        field: &'static str,
        /// The text as written.
        input: String,
        /// What should stand there.
        expected: &'static str,
    },
    /// Two addresses of one family are asked for.
    TwoOfOneFamily(IpAddr, IpAddr),
    /// The asked-for address lies in no pool.
    OutsideEveryPool(IpAddr),
    /// The asked-for address is excluded by this pool.
    Excluded(IpAddr, PoolName),
    /// Nobody may have the asked-for address.
    NeverGiven(IpAddr, Never),
    /// The asked-for address is held back at the ends of this pool.
    HeldBack(IpAddr, PoolName),
    /// The asked-for address belongs to somebody else.
    TakenBy(IpAddr, String),
    /// The asked-for address is kept for somebody else.
    Reserved(IpAddr, String),
    /// The asked-for address has this holder, with whom the one who asks may not share it.
    SharingRefused(IpAddr, String, Clash),
    /// The asked-for address is not of a family the Service has.
    WrongFamily(IpAddr),
    /// The pools that cover the asked-for address do not serve this one.
    NotServed(IpAddr, Vec<(PoolName, Verdict)>),
    /// The claim on the address cannot be written; the API server's own words say why.
    LedgerRefused(String),
    /// The Service cannot be written; the API server's own words say why.
    ServiceRefused(String),
    /// No pool gives an address; one verdict per pool, in the order they were asked.
    NoneGives(Family, Vec<(PoolName, Verdict)>),
}

/// How many pools a message names; a condition's message is bounded.
const POOLS_NAMED: usize = 8;

impl Refusal {
    /// The reason, for the condition and for metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Unparseable { .. } | Self::TwoOfOneFamily(..) => Reason::Unparseable,
            Self::OutsideEveryPool(_) => Reason::OutsideEveryPool,
            Self::Excluded(..) | Self::NeverGiven(..) | Self::HeldBack(..) => Reason::Excluded,
            Self::TakenBy(..) => Reason::TakenBy,
            Self::Reserved(..) => Reason::Reserved,
            Self::SharingRefused(..) => Reason::SharingRefused,
            Self::WrongFamily(_) => Reason::FamilyMissing,
            Self::LedgerRefused(_) => Reason::LedgerRefused,
            Self::ServiceRefused(_) => Reason::ServiceRefused,
            Self::NotServed(_, verdicts) | Self::NoneGives(_, verdicts) => {
                nearest(verdicts).map_or(Reason::NoPool, Verdict::reason)
            }
        }
    }
}

impl Refusal {
    /// The address that was asked for and cannot be had.
    pub const fn address(&self) -> Option<IpAddr> {
        match self {
            Self::OutsideEveryPool(addr)
            | Self::Excluded(addr, _)
            | Self::NeverGiven(addr, _)
            | Self::HeldBack(addr, _)
            | Self::TakenBy(addr, _)
            | Self::Reserved(addr, _)
            | Self::SharingRefused(addr, ..)
            | Self::NotServed(addr, _) => Some(*addr),
            Self::Unparseable { .. }
            | Self::TwoOfOneFamily(..)
            | Self::WrongFamily(_)
            | Self::LedgerRefused(_)
            | Self::ServiceRefused(_)
            | Self::NoneGives(..) => None,
        }
    }
}

/// The verdict that came nearest to a "yes": a full pool would have served, one with the wrong
/// selector would not.
fn nearest(verdicts: &[(PoolName, Verdict)]) -> Option<Verdict> {
    verdicts.iter().map(|(_, verdict)| *verdict).max()
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unparseable { field, input, expected } => {
                write!(f, "{field} {input:?} is not {expected}")?;
            }
            Self::TwoOfOneFamily(one, other) => {
                write!(
                    f,
                    "{one} and {other} are both asked for, but a Service has one per family"
                )?;
            }
            Self::OutsideEveryPool(addr) => write!(f, "{addr} lies in no pool")?,
            Self::Excluded(addr, pool) => write!(f, "{addr} is excluded by {pool}")?,
            Self::NeverGiven(addr, why) => write!(f, "{addr} is {why} and never given")?,
            Self::HeldBack(addr, pool) => write!(f, "{addr} is held back by avoidEnds of {pool}")?,
            Self::TakenBy(addr, holder) => write!(f, "{addr} is taken by {holder}")?,
            Self::Reserved(addr, holder) => write!(f, "{addr} is kept by {holder}")?,
            Self::SharingRefused(addr, holder, clash) => {
                write!(f, "{addr} cannot be shared with {holder}: {clash}")?;
            }
            Self::WrongFamily(addr) => {
                write!(f, "{addr} is {}, which the Service does not have", Family::of(*addr))?;
            }
            Self::LedgerRefused(words) => write!(f, "the claim cannot be written: {words}")?,
            Self::ServiceRefused(words) => write!(f, "the Service cannot be written: {words}")?,
            Self::NotServed(addr, verdicts) => {
                write!(f, "{addr} cannot be given: ")?;
                write_verdicts(f, verdicts)?;
            }
            Self::NoneGives(family, verdicts) if verdicts.is_empty() => {
                write!(f, "no {family} address: there is no pool")?;
            }
            Self::NoneGives(family, verdicts) => {
                write!(f, "no {family} address: ")?;
                write_verdicts(f, verdicts)?;
            }
        }
        write!(f, ". {}", self.reason().fix())
    }
}

fn write_verdicts(f: &mut fmt::Formatter<'_>, verdicts: &[(PoolName, Verdict)]) -> fmt::Result {
    for (index, (pool, verdict)) in verdicts.iter().take(POOLS_NAMED).enumerate() {
        let separator = if index == 0 { "" } else { "; " };
        write!(f, "{separator}{pool}: {verdict}")?;
    }
    match verdicts.len().saturating_sub(POOLS_NAMED) {
        0 => Ok(()),
        more => write!(f, "; and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use alloc::{string::ToString, vec};

    use super::*;

    #[test]
    fn the_nearest_verdict_decides_the_reason() {
        let (a, b) = (PoolName::new("IPGroup/a"), PoolName::new("IPGroup/b"));
        for (verdicts, reason) in [
            (vec![], Reason::NoPool),
            (vec![(a.clone(), Verdict::OtherNamespaces)], Reason::NotSelected),
            (
                vec![(a.clone(), Verdict::Full(Family::V4)), (b.clone(), Verdict::OtherClass)],
                Reason::Exhausted,
            ),
            (
                vec![(a.clone(), Verdict::NoFamily(Family::V6)), (b.clone(), Verdict::Draining)],
                Reason::Draining,
            ),
            (vec![(a.clone(), Verdict::Invalid), (b, Verdict::OnRequestOnly)], Reason::PoolInvalid),
        ] {
            assert_eq!(Refusal::NoneGives(Family::V4, verdicts).reason(), reason);
        }
    }

    #[test]
    fn a_message_names_each_pool_up_to_a_bound_and_the_fix() {
        let many: Vec<_> = (0..100)
            .map(|n| (PoolName::new(&alloc::format!("IPGroup/p{n}")), Verdict::Full(Family::V4)))
            .collect();
        let text = Refusal::NoneGives(Family::V4, many).to_string();
        assert!(text.starts_with(
            "no IPv4 address: IPGroup/p0: all its IPv4 addresses are taken; IPGroup/p1:"
        ));
        assert!(text.ends_with(
            "; and 92 more. Add addresses to a pool (`ranges`), add a pool, or delete a Service."
        ));
    }

    #[test]
    fn every_reason_has_its_own_word() {
        let mut words: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Reason::ALL.len());
    }
}
