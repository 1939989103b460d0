//! Addresses of a network namespace as its kernel tells them: all at once, and each change.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket, sockopt,
};

/// `<linux/netlink.h>` and `<linux/rtnetlink.h>`.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_REQUEST_DUMP: u16 = 0x1 | 0x300;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTMGRP_IPV4_IFADDR: u32 = 0x10;
const RTMGRP_IPV6_IFADDR: u32 = 0x100;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
const IFA_F_TENTATIVE: u32 = 0x40;

const HEADER: usize = 16;
const ADDRESS_HEADER: usize = 8;
const ATTRIBUTE_HEADER: usize = 4;

/// More than one message of a kernel is ever long.
const BUFFER: usize = 64 * 1024;
/// Room for the events of some thousand addresses that move at once.
const EVENTS_BUFFER: usize = 4 * 1024 * 1024;

/// An address on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub ip: IpAddr,
    pub prefix: u8,
    /// The number of the device; that of `lo` is 1.
    pub device: u32,
    /// Not usable yet: the kernel still asks whether another machine has it.
    pub tentative: bool,
}

/// An address that came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) address: Address,
    pub(super) is_held: bool,
}

/// Reads all addresses again and again.
#[derive(Debug)]
pub(super) struct Dumps {
    socket: OwnedFd,
    buffer: Vec<u8>,
    raw: Vec<u8>,
    previous: Vec<u8>,
}

impl Dumps {
    /// Of the network that the calling thread is in.
    pub(super) fn open() -> io::Result<Self> {
        let socket = open(0, SockFlag::SOCK_CLOEXEC)?;
        let buffer = vec![0; BUFFER];
        Ok(Self { socket, buffer, raw: Vec::new(), previous: Vec::new() })
    }

    /// All addresses, or `None` if they are the same as at the last call.
    pub(super) fn read(&mut self) -> io::Result<Option<Vec<Address>>> {
        while !self.dump()? {}
        // Most are equal byte by byte, and comparing costs a tenth of reading.
        if self.raw == self.previous {
            return Ok(None);
        }
        std::mem::swap(&mut self.raw, &mut self.previous);
        let all = messages(&self.previous).filter_map(|it| parse(&it));
        Ok(Some(all.map(|event| event.address).collect()))
    }

    /// Whether nothing changed while the kernel listed them.
    fn dump(&mut self) -> io::Result<bool> {
        let length = u32::try_from(HEADER + ADDRESS_HEADER).unwrap_or_default();
        let mut request = Vec::with_capacity(HEADER + ADDRESS_HEADER);
        request.extend(length.to_ne_bytes());
        request.extend(RTM_GETADDR.to_ne_bytes());
        request.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
        // The same number in each request makes equal dumps equal byte by byte.
        request.extend([0; 8]);
        request.extend([0; ADDRESS_HEADER]);
        send(self.socket.as_raw_fd(), &request, MsgFlags::empty())?;
        self.raw.clear();
        let mut is_whole = true;
        loop {
            let length = recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::empty())?;
            let part = &self.buffer[..length];
            for message in messages(part) {
                is_whole &= message.flags & NLM_F_DUMP_INTR == 0;
                match message.kind {
                    NLMSG_DONE => return Ok(is_whole),
                    NLMSG_ERROR => {
                        return Err(io::Error::other("netlink refused to list addresses"));
                    }
                    _ => {}
                }
            }
            self.raw.extend_from_slice(part);
        }
    }
}

/// Tells each change.
#[derive(Debug)]
pub(super) struct Events {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Events {
    /// Of the network that the calling thread is in.
    pub(super) fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = open(RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR, flags)?;
        widen(&socket, EVENTS_BUFFER)?;
        Ok(Self { socket, buffer: vec![0; BUFFER] })
    }

