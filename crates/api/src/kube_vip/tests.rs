//! What kube-vip-cloud-provider's own tests pin, what follows from its sources, and what is new.

mod additive;
mod annotation;
mod beyond;
mod cidrs;
mod discovery;
mod families;
mod first_in_cidr;
mod first_in_range;
mod ranges;
mod warnings;

use landfall_ipam::{AddrBlock, AddrSet, Book, Family, PoolName, Verdict};

use super::*;

pub(super) fn name(key: &str) -> PoolName {
    PoolName::new(&format!("ConfigMap/kubevip/{key}"))
}

pub(super) fn read(data: &[(&str, &str)]) -> PoolMap {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    PoolMap::read(name, &data.collect())
}

fn warnings(data: &[(&str, &str)]) -> Vec<(String, String)> {
    read(data).problems.into_iter().map(|problem| (problem.key, problem.text)).collect()
}

/// The pool of all, with more keys.
fn global(text: &str, more: &[(&str, &str)]) -> Pool {
    let map = read(&[more, &[("cidr-global", text)]].concat());
    map.pool_of("any").unwrap().pool.clone().unwrap()
}

/// A set from the words between blanks.
fn set(text: &str) -> AddrSet {
    text.split_whitespace().map(|part| part.parse::<AddrBlock>().unwrap().range()).collect()
}

/// The addresses that an unused pool could give.
fn usable(pool: &Pool) -> AddrSet {
    pool.ranges().difference(pool.held_back())
}

/// The first free address of a text, with what is used between blanks.
fn first_free(text: &str, used: &str, more: &[(&str, &str)]) -> Result<IpAddr, Verdict> {
    let mut book = Book::new();
    for addr in used.split_whitespace() {
        book.take(ip(addr));
    }
    first_free_of(&mut book, text, more)
}

/// The first free address of the only family in a text, after it has become the text of the pool.
fn first_free_of(book: &mut Book, text: &str, more: &[(&str, &str)]) -> Result<IpAddr, Verdict> {
    let pool = global(text, more);
    let (name, ranges) = (pool.name.clone(), pool.ranges().clone());
    book.replace_pools([pool]);
    let family = if ranges.has_family(Family::V4) { Family::V4 } else { Family::V6 };
    book.first_free(&name, family, false)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

const DESC: (&str, &str) = ("search-order", "desc");
const SKIP: (&str, &str) = ("skip-end-ips-in-cidr", "true");
