//! A text is split by family.

use super::*;

#[test]
fn the_families_of_a_text_are_two_sets() {
    for (text, v4, v6) in [
        ("192.168.0.200/30", "192.168.0.200/30", ""),
        ("192.168.0.200/30,192.168.1.200/30", "192.168.0.200/30 192.168.1.200/30", ""),
        ("fe80::10/127", "", "fe80::10/127"),
        ("fe80::10/127,fe80::fe/127", "", "fe80::10/127 fe80::fe/127"),
        ("192.168.0.200/30,fe80::10/127", "192.168.0.200/30", "fe80::10/127"),
        (
            "192.168.0.200/30,192.168.1.200/30,fe80::10/127,fe80::fe/127",
            "192.168.0.200/30 192.168.1.200/30",
            "fe80::10/127 fe80::fe/127",
        ),
        ("192.168.0.10-192.168.0.12", "192.168.0.10-192.168.0.12", ""),
        (
            "192.168.0.10-192.168.0.12,192.168.0.100-192.168.0.120",
            "192.168.0.10-192.168.0.12 192.168.0.100-192.168.0.120",
            "",
        ),
        ("fe80::13-fe80::14", "", "fe80::13-fe80::14"),
        ("fe80::13-fe80::14,fe80::130-fe80::140", "", "fe80::13-fe80::14 fe80::130-fe80::140"),
        (
            "192.168.0.10-192.168.0.12,fe80::13-fe80::14",
            "192.168.0.10-192.168.0.12",
            "fe80::13-fe80::14",
        ),
        (
            "192.168.0.10-192.168.0.12,192.168.0.100-192.168.0.120,fe80::13-fe80::14,fe80::130-fe80::140",
            "192.168.0.10-192.168.0.12 192.168.0.100-192.168.0.120",
            "fe80::13-fe80::14 fe80::130-fe80::140",
        ),
    ] {
        let pool = global(text, &[]);
        for (family, expected) in [(Family::V4, v4), (Family::V6, v6)] {
            assert_eq!(pool.ranges().has_family(family), !expected.is_empty(), "{text}");
            let of_family = pool.ranges().ranges().filter(|range| range.family() == family);
            let parts = expected.split_whitespace().map(|part| part.parse::<AddrBlock>().unwrap());
            let expected: Vec<_> = parts.map(AddrBlock::range).collect();
            assert_eq!(of_family.collect::<Vec<_>>(), expected, "{text}: pieces that do not meet");
        }
    }
}
