use alloc::{collections::BTreeSet, format, string::ToString, vec, vec::Vec};
use core::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn nodes(names: &[&str]) -> Vec<Node> {
    let node = |name: &&str| Node { name: (*name).to_string(), addresses: vec![] };
    names.iter().map(node).collect()
}

fn names(order: &[NodeIndex], nodes: &[Node]) -> Vec<alloc::string::String> {
    order.iter().map(|index| nodes[*index as usize].name.clone()).collect()
}

#[test]
fn slots_and_orders_are_the_same_in_every_version_of_the_program() {
    // A change of these would move addresses on an upgrade.
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let slots: Vec<_> =
        ["192.0.2.1", "192.0.2.2", "192.0.2.3", "10.0.0.1", "2001:db8::1", "fd00::7"]
            .map(|text| slot_of(address(text), 8))
            .into();
    assert_eq!(slots, SLOTS);
    let three = nodes(&["n1", "n2", "n3"]);
    let orders: Vec<_> = (2..6).map(|slot| preference(&format!("edge/{slot}"), &three)).collect();
    assert_eq!(orders, ORDERS);
}

const SLOTS: [u8; 6] = [3, 5, 1, 6, 2, 3];
const ORDERS: [[NodeIndex; 3]; 4] = [[1, 2, 0], [1, 2, 0], [0, 2, 1], [0, 1, 2]];

#[test]
fn addresses_and_first_places_are_spread_evenly() {
    let mut count = [0_usize; 8];
    for last in 0..=255 {
        count[usize::from(slot_of(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), 8))] += 1;
    }
    assert!(count.iter().all(|count| (16..=48).contains(count)), "{count:?}");
    let three = nodes(&["worker-1", "worker-2", "worker-3"]);
    let mut first = [0_usize; 3];
    for slot in 0..300 {
        first[preference(&format!("edge/{slot}"), &three)[0] as usize] += 1;
    }
    assert!(first.iter().all(|count| (70..=130).contains(count)), "{first:?}");
}

#[test]
fn priorities_are_distinct_and_spread_as_long_as_they_can_be() {
    for (nodes, expected) in
        [(1, vec![254]), (2, vec![254, 1]), (3, vec![254, 128, 1]), (4, vec![254, 170, 86, 1])]
    {
        let found: Vec<_> = (0..nodes).map(|rank| priority(rank, nodes)).collect();
        assert_eq!(found, expected);
    }
    for nodes in 1..=254 {
        let found: BTreeSet<_> = (0..nodes).map(|rank| priority(rank, nodes)).collect();
        assert_eq!((found.len(), found.last()), (nodes, Some(&254)));
    }
    assert_eq!((priority(0, 500), priority(253, 500), priority(499, 500)), (254, 1, 1));
}

proptest! {
    #[test]
    fn a_node_that_goes_changes_no_other_nodes_order(
        slot in 0..64_u8, count in 1..12_usize, gone in 0..12_usize,
    ) {
        let all: Vec<_> = (0..count).map(|node| format!("node-{node}")).collect();
        let all: Vec<_> = all.iter().map(alloc::string::String::as_str).collect();
        let gone = all[gone % count];
        let fewer: Vec<_> = all.iter().copied().filter(|name| *name != gone).collect();
        let (all, fewer) = (nodes(&all), nodes(&fewer));
        let instance = format!("edge/{slot}");
        let mut before = names(&preference(&instance, &all), &all);
        before.retain(|name| name != gone);
        prop_assert_eq!(before, names(&preference(&instance, &fewer), &fewer));
    }

    #[test]
    fn an_address_of_either_family_has_a_slot(v4 in any::<u32>(), v6 in any::<u128>(), slots in 1..=64_u8) {
        prop_assert!(slot_of(IpAddr::V4(Ipv4Addr::from(v4)), slots) < slots);
        prop_assert!(slot_of(IpAddr::V6(Ipv6Addr::from(v6)), slots) < slots);
    }
}
