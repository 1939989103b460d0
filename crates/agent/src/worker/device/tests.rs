use super::{
    super::netlink::{Address, Device},
    *,
};
use crate::worker::samples;

fn device(index: u32, name: &str, is_up: bool) -> Device {
    Device { index, name: name.to_owned(), is_loopback: name == "lo", is_up }
}

fn network(addresses: &[(&str, u32, bool)]) -> Network {
    Network {
        devices: vec![device(1, "lo", true), device(2, "eth0", true), device(3, "eth1", false)],
        addresses: addresses
            .iter()
            .map(|(ip, index, is_tentative)| Address {
                ip: ip.parse().unwrap(),
                index: *index,
                is_tentative: *is_tentative,
            })
            .collect(),
    }
}

#[test]
fn a_device_is_chosen_by_name_by_route_and_else_by_the_group() {
    let own = network(&[("127.0.0.1", 1, false), ("192.0.2.5", 3, false), ("fd00::5", 1, false)]);
    let v4: IpAddr = "192.0.2.5".parse().unwrap();
    let v6: IpAddr = "fd00::5".parse().unwrap();
    let away: IpAddr = "198.51.100.1".parse().unwrap();
    for (case, node, target, route, before, expected) in [
        ("the group's", "n1", None, None, None, "bond0"),
        ("a route that nothing asks for", "n1", None, Some(2), Some("eth1"), "bond0"),
        ("the node's", "n9", Some(away), Some(2), None, "eth9"),
        ("by route", "n1", Some(away), Some(2), None, "eth0"),
        ("a new route", "n1", Some(away), Some(3), Some("eth0"), "eth1"),
        ("no route", "n1", Some(away), None, None, "bond0"),
        ("no route any more", "n1", Some(away), None, Some("eth0"), "eth0"),
        ("an address of the node", "n1", Some(v4), Some(1), None, "eth1"),
        ("an address on lo", "n1", Some(v6), Some(1), None, "bond0"),
        ("a route over lo", "n1", Some(away), Some(1), None, "bond0"),
        ("a device that is gone", "n1", Some(away), Some(7), None, "bond0"),
    ] {
        let mut plan = samples::plan(vec![]);
        plan.interface = "bond0".to_owned();
        plan.interface_from = target;
        plan.interfaces = [("n9".to_owned(), "eth9".to_owned())].into();
        assert_eq!(choose(&plan, node, &own, route, before), expected, "{case}");
    }
}

#[test]
fn ipv6_is_usable_once_the_devices_own_address_is() {
    for (case, device, addresses, expected) in [
        ("no address", "eth0", &[][..], Ipv6::Pending),
        ("tentative", "eth0", &[("fe80::1", 2, true)], Ipv6::Pending),
        ("global alone", "eth0", &[("fd00::1", 2, false)], Ipv6::Pending),
        ("of another device", "eth0", &[("fe80::1", 1, false)], Ipv6::Pending),
        ("an anchor", "eth0", &[("fe80::112:1", 2, false)], Ipv6::Pending),
        ("usable", "eth0", &[("fe80::1", 2, false)], Ipv6::Usable),
        ("one of two", "eth0", &[("fe80::1", 2, true), ("fe80::2", 2, false)], Ipv6::Usable),
        ("no link", "eth1", &[("fe80::1", 3, false)], Ipv6::LinkDown),
        ("no device", "eth7", &[("fe80::1", 2, false)], Ipv6::LinkDown),
    ] {
        let anchor: IpAddr = "fe80::112:1".parse().unwrap();
        assert_eq!(ipv6(&network(addresses), device, |ip| ip == anchor), expected, "{case}");
    }
}

#[test]
fn adverts_to_single_nodes_need_the_address_of_the_node() {
    let unicast = |address| Form { transport: Transport::Unicast, ..samples::form(&[address]) };
    let own = samples::plan(vec![]).nodes.remove(0);
    let (v4, v6) = (Some("192.0.2.1"), Some("2001:db8::1"));
    for (case, form, addresses, expected) in [
        ("multicast", samples::form(&["2001:db8::9"]), &[][..], None),
        ("none", unicast("2001:db8::9"), &[("fe80::1", 2, false)], v6),
        ("tentative", unicast("2001:db8::9"), &[("2001:db8::1", 2, true)], v6),
        ("there", unicast("2001:db8::9"), &[("2001:db8::1", 2, false)], None),
        ("on another device", unicast("2001:db8::9"), &[("2001:db8::1", 1, false)], None),
        ("of another family", unicast("192.0.2.9"), &[("2001:db8::1", 2, false)], v4),
        ("of IPv4", unicast("192.0.2.9"), &[("192.0.2.1", 2, false)], None),
    ] {
        let found = missing_source(&network(addresses), &own, &form);
        assert_eq!(found, expected.map(|text| text.parse().unwrap()), "{case}");
    }
}

#[test]
fn the_wait_for_an_address_begins_at_each_link_up_and_ends_in_any_case() {
    let start = Instant::now();
    let at = |seconds: u64| start + Duration::from_secs(seconds);
    let mut wait = Wait::default();
    for (seconds, state, expected) in [
        (0, Ipv6::LinkDown, Err(None)),
        (1, Ipv6::Pending, Err(Some(at(6)))),
        (5, Ipv6::Pending, Err(Some(at(6)))),
        (6, Ipv6::Pending, Ok(())),
        (7, Ipv6::LinkDown, Err(None)),
        (8, Ipv6::Pending, Err(Some(at(13)))),
        (9, Ipv6::Usable, Ok(())),
        (10, Ipv6::Pending, Err(Some(at(15)))),
    ] {
        assert_eq!(wait.is_over(state, at(seconds)), expected, "{seconds}");
    }
}
