//! Addresses, ranges and CIDRs as users write them.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};
use core::{fmt, net::IpAddr, ops::RangeInclusive, str::FromStr};

use ipnet::{IpNet, Ipv4Net};

/// One of the two address families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both of them.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address. An IPv4-mapped IPv6 address is IPv6, as it is written.
    pub const fn of(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Its usual name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a text is not an address, range or CIDR. Quotes the input and says what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// None of the three forms.
    #[error("{input:?} is not an address, a CIDR or a first-last range{hint}")]
    Malformed {
        /// The text as written.
        input: String,
        /// What the user probably meant, or nothing.
        hint: &'static str,
    },
    /// `first-last` with the ends swapped.
    #[error("{input:?} is empty: its first address comes after its last; write {first}-{last}")]
    Backwards {
        /// The text as written.
        input: String,
        /// The lower end.
        first: IpAddr,
        /// The upper end.
        last: IpAddr,
    },
    /// `first-last` over two families.
    #[error("{input:?} mixes IPv4 and IPv6; both ends of a range must be of one family")]
    MixedFamilies {
        /// The text as written.
        input: String,
    },
}

/// An inclusive run of addresses of one family, never empty.
///
/// Fields are private and only [`AddrRange::new`] makes a range, so a range never needs to be checked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddrRange {
    first: IpAddr,
    last: IpAddr,
}

impl AddrRange {
    /// A range, unless it would be empty or span two families.
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        (Family::of(first) == Family::of(last) && first <= last).then_some(Self { first, last })
    }

    /// The lowest address.
    pub const fn first(self) -> IpAddr {
        self.first
    }

    /// The highest address.
    pub const fn last(self) -> IpAddr {
        self.last
    }

    /// The family of all its addresses.
    pub const fn family(self) -> Family {
        Family::of(self.first)
    }

    /// Whether the address lies inside.
    pub fn contains(self, addr: IpAddr) -> bool {
        // Every v4 address orders before every v6 one, so the other family never matches.
        (self.first..=self.last).contains(&addr)
    }
}

impl From<IpAddr> for AddrRange {
    fn from(addr: IpAddr) -> Self {
        Self { first: addr, last: addr }
    }
}

impl From<AddrRange> for RangeInclusive<IpAddr> {
    fn from(range: AddrRange) -> Self {
        range.first..=range.last
    }
}

impl fmt::Display for AddrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// A range together with how it was written, because the ends of a CIDR are special (network and
/// broadcast address) and the ends of a `first-last` range are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddrBlock {
    range: AddrRange,
    cidr: bool,
}

impl AddrBlock {
    /// The addresses of the block; a CIDR's host bits are masked off.
    pub const fn range(self) -> AddrRange {
        self.range
    }

    /// Whether it was written as a CIDR.
    pub const fn is_cidr(self) -> bool {
        self.cidr
    }

    /// Whether the ends of this block are a network's ends: a CIDR with room between them.
    ///
    /// IPv6 has no broadcast address, but the all-zeroes host is the subnet-router anycast address
    /// (RFC 4291, 2.6.1), and "both ends" is what users of the option expect.
    pub fn has_special_ends(self) -> bool {
        let room = match (self.range.first, self.range.last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                u128::from(u32::from(last).abs_diff(u32::from(first)))
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => u128::from(last).abs_diff(u128::from(first)),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => 0,
        };
        self.cidr && room > 1
    }

    /// The IPv4 CIDRs among the blocks, merged into the fewest networks with the same addresses.
    ///
    /// Two halves of a network become that network, without ends where they meet.
    pub fn merge_v4_cidrs(blocks: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let networks = blocks.into_iter().filter_map(Self::v4_network).collect();
        Ipv4Net::aggregate(&networks).into_iter().map(|net| Self::from_net(net.into())).collect()
    }

    fn v4_network(self) -> Option<Ipv4Net> {
        let (IpAddr::V4(first), IpAddr::V4(last)) = (self.range.first, self.range.last) else {
            return None;
        };
        // The ends of a network share its prefix and differ in every bit after it.
        let prefix = (u32::from(first) ^ u32::from(last)).leading_zeros();
        let network = Ipv4Net::new(first, u8::try_from(prefix).ok()?).ok();
        network.filter(|_| self.cidr)
    }

