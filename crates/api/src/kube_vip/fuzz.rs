//! Any text in the `ConfigMap` makes pools with addresses that it names, or messages that say why not.

use proptest::{
    collection::{btree_map, vec},
    prelude::*,
    sample::select,
};

use crate::fuzzing;

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_address_that_a_map_gives_is_written_in_it(data in btree_map(key(), value(), 0..8)) {
        fuzzing::pool_map(&data);
    }

    #[test]
    fn messages_about_any_text_are_short(text: String, times in 1..2000_usize) {
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
        fuzzing::pool_map(&data.into());
    }
}
