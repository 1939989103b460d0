//! Whatever stands in the `ConfigMap`: pools with addresses that it names, or the words why not.

use landfall_ipam::{AddrBlock, AddrRange, AddrSet, Book, Family};
use proptest::{
    collection::{btree_map, vec},
    prelude::*,
    sample::select,
};

use super::{tests::name, *};

/// CIDRs and ranges, among them some that are none. Networks stay small, because what is held back
/// is counted out.
fn entry() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (any::<u8>(), 16..34_u8).prop_map(|(net, prefix)| format!("10.{net}.0.9/{prefix}")),
        4 => any::<(u8, u8)>().prop_map(|(first, last)| format!(" 10.0.0.{first}-10.0.1.{last}")),
        2 => (0..130_u8).prop_map(|prefix| format!("fd00::5/{prefix}")),
        2 => any::<(u8, u8)>().prop_map(|(a, b)| format!("fd00::{a:x}%eth0-fd00::1{b:02x} ")),
        1 => Just(String::new()),
        1 => Just("0.0.0.0/32".to_owned()),
        1 => any::<u8>().prop_map(|host| format!("10.0.0.{host}")),
        1 => "[0-9./:%-]{0,20}",
        1 => "\\PC{0,12}",
    ]
}

/// Mostly of entries that can be read: one that cannot spoils the rest.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => vec(entry(), 0..3).prop_map(|entries| entries.join(",")),
        1 => vec(entry(), 0..6).prop_map(|entries| entries.join("\n")),
        1 => select(&["true", "True", "desc", "DESC", "eth0", ""][..]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        9 => "(cidr|range|allow-share|allow-shared|interface)-(global|web|shop|Web|)",
        5 => "(cidr|range|exclude|interface|search-order)-(global|web|shop)(\\.dmz|)",
        3 => "(exclude|fallback|search-order)-(global|web|shop)(\\.dmz|\\.|)",
        2 => "search-order|skip-end-ips-in-cidr|kubevip-services",
        1 => any::<String>(),
    ]
}

/// The addresses that a text which was accepted names, read in another way.
fn named(text: &str) -> AddrSet {
    let entries = text.split([',', '\n']).filter(|entry| !entry.trim().is_empty());
    let ranges = entries.map(|entry| match entry.split_once('-') {
        None => entry.trim().parse::<AddrBlock>().unwrap().range(),
        Some((first, last)) => {
            let end = |end: &str| end.trim().split('%').next().unwrap().parse::<IpAddr>().unwrap();
            AddrRange::new(end(first), end(last)).unwrap()
        }
    });
    ranges.collect()
}

fn ends_in_0_or_255(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V4(addr) if matches!(addr.octets()[3], 0 | 255))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn what_a_map_gives_stands_in_it(data in btree_map(key(), value(), 0..8)) {
        let map = PoolMap::read(name, &data);
        for found in &map.pools {
            let Ok(pool) = &found.pool else {
                prop_assert_ne!(found.pool.as_ref().unwrap_err(), &Vec::new());
                continue;
            };
            prop_assert_eq!(&pool.name, &name(&found.key));
            let named = named(&data[&found.key]);
            let left = named.difference(pool.ranges());
            let leased = Family::BOTH.into_iter().filter_map(|family| found.leases.of(family));
            let leased: AddrSet = leased.collect();
            prop_assert_eq!(left, leased, "all that is named and not leased");
            prop_assert!(pool.ranges().difference(&named).is_empty(), "nothing else");
            let (_, owner) = found.key.split_once('-').unwrap();
            let excluded = data.get(&format!("exclude-{owner}")).map(|text| self::named(text));
            let excluded = excluded.unwrap_or_default();
            prop_assert_eq!(pool.auto_assign, !owner.contains('.'));

            let mut book = Book::new();
            book.replace_pools([pool.clone()]);
            for family in Family::BOTH {
                for _ in 0..300 {
                    let Ok(addr) = book.first_free(&pool.name, family, false) else { break };
                    prop_assert!(named.contains(addr) && !ends_in_0_or_255(addr), "{}", addr);
                    prop_assert!(!excluded.contains(addr), "{} is excluded", addr);
                    book.take(addr);
                }
            }
        }
        for namespace in ["web", "shop", "global", "other"] {
            let pools = map.pools.iter().filter(|pool| !pool.on_request);
            let serving = pools.filter(|pool| pool.namespaces.includes(namespace)).count();
            let falls_back = map.pool_of(namespace).is_some_and(|pool| pool.falls_back);
            prop_assert!(serving <= if falls_back { 2 } else { 1 }, "{}", namespace);
            let keys = [
                format!("cidr-{namespace}"),
                "cidr-global".to_owned(),
                format!("range-{namespace}"),
                "range-global".to_owned(),
            ];
            let first = keys.iter().find(|key| data.contains_key(*key));
            prop_assert_eq!(map.pool_of(namespace).map(|pool| &pool.key), first);
        }
        for problem in &map.problems {
            prop_assert!(data.contains_key(&problem.key), "{:?}", problem);
        }
    }

    #[test]
    fn whatever_is_written_the_words_about_it_are_short(text: String, times in 1..2000_usize) {
        let text = text.repeat(times);
        let keys = [
            "cidr-web",
            "cidr-web.dmz",
            "exclude-web",
            "fallback-web",
            "allow-share-web",
            "interface-web",
            "search-order",
            "search-order-web",
            "what",
        ];
        let data = keys.map(|key| (key.to_owned(), text.clone()));
        let map = PoolMap::read(name, &data.into());
        let about_pools = map.pools.iter().filter_map(|found| found.pool.as_ref().err()).flatten();
        for Problem { text, .. } in about_pools.chain(&map.problems) {
            prop_assert!(text.len() < 4096, "{}", text);
        }
    }
}
