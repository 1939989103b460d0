//! The first free address of CIDRs.

use super::*;

/// In four search orders: up, down, up without ends, down without ends.
const ORDERS: [&[(&str, &str)]; 4] = [&[], &[DESC], &[SKIP], &[DESC, SKIP]];
const NONE: Option<&str> = Some("full");
const NOT_PINNED: Option<&str> = None;

#[test]
fn the_first_free_address_of_cidrs_is_the_next_in_search_order() {
    for (text, used, expected) in [
        (
            "192.168.0.200/30",
            "",
            ["192.168.0.200", "192.168.0.203", "192.168.0.201", "192.168.0.202"].map(Some),
        ),
        (
            "192.168.0.10/24",
            "",
            [Some("192.168.0.1"), Some("192.168.0.254"), NOT_PINNED, NOT_PINNED],
        ),
        (
            "192.168.0.255/30",
            "192.168.0.252 192.168.0.253 192.168.0.254",
            [NONE, NONE, NOT_PINNED, NOT_PINNED],
        ),
        (
            "192.168.0.200/30,192.168.0.200/29",
            "192.168.0.201 192.168.0.202",
            ["192.168.0.200", "192.168.0.207", "192.168.0.203", "192.168.0.206"].map(Some),
        ),
        (
            "2001::49fe/127",
            "",
            [Some("2001::49fe"), Some("2001::49ff"), Some("2001::49fe"), NOT_PINNED],
        ),
        ("2001::49fe/127", "2001::49fe 2001::49ff", [NONE, NONE, NOT_PINNED, NOT_PINNED]),
        (
            "2001::10/126,2001::12/127",
            "2001::10 2001::11",
            [Some("2001::12"), Some("2001::13"), NOT_PINNED, NOT_PINNED],
        ),
    ] {
        for (more, expected) in ORDERS.into_iter().zip(expected) {
            let got = first_free(text, used, more);
            match expected {
                NONE => assert!(matches!(got, Err(Verdict::Full(_))), "{text} {more:?}: {got:?}"),
                Some(addr) => assert_eq!(got, Ok(ip(addr)), "{text} {more:?}"),
                NOT_PINNED => {}
            }
        }
    }
}
