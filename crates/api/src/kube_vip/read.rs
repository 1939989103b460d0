//! Reading the `ConfigMap`: key by key, then the pools that they make together.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use landfall_ipam::{AddrRange, Pool, PoolName};

use super::{
    GLOBAL, KeyPool, Leases, PoolMap, Problem, Scope, go_bool, quote,
    text::{self, Rules},
};
use crate::convert::LONGEST_NAMESPACE;

const CIDR: &str = "cidr-";
const RANGE: &str = "range-";
const ALLOW_SHARE: &str = "allow-share-";
/// As an old description of the key spells it; the program itself never read it.
const ALLOW_SHARED: &str = "allow-shared-";
const INTERFACE: &str = "interface-";
const SEARCH_ORDER: &str = "search-order";
const SKIP_ENDS: &str = "skip-end-ips-in-cidr";

/// More warnings than this are only counted.
const MOST_PROBLEMS: usize = 64;

impl PoolMap {
    /// Reads the `data` of the `ConfigMap`. `name` makes the name of a pool from its key.
    pub fn read(name: impl Fn(&str) -> PoolName, data: &BTreeMap<String, String>) -> Self {
        let mut map = Self::default();
        let mut rules = Rules::default();
        let (mut cidrs, mut ranges) = (BTreeMap::new(), BTreeMap::new());
        for (key, value) in data {
            let found = [CIDR, RANGE, ALLOW_SHARE, ALLOW_SHARED, INTERFACE]
                .into_iter()
                .find_map(|prefix| Some((prefix, key.strip_prefix(prefix)?)));
            match found {
                None if key == SEARCH_ORDER => rules.descending = map.search_order(value),
                None if key == SKIP_ENDS => rules.skip_ends = map.skip_ends(value),
                None => map.warn_of_unknown(key),
                Some((_, namespace)) if !may_be_namespace(namespace) => {
                    let called = quote(namespace);
                    map.warn(key, format!("has no effect: no namespace can be called {called}"));
                }
                Some((CIDR, namespace)) => {
                    cidrs.insert(namespace, value.as_str());
                }
                Some((RANGE, namespace)) => {
                    ranges.insert(namespace, value.as_str());
                }
                Some((INTERFACE, namespace)) => map.read_interface(key, namespace, value),
                Some((_, namespace)) => map.read_share(key, namespace, value),
            }
        }
        let winners = map.winners(&cidrs, &ranges);
        map.read_pools(name, rules, &winners);
        map.warn_of_overlaps();
        map
    }