    fn from_net(net: IpNet) -> Self {
        let range = AddrRange { first: net.network(), last: net.broadcast() };
        Self { range, cidr: true }
    }
}

impl FromStr for AddrBlock {
    type Err = ParseError;

    /// Reads `10.0.0.5`, `10.0.0.0/24` (host bits allowed) or `10.0.0.5-10.0.0.9`; blanks around each
    /// part are ignored.
    fn from_str(input: &str) -> Result<Self, ParseError> {
        let text = input.trim();
        let malformed = || ParseError::Malformed { input: input.to_string(), hint: hint(text) };
        if let Some((first, last)) = text.split_once('-') {
            let first: IpAddr = first.trim().parse().map_err(|_| malformed())?;
            let last: IpAddr = last.trim().parse().map_err(|_| malformed())?;
            if Family::of(first) != Family::of(last) {
                return Err(ParseError::MixedFamilies { input: input.to_string() });
            }
            let range = AddrRange::new(first, last).ok_or_else(|| ParseError::Backwards {
                input: input.to_string(),
                first: last,
                last: first,
            })?;
            return Ok(Self { range, cidr: false });
        }
        if let Some((addr, prefix)) = text.split_once('/') {
            let (addr, prefix) = (addr.trim(), prefix.trim());
            let plain = prefix.bytes().all(|digit| digit.is_ascii_digit());
            let addr = addr.parse().ok().filter(|_| plain && !has_leading_zero(prefix));
            let net = addr.and_then(|addr| IpNet::new(addr, prefix.parse().ok()?).ok());
            return Ok(Self::from_net(net.ok_or_else(malformed)?));
        }
        let addr: IpAddr = text.parse().map_err(|_| malformed())?;
        Ok(Self { range: addr.into(), cidr: false })
    }
}

/// A guess at what went wrong, for the mistakes people really make.
fn hint(text: &str) -> &'static str {
    let (addr, prefix) = text.split_once('/').unwrap_or((text, "0"));
    let (addr, prefix) = (addr.trim(), prefix.trim());
    if text.is_empty() {
        "; it is empty"
    } else if has_leading_zero(addr) || has_leading_zero(prefix) {
        "; write its numbers without leading zeros, which some programs read as octal"
    } else if addr.parse::<IpAddr>().is_ok() {
        if prefix.parse::<u8>().is_ok() {
            "; its prefix is longer than the address"
        } else {
            "; a prefix is a number of bits, as in 10.0.0.0/24"
        }
    } else if text.contains("..") || text.contains(',') {
        "; give each range as an entry of its own, as in 10.0.0.5-10.0.0.9"
    } else {
        ""
    }
}

