//! Addresses that no holder can have, whatever the pools say.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{AddrRange, AddrSet};

/// Why an address is never given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Never {
    /// `0.0.0.0` and `::` stand for "no address".
    Unspecified,
    /// `127.0.0.0/8` and `::1` never leave a machine.
    Loopback,
    /// `224.0.0.0/4` and `ff00::/8` are groups of machines.
    Multicast,
    /// `255.255.255.255` is every machine of a network.
    Broadcast,
    /// `::ffff:0:0/96` are IPv4 addresses written as IPv6 ones, so that one address would have two names.
    Mapped,
    /// The cluster gives addresses of this range by itself.
    ClusterIps,
}

/// The special ranges with their reasons, and link-local ones apart: they work within one network.
const SPECIAL: [(Never, [u8; 4], [u8; 4]); 4] = [
    (Never::Unspecified, [0, 0, 0, 0], [0, 0, 0, 0]),
    (Never::Loopback, [127, 0, 0, 0], [127, 255, 255, 255]),
    (Never::Multicast, [224, 0, 0, 0], [239, 255, 255, 255]),
    (Never::Broadcast, [255, 255, 255, 255], [255, 255, 255, 255]),
];

const SPECIAL_V6: [(Never, u128, u128); 4] = [
    (Never::Unspecified, 0, 0),
    (Never::Loopback, 1, 1),
    (Never::Mapped, 0xffff << 32, (0xffff << 32) | 0xffff_ffff),
    (Never::Multicast, 0xff << 120, u128::MAX),
];

impl Never {
    /// Why no holder in any cluster may have this address.
    pub fn of(addr: IpAddr) -> Option<Self> {
        Self::special().find(|(_, range)| range.contains(addr)).map(|(why, _)| why)
    }

    /// The ranges of addresses that no holder in any cluster may have.
    pub fn special() -> impl Iterator<Item = (Self, AddrRange)> {
        let v4 = SPECIAL.into_iter().map(|(why, first, last)| {
            (why, IpAddr::V4(Ipv4Addr::from(first)), IpAddr::V4(Ipv4Addr::from(last)))
        });
        let v6 = SPECIAL_V6.into_iter().map(|(why, first, last)| {
            (why, IpAddr::V6(Ipv6Addr::from(first)), IpAddr::V6(Ipv6Addr::from(last)))
        });
        v4.chain(v6).filter_map(|(why, first, last)| Some((why, AddrRange::new(first, last)?)))
    }
}

/// The addresses that work within one network only: no router passes them on.
pub fn link_local() -> AddrSet {
    let ranges = [
        (Ipv4Addr::new(169, 254, 0, 0).into(), Ipv4Addr::new(169, 254, 255, 255).into()),
        (
            Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0).into(),
            Ipv6Addr::from((0xfec0 << 112) - 1).into(),
        ),
    ];
    ranges.into_iter().filter_map(|(first, last)| AddrRange::new(first, last)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_ends_of_each_special_range_are_special_and_their_neighbours_are_not() {
        for (text, expected) in [
            ("0.0.0.0", Some(Never::Unspecified)),
            ("0.0.0.1", None),
            ("126.255.255.255", None),
            ("127.0.0.0", Some(Never::Loopback)),
            ("127.255.255.255", Some(Never::Loopback)),
            ("128.0.0.0", None),
            ("223.255.255.255", None),
            ("224.0.0.0", Some(Never::Multicast)),
            ("239.255.255.255", Some(Never::Multicast)),
            ("240.0.0.0", None),
            ("255.255.255.254", None),
            ("255.255.255.255", Some(Never::Broadcast)),
            ("::", Some(Never::Unspecified)),
            ("::1", Some(Never::Loopback)),
            ("::2", None),
            ("::fffe:ffff:ffff", None),
            ("::ffff:0.0.0.0", Some(Never::Mapped)),
            ("::ffff:192.0.2.1", Some(Never::Mapped)),
            ("::ffff:255.255.255.255", Some(Never::Mapped)),
            ("::1:0:0:0", None),
            ("feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None),
            ("ff00::", Some(Never::Multicast)),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Some(Never::Multicast)),
        ] {
            assert_eq!(Never::of(text.parse().unwrap()), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn addresses_are_special_where_the_standard_library_calls_them_so(addr: IpAddr) {
            let special = addr.is_unspecified() || addr.is_loopback() || addr.is_multicast()
                || addr == IpAddr::V4(Ipv4Addr::BROADCAST) || addr.to_canonical() != addr;
            prop_assert_eq!(Never::of(addr).is_some(), special);
            let local = match addr {
                IpAddr::V4(addr) => addr.is_link_local(),
                IpAddr::V6(addr) => addr.is_unicast_link_local(),
            };
            prop_assert_eq!(link_local().contains(addr), local);
        }
    }
}
