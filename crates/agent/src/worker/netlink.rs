//! What the kernel knows of devices, addresses and routes, and when it changes.

use std::{
    collections::BTreeSet,
    io,
    net::IpAddr,
    os::fd::{AsRawFd as _, OwnedFd},
};

use netlink_packet_core::{
    NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily as Family, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage},
    link::{LinkAttribute, LinkFlags, LinkMessage},
    neighbour::{
        NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
    },
    route::{RouteAddress, RouteAttribute, RouteMessage},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
    },
};
use tokio::io::unix::AsyncFd;

use crate::descriptor::watched;

/// Groups of events, from `<linux/rtnetlink.h>`: links, and addresses and routes of both families.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;

/// A dump is repeated if something changed meanwhile, but not for ever.
const DUMPS: usize = 5;

/// Devices and addresses of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) devices: Vec<Device>,
    pub(super) addresses: Vec<Address>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) is_loopback: bool,
    /// Whether packets can leave it.
    pub(super) is_up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) ip: IpAddr,
    /// The device.
    pub(super) index: u32,
    /// Whether the kernel still asks the network whether the address is free.
    pub(super) is_tentative: bool,
}

impl Network {
    pub(super) fn named(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }

    pub(super) fn at(&self, index: u32) -> Option<&Device> {
        self.devices.iter().find(|device| device.index == index)
    }

    /// All addresses, each with its device.
    pub(super) fn held(&self) -> BTreeSet<(IpAddr, &str)> {
        let named = |it: &Address| Some((it.ip, self.at(it.index)?.name.as_str()));
        self.addresses.iter().filter_map(named).collect()
    }
}

/// Reads everything.
pub(super) fn network() -> io::Result<Network> {
    let links = dump(&RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    let addresses = dump(&RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
    Ok(Network {
        devices: links.into_iter().filter_map(device).collect(),
        addresses: addresses.into_iter().filter_map(address).collect(),
    })
}

/// The device of the route to an address; `None` if there is no route.
pub(super) fn route_to(destination: IpAddr) -> io::Result<Option<u32>> {
    let mut message = RouteMessage::default();
    let (family, length) = match destination {
        IpAddr::V4(_) => (Family::Inet, 32),
        IpAddr::V6(_) => (Family::Inet6, 128),
    };
    message.header.address_family = family;
    message.header.destination_prefix_length = length;
    message.attributes.push(RouteAttribute::Destination(RouteAddress::from(destination)));
    let socket = ask(RouteNetlinkMessage::GetRoute(message), NLM_F_REQUEST)?;
    // Anything but a route means that the network cannot be reached: an answer, not a failure.
    let mut answers = receive(&socket)?.into_iter();
    Ok(answers.find_map(device_of_route))
}

/// The neighbours on a device whose hardware addresses are known.
pub(super) fn neighbours(device: u32) -> io::Result<BTreeSet<IpAddr>> {
    let all = dump(&RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()))?;
    Ok(all.into_iter().filter_map(|message| known_neighbour(message, device)).collect())
}

fn known_neighbour(message: RouteNetlinkMessage, device: u32) -> Option<IpAddr> {
    let RouteNetlinkMessage::NewNeighbour(message) = message else { return None };
    let is_known = message
        .attributes
        .iter()
        .any(|attribute| matches!(attribute, NeighbourAttribute::LinkLayerAddress(_)));
    let unknown = [NeighbourState::None, NeighbourState::Incomplete, NeighbourState::Failed];
    let is_known = is_known && !unknown.contains(&message.header.state);
    let address = message.attributes.into_iter().find_map(|attribute| {
        if let NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) = attribute {
            Some(IpAddr::V4(ip))
        } else if let NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) = attribute {
            Some(IpAddr::V6(ip))
        } else {
            None
        }
    });
    address.filter(|_| is_known && message.header.ifindex == device)
}

/// Forgets what is known of the hardware address of a neighbour.
pub(super) fn forget_neighbour(ip: IpAddr, device: u32) -> io::Result<()> {
    let message = neighbour(ip, device, NeighbourFlags::empty());
    // That nothing was known is no failure.
    ask(RouteNetlinkMessage::DelNeighbour(message), NLM_F_REQUEST).map(drop)
}

/// Begins to ask for the hardware address of a neighbour.
pub(super) fn find_neighbour(ip: IpAddr, device: u32) -> io::Result<()> {
    let message = neighbour(ip, device, NeighbourFlags::Use);
    ask(RouteNetlinkMessage::NewNeighbour(message), NLM_F_REQUEST | NLM_F_CREATE).map(drop)
}

