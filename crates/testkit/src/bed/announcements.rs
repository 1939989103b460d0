//! Announcements that the client hears: gratuitous ARP for IPv4, unsolicited neighbour advertisements for IPv6.

use std::collections::BTreeMap;
use std::io::{self, PipeReader, PipeWriter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, socket};

use super::Node;
use super::netlink::widen;
use crate::worker::Background;
use crate::{Error, Result};

/// Room for the announcements of a thousand addresses, each repeated five times.
const BUFFER: usize = 16 * 1024 * 1024;
const FRAME: usize = 2048;

const ARP: [u8; 2] = [0x08, 0x06];
const IPV6: [u8; 2] = [0x86, 0xdd];
const ICMPV6: u8 = 58;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const SOLICITED: u8 = 0x40;

/// An announcement that an address is at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    pub at: Instant,
    pub address: IpAddr,
    /// The name of the node whose device sent it.
    pub node: String,
}

/// Hears announcements; dropping it ends its thread.
#[derive(Debug)]
pub struct Announcements {
    heard: Arc<Mutex<Vec<Announcement>>>,
    _thread: Background<PipeWriter>,
}

impl Announcements {
    /// Hears what comes from `nodes` to `client`.
    pub(super) fn start(client: &Node, nodes: &[Node]) -> Result<Self> {
        let socket = client.inside(open)?.map_err(Error::io("making a packet socket"))?;
        let (stopped, stop) = io::pipe().map_err(Error::io("making a pipe"))?;
        let heard = Arc::new(Mutex::default());
        let senders = nodes.iter().map(|node| (node.mac(), node.name().to_owned())).collect();
        let theirs = Arc::clone(&heard);
        // The socket is in the client's network, wherever the thread is.
        let thread = thread::spawn(move || {
            // An error is the end of the pipe, or of the network itself.
            while hear(&socket, &stopped, &senders, &theirs).is_ok() {}
        });
        Ok(Self { heard, _thread: Background::new(stop, thread) })
    }

    /// All until now, in order.
    pub fn all(&self) -> Vec<Announcement> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first for an address at or after a moment.
    pub fn first(&self, address: IpAddr, after: Instant) -> Option<Announcement> {
        self.all().into_iter().find(|it| it.address == address && it.at >= after)
    }
}

fn open() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
    widen(&socket, BUFFER)?;
    Ok(socket)
}

fn hear(
    socket: &OwnedFd,
    stopped: &PipeReader,
    senders: &BTreeMap<[u8; 6], String>,
    heard: &Mutex<Vec<Announcement>>,
) -> io::Result<()> {
    let mut fds = [stopped.as_fd(), socket.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    poll(&mut fds, PollTimeout::NONE)?;
    if fds[0].any().unwrap_or(true) {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let mut frame = [0; FRAME];
    loop {
        let length = match recv(socket.as_raw_fd(), &mut frame, MsgFlags::empty()) {
            Ok(length) => length,
            Err(Errno::EAGAIN) => return Ok(()),
            // The device goes down, or frames were dropped.
            Err(Errno::ENETDOWN | Errno::ENOBUFS | Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        if let Some((mac, address)) = announced(&frame[..length])
            && let Some(node) = senders.get(&mac)
        {
            let announcement = Announcement { at: Instant::now(), address, node: node.clone() };
            heard.lock().unwrap_or_else(PoisonError::into_inner).push(announcement);
        }
    }
}

/// The sender of a frame and the address that it announces, if it announces one.
fn announced(frame: &[u8]) -> Option<([u8; 6], IpAddr)> {
    let (_destination, rest) = frame.split_first_chunk::<6>()?;
    let (sender, rest) = rest.split_first_chunk::<6>()?;
    let (kind, packet) = rest.split_first_chunk::<2>()?;
    let address = match *kind {
        ARP => arp(packet)?.into(),
        IPV6 => neighbour_advertisement(packet)?.into(),
        _ => return None,
    };
    Some((*sender, address))
}

/// Gratuitous is an ARP packet, question or answer, whose sender asks for its own address.
fn arp(packet: &[u8]) -> Option<Ipv4Addr> {
    let sender: [u8; 4] = *packet.get(14..)?.first_chunk()?;
    let target: [u8; 4] = *packet.get(24..)?.first_chunk()?;
    (sender == target).then(|| sender.into())
}

fn neighbour_advertisement(packet: &[u8]) -> Option<Ipv6Addr> {
    let icmp = packet.get(40..).filter(|_| packet[6] == ICMPV6)?;
    let target: [u8; 16] = *icmp.get(8..)?.first_chunk()?;
    let is_one = icmp[0] == NEIGHBOUR_ADVERTISEMENT && icmp[4] & SOLICITED == 0;
    is_one.then(|| target.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0x77, 0, 0, 1];

    fn frame(kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
        [&[0xff; 6][..], &MAC, &kind, packet].concat()
    }

    fn arp(sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
        let head = [0, 1, 8, 0, 6, 4, 0, 1];
        frame(ARP, &[&head[..], &MAC, &sender, &[0xff; 6], &target].concat())
    }

    fn icmpv6(kind: u8, flags: u8, target: Ipv6Addr) -> Vec<u8> {
        let mut header = [0; 40];
        header[6] = ICMPV6;
        let head = [kind, 0, 0, 0, flags, 0, 0, 0];
        frame(IPV6, &[&header[..], &head, &target.octets()].concat())
    }

    #[test]
    fn only_announcements_are_heard() {
        let v6: Ipv6Addr = "fd77::5".parse().unwrap();
        let vip = [10, 77, 1, 1];
        for (case, frame, address) in [
            ("gratuitous ARP", arp(vip, vip), Some(IpAddr::from(vip))),
            ("a question by ARP", arp(vip, [10, 77, 0, 1]), None),
            ("unsolicited", icmpv6(136, 0x20, v6), Some(v6.into())),
            ("solicited", icmpv6(136, 0x60, v6), None),
            ("a neighbour solicitation", icmpv6(135, 0, v6), None),
            ("another protocol", frame([8, 0], &[0; 40]), None),
        ] {
            assert_eq!(announced(&frame), address.map(|it| (MAC, it)), "{case}");
            for length in 0..frame.len() {
                assert_eq!(announced(&frame[..length]), None, "{case}, {length} bytes");
            }
        }
    }
}
