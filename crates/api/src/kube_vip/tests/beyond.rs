//! What follows from kube-vip-cloud-provider's sources and its own tests do not pin. A row that
//! differs from it on purpose says so.

use super::*;

fn problems(text: &str) -> Vec<String> {
    let map = read(&[("cidr-global", text)]);
    let problems = map.pool_of("any").unwrap().pool.clone().unwrap_err();
    assert!(problems.iter().all(|problem| problem.key == "cidr-global"), "{problems:?}");
    problems.into_iter().map(|problem| problem.text).collect()
}

#[test]
fn the_first_key_that_is_there_serves_even_if_it_is_unreadable() {
    let (cidr, range) = ("10.0.0.0/29", "10.1.0.1-10.1.0.9");
    for (data, namespace, key, fine) in [
        (&[("cidr-global", cidr), ("range-web", range)][..], "web", "cidr-global", true),
        (&[("cidr-web", ""), ("cidr-global", cidr)], "web", "cidr-web", false),
        (&[("cidr-web", ""), ("cidr-global", cidr)], "shop", "cidr-global", true),
        (&[("cidr-web", "nonsense"), ("range-web", range)], "web", "cidr-web", false),
        (&[("cidr-global", ""), ("range-global", range)], "web", "cidr-global", false),
        (&[("cidr-web", cidr), ("range-global", range)], "shop", "range-global", true),
        (&[("range-web", range), ("range-global", cidr)], "web", "range-web", true),
        (&[("range-web", range), ("range-global", cidr)], "global", "range-global", true),
        (&[("cidr-global", cidr)], "global", "cidr-global", true),
    ] {
        let found = read(data).pool_of(namespace).unwrap().clone();
        assert_eq!((found.key.as_str(), found.pool.is_ok()), (key, fine), "{data:?} {namespace}");
    }
    assert_eq!(read(&[("cidr-web", cidr)]).pool_of("shop"), None);
}

#[test]
fn a_global_pool_serves_all_but_the_namespaces_with_keys_that_count() {
    let data = [
        ("cidr-global", "10.0.0.0/29"),
        ("cidr-web", "10.1.0.0/29"),
        ("range-shop", "10.2.0.1-10.2.0.9"),
    ];
    let map = read(&data);
    let scopes: Vec<_> =
        map.pools.iter().map(|pool| (pool.key.as_str(), pool.namespaces.clone())).collect();
    let web = Scope::OnlyOne("web".to_owned());
    let others = Scope::AllBut(["web".to_owned()].into());
    assert_eq!(scopes, [("cidr-global", others), ("cidr-web", web)]);
}

#[test]
fn texts_that_only_look_wrong_are_read_as_they_were_meant() {
    for (text, addresses) in [
        // Refused there, each of them.
        ("10.0.0.1-10.0.0.5, 10.0.0.9-10.0.0.10", "10.0.0.1-10.0.0.5 10.0.0.9-10.0.0.10"),
        ("10.0.0.0/30,10.0.1.1-10.0.1.2", "10.0.0.0/30 10.0.1.1-10.0.1.2"),
        ("10.0.0.0/30,", "10.0.0.0/30"),
        ("\n10.0.0.0/30\n10.0.1.0/30,\r\n fd00::/64\n", "10.0.0.0/30 10.0.1.0/30 fd00::/64"),
        ("10.0.0.1 - 10.0.0.5", "10.0.0.1-10.0.0.5"),
        // Taken there as well.
        ("192.168.0.210/29", "192.168.0.208-192.168.0.215"),
        ("fe80::1%eth0-fe80::5%eth0", "fe80::1-fe80::5"),
        ("fe80::1-fe80::5%eth0", "fe80::1-fe80::5"),
        ("::ffff:10.0.0.1-::ffff:10.0.0.2", "::ffff:10.0.0.1 ::ffff:10.0.0.2"),
        ("10.0.0.9-10.0.0.9,10.0.0.8/32,10.0.0.8-10.0.0.9", "10.0.0.8-10.0.0.9"),
    ] {
        assert_eq!(global(text, &[]).ranges(), &set(addresses), "{text:?}");
    }
}

