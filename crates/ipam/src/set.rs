//! Sets of addresses, kept as intervals.

use core::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
};

use range_set_blaze::{RangeSetBlaze, UIntPlusOne};

use crate::{AddrRange, Family};

/// Any set of addresses of both families, stored as disjoint intervals.
///
/// Membership, insertion and removal of one address are `O(log intervals)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddrSet {
    v4: RangeSetBlaze<Ipv4Addr>,
    v6: RangeSetBlaze<Ipv6Addr>,
}

impl AddrSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the address is a member.
    pub fn contains(&self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(addr) => self.v4.contains(addr),
            IpAddr::V6(addr) => self.v6.contains(addr),
        }
    }

    /// Adds one address; `false` if it was there.
    pub fn insert(&mut self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(addr) => self.v4.insert(addr),
            IpAddr::V6(addr) => self.v6.insert(addr),
        }
    }

    /// Adds all addresses of a range.
    pub fn insert_range(&mut self, range: AddrRange) {
        match (range.first(), range.last()) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                self.v4.ranges_insert(first..=last);
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                self.v6.ranges_insert(first..=last);
            }
            _ => unreachable!("an AddrRange is of one family"),
        }
    }

    /// Removes one address; `false` if it was not there.
    pub fn remove(&mut self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(addr) => self.v4.remove(addr),
            IpAddr::V6(addr) => self.v6.remove(addr),
        }
    }

    /// The lowest address of a family.
    pub fn first(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.v4.first().map(IpAddr::V4),
            Family::V6 => self.v6.first().map(IpAddr::V6),
        }
    }

    /// The highest address of a family.
    pub fn last(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.v4.last().map(IpAddr::V4),
            Family::V6 => self.v6.last().map(IpAddr::V6),
        }
    }

    /// Whether it holds any address of the family.
    pub fn has_family(&self, family: Family) -> bool {
        match family {
            Family::V4 => !self.v4.is_empty(),
            Family::V6 => !self.v6.is_empty(),
        }
    }

    /// Whether it holds nothing at all.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// How many addresses it holds. Saturates at `u128::MAX`, one below the size of `::/0`.
    pub fn len(&self) -> u128 {
        self.len_of(Family::V4).saturating_add(self.len_of(Family::V6))
    }

    /// How many addresses of one family it holds, saturating like [`AddrSet::len`].
    pub fn len_of(&self, family: Family) -> u128 {
        match family {
            Family::V4 => u128::from(self.v4.len()),
            Family::V6 => match self.v6.len() {
                UIntPlusOne::UInt(len) => len,
                UIntPlusOne::MaxPlusOne => u128::MAX,
            },
        }
    }

    /// Its addresses as the fewest ranges, IPv4 before IPv6 and the lowest first.
    pub fn ranges(&self) -> impl Iterator<Item = AddrRange> {
        let v4 = self.v4.ranges().map(RangeInclusive::into_inner);
        let v6 = self.v6.ranges().map(RangeInclusive::into_inner);
        let v4 = v4.filter_map(|(first, last)| AddrRange::new(first.into(), last.into()));
        v4.chain(v6.filter_map(|(first, last)| AddrRange::new(first.into(), last.into())))
    }

    /// Members of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self { v4: &self.v4 | &other.v4, v6: &self.v6 | &other.v6 }
    }

    /// Members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self { v4: &self.v4 & &other.v4, v6: &self.v6 & &other.v6 }
    }

    /// Members of this set that are not in the other.
    #[must_use]
    #[expect(clippy::arithmetic_side_effects, reason = "set difference, not subtraction")]
    pub fn difference(&self, other: &Self) -> Self {
        Self { v4: &self.v4 - &other.v4, v6: &self.v6 - &other.v6 }
    }
}

impl FromIterator<AddrRange> for AddrSet {
    fn from_iter<I: IntoIterator<Item = AddrRange>>(ranges: I) -> Self {
        let mut set = Self::new();
        for range in ranges {
            set.insert_range(range);
        }
        set
    }
}

impl FromIterator<IpAddr> for AddrSet {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addrs: I) -> Self {
        addrs.into_iter().map(AddrRange::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use alloc::{string::ToString as _, vec::Vec};

    use super::*;
    use crate::AddrBlock;

    fn set(text: &str) -> AddrSet {
        text.split_whitespace().map(|part| part.parse::<AddrBlock>().unwrap().range()).collect()
    }

    #[test]
    fn sizes_hold_the_largest_pools() {
        for (text, len) in [
            ("", 0),
            ("10.0.0.0/8", 1 << 24),
            ("10.0.0.0/24 10.0.0.128/25", 256),
            ("fd00::/64", 1 << 64),
            ("fd00::/64 10.0.0.1", (1 << 64) + 1),
            ("::/0", u128::MAX),
            ("::/0 0.0.0.0/0", u128::MAX),
        ] {
            assert_eq!(set(text).len(), len, "{text}");
        }
    }

    #[test]
    fn ranges_that_meet_or_overlap_are_one() {
        let set = set("fd00::/64 10.0.0.9 10.0.0.0/29 10.0.0.8 10.0.0.4-10.0.0.6 10.0.0.20");
        let ranges: Vec<_> = set.ranges().map(|range| range.to_string()).collect();
        assert_eq!(ranges, ["10.0.0.0-10.0.0.9", "10.0.0.20", "fd00::-fd00::ffff:ffff:ffff:ffff"]);
    }

    #[test]
    fn removing_from_the_middle_and_putting_back_gives_the_same_set() {
        let whole = set("fd00::/64 10.0.0.0/8");
        let mut cut = whole.clone();
        for addr in ["10.1.2.3", "10.0.0.0", "10.255.255.255", "fd00::7"] {
            assert!(cut.remove(addr.parse().unwrap()));
            assert!(!cut.contains(addr.parse().unwrap()));
        }
        assert_eq!(cut.first(Family::V4), Some("10.0.0.1".parse().unwrap()));
        assert_eq!(cut.last(Family::V4), Some("10.255.255.254".parse().unwrap()));
        for addr in ["10.255.255.255", "fd00::7", "10.0.0.0", "10.1.2.3"] {
            assert!(cut.insert(addr.parse().unwrap()));
        }
        assert_eq!(cut, whole);
    }
}
