//! Keys that kube-vip-cloud-provider does not know.

use super::*;

const ALL: (&str, &str) = ("cidr-global", "10.9.0.0/24");
const WEB: (&str, &str) = ("cidr-web", "10.0.0.8/29");

/// The pool of a key.
fn pool_at(data: &[(&str, &str)], key: &str) -> KeyPool {
    read(data).pools.into_iter().find(|pool| pool.key == key).unwrap()
}

fn usable_at(data: &[(&str, &str)], key: &str) -> AddrSet {
    let pool = pool_at(data, key).pool.unwrap();
    usable(&pool).difference(pool.excluded())
}

#[test]
fn a_pool_never_gives_the_addresses_that_its_scope_excludes() {
    let (range, named) = (("range-web", WEB.1), ("cidr-web.dmz", "10.0.0.8/30"));
    for (data, key, left) in [
        (&[WEB, ("exclude-web", "10.0.0.9")][..], "cidr-web", "10.0.0.8 10.0.0.10-10.0.0.15"),
        (&[WEB, ("exclude-web", "10.0.0.12/30")], "cidr-web", "10.0.0.8-10.0.0.11"),
        (&[WEB, ("exclude-web", "10.0.0.9-10.0.0.14,\n10.0.0.8")], "cidr-web", "10.0.0.15"),
        (&[range, ("exclude-web", "10.0.0.9-10.0.0.15")], "range-web", "10.0.0.8"),
        (&[("cidr-web", "fd00::/127"), ("exclude-web", "fd00::")], "cidr-web", "fd00::1"),
        (&[WEB, ("exclude-web", "192.0.2.1")], "cidr-web", "10.0.0.8-10.0.0.15"),
        (&[WEB, ("exclude-web", "")], "cidr-web", "10.0.0.8-10.0.0.15"),
        (&[ALL, WEB, ("exclude-global", "10.0.0.9")], "cidr-web", "10.0.0.8-10.0.0.15"),
        (&[named, WEB, ("exclude-web", "10.0.0.9")], "cidr-web.dmz", "10.0.0.8-10.0.0.11"),
        (&[named, ("exclude-web.dmz", "10.0.0.9")], "cidr-web.dmz", "10.0.0.8 10.0.0.10/31"),
        (&[ALL, ("exclude-global", "10.9.0.3-10.9.0.254")], "cidr-global", "10.9.0.1-10.9.0.2"),
    ] {
        assert_eq!(usable_at(data, key), set(left), "{data:?}");
    }
}

