//! Odd but harmless texts are named in a warning, and no others.

use super::*;

#[test]
fn each_odd_key_is_named_with_the_expected_form() {
    let cidr = ("cidr-global", "10.0.0.0/24");
    for (data, key, text) in [
        (
            &[cidr, ("range-web", "")][..],
            "range-web",
            "has no effect: cidr-global comes before it; call it cidr-web, which may also hold ranges",
        ),
        (
            &[cidr, ("range-global", "")],
            "range-global",
            "has no effect: cidr-global comes before it",
        ),
        (
            &[("cidr-web", "10.0.0.0/24"), ("range-web", "")],
            "range-web",
            "has no effect: cidr-web comes before it",
        ),
        (
            &[("allow-share-web", "yes")],
            "allow-share-web",
            r#"is "yes", not `true` or `false`: nothing is shared"#,
        ),
        (
            &[("allow-shared-web", "true")],
            "allow-shared-web",
            "is taken for allow-share-web, which is how the key is spelled",
        ),
        (
            &[("allow-share-web", "true"), ("allow-shared-web", "maybe")],
            "allow-shared-web",
            "has no effect beside allow-share-web, which is how the key is spelled",
        ),
        (
            &[("search-order", "DESC")],
            "search-order",
            r#"is "DESC", not `desc`: the lowest address is given first"#,
        ),
        (
            &[("skip-end-ips-in-cidr", "True")],
            "skip-end-ips-in-cidr",
            r#"is "True", not `true`: the ends of CIDRs are given"#,
        ),
        (
            &[("interface-web", "eth0\n")],
            "interface-web",
            r#"is "eth0\n": no interface has such a name"#,
        ),
        (&[("cidr-", "10.0.0.0/24")], "cidr-", r#"has no effect: no namespace can be called """#),
        (
            &[("interface-Web", "eth0")],
            "interface-Web",
            r#"has no effect: no namespace can be called "Web""#,
        ),
        (
            &[("cdir-web", "10.0.0.0/24")],
            "cdir-web",
            "is not known and has no effect, expected cidr-, range-, exclude-, fallback-, allow-share-, interface- or search-order- with a namespace or `global`, search-order or skip-end-ips-in-cidr",
        ),
        (
            &[("cidr-web", "10.0.0.0/32")],
            "cidr-web",
            "gives nothing: IPv4 addresses that end in .0 or .255 are left out, and with skip-end-ips-in-cidr the ends of CIDRs",
        ),
        (
            &[cidr, ("cidr-web", "fd00::/64,10.0.0.9-10.0.1.9")],
            "cidr-web",
            "has addresses in common with cidr-global, such as 10.0.0.9; each is given once",
        ),
    ] {
        assert_eq!(warnings(data), [(key.to_owned(), text.to_owned())], "{data:?}");
    }
}

#[test]
fn nothing_is_said_about_a_correct_key() {
    let data = [
        ("cidr-global", "10.0.0.0/24,fd00::/64"),
        ("cidr-web", "10.0.1.0/24,10.0.1.9/32"),
        ("cidr-lease", "0.0.0.0/32"),
        ("cidr-leases", "0.0.0.0/32"),
        ("allow-share-global", "TRUE"),
        ("allow-share-web", "f"),
        ("interface-global", "eth0"),
        ("interface-web", ""),
        ("search-order", "asc"),
        ("skip-end-ips-in-cidr", "false"),
    ];
    assert_eq!(warnings(&data), []);
    assert_eq!(warnings(&[("search-order", ""), ("skip-end-ips-in-cidr", "")]), []);
}

#[test]
fn every_key_that_overlaps_another_is_named() {
    let data = [
        ("cidr-a", "10.0.0.0/16"),
        ("cidr-b", "10.0.1.0/24,10.1.0.0/24"),
        ("cidr-c", "10.0.2.0-10.0.3.9"),
        ("cidr-d", "10.1.0.128/25"),
        ("cidr-e", "10.2.0.0/24"),
        ("cidr-f", "nonsense"),
    ];
    let keys: Vec<_> = warnings(&data).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["cidr-b", "cidr-c", "cidr-d"]);
}

#[test]
fn warnings_are_counted_when_they_are_too_many_to_say() {
    let keys: Vec<_> = (0..100).map(|number| format!("unknown-{number}")).collect();
    let data: Vec<_> = keys.iter().map(|key| (key.as_str(), "")).collect();
    let map = read(&data);
    assert_eq!((map.problems.len(), map.problems_left_out), (64, 36));
}
