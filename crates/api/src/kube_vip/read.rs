//! Reading the `ConfigMap`: key by key, then the pools that they make together.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use landfall_ipam::{AddrRange, Pool, PoolName};

use super::{
    GLOBAL, KeyPool, Leases, PoolMap, Problem, Scope, go_bool, own_or_global, quote,
    text::{self, Rules},
};
use crate::convert::LONGEST_NAMESPACE;

const CIDR: &str = "cidr-";
const RANGE: &str = "range-";
const ALLOW_SHARE: &str = "allow-share-";
/// As an old description of the key spells it; the program itself never read it.
const ALLOW_SHARED: &str = "allow-shared-";
const INTERFACE: &str = "interface-";
const EXCLUDE: &str = "exclude-";
const FALLBACK: &str = "fallback-";
const SEARCH_ORDER: &str = "search-order";
const SEARCH_ORDER_OF: &str = "search-order-";
const SKIP_ENDS: &str = "skip-end-ips-in-cidr";

/// More warnings than this are only counted.
const MOST_PROBLEMS: usize = 64;

/// What keys say about pools, by whose it is: a namespace's, that of `global`, or one of either that
/// has a name, after a dot.
#[derive(Default)]
struct Said<'a> {
    cidrs: BTreeMap<&'a str, &'a str>,
    ranges: BTreeMap<&'a str, &'a str>,
    excluded: BTreeMap<&'a str, &'a str>,
    descending: BTreeMap<&'a str, bool>,
    fallbacks: BTreeMap<String, bool>,
    /// The setting where nothing else is said.
    rules: Rules,
}

/// A key whose pool serves some namespace.
struct Winner<'a> {
    prefix: &'static str,
    owner: Owner<'a>,
    text: &'a str,
}

/// Whose pool a key is about.
#[derive(Clone, Copy)]
struct Owner<'a> {
    /// As written in the key.
    text: &'a str,
    /// A namespace or `global`.
    namespace: &'a str,
    /// Its own name, if it is one that is asked for.
    name: Option<&'a str>,
}

impl<'a> Owner<'a> {
    fn new(text: &'a str) -> Self {
        let parts = text.split_once('.');
        let (namespace, name) = parts.map_or((text, None), |(space, name)| (space, Some(name)));
        Self { text, namespace, name }
    }

    /// Whether it is the pool of a namespace, which is not asked for and not that of all.
    fn is_of_namespace(&self) -> bool {
        self.name.is_none() && self.namespace != GLOBAL
    }
}

impl PoolMap {
    /// Reads the `data` of the `ConfigMap`. `name` makes the name of a pool from its key.
    pub fn read(name: impl Fn(&str) -> PoolName, data: &BTreeMap<String, String>) -> Self {
        let mut map = Self::default();
        let mut said = Said::default();
        for (key, value) in data {
            map.read_key(&mut said, key, value);
        }
        let winners = map.winners(&said);
        map.read_pools(name, &said, &winners);
        map.warn_of_idle(&said, &winners);
        map.warn_of_overlaps();
        map
    }