/// Whatever it was meant to say, it must not be given away.
#[test]
fn an_exclusion_that_cannot_be_read_spoils_the_pool_and_is_named() {
    let expected = "an address, a CIDR or a first-last range";
    let long = "9".repeat(300);
    let quoted = "9".repeat(64);
    for (text, problem) in [
        ("10.0.0.9,nonsense", format!(r#""nonsense" is not {expected}"#)),
        (
            "10.0.0.09",
            format!(
                r#""10.0.0.09" is not {expected}; write its numbers without leading zeros, which some programs read as octal"#
            ),
        ),
        (
            "10.0.0.9-10.0.0.8",
            r#""10.0.0.9-10.0.0.8" is empty: its first address comes after its last; write 10.0.0.8-10.0.0.9"#
                .to_owned(),
        ),
        (&long, format!("{quoted:?}… is too long, expected {expected}")),
        (
            &"10.0.0.9,".repeat(4097),
            "it has more entries than 4096, which is the limit".to_owned(),
        ),
    ] {
        let problems = pool_at(&[WEB, ("exclude-web", text)], "cidr-web").pool.unwrap_err();
        assert_eq!(problems, [Problem { key: "exclude-web".to_owned(), text: problem }]);
    }
    let both = pool_at(&[("cidr-web", "odd"), ("exclude-web", "even")], "cidr-web");
    let keys: Vec<_> = both.pool.unwrap_err().into_iter().map(|problem| problem.key).collect();
    assert_eq!(keys, ["cidr-web", "exclude-web"]);
    let others = [ALL, WEB, ("exclude-web", "odd"), ("cidr-web.dmz", "10.1.0.0/24")];
    let fine: Vec<_> = read(&others).pools.iter().map(|pool| pool.pool.is_ok()).collect();
    assert_eq!(fine, [true, false, true], "those of others are as they were");
}

#[test]
fn the_pool_of_all_helps_out_the_scopes_that_say_so() {
    for (data, falls_back) in [
        (&[ALL, WEB][..], false),
        (&[ALL, WEB, ("fallback-web", "true")], true),
        (&[ALL, WEB, ("fallback-web", "T")], true),
        (&[ALL, WEB, ("fallback-web", "false")], false),
        (&[ALL, WEB, ("fallback-global", "1")], true),
        (&[ALL, WEB, ("fallback-global", "true"), ("fallback-web", "0")], false),
        (&[ALL, WEB, ("fallback-global", "true"), ("fallback-web", "")], false),
        (&[ALL, WEB, ("fallback-global", "true"), ("fallback-web", "yes")], false),
        (&[ALL, WEB, ("fallback-shop", "true")], false),
        (&[("range-global", "10.9.0.0/24"), WEB, ("fallback-web", "true")], true),
        (&[("range-global", "10.9.0.0/24"), ("range-web", WEB.1), ("fallback-web", "true")], true),
    ] {
        let map = read(data);
        let own = map.pool_of("web").unwrap();
        assert_eq!(own.namespaces, Scope::OnlyOne("web".to_owned()), "{data:?}");
        assert_eq!(own.falls_back, falls_back, "{data:?}");
        let all = map.pool_of("any").unwrap();
        assert!(!all.falls_back, "{data:?}");
        assert_eq!(all.namespaces.includes("web"), falls_back, "{data:?}");
    }
}

#[test]
fn a_pool_with_a_name_is_for_services_that_ask_for_it() {
    let web = || Scope::OnlyOne("web".to_owned());
    let all = || Scope::AllBut(BTreeSet::new());
    for (data, key, namespaces) in [
        (&[ALL, WEB, ("cidr-web.dmz", "10.1.0.0/24")][..], "cidr-web.dmz", web()),
        (&[ALL, WEB, ("range-web.dmz", "10.1.0.1-10.1.0.2")], "range-web.dmz", web()),
        (&[ALL, WEB, ("cidr-global.dmz", "10.1.0.0/24")], "cidr-global.dmz", all()),
        (&[ALL, WEB, ("range-global.dmz", "10.1.0.0/24")], "range-global.dmz", all()),
        (&[ALL, WEB, ("cidr-web.0-a", "10.1.0.0/24")], "cidr-web.0-a", web()),
        (&[ALL, WEB, ("cidr-web.global", "10.1.0.0/24")], "cidr-web.global", web()),
    ] {
        let map = read(data);
        assert_eq!(map.problems, [], "{data:?}");
        let named = pool_at(data, key);
        assert_eq!((named.on_request, named.falls_back), (true, false), "{key}");
        assert_eq!(named.namespaces, namespaces, "{key}");
        assert!(!named.pool.unwrap().auto_assign, "{key}");
        assert_eq!(map.pool_of("web").unwrap().key, "cidr-web", "{key}");
        assert_eq!(map.pool_of("any").unwrap().key, "cidr-global", "{key}");
    }
    let alone = read(&[("cidr-web.dmz", "10.1.0.0/24"), ("cidr-global.dmz", "10.2.0.0/24")]);
    assert_eq!(alone.pool_of("web"), None);
    let odd = pool_at(&[("cidr-web.dmz", "odd")], "cidr-web.dmz");
    assert!(odd.on_request && odd.pool.is_err());
}

#[test]
fn a_pool_may_have_an_order_of_its_own() {
    let named = ("cidr-web.dmz", "10.1.0.0/24");
    for (more, of_web, of_named, of_all) in [
        (&[][..], false, false, false),
        (&[DESC], true, true, true),
        (&[("search-order-web", "desc")], true, false, false),
        (&[("search-order-global", "desc")], false, false, true),
        (&[("search-order-web.dmz", "desc")], false, true, false),
        (&[DESC, ("search-order-web", "asc")], false, true, true),
        (&[DESC, ("search-order-web", "")], false, true, true),
        (&[DESC, ("search-order-web.dmz", "DESC")], true, false, true),
    ] {
        let data = [&[ALL, WEB, named], more].concat();
        let descending = ["cidr-web", "cidr-web.dmz", "cidr-global"]
            .map(|key| pool_at(&data, key).pool.unwrap().descending);
        assert_eq!(descending, [of_web, of_named, of_all], "{more:?}");
    }
}

#[test]
fn a_pool_with_a_name_may_have_an_interface_of_its_own() {
    let named = ("cidr-web.dmz", "10.1.0.0/24");
    for (more, own, of_namespace) in [
        (&[][..], None, None),
        (&[("interface-web", "eth1")], None, Some("eth1")),
        (&[("interface-web", "eth1"), ("interface-web.dmz", "eth2")], Some("eth2"), Some("eth1")),
        (&[("interface-web", "eth1"), ("interface-web.dmz", "")], Some(""), Some("eth1")),
        (&[("interface-web.dmz", "eth2")], Some("eth2"), None),
    ] {
        let data = [&[WEB, named], more].concat();
        assert_eq!(pool_at(&data, "cidr-web.dmz").own_interface.as_deref(), own, "{more:?}");
        assert_eq!(pool_at(&data, "cidr-web").own_interface, None, "{more:?}");
        assert_eq!(read(&data).interface("web"), of_namespace, "{more:?}");
    }
}

#[test]
fn each_new_key_that_is_odd_is_named() {
    let dmz = ("cidr-web.dmz", "10.1.0.0/24");
    let idle = |owner: &str| {
        format!("has no effect: neither cidr-{owner} nor range-{owner} serves any namespace")
    };
    let unnameable = |owner: &str| format!("has no effect: no namespace can be called {owner:?}");
    for (data, key, text) in [
        (&[WEB, ("exclude-shop", "10.0.0.9")][..], "exclude-shop", idle("shop")),
        (&[WEB, ("exclude-shop", "odd")], "exclude-shop", idle("shop")),
        (&[WEB, ("exclude-global", "10.0.0.9")], "exclude-global", idle("global")),
        (&[WEB, ("exclude-web.dmz", "10.0.0.9")], "exclude-web.dmz", idle("web.dmz")),
        (&[dmz, ("exclude-web", "10.0.0.9")], "exclude-web", idle("web")),
        (&[WEB, ("search-order-shop", "desc")], "search-order-shop", idle("shop")),
        (&[WEB, ("interface-web.dmz", "eth0")], "interface-web.dmz", idle("web.dmz")),
        (&[ALL, ("fallback-web", "true")], "fallback-web", idle("web")),
        (&[WEB, ("fallback-web", "true")], "fallback-web", idle("global")),
        (&[WEB, ("fallback-global", "true")], "fallback-global", idle("global")),
        (
            &[ALL, WEB, ("fallback-web", "yes")],
            "fallback-web",
            r#"is "yes", not `true` or `false`: no other pool is asked"#.to_owned(),
        ),
        (
            &[WEB, ("search-order-web", "down")],
            "search-order-web",
            r#"is "down", not `desc`: the lowest address is given first"#.to_owned(),
        ),
        (
            &[dmz, ("interface-web.dmz", "eth 0")],
            "interface-web.dmz",
            r#"is "eth 0": no interface has such a name"#.to_owned(),
        ),
        (
            &[dmz, ("range-web.dmz", "10.2.0.1-10.2.0.9")],
            "range-web.dmz",
            "has no effect: cidr-web.dmz comes before it".to_owned(),
        ),
        (
            &[WEB, ("exclude-web", "10.0.0.8/29")],
            "cidr-web",
            "gives nothing: the addresses in exclude-web and IPv4 addresses that end in .0 or .255 are left out, and with skip-end-ips-in-cidr the ends of CIDRs"
                .to_owned(),
        ),
        (
            &[WEB, ("range-web.dmz", "10.0.0.9-10.0.0.10")],
            "range-web.dmz",
            "has addresses in common with cidr-web, such as 10.0.0.9; each is given once".to_owned(),
        ),
        (&[WEB, ("cidr-web.Dmz", "10.1.0.0/24")], "cidr-web.Dmz", unnameable("web.Dmz")),
        (&[WEB, ("cidr-web.a.b", "10.1.0.0/24")], "cidr-web.a.b", unnameable("web.a.b")),
        (&[WEB, ("cidr-web.", "10.1.0.0/24")], "cidr-web.", unnameable("web.")),
        (&[WEB, ("cidr-.dmz", "10.1.0.0/24")], "cidr-.dmz", unnameable(".dmz")),
        (&[dmz, ("fallback-web.dmz", "true")], "fallback-web.dmz", unnameable("web.dmz")),
        (&[dmz, ("allow-share-web.dmz", "true")], "allow-share-web.dmz", unnameable("web.dmz")),
        (&[WEB, ("search-order-", "desc")], "search-order-", unnameable("")),
    ] {
        assert_eq!(warnings(data), [(key.to_owned(), text)], "{data:?}");
    }
}

#[test]
fn nothing_is_said_about_new_keys_that_are_right() {
    let data = [
        ALL,
        WEB,
        ("exclude-web", "10.0.0.9"),
        ("exclude-global", ""),
        ("fallback-web", "true"),
        ("fallback-shop", "false"),
        ("range-web.dmz", "10.1.0.1-10.1.0.9"),
        ("exclude-web.dmz", "10.1.0.2"),
        ("interface-web.dmz", "eth1"),
        ("search-order-web.dmz", "desc"),
        ("search-order-global", "asc"),
        ("search-order", "desc"),
    ];
    assert_eq!(warnings(&data), []);
}

#[test]
fn pools_with_names_count_where_all_pools_together_must_stay_affordable() {
    let data = [
        ("cidr-a", "10.0.0.0/8"),
        ("cidr-a.x", "11.0.0.0/8"),
        ("cidr-b.x", "12.0.0.0/8"),
        ("cidr-b.y", "13.0.0.0/8"),
        ("cidr-c", "14.0.0.0/8"),
    ];
    let fine: Vec<_> = read(&data).pools.iter().map(|pool| pool.pool.is_ok()).collect();
    assert_eq!(fine, [true, true, true, true, false]);
}