#[test]
fn a_text_that_cannot_be_read_is_quoted_with_the_expected_form() {
    let malformed = "is not a CIDR or a first-last range";
    let leading_zeros =
        "; write its numbers without leading zeros, which some programs read as octal";
    for (text, expected) in [
        ("", vec!["it is empty, expected CIDRs and first-last ranges, separated by commas".into()]),
        (
            " , \n",
            vec!["it is empty, expected CIDRs and first-last ranges, separated by commas".into()],
        ),
        (
            "10.0.0.9-10.0.0.1",
            vec![
                r#""10.0.0.9-10.0.0.1" is empty: its first address comes after its last; write 10.0.0.1-10.0.0.9"#
                    .to_owned(),
            ],
        ),
        (
            "10.0.0.1-fd00::1",
            vec![
                r#""10.0.0.1-fd00::1" mixes IPv4 and IPv6; both ends of a range must be of one family"#
                    .into(),
            ],
        ),
        (
            "10.0.0.1",
            vec![
                r#""10.0.0.1" is a single address, expected 10.0.0.1/32 or 10.0.0.1-10.0.0.1"#
                    .into(),
            ],
        ),
        (
            "fd00::1",
            vec![r#""fd00::1" is a single address, expected fd00::1/128 or fd00::1-fd00::1"#.into()],
        ),
        (
            "fd00::/64,nonsense,10.0.0.0/33",
            vec![
                format!(r#""nonsense" {malformed}"#),
                format!(r#""10.0.0.0/33" {malformed}; its prefix is longer than the address"#),
            ],
        ),
        (
            "10.0.0.01/24,10.0.0.0/08,10.0.0.1-10.0.0.05",
            ["10.0.0.01/24", "10.0.0.0/08", "10.0.0.1-10.0.0.05"]
                .map(|entry| format!("{entry:?} {malformed}{leading_zeros}"))
                .into(),
        ),
        (
            "fe80::1%eth0/64",
            vec![r#""fe80::1%eth0/64" names a zone, expected a CIDR without one"#.into()],
        ),
        ("10.0.0.1%eth0-10.0.0.2", vec![format!(r#""10.0.0.1%eth0-10.0.0.2" {malformed}"#)]),
        ("fe80::1%-fe80::2", vec![format!(r#""fe80::1%-fe80::2" {malformed}"#)]),
        ("10.0.0.1-10.0.0.2-10.0.0.3", vec![format!(r#""10.0.0.1-10.0.0.2-10.0.0.3" {malformed}"#)]),
        (
            "10.0.0.0/7",
            vec![
                "it has 33554432 IPv4 addresses, expected at most 16777216: one key may have as many as a /8, and all keys together as many as four of them"
                    .into(),
            ],
        ),
    ] {
        assert_eq!(problems(text), expected, "{text}");
    }
}

#[test]
fn however_much_is_wrong_the_words_are_few() {
    let said = problems(&"x,".repeat(100));
    assert_eq!(said.len(), 9);
    assert_eq!(said[8], "and 92 more entries are wrong");
    let said = problems(&"10.0.0.0/32,".repeat(4097));
    assert_eq!(said, ["it has more entries than 4096, which is the limit"]);
    assert_eq!(global(&"10.0.0.0/32,".repeat(4096), &[]).ranges().len(), 1);
    let said = problems(&"é".repeat(1 << 20));
    let quoted = "é".repeat(64);
    assert_eq!(said, [format!("{quoted:?}… is too long, expected a CIDR or a first-last range")]);
}

#[test]
fn all_pools_together_stay_affordable() {
    let names = ["a", "b", "c", "d", "e", "f"].map(|name| format!("cidr-{name}"));
    let data: Vec<_> = names
        .iter()
        .zip(["10.0.0.0/8", "11.0.0.0/8", "fd00::/8", "12.0.0.0/9", "13.0.0.0/8", "14.0.0.0/8"])
        .map(|(key, text)| (key.as_str(), text))
        .collect();
    let fine: Vec<_> = read(&data).pools.iter().map(|pool| pool.pool.is_ok()).collect();
    assert_eq!(fine, [true, true, true, true, true, false]);
}

#[test]
fn ends_are_those_of_the_merged_networks() {
    for (text, more, addresses) in [
        (
            "10.0.0.0/30,10.0.0.4/30,10.0.0.8/30",
            &[SKIP][..],
            "10.0.0.1-10.0.0.6 10.0.0.9-10.0.0.10",
        ),
        ("10.0.0.0/30,10.0.0.4/30,10.0.0.8/30", &[], "10.0.0.1-10.0.0.11"),
        ("10.0.0.8-10.0.0.15,fd00::/126", &[SKIP], "10.0.0.8-10.0.0.15 fd00::/126"),
        ("10.0.0.254/23", &[], "10.0.0.1-10.0.0.254 10.0.1.1-10.0.1.254"),
    ] {
        assert_eq!(usable(&global(text, more)), set(addresses), "{text}");
    }
}

#[test]
fn an_address_that_ends_in_0_is_never_given() {
    for text in ["10.0.0.0/32", "0.0.0.0-0.0.0.0", "10.0.0.255-10.0.1.0"] {
        assert_eq!(first_free(text, "", &[]), Err(Verdict::Full(Family::V4)), "{text}");
    }
}

#[test]
fn a_pool_whose_addresses_are_used_is_full() {
    // There a Service that would put up with one family gets an empty text for an address.
    assert_eq!(first_free("10.0.0.1/32", "10.0.0.1", &[]), Err(Verdict::Full(Family::V4)));
}

#[test]
fn the_address_of_all_zeros_leaves_it_to_dhcp() {
    const V4: Leases = Leases::Of(Family::V4);
    const V6: Leases = Leases::Of(Family::V6);
    for (key, text, leases, addresses) in [
        ("cidr-global", "0.0.0.0/32", Leases::All, ""),
        ("range-global", "0.0.0.0/32", Leases::All, ""),
        ("range-web", "0.0.0.0/32\n", Leases::All, ""),
        ("cidr-global", "0.0.0.0/32,2001:db8::/64", V4, "2001:db8::/64"),
        ("cidr-global", "2001:db8::/64,0.0.0.0/32,0.0.0.0/32", V4, "2001:db8::/64"),
        ("cidr-global", "0.0.0.0/32,10.0.0.1/32", Leases::No, "0.0.0.0 10.0.0.1"),
        ("cidr-global", "0.0.0.0/31", Leases::No, "0.0.0.0/31"),
        ("cidr-global", "0.0.0.0-0.0.0.0", Leases::No, "0.0.0.0"),
        ("cidr-global", "::/128", V6, ""),
        ("range-global", "10.0.0.1-10.0.0.2,::/128", V6, "10.0.0.1-10.0.0.2"),
        ("cidr-global", "::/128,fd00::/127", Leases::No, ":: fd00::/127"),
        ("cidr-global", "0.0.0.0/32,::/128", Leases::Each, ""),
    ] {
        let found = read(&[(key, text)]).pool_of("web").unwrap().clone();
        assert_eq!(found.leases, leases, "{text}");
        assert_eq!(found.pool.unwrap().ranges(), &set(addresses), "{text}");
    }
    assert_eq!(first_free("0.0.0.0/32,2001:db8::/64", "", &[]), Ok(ip("2001:db8::")));
}

#[test]
fn sharing_goes_by_the_own_key_else_by_the_global_one() {
    for (data, shares) in [
        (&[][..], false),
        (&[("allow-share-global", "true")], true),
        (&[("allow-share-web", "yes"), ("allow-share-global", "true")], false),
        (&[("allow-share-web", ""), ("allow-share-global", "true")], false),
        (&[("allow-share-web", "T"), ("allow-share-global", "0")], true),
        (&[("allow-share-shop", "true")], false),
        // Without effect there.
        (&[("allow-shared-web", "true")], true),
        (&[("allow-shared-web", "true"), ("allow-share-web", "false")], false),
        (&[("allow-shared-web", "false"), ("allow-share-global", "true")], false),
    ] {
        assert_eq!(read(data).shares("web"), shares, "{data:?}");
    }
}

#[test]
fn the_interface_is_that_of_the_own_key_else_of_the_global_one() {
    for (data, interface) in [
        (&[][..], None),
        (&[("interface-global", "eth0")], Some("eth0")),
        (&[("interface-web", "eth1"), ("interface-global", "eth0")], Some("eth1")),
        (&[("interface-web", ""), ("interface-global", "eth0")], None),
        (&[("interface-what", "eth0")], None),
    ] {
        assert_eq!(read(data).interface("web"), interface, "{data:?}");
    }
}

#[test]
fn only_the_exact_words_turn_options_on() {
    for (key, value, first) in [
        ("search-order", "desc", "10.0.0.11"),
        ("search-order", "DESC", "10.0.0.8"),
        ("search-order", " desc", "10.0.0.8"),
        ("skip-end-ips-in-cidr", "true", "10.0.0.9"),
        ("skip-end-ips-in-cidr", "True", "10.0.0.8"),
        ("skip-end-ips-in-cidr", "1", "10.0.0.8"),
    ] {
        assert_eq!(first_free("10.0.0.8/30", "", &[(key, value)]), Ok(ip(first)), "{key} {value}");
    }
}