    fn read_key<'a>(&mut self, said: &mut Said<'a>, key: &'a str, value: &'a str) {
        let of_pools = [CIDR, RANGE, EXCLUDE, INTERFACE, SEARCH_ORDER_OF];
        let of_namespaces = [ALLOW_SHARE, ALLOW_SHARED, FALLBACK];
        let found = of_pools
            .into_iter()
            .chain(of_namespaces)
            .find_map(|prefix| Some((prefix, key.strip_prefix(prefix)?)));
        let is_valid = |prefix: &str, owner: &str| {
            let Owner { namespace, name, .. } = Owner::new(owner);
            is_label(namespace)
                && name.is_none_or(|name| of_pools.contains(&prefix) && is_label(name))
        };
        match found {
            None if key == SEARCH_ORDER => said.rules.descending = self.descending(key, value),
            None if key == SKIP_ENDS => said.rules.skip_ends = self.skip_ends(value),
            None => self.warn_of_unknown(key),
            Some((prefix, owner)) if !is_valid(prefix, owner) => {
                let called = quote(owner);
                self.warn(key, format!("has no effect: no namespace can be called {called}"));
            }
            Some((CIDR, owner)) => drop(said.cidrs.insert(owner, value)),
            Some((RANGE, owner)) => drop(said.ranges.insert(owner, value)),
            Some((EXCLUDE, owner)) => drop(said.excluded.insert(owner, value)),
            Some((SEARCH_ORDER_OF, owner)) => {
                said.descending.insert(owner, self.descending(key, value));
            }
            Some((INTERFACE, owner)) => self.read_interface(key, owner, value),
            Some((FALLBACK, namespace)) => {
                let falls_back = self.truth(key, value, "no other pool is asked");
                said.fallbacks.insert(namespace.to_owned(), falls_back);
            }
            Some((_, namespace)) => self.read_share(key, namespace, value),
        }
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
            "{CIDR}, {RANGE}, {EXCLUDE}, {FALLBACK}, {ALLOW_SHARE}, {INTERFACE} or \
             {SEARCH_ORDER_OF} with a namespace or `{GLOBAL}`, {SEARCH_ORDER} or {SKIP_ENDS}"
        );
        self.warn(key, format!("is not known and has no effect, expected {expected}"));
    }

    fn descending(&mut self, key: &str, value: &str) -> bool {
        if !["desc", "asc", ""].contains(&value) {
            let text =
                format!("is {}, not `desc`: the lowest address is given first", quote(value));
            self.warn(key, text);
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

    fn read_interface(&mut self, key: &str, owner: &str, value: &str) {
        if value.contains(|c: char| c.is_whitespace() || c == '/') {
            let text = format!("is {}: no interface has such a name", quote(value));
            self.warn(key, text);
        }
        self.interfaces.insert(owner.to_owned(), value.to_owned());
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
        let shares = self.truth(key, value, "nothing is shared");
        self.shares.insert(namespace.to_owned(), shares);
    }

    fn truth(&mut self, key: &str, value: &str, otherwise: &str) -> bool {
        let read = go_bool(value);
        if read.is_none() {
            self.warn(key, format!("is {}, not `true` or `false`: {otherwise}", quote(value)));
        }
        read.unwrap_or(false)
    }

    /// The keys that serve any namespace, in order.
    ///
    /// For a namespace its own CIDRs come first, then those of all, then its own ranges, then those
    /// of all. The first key that is there is the one, even if it is unreadable. Pools with names come
    /// beside these, each by its own key alone.
    fn winners<'a>(&mut self, said: &Said<'a>) -> Vec<Winner<'a>> {
        let winner = |prefix, owner: &&'a str, text: &&'a str| Winner {
            prefix,
            owner: Owner::new(owner),
            text,
        };
        let cidrs = said.cidrs.iter().map(|(owner, text)| winner(CIDR, owner, text));
        let mut winners: Vec<_> = cidrs.collect();
        for (owner, text) in &said.ranges {
            let range = winner(RANGE, owner, text);
            let global = Some(GLOBAL).filter(|_| range.owner.name.is_none());
            let mut before = [Some(*owner), global].into_iter().flatten();
            let Some(before) = before.find(|owner| said.cidrs.contains_key(owner)) else {
                winners.push(range);
                continue;
            };
            let cure = if before == *owner {
                String::new()
            } else {
                format!("; call it {CIDR}{owner}, which may also hold ranges")
            };
            let text = format!("has no effect: {CIDR}{before} comes before it{cure}");
            self.warn(&format!("{RANGE}{owner}"), text);
        }
        winners
    }

    fn read_pools(
        &mut self,
        name: impl Fn(&str) -> PoolName,
        said: &Said<'_>,
        winners: &[Winner<'_>],
    ) {
        let falls_back = |owner: &Owner<'_>| {
            let asks_next = own_or_global(&said.fallbacks, owner.namespace).copied();
            owner.is_of_namespace() && asks_next.unwrap_or(false)
        };
        let owners = winners.iter().map(|winner| winner.owner);
        let without_global = owners.filter(|owner| owner.is_of_namespace() && !falls_back(owner));
        let without_global: BTreeSet<_> =
            without_global.map(|owner| owner.namespace.to_owned()).collect();
        let mut room = text::MOST_ADDRESSES;
        for Winner { prefix, owner, text } in winners {
            let key = format!("{prefix}{}", owner.text);
            let namespaces = match (owner.namespace, owner.name) {
                (GLOBAL, Some(_)) => Scope::AllBut(BTreeSet::new()),
                (GLOBAL, None) => Scope::AllBut(without_global.clone()),
                (namespace, _) => Scope::OnlyOne(namespace.to_owned()),
            };
            let (pool, leases) = match read_pool(name(&key), &key, text, owner, said, &mut room) {
                Ok((pool, leases)) => (Ok(pool), leases),
                Err(problems) => (Err(problems), Leases::No),
            };
            if pool.as_ref().is_ok_and(gives_nothing) {
                let excluded = format!("the addresses in {EXCLUDE}{} and ", owner.text);
                let excluded = said.excluded.get(owner.text).map_or("", |_| &excluded);
                let why = "IPv4 addresses that end in .0 or .255 are left out";
                let ends = format!("and with {SKIP_ENDS} the ends of CIDRs");
                self.warn(&key, format!("gives nothing: {excluded}{why}, {ends}"));
            }
            let own_interface = self.interfaces.get(owner.text).filter(|_| owner.name.is_some());
            let own_interface = own_interface.cloned();
            self.pools.push(KeyPool {
                key,
                namespaces,
                pool,
                leases,
                on_request: owner.name.is_some(),
                falls_back: falls_back(owner),
                own_interface,
            });
        }
    }

    /// Names each key about a pool that serves no namespace.
    fn warn_of_idle(&mut self, said: &Said<'_>, winners: &[Winner<'_>]) {
        let serving: BTreeSet<_> = winners.iter().map(|winner| winner.owner.text).collect();
        let interfaces = self.interfaces.keys().map(String::as_str);
        let of_pools = [
            (EXCLUDE, said.excluded.keys().copied().collect::<Vec<_>>()),
            (SEARCH_ORDER_OF, said.descending.keys().copied().collect()),
            (INTERFACE, interfaces.filter(|owner| Owner::new(owner).name.is_some()).collect()),
        ];
        let of_pools = of_pools.into_iter().flat_map(|(prefix, owners)| {
            owners.into_iter().map(move |owner| (prefix, owner, owner))
        });
        let fallbacks = said.fallbacks.iter().filter(|(_, falls_back)| **falls_back);
        let fallbacks = fallbacks.flat_map(|(namespace, _)| {
            [namespace, GLOBAL].map(|needed| (FALLBACK, namespace.as_str(), needed))
        });
        let needs: Vec<_> = of_pools.chain(fallbacks).collect();
        let mut idle: BTreeMap<String, String> = BTreeMap::new();
        for (prefix, owner, needed) in needs {
            if !serving.contains(needed) {
                let why =
                    format!("neither {CIDR}{needed} nor {RANGE}{needed} serves any namespace");
                idle.entry(format!("{prefix}{owner}")).or_insert(why);
            }
        }
        for (key, why) in idle {
            self.warn(&key, format!("has no effect: {why}"));
        }
    }

    /// Names each key that has addresses of another. No address is given twice, but one that
    /// seems free in one pool goes with the other. Where more than two keys meet, not each pair is named.
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
            let text = format!("has addresses in common with {other}, such as {addr}");
            (key.to_owned(), format!("{text}; each is given once"))
        });
        for (key, text) in said.collect::<Vec<_>>() {
            self.warn(&key, text);
        }
    }
}

