//! Which slot an address belongs to, and which node comes first in an instance.
//!
//! Every answer depends on names and addresses alone, so that it is the same in every process and after every
//! restart, and changes as little as possible when nodes come and go.

use alloc::vec::Vec;
use core::{cmp::Reverse, net::IpAddr};

use crate::plan::{Node, NodeIndex};

/// The highest priority of a node that does not own the addresses.
const HIGHEST: usize = 254;

/// The slot of an address among `slots` of them: the same for good.
pub fn slot_of(address: IpAddr, slots: u8) -> u8 {
    let hash = match address {
        IpAddr::V4(address) => hash([address.octets().as_slice()]),
        IpAddr::V6(address) => hash([address.octets().as_slice()]),
    };
    let slot = hash.checked_rem(u64::from(slots)).unwrap_or_default();
    u8::try_from(slot).unwrap_or_default()
}

/// The nodes in the order in which they are preferred as holders of an instance, by rendezvous hashing:
/// a node that comes or goes changes no other two nodes' order.
pub fn preference(instance: &str, nodes: &[Node]) -> Vec<NodeIndex> {
    let score = |node: &Node| hash([instance.as_bytes(), node.name.as_bytes()]);
    let mut scored: Vec<_> =
        (0..).zip(nodes).map(|(index, node)| (Reverse(score(node)), &node.name, index)).collect();
    scored.sort_unstable();
    scored.into_iter().map(|(_, _, index)| index).collect()
}

/// The priority of the node at `rank` among `nodes`, the first one at rank 0: distinct for up to 254 nodes, and
/// spread over 1 to 254.
pub fn priority(rank: usize, nodes: usize) -> u8 {
    let below = nodes.saturating_sub(1).min(HIGHEST.saturating_sub(1));
    let span = HIGHEST.saturating_sub(1);
    let lost = rank.min(below).saturating_mul(span).checked_div(below).unwrap_or_default();
    u8::try_from(HIGHEST.saturating_sub(lost)).unwrap_or(1)
}

/// FNV-1a over the parts, with a finishing step that spreads short inputs over all bits.
fn hash<const PARTS: usize>(parts: [&[u8]; PARTS]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        // The separator keeps `a` + `bc` apart from `ab` + `c`.
        for byte in part.iter().chain(&[0xff]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests;
