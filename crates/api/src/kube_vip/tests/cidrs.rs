//! CIDRs become sets of addresses, with and without their ends.

use super::*;

const ON_AND_OFF: &[&[(&str, &str)]] = &[&[SKIP], &[]];
const ON: &[&[(&str, &str)]] = &[&[SKIP]];
const OFF: &[&[(&str, &str)]] = &[&[]];

#[test]
fn a_text_of_cidrs_gives_their_union_without_the_ends_that_are_skipped() {
    for (text, skip, addresses) in [
        ("192.168.0.200/32", ON_AND_OFF, "192.168.0.200"),
        ("192.168.0.200/30", OFF, "192.168.0.200-192.168.0.203"),
        ("192.168.0.200/30", ON, "192.168.0.201-192.168.0.202"),
        ("192.168.0.200/31", ON, "192.168.0.200-192.168.0.201"),
        ("192.168.0.200/30,192.168.0.200/29", OFF, "192.168.0.200-192.168.0.207"),
        ("192.168.0.200/30,192.168.0.200/29", ON, "192.168.0.201-192.168.0.206"),
        ("fe80::10/127", OFF, "fe80::10 fe80::11"),
        ("fe80::10/127,fe80::fe/127", OFF, "fe80::10 fe80::11 fe80::fe fe80::ff"),
        ("fe80::10/126,fe80::12/127", OFF, "fe80::10 fe80::11 fe80::12 fe80::13"),
        // Not pinned there: the option does not touch IPv6.
        ("fe80::10/126,fe80::12/127", ON, "fe80::10 fe80::11 fe80::12 fe80::13"),
    ] {
        for more in skip {
            assert_eq!(usable(&global(text, more)), set(addresses), "{text} {more:?}");
        }
    }
}