/// The pool of a key, or what is wrong with that key and with the one that names its exclusions: what
/// is not understood there must not be given.
fn read_pool(
    name: PoolName,
    key: &str,
    text: &str,
    owner: &Owner<'_>,
    said: &Said<'_>,
    room: &mut u128,
) -> Result<(Pool, Leases), Vec<Problem>> {
    let problem = |key: &str, text| Problem { key: key.to_owned(), text };
    let named = |key: &str, texts: Vec<String>| {
        texts.into_iter().map(|text| problem(key, text)).collect::<Vec<_>>()
    };
    let given = text::given(text).map_err(|texts| named(key, texts));
    let excluded = text::excluded(said.excluded.get(owner.text).copied().unwrap_or_default());
    let excluded = excluded.map_err(|texts| named(&format!("{EXCLUDE}{}", owner.text), texts));
    match (given, excluded) {
        (Ok((blocks, leases)), Ok(excluded)) => {
            let descending = said.descending.get(owner.text).copied();
            let descending = descending.unwrap_or(said.rules.descending);
            let rules = Rules { descending, ..said.rules };
            let pool = text::pool(name, blocks, excluded, rules, room);
            let mut pool = pool.map_err(|text| vec![problem(key, text)])?;
            pool.auto_assign = owner.name.is_none();
            Ok((pool, leases))
        }
        (given, excluded) => {
            Err([given.err(), excluded.err()].into_iter().flatten().flatten().collect())
        }
    }
}

fn gives_nothing(pool: &Pool) -> bool {
    let usable = pool.ranges().difference(pool.held_back()).difference(pool.excluded());
    !pool.ranges().is_empty() && usable.is_empty()
}

/// Whether it may be the name of a namespace, or of a pool.
fn is_label(name: &str) -> bool {
    let letters = |c| matches!(c, 'a'..='z' | '0'..='9' | '-');
    !name.is_empty()
        && name.len() <= LONGEST_NAMESPACE
        && name.chars().all(letters)
        && !name.starts_with('-')
        && !name.ends_with('-')
}