fn has_leading_zero(numbers: &str) -> bool {
    !numbers.contains(':')
        && numbers.split(['.', '-']).any(|part| part.len() > 1 && part.starts_with('0'))
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    fn block(text: &str) -> AddrBlock {
        text.parse().unwrap()
    }

    #[test]
    fn every_form_a_user_may_write_is_read() {
        for (text, first, last) in [
            ("10.0.0.5", "10.0.0.5", "10.0.0.5"),
            (" 10.0.0.5 ", "10.0.0.5", "10.0.0.5"),
            ("10.0.0.5/29", "10.0.0.0", "10.0.0.7"),
            ("10.1.2.3/32", "10.1.2.3", "10.1.2.3"),
            ("\t10.0.0.0 / 30\n", "10.0.0.0", "10.0.0.3"),
            ("10.0.0.0/8", "10.0.0.0", "10.255.255.255"),
            ("0.0.0.0/0", "0.0.0.0", "255.255.255.255"),
            ("10.0.0.5-10.0.0.9", "10.0.0.5", "10.0.0.9"),
            ("10.0.0.5 - 10.0.0.9", "10.0.0.5", "10.0.0.9"),
            ("10.0.0.250-10.0.1.5", "10.0.0.250", "10.0.1.5"),
            ("fd00::1", "fd00::1", "fd00::1"),
            ("fd00::/64", "fd00::", "fd00::ffff:ffff:ffff:ffff"),
            ("fd00::10-fd00::1f", "fd00::10", "fd00::1f"),
            ("::/0", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ] {
            let range = block(text).range();
            assert_eq!(format!("{}", range.first()), first, "{text}");
            assert_eq!(format!("{}", range.last()), last, "{text}");
        }
    }

    #[test]
    fn unreadable_text_is_quoted_with_the_expected_form() {
        for (text, expected) in [
            ("", r#""" is not an address, a CIDR or a first-last range; it is empty"#),
            ("abc", r#""abc" is not an address, a CIDR or a first-last range"#),
            (
                "1.1.1.01",
                r#""1.1.1.01" is not an address, a CIDR or a first-last range; write its numbers without leading zeros, which some programs read as octal"#,
            ),
            (
                "10.0.010.0/24",
                r#""10.0.010.0/24" is not an address, a CIDR or a first-last range; write its numbers without leading zeros, which some programs read as octal"#,
            ),
            (
                "10.0.0.0/08",
                r#""10.0.0.0/08" is not an address, a CIDR or a first-last range; write its numbers without leading zeros, which some programs read as octal"#,
            ),
            (
                "10.0.0.0/33",
                r#""10.0.0.0/33" is not an address, a CIDR or a first-last range; its prefix is longer than the address"#,
            ),
            (
                "10.0.0.0/x",
                r#""10.0.0.0/x" is not an address, a CIDR or a first-last range; a prefix is a number of bits, as in 10.0.0.0/24"#,
            ),
            (
                "10.0.0.1,10.0.0.2",
                r#""10.0.0.1,10.0.0.2" is not an address, a CIDR or a first-last range; give each range as an entry of its own, as in 10.0.0.5-10.0.0.9"#,
            ),
            (
                "10.0.0.9-10.0.0.5",
                r#""10.0.0.9-10.0.0.5" is empty: its first address comes after its last; write 10.0.0.5-10.0.0.9"#,
            ),
            (
                "10.0.0.1-fd00::1",
                r#""10.0.0.1-fd00::1" mixes IPv4 and IPv6; both ends of a range must be of one family"#,
            ),
            ("10.0.0.1-", r#""10.0.0.1-" is not an address, a CIDR or a first-last range"#),
        ] {
            assert_eq!(text.parse::<AddrBlock>().unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn only_networks_with_room_have_special_ends() {
        for (text, special) in [
            ("10.0.0.0/24", true),
            ("10.0.0.0/30", true),
            ("10.0.0.0/31", false),
            ("10.0.0.0/32", false),
            ("10.0.0.0-10.0.0.255", false),
            ("fd00::/64", true),
            ("fd00::/127", false),
        ] {
            assert_eq!(block(text).has_special_ends(), special, "{text}");
        }
    }

    #[test]
    fn v4_cidrs_merge_into_the_fewest_networks() {
        for (written, merged) in [
            ("", ""),
            ("10.0.0.1/32", "10.0.0.1/32"),
            ("10.0.0.0/30 10.0.0.4/30 10.0.0.8/30", "10.0.0.0/29 10.0.0.8/30"),
            ("10.0.0.8/30 10.0.0.4/30", "10.0.0.4/30 10.0.0.8/30"),
            ("192.168.0.200/30 192.168.0.200/29", "192.168.0.200/29"),
            ("0.0.0.0/1 128.0.0.0/1", "0.0.0.0/0"),
            ("10.0.0.0/31 10.0.0.2-10.0.0.3 fd00::/64", "10.0.0.0/31"),
        ] {
            let blocks = written.split_whitespace().map(block);
            let expected: Vec<_> = merged.split_whitespace().map(block).collect();
            assert_eq!(AddrBlock::merge_v4_cidrs(blocks), expected, "{written}");
        }
    }

    #[test]
    fn a_range_never_matches_the_other_family() {
        assert!(!block("0.0.0.0/0").range().contains("::1".parse().unwrap()));
        assert!(!block("::/0").range().contains("10.0.0.1".parse().unwrap()));
    }

    proptest::proptest! {
        #[test]
        fn a_range_reads_back_as_itself(a: IpAddr, b: IpAddr) {
            if let Some(range) = AddrRange::new(a.min(b), a.max(b)) {
                proptest::prop_assert_eq!(block(&format!("{range}")).range(), range);
            }
        }
    }
}
