//! Hears the adverts that come to a device, of both families and to whichever address.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    ops::BitOr,
    os::fd::AsRawFd as _,
    time::Duration,
};

use landfall_vrrp::{
    Form,
    goodbye::{GROUP_V4, GROUP_V6, PROTOCOL},
};
use nix::sys::socket::{SockaddrIn6, recvfrom};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use tokio::io::unix::AsyncFd;
use tracing::warn;

use super::netlink::Device;
use crate::descriptor::watched;

/// Longer than any advert.
const BUFFER: usize = 2048;

/// An advert of a holder that means to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Advert {
    pub(super) router_id: u8,
    pub(super) source: IpAddr,
    /// The time to the next one, as it says itself.
    pub(super) interval: Duration,
}

/// Families of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Families {
    v4: bool,
    v6: bool,
}

impl Families {
    pub(super) const NONE: Self = Self { v4: false, v6: false };
    pub(super) const V4: Self = Self { v4: true, v6: false };
    pub(super) const V6: Self = Self { v4: false, v6: true };
    #[cfg(test)]
    pub(super) const BOTH: Self = Self { v4: true, v6: true };

    /// That of a form's adverts.
    pub(super) fn of(form: &Form) -> Self {
        if form.advertised.first().is_some_and(IpAddr::is_ipv6) { Self::V6 } else { Self::V4 }
    }

    pub(super) fn contain(self, others: Self) -> bool {
        (self.v4 || !others.v4) && (self.v6 || !others.v6)
    }
}

impl BitOr for Families {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self { v4: self.v4 || other.v4, v6: self.v6 || other.v6 }
    }
}

/// A socket for each family that the node has.
#[derive(Debug)]
pub(super) struct Listener {
    v4: Option<AsyncFd<Socket>>,
    v6: Option<AsyncFd<Socket>>,
    index: u32,
}

impl Listener {
    /// Fails if not even one family can be listened to: a kernel may be without IPv6, or a device.
    pub(super) fn open(device: &Device) -> io::Result<Self> {
        let v4 = open(device, Domain::IPV4, |socket| {
            let device = InterfaceIndexOrAddress::Index(device.index);
            socket.join_multicast_v4_n(&GROUP_V4, &device)
        });
        let v6 =
            open(device, Domain::IPV6, |socket| socket.join_multicast_v6(&GROUP_V6, device.index));
        match (v4, v6) {
            (Err(error), Err(_)) => Err(error),
            (v4, v6) => {
                for error in [v4.as_ref().err(), v6.as_ref().err()].into_iter().flatten() {
                    warn!(%error, "adverts of one family cannot be heard");
                }
                Ok(Self { v4: v4.ok(), v6: v6.ok(), index: device.index })
            }
        }
    }

    /// Whether it listens to this device.
    pub(super) fn is_on(&self, device: &Device) -> bool {
        self.index == device.index
    }

    pub(super) fn hears(&self) -> Families {
        Families { v4: self.v4.is_some(), v6: self.v6.is_some() }
    }

    /// The next advert.
    pub(super) async fn next(&self) -> io::Result<Advert> {
        loop {
            let found = tokio::select! {
                packet = receive(self.v4.as_ref()) => from_v4(&packet?.0),
                packet = receive(self.v6.as_ref()) => {
                    let (packet, source) = packet?;
                    source.and_then(|source| advert(&packet, source.ip().into()))
                }
            };
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }
}

/// Unicast adverts come without joining a group.
fn open(
    device: &Device,
    domain: Domain,
    join: impl FnOnce(&Socket) -> io::Result<()>,
) -> io::Result<AsyncFd<Socket>> {
    let protocol = Protocol::from(i32::from(PROTOCOL));
    let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    socket.set_nonblocking(true)?;
    socket.bind_device(Some(device.name.as_bytes()))?;
    join(&socket)?;
    watched(socket)
}

/// The next packet, and where it comes from in IPv6. Waits for ever without a socket.
async fn receive(socket: Option<&AsyncFd<Socket>>) -> io::Result<(Vec<u8>, Option<SockaddrIn6>)> {
    let Some(socket) = socket else { return std::future::pending().await };
    let mut buffer = vec![0; BUFFER];
    loop {
        let mut ready = socket.readable().await?;
        let received =
            ready.try_io(|socket| Ok(recvfrom::<SockaddrIn6>(socket.as_raw_fd(), &mut buffer)?));
        if let Ok(received) = received {
            let (length, source) = received?;
            buffer.truncate(length);
            return Ok((buffer, source));
        }
    }
}

/// A packet of IPv4 comes with its header.
fn from_v4(packet: &[u8]) -> Option<Advert> {
    let words = packet.first().map_or(0, |first| usize::from(first & 0x0f));
    let source: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
    advert(packet.get(words * 4..)?, Ipv4Addr::from(source).into())
}

/// An advert of either version, unless it says goodbye.
fn advert(payload: &[u8], source: IpAddr) -> Option<Advert> {
    let [kind, router_id, priority, _, first, second, ..] = *payload else { return None };
    let interval = match kind {
        0x21 => Duration::from_secs(second.into()),
        0x31 => Duration::from_millis(u64::from(u16::from_be_bytes([first & 0x0f, second])) * 10),
        _ => return None,
    };
    (priority != 0).then_some(Advert { router_id, source, interval })
}

#[cfg(test)]
mod tests {
    use landfall_vrrp::{Version, goodbye::goodbye};

    use super::*;
    use crate::worker::samples::form;

    #[test]
    fn only_adverts_of_holders_that_stay_count() {
        let source = "192.0.2.1".parse().unwrap();
        let v2 = Form { version: Version::V2, advert_millis: 3000, ..form(&["192.0.2.9"]) };
        for (form, interval) in [(form(&["192.0.2.9"]), 100), (v2, 3000)] {
            let mut payload = goodbye(7, &form, None, source, source);
            assert_eq!(advert(&payload, source), None);
            payload[2] = 1;
            let interval = Duration::from_millis(interval);
            let expected = Some(Advert { router_id: 7, source, interval });
            assert_eq!(advert(&payload, source), expected);
            let mut packet = vec![0x46; 24];
            packet[12..16].copy_from_slice(&[192, 0, 2, 1]);
            packet.extend(&payload);
            assert_eq!(from_v4(&packet), expected);
        }
        for other in [&[][..], &[0x31], &[0x32, 7, 1, 1, 0, 10], &[0x31, 7, 1, 1, 0], &[0x45; 10]] {
            assert_eq!(advert(other, source), None);
            assert_eq!(from_v4(other), None);
        }
    }

    #[test]
    fn a_set_of_families_contains_its_parts() {
        let (v4, v6, both) = (Families::V4, Families::V6, Families::BOTH);
        assert_eq!(v4 | v6, both);
        assert!(both.contain(v4) && both.contain(both) && v6.contain(Families::NONE));
        assert!(!v4.contain(v6) && !v4.contain(both) && !Families::NONE.contain(v4));
        assert_eq!(Families::of(&form(&["192.0.2.9"])), v4);
        assert_eq!(Families::of(&form(&["2001:db8::9"])), v6);
    }
}
