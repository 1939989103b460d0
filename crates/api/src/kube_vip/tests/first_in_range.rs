//! The first free address of ranges.

use super::*;

const ASC: &[(&str, &str)] = &[];
const DOWN: &[(&str, &str)] = &[DESC];

type Row = (&'static str, &'static [(&'static str, &'static str)], &'static str, &'static str);

const ROWS: &[Row] = &[
    ("192.168.0.10-192.168.0.10", ASC, "", "192.168.0.10"),
    ("192.168.0.10-192.168.0.10", DOWN, "", "192.168.0.10"),
    ("192.168.0.10-192.168.0.12", ASC, "", "192.168.0.10"),
    ("192.168.0.10-192.168.0.12", DOWN, "", "192.168.0.12"),
    ("192.168.0.253-192.168.1.2", ASC, "192.168.0.253 192.168.0.254", "192.168.1.1"),
    ("192.168.0.253-192.168.1.2", DOWN, "192.168.1.1 192.168.1.2", "192.168.0.254"),
    (
        "192.168.0.10-192.168.0.11,192.168.1.20-192.168.1.21",
        ASC,
        "192.168.0.9 192.168.0.10",
        "192.168.0.11",
    ),
    (
        "192.168.0.10-192.168.0.11,192.168.1.20-192.168.1.22",
        DOWN,
        "192.168.1.21 192.168.1.22",
        "192.168.1.20",
    ),
    ("fe80::13-fe80::14", ASC, "", "fe80::13"),
    ("fe80::13-fe80::14", DOWN, "", "fe80::14"),
    ("fe80::13-fe80::15", ASC, "", "fe80::13"),
    ("fe80::13-fe80::15", DOWN, "", "fe80::15"),
    ("fe80::ffff-fe80::1:3", ASC, "fe80::ffff", "fe80::1:0"),
    ("fe80::ffff-fe80::1:3", DOWN, "fe80::1:0 fe80::1:1 fe80::1:2 fe80::1:3", "fe80::ffff"),
    ("fe80::10-fe80::12,fe81::20-fe81::21", ASC, "fe80::10 fe80::11 fe80::12", "fe81::20"),
    ("fe80::10-fe80::12,fe81::20-fe81::21", DOWN, "fe81::20 fe81::21", "fe80::12"),
];

#[test]
fn the_first_free_address_of_ranges_is_the_next_in_search_order() {
    for (text, order, used, expected) in ROWS {
        assert_eq!(first_free(text, used, order), Ok(ip(expected)), "{text} {order:?}");
    }
}

#[test]
fn another_text_and_order_hold_from_the_next_address_on() {
    let mut book = Book::new();
    for (text, order, used, expected) in ROWS {
        let used: Vec<IpAddr> = used.split_whitespace().map(ip).collect();
        for addr in &used {
            assert!(book.take(*addr));
        }
        assert_eq!(first_free_of(&mut book, text, order), Ok(ip(expected)), "{text} {order:?}");
        for addr in used {
            assert!(book.release(addr));
        }
    }
}