    fn warn(&mut self, key: &str, text: String) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(Problem { key: key.to_owned(), text });
        } else {
            self.problems_left_out = self.problems_left_out.saturating_add(1);
        }
    }

    fn warn_of_unknown(&mut self, key: &str) {
        let expected = format!(
            "{CIDR}, {RANGE}, {ALLOW_SHARE} or {INTERFACE} with a namespace or `{GLOBAL}`, \
             {SEARCH_ORDER} or {SKIP_ENDS}"
        );
        self.warn(key, format!("is not known and has no effect, expected {expected}"));
    }

    fn search_order(&mut self, value: &str) -> bool {
        if !["desc", "asc", ""].contains(&value) {
            let text =
                format!("is {}, not `desc`: the lowest address is given first", quote(value));
            self.warn(SEARCH_ORDER, text);
        }
        value == "desc"
    }

    fn skip_ends(&mut self, value: &str) -> bool {
        let off = value.is_empty() || go_bool(value) == Some(false);
        if value != "true" && !off {
            let text = format!("is {}, not `true`: the ends of CIDRs are given", quote(value));
            self.warn(SKIP_ENDS, text);
        }
        value == "true"
    }

    fn read_interface(&mut self, key: &str, namespace: &str, value: &str) {
        if value.contains(|c: char| c.is_whitespace() || c == '/') {
            let text = format!("is {}: no interface has such a name", quote(value));
            self.warn(key, text);
        }
        self.interfaces.insert(namespace.to_owned(), value.to_owned());
    }

    fn read_share(&mut self, key: &str, namespace: &str, value: &str) {
        let right = format!("{ALLOW_SHARE}{namespace}");
        if key != right {
            // The right key sorts before the other, so it has been read.
            let known = self.shares.contains_key(namespace);
            let taken = if known { "has no effect beside" } else { "is taken for" };
            self.warn(key, format!("{taken} {right}, which is how the key is spelled"));
            if known {
                return;
            }
        }
        let allowed = go_bool(value);
        if allowed.is_none() {
            let text = format!("is {}, not `true` or `false`: nothing is shared", quote(value));
            self.warn(key, text);
        }
        self.shares.insert(namespace.to_owned(), allowed.unwrap_or(false));
    }

    /// The keys that serve anybody, in order: prefix, namespace and text.
    ///
    /// For a namespace its own CIDRs come first, then those of all, then its own ranges, then those
    /// of all. The first key that is there is the one, whatever it says.
    fn winners<'a>(
        &mut self,
        cidrs: &BTreeMap<&'a str, &'a str>,
        ranges: &BTreeMap<&'a str, &'a str>,
    ) -> Vec<(&'static str, &'a str, &'a str)> {
        let mut winners: Vec<_> = cidrs.iter().map(|(name, text)| (CIDR, *name, *text)).collect();
        for (name, text) in ranges {
            let Some(before) = [name, GLOBAL].into_iter().find(|name| cidrs.contains_key(name))
            else {
                winners.push((RANGE, name, text));
                continue;
            };
            let cure = if before == *name {
                String::new()
            } else {
                format!("; call it {CIDR}{name}, which may hold ranges too")
            };
            let text = format!("has no effect: {CIDR}{before} comes before it{cure}");
            self.warn(&format!("{RANGE}{name}"), text);
        }
        winners
    }

    fn read_pools(
        &mut self,
        name: impl Fn(&str) -> PoolName,
        rules: Rules,
        winners: &[(&str, &str, &str)],
    ) {
        let namespaces = winners.iter().map(|(_, namespace, _)| *namespace);
        let own: BTreeSet<_> =
            namespaces.filter(|name| *name != GLOBAL).map(str::to_owned).collect();
        let mut room = text::MOST_ADDRESSES;
        for (prefix, namespace, value) in winners {
            let key = format!("{prefix}{namespace}");
            let scope = if *namespace == GLOBAL {
                Scope::AllBut(own.clone())
            } else {
                Scope::OnlyOne((*namespace).to_owned())
            };
            let (pool, leases) = match text::pool(name(&key), value, rules, &mut room) {
                Ok((pool, leases)) => (Ok(pool), leases),
                Err(problems) => (Err(problems), Leases::No),
            };
            if pool.as_ref().is_ok_and(gives_nothing) {
                let why = "IPv4 addresses that end in .0 or .255 are left out";
                let ends = format!("with {SKIP_ENDS} the ends of CIDRs, too");
                self.warn(&key, format!("gives nothing: {why}, {ends}"));
            }
            self.pools.push(KeyPool { key, namespaces: scope, pool, leases });
        }
    }

    /// Names each key that has addresses of another. Nobody gets an address twice, but what seems
    /// free in one pool goes with the other. Where more than two keys meet, not each pair is named.
    fn warn_of_overlaps(&mut self) {
        let mut ranges: Vec<(AddrRange, &str)> = Vec::new();
        for KeyPool { key, pool, .. } in &self.pools {
            let of_key = pool.iter().flat_map(|pool| pool.ranges().ranges());
            ranges.extend(of_key.map(|range| (range, key.as_str())));
        }
        ranges.sort_unstable();
        // One pass, because there may be thousands of keys.
        let mut overlaps: BTreeMap<(&str, &str), IpAddr> = BTreeMap::new();
        let mut farthest: Option<(IpAddr, &str)> = None;
        for (range, key) in ranges {
            if let Some((_, other)) = farthest.filter(|(last, _)| range.first() <= *last) {
                overlaps.entry((key.max(other), key.min(other))).or_insert_with(|| range.first());
            }
            farthest = farthest.max(Some((range.last(), key)));
        }
        let said = overlaps.into_iter().map(|((key, other), addr)| {
            let text = format!("has addresses that {other} has, too, such as {addr}");
            (key.to_owned(), format!("{text}; each is given once"))
        });
        for (key, text) in said.collect::<Vec<_>>() {
            self.warn(&key, text);
        }
    }
}

fn gives_nothing(pool: &Pool) -> bool {
    !pool.ranges().is_empty() && pool.ranges().difference(pool.held_back()).is_empty()
}

fn may_be_namespace(name: &str) -> bool {
    let letters = |c| matches!(c, 'a'..='z' | '0'..='9' | '-');
    !name.is_empty()
        && name.len() <= LONGEST_NAMESPACE
        && name.chars().all(letters)
        && !name.starts_with('-')
        && !name.ends_with('-')
}
