//! The texts of one pool: CIDRs and ranges, separated by commas or line breaks.

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

/// The settings of a pool beside its addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    pub(super) descending: bool,
    /// Leave out the first and last address of each IPv4 CIDR.
    pub(super) skip_ends: bool,
}

/// The pool of some blocks without others, or what is wrong with it. Takes its IPv4 addresses out of
/// the `room` that is left.
pub(super) fn pool(
    name: PoolName,
    blocks: Vec<AddrBlock>,
    excluded: Vec<AddrBlock>,
    rules: Rules,
    room: &mut u128,
) -> Result<Pool, String> {
    let mut pool = Pool::new(name, blocks.iter().copied(), excluded);
    pool.descending = rules.descending;
    let size = pool.ranges().len_of(Family::V4);
    let most = AVOID_ENDS_LIMIT.min(*room);
    if size > most {
        return Err(format!(
            "it has {size} IPv4 addresses, expected at most {most}: one key may have as many as a \
             /8, and all keys together as many as four of them"
        ));
    }
    *room = room.saturating_sub(size);
    // The networks are those that merging gives, as kube-vip-cloud-provider sees them.
    let networks = if rules.skip_ends { AddrBlock::merge_v4_cidrs(blocks) } else { Vec::new() };
    Ok(pool.avoid_ends(networks))
}

/// What a pool gives: its blocks without those that ask for leases, or what is wrong with the text,
/// entry by entry.
pub(super) fn given(text: &str) -> Result<(Vec<AddrBlock>, Leases), Vec<String>> {
    let entries = entries(text, Lone::Refused)?;
    if entries.is_empty() {
        let expected = "CIDRs and first-last ranges, separated by commas";
        return Err(vec![format!("it is empty, expected {expected}")]);
    }
    let is_leased = |family: Family| {
        let of_family = |(_, block): &&(&str, AddrBlock)| block.range().family() == family;
        let mut of_family = entries.iter().filter(of_family).map(|(entry, _)| *entry).peekable();
        of_family.peek().is_some() && of_family.all(|entry| entry == lease_of(family))
    };
    let leases = match (is_leased(Family::V4), is_leased(Family::V6)) {
        (false, false) => Leases::No,
        (true, false) if entries.len() == 1 => Leases::All,
        (true, false) => Leases::Of(Family::V4),
        (false, true) => Leases::Of(Family::V6),
        (true, true) => Leases::Each,
    };
    let blocks = entries.iter().map(|(_, block)| *block);
    let given = blocks.filter(|block| leases.of(block.range().family()).is_none());
    Ok((given.collect(), leases))
}

/// The CIDR that is no address of the family but asks for a lease.
const fn lease_of(family: Family) -> &'static str {
    match family {
        Family::V4 => "0.0.0.0/32",
        Family::V6 => "::/128",
    }
}

/// What a pool never gives, or what is wrong with the text, entry by entry. A text without entries
/// excludes nothing.
pub(super) fn excluded(text: &str) -> Result<Vec<AddrBlock>, Vec<String>> {
    Ok(entries(text, Lone::Taken)?.into_iter().map(|(_, block)| block).collect())
}

/// How an entry that is a single address is read.
#[derive(Clone, Copy)]
enum Lone {
    /// As kube-vip-cloud-provider does it, so that a text that is fine here is fine there.
    Refused,
    Taken,
}

impl Lone {
    const fn expected(self) -> &'static str {
        match self {
            Self::Refused => "a CIDR or a first-last range",
            Self::Taken => "an address, a CIDR or a first-last range",
        }
    }
}

/// Each entry with what it names, or what is wrong with some.
fn entries(text: &str, lone: Lone) -> Result<Vec<(&str, AddrBlock)>, Vec<String>> {
    let entries = text.split([',', '\n']).map(str::trim).filter(|entry| !entry.is_empty());
    let entries: Vec<_> = entries.take(MOST_ENTRIES.saturating_add(1)).collect();
    if entries.len() > MOST_ENTRIES {
        return Err(vec![format!("it has more entries than {MOST_ENTRIES}, which is the limit")]);
    }
    let mut read = Vec::new();
    let mut problems = Vec::new();
    for entry in entries {
        match block(entry, lone) {
            Ok(block) => read.push((entry, block)),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.len() > MOST_PROBLEMS {
        let more = problems.split_off(MOST_PROBLEMS).len();
        problems.push(format!("and {more} more entries are wrong"));
    }
    if problems.is_empty() { Ok(read) } else { Err(problems) }
}

fn block(entry: &str, lone: Lone) -> Result<AddrBlock, String> {
    if entry.len() > LONGEST_ENTRY {
        return Err(format!("{} is too long, expected {}", quote(entry), lone.expected()));
    }
    if let Some((first, last)) = entry.split_once('-') {
        let range = format!("{}-{}", without_zone(first), without_zone(last));
        return range.parse().map_err(|error| explain(entry, &error, lone));
    }
    if entry.contains('/') && entry.contains('%') {
        return Err(format!("{entry:?} names a zone, expected a CIDR without one"));
    }
    match (entry.parse::<IpAddr>(), lone) {
        (Ok(addr), Lone::Refused) => {
            let bits = if addr.is_ipv4() { 32 } else { 128 };
            Err(format!("{entry:?} is a single address, expected {addr}/{bits} or {addr}-{addr}"))
        }
        (Ok(_), Lone::Taken) | (Err(_), _) => {
            entry.parse().map_err(|error| explain(entry, &error, lone))
        }
    }
}

/// An end of a range. The zone of an IPv6 address says nothing about which addresses are meant.
fn without_zone(end: &str) -> &str {
    let end = end.trim();
    match end.split_once('%') {
        Some((addr, zone)) if addr.contains(':') && !zone.is_empty() => addr,
        _ => end,
    }
}

fn explain(entry: &str, error: &ParseError, lone: Lone) -> String {
    match error {
        ParseError::Malformed { hint, .. } => {
            format!("{entry:?} is not {}{hint}", lone.expected())
        }
        ParseError::Backwards { .. } | ParseError::MixedFamilies { .. } => error.to_string(),
    }
}
