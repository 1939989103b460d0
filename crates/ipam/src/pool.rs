//! A pool: a set of addresses with rules.

use alloc::sync::Arc;
use core::{
    fmt,
    net::{IpAddr, Ipv4Addr},
};

use crate::{AddrBlock, AddrRange, AddrSet};

/// The name of a pool with its source, as in `kind/name`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolName(Arc<str>);

impl PoolName {
    /// A name as claims write it.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The whole name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Addresses to give, addresses never to give, and the order among pools.
///
/// Selectors elsewhere decide which holders it serves; the pool only knows addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name; unique among all pools.
    pub name: PoolName,
    /// The lowest number is served first; ties go by name.
    pub priority: i32,
    /// Whether it serves holders that did not ask for it or for one of its addresses.
    pub auto_assign: bool,
    /// Gives no more addresses, while every holder keeps the address it has.
    pub drain: bool,
    /// Gives its highest free address first, not its lowest.
    pub descending: bool,
    ranges: AddrSet,
    excluded: AddrSet,
    held_back: AddrSet,
}

impl Pool {
    /// The priority of a pool that names none.
    pub const DEFAULT_PRIORITY: i32 = 100;

    /// A pool of some blocks without some others, with default rules.
    pub fn new(
        name: PoolName,
        blocks: impl IntoIterator<Item = AddrBlock>,
        excluded: impl IntoIterator<Item = AddrBlock>,
    ) -> Self {
        Self {
            name,
            priority: Self::DEFAULT_PRIORITY,
            auto_assign: true,
            drain: false,
            descending: false,
            ranges: blocks.into_iter().map(AddrBlock::range).collect(),
            excluded: excluded.into_iter().map(AddrBlock::range).collect(),
            held_back: AddrSet::new(),
        }
    }

    /// Holds back the first and last address of each CIDR with more than two, and every IPv4 address
    /// that ends in `.0` or `.255`: some network gear mistakes them for network or broadcast
    /// addresses.
    ///
    /// Costs two intervals per /24, so callers limit the size of such pools. Repeated addresses count once.
    #[must_use]
    pub fn avoid_ends(mut self, blocks: impl IntoIterator<Item = AddrBlock>) -> Self {
        for block in blocks.into_iter().filter(|block| block.has_special_ends()) {
            self.held_back.insert(block.range().first());
            self.held_back.insert(block.range().last());
        }
        for range in self.ranges.ranges() {
            hold_back_zeroes_and_255s(range, &mut self.held_back);
        }
        self
    }

    /// Every address the pool covers, given or not.
    pub const fn ranges(&self) -> &AddrSet {
        &self.ranges
    }

    /// Addresses of the pool that no holder may have, through this pool or any other.
    pub const fn excluded(&self) -> &AddrSet {
        &self.excluded
    }

    /// Addresses that this pool holds back because of [`Pool::avoid_ends`].
    pub const fn held_back(&self) -> &AddrSet {
        &self.held_back
    }

    /// Whether the pool covers the address.
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.ranges.contains(addr)
    }
}

fn hold_back_zeroes_and_255s(range: AddrRange, held_back: &mut AddrSet) {
    let (IpAddr::V4(first), IpAddr::V4(last)) = (range.first(), range.last()) else {
        return;
    };
    for network in u32::from(first) >> 8..=u32::from(last) >> 8 {
        let zero = network << 8;
        for addr in [zero, zero | 255] {
            let addr = IpAddr::V4(Ipv4Addr::from(addr));
            if range.contains(addr) {
                held_back.insert(addr);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn blocks(text: &str) -> Vec<AddrBlock> {
        text.split_whitespace().map(|part| part.parse().unwrap()).collect()
    }

    #[test]
    fn avoid_ends_holds_back_addresses_that_network_gear_may_mistake() {
        for (ranges, held_back) in [
            ("10.0.0.0/29", "10.0.0.0 10.0.0.7"),
            ("10.0.0.8/30", "10.0.0.8 10.0.0.11"),
            ("10.0.0.4/31", ""),
            ("10.0.0.0/31", "10.0.0.0"),
            ("10.0.0.255/32", "10.0.0.255"),
            ("10.0.0.7/32", ""),
            ("10.0.0.0/23", "10.0.0.0 10.0.0.255 10.0.1.0 10.0.1.255"),
            ("10.0.0.250-10.0.1.5", "10.0.0.255 10.0.1.0"),
            ("10.0.0.5-10.0.0.9", ""),
            ("10.0.0.0-10.0.0.2", "10.0.0.0"),
            ("10.0.0.9-10.0.1.9 10.0.0.0/29", "10.0.0.0 10.0.0.7 10.0.0.255 10.0.1.0"),
            ("fd00::/120", "fd00:: fd00::ff"),
            ("fd00::10-fd00::1f", ""),
        ] {
            let pool = Pool::new(PoolName::new("p"), blocks(ranges), []).avoid_ends(blocks(ranges));
            let expected: AddrSet = blocks(held_back).into_iter().map(AddrBlock::range).collect();
            assert_eq!(pool.held_back(), &expected, "{ranges}");
        }
    }
}
