//! The text of one pool: CIDRs and ranges, separated by commas or line breaks.

use std::net::IpAddr;

use landfall_ipam::{AddrBlock, Family, ParseError, Pool, PoolName};

use super::{Leases, quote};
use crate::convert::AVOID_ENDS_LIMIT;

/// All pools of a `ConfigMap` together may have so many IPv4 addresses, because of what it costs to
/// leave some out: four pools of the largest size.
pub(super) const MOST_ADDRESSES: u128 = AVOID_ENDS_LIMIT * 4;
/// Entries of one text.
const MOST_ENTRIES: usize = 4096;
/// Two IPv6 addresses with zones have less.
const LONGEST_ENTRY: usize = 256;
/// More wrong entries than this are only counted.
const MOST_PROBLEMS: usize = 8;
/// The CIDR that is no address but asks for a lease.
const LEASE: &str = "0.0.0.0/32";

/// What holds for all pools of a `ConfigMap`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    pub(super) descending: bool,
    /// Leave out the first and last address of each IPv4 CIDR.
    pub(super) skip_ends: bool,
}

/// The pool that a text describes, or what is wrong with it, entry by entry. Takes its IPv4
/// addresses out of the `room` that is left.
pub(super) fn pool(
    name: PoolName,
    text: &str,
    rules: Rules,
    room: &mut u128,
) -> Result<(Pool, Leases), Vec<String>> {
    let (blocks, leases) = read(text)?;
    let mut pool = Pool::new(name, blocks.iter().copied(), []);
    pool.descending = rules.descending;
    let size = pool.ranges().len_of(Family::V4);
    let most = AVOID_ENDS_LIMIT.min(*room);
    if size > most {
        return Err(vec![format!(
            "it has {size} IPv4 addresses, expected at most {most}: one key may have as many as a \
             /8, and all keys together as many as four of them"
        )]);
    }
    *room = room.saturating_sub(size);
    // The networks are those that merging gives, as kube-vip-cloud-provider sees them.
    let networks = if rules.skip_ends { AddrBlock::merge_v4_cidrs(blocks) } else { Vec::new() };
    Ok((pool.avoid_ends(networks), leases))
}

/// The blocks without those that ask for leases.
fn read(text: &str) -> Result<(Vec<AddrBlock>, Leases), Vec<String>> {
    let entries = text.split([',', '\n']).map(str::trim).filter(|entry| !entry.is_empty());
    let entries: Vec<_> = entries.take(MOST_ENTRIES.saturating_add(1)).collect();
    if entries.is_empty() {
        let expected = "CIDRs and first-last ranges, separated by commas";
        return Err(vec![format!("it is empty, expected {expected}")]);
    }
    if entries.len() > MOST_ENTRIES {
        return Err(vec![format!("it has more entries than {MOST_ENTRIES}, which is the limit")]);
    }
    let mut blocks = Vec::new();
    let mut problems = Vec::new();
    for entry in &entries {
        match block(entry) {
            Ok(block) => blocks.push(block),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.len() > MOST_PROBLEMS {
        let more = problems.split_off(MOST_PROBLEMS).len();
        problems.push(format!("and {more} more entries are wrong"));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    if entries == [LEASE] {
        return Ok((Vec::new(), Leases::All));
    }
    let leases = entries.iter().filter(|entry| **entry == LEASE).count();
    let is_v4 = |block: &AddrBlock| block.range().family() == Family::V4;
    if leases > 0 && leases == blocks.iter().filter(|block| is_v4(block)).count() {
        blocks.retain(|block| !is_v4(block));
        return Ok((blocks, Leases::V4Part));
    }
    Ok((blocks, Leases::No))
}

/// A CIDR or a range. A single address is refused as kube-vip-cloud-provider refuses it, so that a
/// text that is fine here is fine there.
fn block(entry: &str) -> Result<AddrBlock, String> {
    if entry.len() > LONGEST_ENTRY {
        return Err(format!("{} is too long, expected a CIDR or a first-last range", quote(entry)));
    }
    if let Some((first, last)) = entry.split_once('-') {
        let range = format!("{}-{}", without_zone(first), without_zone(last));
        return range.parse().map_err(|error| explain(entry, &error));
    }
    if entry.contains('/') && entry.contains('%') {
        return Err(format!("{entry:?} names a zone, expected a CIDR without one"));
    }
    if let Ok(addr) = entry.parse::<IpAddr>() {
        let bits = if addr.is_ipv4() { 32 } else { 128 };
        return Err(format!(
            "{entry:?} is a single address, expected {addr}/{bits} or {addr}-{addr}"
        ));
    }
    entry.parse().map_err(|error| explain(entry, &error))
}

/// An end of a range. The zone of an IPv6 address says nothing about which addresses are meant.
fn without_zone(end: &str) -> &str {
    let end = end.trim();
    match end.split_once('%') {
        Some((addr, zone)) if addr.contains(':') && !zone.is_empty() => addr,
        _ => end,
    }
}

fn explain(entry: &str, error: &ParseError) -> String {
    match error {
        ParseError::Malformed { hint, .. } => {
            format!("{entry:?} is not a CIDR or a first-last range{hint}")
        }
        ParseError::Backwards { .. } | ParseError::MixedFamilies { .. } => error.to_string(),
    }
}
