//! Sends the adverts that give up the addresses of a keepalived that no longer can.

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, Ipv6Addr, SocketAddrV4, SocketAddrV6},
};

use landfall_vrrp::{
    Transport,
    goodbye::{GROUP_V4, GROUP_V6, PROTOCOL, TIME_TO_LIVE, goodbye},
};
use nix::{ifaddrs::getifaddrs, net::if_::if_nametoindex};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tracing::warn;

use crate::{Farewell, OwnedAddress};

/// Internetwork control, as keepalived marks its adverts.
const PRECEDENCE: u32 = 0xc0;

/// Says goodbye for instances, to every node, and returns for how many that worked.
pub(super) fn say(farewells: &[&Farewell], owned: &BTreeSet<OwnedAddress>) -> u64 {
    if farewells.is_empty() {
        return 0;
    }
    let addresses = addresses().unwrap_or_else(|error| {
        warn!(%error, "the addresses of this node cannot be read");
        Vec::new()
    });
    let mut said = 0;
    for farewell in farewells {
        match say_one(farewell, &addresses, owned) {
            Ok(()) => said += 1,
            Err(error) => warn!(instance = farewell.instance, %error, "no goodbye was said"),
        }
    }
    said
}

fn say_one(
    farewell: &Farewell,
    addresses: &[(String, IpAddr)],
    owned: &BTreeSet<OwnedAddress>,
) -> io::Result<()> {
    let is_v4 = farewell.form.advertised.first().is_some_and(IpAddr::is_ipv4);
    let destinations = match farewell.form.transport {
        Transport::Unicast => farewell.peers.clone(),
        Transport::Multicast if !farewell.peers.is_empty() => farewell.peers.clone(),
        Transport::Multicast if is_v4 => vec![GROUP_V4.into()],
        Transport::Multicast => vec![GROUP_V6.into()],
    };
    let on_device = addresses.iter().filter(|(device, _)| *device == farewell.interface);
    let source = farewell.source.or_else(|| choose(on_device.map(|it| it.1), is_v4, owned));
    let source = source.ok_or_else(|| {
        let family = if is_v4 { "IPv4" } else { "link-local IPv6" };
        io::Error::other(format!("{} has no {family} address", farewell.interface))
    })?;
    let socket = Sender::open(&farewell.interface, source)?;
    let mut outcome = Ok(());
    for destination in destinations.into_iter().filter(|it| it.is_ipv4() == source.is_ipv4()) {
        let (form, password) = (&farewell.form, farewell.password.as_deref());
        let packet = goodbye(farewell.router_id, form, password, source, destination);
        // One node that cannot be reached does not keep the others from hearing it.
        let sent = socket.send(&packet, destination);
        outcome = outcome.and(sent);
    }
    outcome
}

/// A socket from which adverts leave as receivers insist on.
struct Sender {
    socket: Socket,
    device: u32,
}

impl Sender {
    fn open(interface: &str, source: IpAddr) -> io::Result<Self> {
        let domain = if source.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let protocol = Protocol::from(i32::from(PROTOCOL));
        let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
        let device = if_nametoindex(interface)?;
        let hops = u32::from(TIME_TO_LIVE);
        if source.is_ipv4() {
            socket.set_ttl_v4(hops)?;
            socket.set_multicast_ttl_v4(hops)?;
            socket.set_multicast_loop_v4(false)?;
            socket.set_tos_v4(PRECEDENCE)?;
        } else {
            socket.set_unicast_hops_v6(hops)?;
            socket.set_multicast_hops_v6(hops)?;
            socket.set_multicast_loop_v6(false)?;
            socket.set_multicast_if_v6(device)?;
            socket.set_tclass_v6(PRECEDENCE)?;
        }
        socket.bind_device(Some(interface.as_bytes()))?;
        let sender = Self { socket, device };
        sender.socket.bind(&sender.socket_address(source))?;
        Ok(sender)
    }

    fn send(&self, packet: &[u8], destination: IpAddr) -> io::Result<()> {
        self.socket.send_to(packet, &self.socket_address(destination)).map(drop)
    }

    fn socket_address(&self, address: IpAddr) -> SockAddr {
        match address {
            IpAddr::V4(address) => SocketAddrV4::new(address, 0).into(),
            // The device counts for link-local addresses alone.
            IpAddr::V6(address) => SocketAddrV6::new(address, 0, 0, self.device).into(),
        }
    }
}

/// All addresses of this node, each with its device, in the kernel's order.
fn addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let all = getifaddrs()?.filter_map(|it| {
        let storage = it.address?;
        let v4 = storage.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
        let address = v4.or_else(|| Some(IpAddr::V6(storage.as_sockaddr_in6()?.ip())))?;
        Some((it.interface_name, address))
    });
    Ok(all.collect())
}

/// Where keepalived's own multicast adverts come from: the device's first IPv4 address, or its link-local one.
fn choose(
    mut addresses: impl Iterator<Item = IpAddr>,
    is_v4: bool,
    owned: &BTreeSet<OwnedAddress>,
) -> Option<IpAddr> {
    addresses.find(|address| {
        let is_usable = match address {
            IpAddr::V4(_) => is_v4,
            IpAddr::V6(address) => !is_v4 && Ipv6Addr::is_unicast_link_local(address),
        };
        is_usable && !owned.iter().any(|owned| owned.address == *address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adverts_come_from_the_first_address_of_the_device_that_is_not_ours() {
        let owned: BTreeSet<_> = ["169.254.112.7", "fe80::112:7"]
            .map(|address| OwnedAddress {
                address: address.parse().unwrap(),
                interface: "eth0".to_owned(),
            })
            .into();
        let list = |text: &str| -> Vec<IpAddr> {
            text.split_whitespace().map(|it| it.parse().unwrap()).collect()
        };
        let all = "169.254.112.7 10.0.0.2 10.0.0.3 fd00::2 fe80::112:7 fe80::2";
        for (addresses, is_v4, expected) in [
            (all, true, Some("10.0.0.2")),
            (all, false, Some("fe80::2")),
            ("fd00::2 fe80::112:7", false, None),
            ("fe80::2", true, None),
        ] {
            let chosen = choose(list(addresses).into_iter(), is_v4, &owned);
            assert_eq!(chosen, expected.map(|it| it.parse().unwrap()), "{addresses}");
        }
    }
}