fn neighbour(ip: IpAddr, device: u32, flags: NeighbourFlags) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    let (family, address) = match ip {
        IpAddr::V4(ip) => (Family::Inet, NeighbourAddress::Inet(ip)),
        IpAddr::V6(ip) => (Family::Inet6, NeighbourAddress::Inet6(ip)),
    };
    (message.header.family, message.header.ifindex) = (family, device);
    message.header.flags = flags;
    message.attributes.push(NeighbourAttribute::Destination(address));
    message
}

fn device_of_route(answer: NetlinkMessage<RouteNetlinkMessage>) -> Option<u32> {
    let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) = answer.payload else {
        return None;
    };
    route.attributes.iter().find_map(|attribute| {
        if let RouteAttribute::Oif(index) = attribute { Some(*index) } else { None }
    })
}

/// Tells that something has changed, not what.
#[derive(Debug)]
pub(super) struct Changes {
    socket: AsyncFd<OwnedFd>,
}

impl Changes {
    pub(super) fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let protocol = SockProtocol::NetlinkRoute;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        Ok(Self { socket: watched(socket)? })
    }

    /// Waits for the next change. Losing some because too many came is a change as well.
    pub(super) async fn next(&mut self) -> io::Result<()> {
        let mut ready = self.socket.readable_mut().await?;
        let mut buffer = [0; 4096];
        loop {
            match recv(ready.get_inner().as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(_) | Err(Errno::ENOBUFS | Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        ready.clear_ready();
        Ok(())
    }
}

/// Everything that the kernel lists for a request.
fn dump(request: &RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut all = Vec::new();
    for _ in 0..DUMPS {
        let socket = ask(request.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
        all.clear();
        if read_dump(&socket, &mut all)? {
            break;
        }
    }
    Ok(all)
}

/// Whether nothing changed while the kernel listed.
fn read_dump(socket: &Socket, all: &mut Vec<RouteNetlinkMessage>) -> io::Result<bool> {
    let mut is_whole = true;
    loop {
        for message in receive(socket)? {
            is_whole &= message.header.flags & NLM_F_DUMP_INTR == 0;
            if let NetlinkPayload::Error(error) = message.payload {
                return Err(error.to_io());
            } else if let NetlinkPayload::InnerMessage(inner) = message.payload {
                all.push(inner);
            } else if let NetlinkPayload::Done(_) = message.payload {
                return Ok(is_whole);
            }
        }
    }
}

fn ask(request: RouteNetlinkMessage, flags: u16) -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    Ok(socket)
}

/// The messages of one datagram; one that cannot be understood is left out.
fn receive(socket: &Socket) -> io::Result<Vec<NetlinkMessage<RouteNetlinkMessage>>> {
    let (bytes, _) = socket.recv_from_full()?;
    let mut rest = bytes.as_slice();
    let mut messages = Vec::new();
    while let Some(length) = rest.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(bytes) = rest.get(..length).filter(|bytes| !bytes.is_empty()) else { break };
        messages.extend(NetlinkMessage::deserialize(bytes));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(messages)
}

fn device(message: RouteNetlinkMessage) -> Option<Device> {
    let RouteNetlinkMessage::NewLink(link) = message else { return None };
    let flags = link.header.flags;
    let name = link.attributes.into_iter().find_map(|attribute| {
        if let LinkAttribute::IfName(name) = attribute { Some(name) } else { None }
    })?;
    Some(Device {
        index: link.header.index,
        name,
        is_loopback: flags.contains(LinkFlags::Loopback),
        is_up: flags.contains(LinkFlags::Up | LinkFlags::Running),
    })
}

fn address(message: RouteNetlinkMessage) -> Option<Address> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return None };
    let (mut local, mut other, mut flags) = (None, None, AddressFlags::empty());
    for attribute in message.attributes {
        if let AddressAttribute::Local(ip) = attribute {
            local = Some(ip);
        } else if let AddressAttribute::Address(ip) = attribute {
            // On a point-to-point link this is the address of the other end.
            other = Some(ip);
        } else if let AddressAttribute::Flags(found) = attribute {
            flags = found;
        }
    }
    // An optimistic address can be used while the kernel asks, and one that another machine has stays as it is.
    let is_tentative = flags.contains(AddressFlags::Tentative)
        && !flags.intersects(AddressFlags::Optimistic | AddressFlags::Dadfailed);
    Some(Address { ip: local.or(other)?, index: message.header.index, is_tentative })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn the_loopback_device_and_its_address_are_found() {
        let network = network().unwrap();
        let lo = network.named("lo").unwrap();
        assert!(lo.is_loopback);
        assert_eq!(network.at(lo.index), Some(lo));
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert!(network.held().contains(&(localhost, "lo")), "{network:?}");
        assert_eq!(route_to(localhost).unwrap(), Some(lo.index));
    }

    #[test]
    fn an_address_without_a_route_is_no_failure() {
        // Never routed: it is reserved for the discarding of packets.
        let nowhere = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        assert!(route_to(nowhere).is_ok());
    }
}
