//! Which pool serves a namespace, and what it gives.

use super::*;

const A: &[(&str, &str)] = &[
    ("cidr-dummystart", "172.16.0.1/24"),
    ("cidr-global", "192.168.1.1/24"),
    ("cidr-system", "10.10.10.8/29"),
    ("allow-share-system", "true"),
    ("cidr-dummyend", "172.16.0.2/24"),
    ("cidr-ipv6", "2001::10/127"),
];

const B: &[(&str, &str)] = &[
    ("range-dummystart", "172.16.0.1-172.16.0.254"),
    ("range-global", "192.168.1.1-192.168.1.254"),
    ("range-system", "10.10.10.8-10.10.10.15"),
    ("range-dummyend", "172.16.0.1-172.16.0.254"),
    ("cidr-ipv6", "2001::10-2001::20"),
];

#[test]
fn a_namespace_is_served_by_its_own_key_else_by_the_global_one() {
    for (data, namespace, key, addresses, shares) in [
        (A, "system", "cidr-system", "10.10.10.8/29", true),
        (A, "ipv6", "cidr-ipv6", "2001::10/127", false),
        (A, "basic", "cidr-global", "192.168.1.1/24", false),
        (B, "system", "range-system", "10.10.10.8-10.10.10.15", false),
        (B, "ipv6", "cidr-ipv6", "2001::10-2001::20", false),
        (B, "basic", "range-global", "192.168.1.1-192.168.1.254", false),
    ] {
        let map = read(data);
        let found = map.pool_of(namespace).unwrap();
        assert_eq!(found.key, key);
        assert_eq!(found.pool.as_ref().unwrap().name, name(key));
        assert_eq!(found.pool.as_ref().unwrap().ranges(), &set(addresses), "{key}");
        let global = matches!(found.namespaces, Scope::AllBut(_));
        assert_eq!(global, namespace == "basic", "{key}");
        assert_eq!(map.shares(namespace), shares, "{namespace}");
    }
}

#[test]
fn no_two_pools_serve_one_namespace() {
    for data in [A, B] {
        let map = read(data);
        for namespace in ["dummystart", "dummyend", "system", "ipv6", "basic", "global"] {
            let serving = map.pools.iter().filter(|pool| pool.namespaces.includes(namespace));
            assert_eq!(serving.count(), 1, "{namespace}");
        }
    }
}

#[test]
fn the_address_that_comes_next_is_found_in_the_text_of_the_pool() {
    let foreign = "10.0.0.1 172.16.0.7 fe80::1";
    for (text, used, expected) in [
        ("10.10.10.8/29", "10.10.10.8 10.10.10.9 10.10.10.10 10.10.10.12", "10.10.10.11"),
        ("10.10.10.8-10.10.10.15", "10.10.10.8 10.10.10.9 10.10.10.10 10.10.10.12", "10.10.10.11"),
        ("192.168.1.1/24", "192.168.1.1 192.168.1.2", "192.168.1.3"),
        ("192.168.1.1-192.168.1.254", "192.168.1.1 192.168.1.2", "192.168.1.3"),
        ("fe80::10/126", "fe80::10 fe80::11 fe80::12", "fe80::13"),
        ("fe80::ffff-fe80::1:3", "fe80::ffff fe80::1:0 fe80::1:1", "fe80::1:2"),
    ] {
        let used = format!("{used} {foreign}");
        assert_eq!(first_free(text, &used, &[]), Ok(ip(expected)), "{text}");
        // The same under a namespace's own key.
        let map = read(&[("range-system", text)]);
        let own = map.pool_of("system").unwrap().pool.as_ref().unwrap();
        assert_eq!(own.ranges(), global(text, &[]).ranges(), "{text}");
    }
}
