//! The advert with priority 0, by which a holder gives its addresses up: the next node takes them at once
//! instead of waiting for three adverts that do not come.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{
    plan::{Form, Version},
    render::PASSWORD_BYTES,
};

/// The number of the protocol in IP headers.
pub const PROTOCOL: u8 = 112;
/// The time to live, or hop limit, that receivers insist on.
pub const TIME_TO_LIVE: u8 = 255;
/// The multicast address of IPv4 adverts.
pub const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 18);
/// The multicast address of IPv6 adverts.
pub const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x12);

const ADVERT: u8 = 1;
const NO_AUTHENTICATION: u8 = 0;
const PLAIN_PASSWORD: u8 = 1;
/// Where both versions have their checksum.
const CHECKSUM_AT: usize = 6;
/// The longest interval that version 3 can state, in hundredths of a second.
const LONGEST_INTERVAL: u32 = 0x0fff;

/// The payload of the IP packet that gives up the addresses of an instance. Source and destination count
/// in version 3, whose checksum covers them.
pub fn goodbye(
    router_id: u8,
    form: &Form,
    password: Option<&str>,
    source: IpAddr,
    destination: IpAddr,
) -> Vec<u8> {
    let count = u8::try_from(form.advertised.len()).unwrap_or(u8::MAX);
    let is_v2 = form.version == Version::V2;
    let version: u8 = if is_v2 { 2 } else { 3 };
    let mut packet = Vec::with_capacity(64);
    packet.extend([(version << 4) | ADVERT, router_id, 0, count]);
    if is_v2 {
        let authentication = if password.is_some() { PLAIN_PASSWORD } else { NO_AUTHENTICATION };
        let seconds = u8::try_from(form.advert_millis / 1000).unwrap_or(u8::MAX);
        packet.extend([authentication, seconds]);
    } else {
        let centis = (form.advert_millis / 10).min(LONGEST_INTERVAL);
        packet.extend(u16::try_from(centis).unwrap_or(u16::MAX).to_be_bytes());
    }
    packet.extend([0, 0]);
    for address in form.advertised.iter().take(usize::from(count)) {
        push_address(&mut packet, *address);
    }
    if is_v2 {
        let mut bytes = [0; PASSWORD_BYTES];
        for (to, from) in bytes.iter_mut().zip(password.unwrap_or_default().bytes()) {
            *to = from;
        }
        packet.extend(bytes);
    }
    let mut covered = Vec::new();
    if !is_v2 {
        push_address(&mut covered, source);
        push_address(&mut covered, destination);
        // Protocol and length; in IPv6 both are wider, with zeros that a sum does not notice.
        let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
        covered.extend([0, PROTOCOL]);
        covered.extend(length.to_be_bytes());
    }
    covered.extend(&packet);
    let sum = checksum(&covered).to_be_bytes();
    for (to, from) in packet.iter_mut().skip(CHECKSUM_AT).zip(sum) {
        *to = from;
    }
    packet
}

fn push_address(bytes: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => bytes.extend(address.octets()),
        IpAddr::V6(address) => bytes.extend(address.octets()),
    }
}

/// The Internet checksum.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match pair {
        [high, low] => u16::from_be_bytes([*high, *low]),
        [high] => u16::from_be_bytes([*high, 0]),
        _ => 0,
    });
    let mut sum = words.fold(0_u64, |sum, word| sum.saturating_add(u64::from(word)));
    while sum > 0xffff {
        sum = (sum & 0xffff).saturating_add(sum >> 16);
    }
    !u16::try_from(sum).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use alloc::{string::ToString, vec};

    use super::*;
    use crate::plan::Transport;

    fn form(version: Version, advert_millis: u32, advertised: &[&str]) -> Form {
        Form {
            version,
            advert_millis,
            transport: Transport::Multicast,
            password: None,
            advertised: advertised.iter().map(|text| text.parse().unwrap()).collect(),
            anchor: false,
        }
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let hex = hex.replace(' ', "");
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    /// Packets of keepalived 2.2.7, captured while it ended.
    #[test]
    fn a_goodbye_is_what_keepalived_sends_when_it_ends() {
        let v4 = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let (to_v4, to_v6) = (IpAddr::V4(GROUP_V4), IpAddr::V6(GROUP_V6));
        let link_local = "fe80::1cf1:27ff:fe3e:9790".parse().unwrap();
        let two = form(Version::V2, 1000, &["192.0.2.7", "192.0.2.8"]);
        let with_password = form(Version::V2, 2000, &["192.0.2.9"]);
        let anchor = form(Version::V3, 100, &["169.254.112.12"]);
        let anchor_v6 = form(Version::V3, 250, &["fe80::112:13"]);
        for (case, packet, captured) in [
            (
                "version 2, two addresses",
                goodbye(10, &two, None, v4, to_v4),
                "210a 0002 0001 5ae2 c000 0207 c000 0208 0000 0000 0000 0000",
            ),
            (
                "version 2 with a password",
                goodbye(11, &with_password, Some("a# !c{}"), v4, to_v4),
                "210b 0001 0102 ba27 c000 0209 6123 2021 637b 7d00",
            ),
            ("version 3", goodbye(12, &anchor, None, v4, to_v4), "310c 0001 000a 124d a9fe 700c"),
            (
                "version 3 over IPv6",
                goodbye(13, &anchor_v6, None, link_local, to_v6),
                "310d 0001 0019 f654 fe80 0000 0000 0000 0000 0000 0112 0013",
            ),
        ] {
            assert_eq!(packet, bytes(captured), "{case}");
        }
    }

    #[test]
    fn no_more_addresses_are_listed_than_the_header_can_count() {
        let many: Vec<_> = (0..300_u32).map(|last| Ipv4Addr::from(last).to_string()).collect();
        let many = form(Version::V3, 100, &many.iter().map(AsRef::as_ref).collect::<Vec<_>>());
        let v4 = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let packet = goodbye(1, &many, None, v4, v4);
        assert_eq!((packet[3], packet.len()), (255, 8 + 255 * 4));
    }

    #[test]
    fn a_long_password_is_cut_and_an_interval_fits_its_field() {
        let v4 = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let slow = form(Version::V2, 900_000, &["192.0.2.9"]);
        let packet = goodbye(1, &slow, Some("123456789"), v4, v4);
        assert_eq!((packet[5], &packet[12..]), (255, &b"12345678"[..]));
        let slow = form(Version::V3, 90_000, &["192.0.2.9"]);
        assert_eq!(goodbye(1, &slow, None, v4, v4)[4..6], vec![0x0f, 0xff]);
    }
}
