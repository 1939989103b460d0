//! From what users write to plain pools.

use landfall_ipam::{AddrBlock, Family, Pool, PoolName};

use crate::IPGroupSpec;

/// Holds back ends only where that stays cheap: two intervals per /24, so up to a /8.
const AVOID_ENDS_LIMIT: u128 = 1 << 24;

/// The pool that a spec describes, or what is wrong with it, part by part.
///
/// A part that cannot be read makes the whole pool unusable: to give addresses without an exclusion
/// that was meant would be worse than to give none.
pub fn pool(name: PoolName, spec: &IPGroupSpec) -> Result<Pool, Vec<String>> {
    let mut problems = Vec::new();
    let segment = spec.segment.iter().map(|text| ("segment", text));
    let ranges = spec.ranges.iter().map(|text| ("ranges", text));
    let blocks = read(segment.chain(ranges), &mut problems);
    let excluded = read(spec.excluded().iter().map(|text| ("excludedIPs", text)), &mut problems);
    if blocks.is_empty() && problems.is_empty() {
        problems.push("it has no addresses: set segment or ranges".to_owned());
    }
    let mut pool = Pool::new(name, blocks.iter().copied(), excluded);
    pool.priority = spec.priority();
    pool.auto_assign = spec.auto_assign();
    pool.drain = spec.drain();
    if spec.avoid_ends() {
        if pool.ranges().len_of(Family::V4) > AVOID_ENDS_LIMIT {
            problems.push("avoidEnds: works for up to a /8 of IPv4 addresses".to_owned());
        } else {
            pool = pool.avoid_ends(blocks);
        }
    }
    if problems.is_empty() { Ok(pool) } else { Err(problems) }
}

fn read<'a>(
    texts: impl Iterator<Item = (&'static str, &'a String)>,
    problems: &mut Vec<String>,
) -> Vec<AddrBlock> {
    let mut blocks = Vec::new();
    for (field, text) in texts {
        match text.parse() {
            Ok(block) => blocks.push(block),
            Err(error) => problems.push(format!("{field}: {error}")),
        }
    }
    blocks
}
