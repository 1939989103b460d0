//! Takes addresses off the node.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    num::NonZeroI32,
};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::{errno::Errno, net::if_::if_nametoindex};
use tracing::warn;

use crate::OwnedAddress;

/// So many requests are sent at once that the answers to them fit into a socket's buffer.
const BATCH: usize = 100;

/// Takes exactly these addresses off the devices that they are listed with, and returns those that were there.
///
/// keepalived gives them the longest prefix there is; the same address with a shorter one is somebody else's.
pub(super) fn remove(addresses: &BTreeSet<OwnedAddress>) -> io::Result<BTreeSet<OwnedAddress>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut devices = BTreeMap::new();
    let mut requests = Vec::new();
    for owned in addresses {
        let device = *devices
            .entry(owned.interface.as_str())
            .or_insert_with(|| if_nametoindex(owned.interface.as_str()).ok());
        // A device that is gone took its addresses with it.
        if let Some(device) = device {
            requests.push((owned, device));
        }
    }
    let mut removed = BTreeSet::new();
    for batch in requests.chunks(BATCH) {
        for ((owned, _), outcome) in batch.iter().zip(send(&socket, batch)?) {
            match outcome {
                None => {
                    removed.insert((*owned).clone());
                }
                Some(Errno::EADDRNOTAVAIL | Errno::ENODEV) => {}
                Some(error) => {
                    let (address, device) = (owned.address, &owned.interface);
                    warn!(%address, device, %error, "an address could not be removed");
                }
            }
        }
    }
    Ok(removed)
}

/// Sends requests and returns the error of each, if it has one.
fn send(socket: &Socket, batch: &[(&OwnedAddress, u32)]) -> io::Result<Vec<Option<Errno>>> {
    let mut bytes = Vec::new();
    for ((owned, device), number) in batch.iter().zip(0_u32..) {
        push(&mut bytes, &request(owned.address, *device, number));
    }
    socket.send(&bytes, 0)?;
    let mut outcomes = vec![None; batch.len()];
    let mut answers = 0;
    while answers < batch.len() {
        let (received, _) = socket.recv_from_full()?;
        for (number, error) in read_answers(&received) {
            answers += 1;
            if let Some(outcome) = outcomes.get_mut(number) {
                *outcome = error;
            }
        }
    }
    Ok(outcomes)
}

fn request(address: IpAddr, device: u32, number: u32) -> NetlinkMessage<RouteNetlinkMessage> {
    let mut message = AddressMessage::default();
    (message.header.family, message.header.prefix_len) = match address {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    message.header.index = device;
    // Without the second one the kernel does not compare the length of the prefix.
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK;
    header.sequence_number = number;
    let payload = NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelAddress(message));
    let mut request = NetlinkMessage::new(header, payload);
    request.finalize();
    request
}

fn push(bytes: &mut Vec<u8>, message: &NetlinkMessage<RouteNetlinkMessage>) {
    let start = bytes.len();
    bytes.resize(start + message.buffer_len(), 0);
    if let Some(space) = bytes.get_mut(start..) {
        message.serialize(space);
    }
}

/// The answers in a packet of the kernel: the number of the request, and the error if it has one.
fn read_answers(mut packet: &[u8]) -> Vec<(usize, Option<Errno>)> {
    let mut answers = Vec::new();
    while let Ok(buffer) = NetlinkBuffer::new_checked(packet) {
        let length = usize::try_from(buffer.length()).unwrap_or(usize::MAX);
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(packet);
        if let Ok(NetlinkMessage { header, payload: NetlinkPayload::Error(error), .. }) = message {
            let number = usize::try_from(header.sequence_number).unwrap_or(usize::MAX);
            let code = error.code.map(NonZeroI32::get).unwrap_or_default();
            let error = (code != 0).then(|| Errno::from_raw(code.saturating_neg()));
            answers.push((number, error));
        }
        packet = packet.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    answers
}