    /// What has come since the last call.
    ///
    /// Should the kernel have dropped some because too many came, the next dump shows their effect.
    pub(super) fn read(&mut self) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        loop {
            match recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Ok(length) => {
                    events.extend(messages(&self.buffer[..length]).filter_map(|it| parse(&it)));
                }
                Err(Errno::EAGAIN) => return Ok(events),
                Err(Errno::ENOBUFS | Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The addresses of the network that the calling thread is in.
pub(super) fn addresses() -> io::Result<Vec<Address>> {
    Ok(Dumps::open()?.read()?.unwrap_or_default())
}

/// Enlarges the receive buffer of a socket: beyond the system's limit where we may.
pub(super) fn widen(socket: &OwnedFd, bytes: usize) -> io::Result<()> {
    if setsockopt(socket, sockopt::RcvBufForce, &bytes).is_err() {
        setsockopt(socket, sockopt::RcvBuf, &bytes)?;
    }
    Ok(())
}

fn open(groups: u32, flags: SockFlag) -> io::Result<OwnedFd> {
    let protocol = SockProtocol::NetlinkRoute;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    Ok(socket)
}

struct Message<'a> {
    kind: u16,
    flags: u16,
    body: &'a [u8],
}

/// The messages in what one call received; what is cut off is left out.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
        let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
        let flags = u16::from_ne_bytes(*bytes.get(6..)?.first_chunk()?);
        let body = bytes.get(HEADER..length)?;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some(Message { kind, flags, body })
    })
}

fn parse(message: &Message<'_>) -> Option<Event> {
    let is_held = match message.kind {
        RTM_NEWADDR => true,
        RTM_DELADDR => false,
        _ => return None,
    };
    let (&[_, prefix, flags, _, d0, d1, d2, d3], mut rest) =
        message.body.split_first_chunk::<ADDRESS_HEADER>()?;
    let device = u32::from_ne_bytes([d0, d1, d2, d3]);
    let (mut address, mut local, mut flags) = (None, None, u32::from(flags));
    while let Some((&[l0, l1, k0, k1], _)) = rest.split_first_chunk::<ATTRIBUTE_HEADER>() {
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = rest.get(ATTRIBUTE_HEADER..length)?;
        match u16::from_ne_bytes([k0, k1]) {
            IFA_ADDRESS => address = ip(value),
            IFA_LOCAL => local = ip(value),
            IFA_FLAGS => flags = u32::from_ne_bytes(value.try_into().ok()?),
            _ => {}
        }
        rest = rest.get(aligned(length)..).unwrap_or_default();
    }
    // On a point-to-point link the other attribute is the address of the other end.
    let ip = local.or(address)?;
    let tentative = flags & IFA_F_TENTATIVE != 0;
    Some(Event { address: Address { ip, prefix, device, tentative }, is_held })
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|it| Ipv4Addr::from(it).into());
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(|it| Ipv6Addr::from(it).into())).ok()
}

/// Messages and attributes begin at multiples of four.
fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER + body.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).unwrap();
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    fn address(prefix: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![2, prefix, 0x80, 0];
        body.extend(2_u32.to_ne_bytes());
        body.extend(attributes.concat());
        body
    }

    #[test]
    fn every_form_of_an_address_is_read() {
        let v6: Ipv6Addr = "fd77::5".parse().unwrap();
        let tentative = (IFA_F_TENTATIVE | 0x80).to_ne_bytes();
        let bytes = [
            message(
                RTM_NEWADDR,
                &address(
                    32,
                    &[
                        attribute(IFA_ADDRESS, &[10, 0, 0, 9]),
                        attribute(IFA_LOCAL, &[10, 0, 0, 5]),
                        attribute(3, b"eth0\0"),
                    ],
                ),
            ),
            message(
                RTM_DELADDR,
                &address(
                    128,
                    &[attribute(IFA_ADDRESS, &v6.octets()), attribute(IFA_FLAGS, &tentative)],
                ),
            ),
            message(RTM_NEWADDR, &address(32, &[])),
            message(16, b"of another kind"),
        ]
        .concat();
        let found: Vec<_> = messages(&bytes).map(|it| parse(&it)).collect();
        let event = |ip: IpAddr, prefix, tentative, is_held| {
            Some(Event { address: Address { ip, prefix, device: 2, tentative }, is_held })
        };
        let first = event([10, 0, 0, 5].into(), 32, false, true);
        assert_eq!(found, [first, event(v6.into(), 128, true, false), None, None]);
    }

    #[test]
    fn what_is_cut_off_is_left_out() {
        let body = address(32, &[attribute(IFA_LOCAL, &[10, 0, 0, 5])]);
        let whole = message(RTM_NEWADDR, &body);
        for length in 0..whole.len() {
            assert_eq!(messages(&whole[..length]).count(), 0, "{length} bytes");
        }
        for length in 0..body.len() {
            let cut = message(RTM_NEWADDR, &body[..length]);
            assert!(messages(&cut).all(|it| parse(&it).is_none()), "{length} bytes of the body");
        }
    }
}
