//! Why a holder gets no address, or not the one it asks for: facts only; other crates word the messages.

use alloc::{string::String, vec::Vec};
use core::{fmt, net::IpAddr};

use crate::{Clash, Family, Never, PoolName};

/// The closed list of reasons, each with an identifier that is fit for reports and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Every pool that would serve is full.
    Exhausted,
    /// Pools have room, but none of them serves this holder.
    NotSelected,
    /// The asked-for address is excluded.
    Excluded,
    /// The asked-for address has another holder.
    TakenBy,
    /// The asked-for address is kept for another holder.
    Reserved,
    /// The asked-for address has a holder with which this one may not share it.
    SharingRefused,
    /// The asked-for address lies in no pool.
    OutsideEveryPool,
    /// No pool has addresses of the wanted family.
    FamilyMissing,
    /// The pools that would serve are draining.
    Draining,
    /// The request cannot be read.
    Unparseable,
    /// The namespace holds as many addresses as its quota allows.
    QuotaExceeded,
    /// No pool serves the class.
    ClassUnknown,
    /// The asked-for pools do not exist.
    PoolUnknown,
    /// The pools that would serve are themselves invalid.
    PoolInvalid,
    /// There is no pool at all.
    NoPool,
    /// The claim cannot be written.
    LedgerRefused,
    /// The holder cannot be written.
    HolderRefused,
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
        Self::HolderRefused,
    ];

    /// The identifier that users see.
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
            // Users know this reason by the name of the first kind of holder.
            Self::HolderRefused => "ServiceRefused",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The answer of one pool to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The request names other pools.
    NotAsked,
    /// There is no such pool.
    Missing,
    /// It serves another class.
    OtherClass,
    /// Its name makes it the pool of certain namespaces, and the holder's namespace is not one of them.
    OfOtherNamespaces,
    /// It does not select the namespace.
    OtherNamespaces,
    /// The holder opts out of the place where its addresses are published.
    Ignored,
    /// It does not select the holder.
    OtherHolders,
    /// It serves only holders that ask for one of its addresses.
    OnRequestOnly,
    /// It has no address of the family.
    NoFamily(Family),
    /// It cannot be used as it is written.
    Invalid,
    /// It is draining.
    Draining,
    /// The namespace holds as many of its addresses as its quota allows.
    OverQuota(u32),
    /// All its addresses of the family are taken.
    Full(Family),
}

impl Verdict {
    /// The reason of a refusal in which this verdict is the nearest to a "yes".
    pub const fn reason(self) -> Reason {
        match self {
            Self::NotAsked
            | Self::OfOtherNamespaces
            | Self::OtherNamespaces
            | Self::Ignored
            | Self::OtherHolders
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

/// A "no" with all facts that a person needs to turn it into a "yes".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request cannot be read.
    Unparseable {
        /// The field that holds it.
        field: &'static str,
        /// The text as written.
        input: String,
        /// A value that could be read.
        expected: &'static str,
    },
    /// Two addresses of one family are asked for.
    TwoOfOneFamily(IpAddr, IpAddr),
    /// The asked-for address lies in no pool.
    OutsideEveryPool(IpAddr),
    /// The asked-for address is excluded by this pool.
    Excluded(IpAddr, PoolName),
    /// No holder may have the asked-for address.
    NeverGiven(IpAddr, Never),
    /// The asked-for address is held back at the ends of this pool.
    HeldBack(IpAddr, PoolName),
    /// The asked-for address has this holder.
    TakenBy(IpAddr, String),
    /// The asked-for address is kept by this reservation.
    Reserved(IpAddr, String),
    /// The asked-for address has this holder, with which the asking holder may not share it.
    SharingRefused(IpAddr, String, Clash),
    /// The asked-for address is not of a family that the holder has.
    WrongFamily(IpAddr),
    /// The pools that cover the asked-for address do not serve this holder.
    NotServed(IpAddr, Vec<(PoolName, Verdict)>),
    /// The claim on the address cannot be written, for this reason of the store.
    LedgerRefused(String),
    /// The holder cannot be written, for this reason of the store.
    HolderRefused(String),
    /// No pool gives an address; one verdict per pool, in the order they were asked.
    NoneGives(Family, Vec<(PoolName, Verdict)>),
}

impl Refusal {
    /// The reason, for reports and metrics.
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
            Self::HolderRefused(_) => Reason::HolderRefused,
            Self::NotServed(_, verdicts) | Self::NoneGives(_, verdicts) => {
                nearest(verdicts).map_or(Reason::NoPool, Verdict::reason)
            }
        }
    }

    /// The address that was asked for and refused.
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
            | Self::HolderRefused(_)
            | Self::NoneGives(..) => None,
        }
    }
}

/// The verdict nearest to a "yes": a full pool would have served the holder, one with the wrong selector
/// would not.
fn nearest(verdicts: &[(PoolName, Verdict)]) -> Option<Verdict> {
    verdicts.iter().map(|(_, verdict)| *verdict).max()
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn the_nearest_verdict_decides_the_reason() {
        let (a, b) = (PoolName::new("pool/a"), PoolName::new("pool/b"));
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
    fn every_reason_has_its_own_word() {
        let mut words: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Reason::ALL.len());
    }
}
