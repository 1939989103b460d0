use alloc::string::ToString;

use proptest::{collection::btree_map, prelude::*};

use super::*;

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn member(service: &str, texts: &[&str]) -> Member {
    Member { service: service.to_string(), addresses: addresses(texts), ..Member::default() }
}

fn spread(service: &str, texts: &[&str]) -> Member {
    Member { spread: true, ..member(service, texts) }
}

fn node(name: &str, texts: &[&str]) -> Node {
    Node { name: name.to_string(), addresses: addresses(texts) }
}

fn nodes() -> Vec<Node> {
    vec![node("n1", &["10.0.0.1", "fd00::1"]), node("n2", &["10.0.0.2", "fd00::2"])]
}

fn classic_settings() -> Settings {
    Settings {
        version: Version::V2,
        advert_millis: 1000,
        unicast: false,
        password: None,
        preempt: Preempt::AtOnce,
        group: "edge".to_string(),
        slots: None,
    }
}

fn slot_settings(slots: u8) -> Settings {
    Settings { version: Version::V3, advert_millis: 100, slots: Some(slots), ..classic_settings() }
}

/// The instances, with ids in the order of names.
fn made(settings: &Settings, members: &[Member]) -> Vec<Instance> {
    made_with(settings, members, &nodes(), &BTreeMap::new())
}

fn made_with(
    settings: &Settings,
    members: &[Member],
    nodes: &[Node],
    before: &BTreeMap<&str, &Form>,
) -> Vec<Instance> {
    let ids = names(settings, members).into_iter().zip(1..).collect();
    instances(settings, members, nodes, &ids, before)
}

fn forms(instances: &[Instance]) -> BTreeMap<&str, &Form> {
    instances.iter().map(|instance| (instance.name.as_str(), &instance.form)).collect()
}

fn held(instances: &[Instance]) -> BTreeMap<&str, Vec<IpAddr>> {
    instances.iter().map(|it| (it.name.as_str(), it.served().collect())).collect()
}

#[test]
fn in_the_classic_layout_each_service_has_an_instance_or_one_per_address() {
    let members = [
        member("ns/a", &["192.0.2.2", "192.0.2.1", "192.0.2.1"]),
        spread("ns/b", &["192.0.2.4", "192.0.2.3"]),
        member("ns/waiting", &[]),
        member("ns/six", &["2001:db8::1"]),
    ];
    let made = made(&classic_settings(), &members);
    let expected = [
        ("ns/a", addresses(&["192.0.2.1", "192.0.2.2"])),
        ("ns/b/192.0.2.3", addresses(&["192.0.2.3"])),
        ("ns/b/192.0.2.4", addresses(&["192.0.2.4"])),
        ("ns/six", addresses(&["2001:db8::1"])),
    ];
    assert_eq!(held(&made), expected.into());
    let a = &made[0];
    // A new instance advertises one address, and the others may then come and go.
    assert_eq!(
        (&a.form.advertised, &a.excluded),
        (&addresses(&["192.0.2.1"]), &addresses(&["192.0.2.2"]))
    );
    assert_eq!((a.preempt, made[1].preempt), (Preempt::Never, Preempt::AtOnce));
    // IPv6 has no adverts of version 2.
    assert_eq!((a.form.version, made[3].form.version), (Version::V2, Version::V3));
}

#[test]
fn a_service_without_an_address_keeps_its_router_id() {
    let members = [member("ns/waiting", &[]), spread("ns/b", &[]), member("ns/c", &["192.0.2.1"])];
    let names = names(&classic_settings(), &members);
    assert_eq!(names, ["ns/c".to_string(), "ns/waiting".to_string()].into());
}

#[test]
fn an_advertised_list_stays_as_it_was_taken_over() {
    let before = Form {
        version: Version::V2,
        advert_millis: 1000,
        transport: Transport::Multicast,
        password: None,
        advertised: addresses(&["192.0.2.7", "192.0.2.3"]),
        anchor: false,
    };
    let before = BTreeMap::from([("ns/a", &before)]);
    for (case, now, advertised, excluded) in [
        ("the same", &["192.0.2.3", "192.0.2.7"][..], &["192.0.2.7", "192.0.2.3"][..], &[][..]),
        (
            "one more",
            &["192.0.2.1", "192.0.2.3", "192.0.2.7"],
            &["192.0.2.7", "192.0.2.3"],
            &["192.0.2.1"],
        ),
        ("one less", &["192.0.2.1", "192.0.2.3"], &["192.0.2.3"], &["192.0.2.1"]),
        ("all others", &["192.0.2.2", "192.0.2.1"], &["192.0.2.1"], &["192.0.2.2"]),
    ] {
        let found = made_with(&classic_settings(), &[member("ns/a", now)], &nodes(), &before);
        let found = (&found[0].form.advertised, &found[0].excluded);
        assert_eq!(found, (&addresses(advertised), &addresses(excluded)), "{case}");
    }
}

#[test]
fn slots_exist_without_services_and_advertise_nothing_of_theirs() {
    let none = made(&slot_settings(3), &[]);
    let some = made(&slot_settings(3), &[member("ns/a", &["192.0.2.1", "2001:db8::1"])]);
    assert_eq!(none.len(), 3);
    assert_eq!(forms(&none), forms(&some));
    let anchors: Vec<_> = some.iter().map(|slot| slot.form.advertised[0].to_string()).collect();
    assert_eq!(anchors, ["169.254.112.1", "169.254.112.2", "169.254.112.3"]);
    let held: BTreeSet<_> = some.iter().flat_map(Instance::served).collect();
    assert_eq!(held, addresses(&["192.0.2.1", "2001:db8::1"]).into_iter().collect());
}

#[test]
fn a_service_whose_state_is_its_own_shares_no_slot() {
    let local =
        Member { only_on: Some([1].into()), ..member("ns/local", &["192.0.2.1", "2001:db8::1"]) };
    let lines =
        Member { lines: vec!["track_src_ip".to_string()], ..member("ns/lines", &["192.0.2.2"]) };
    let made = made(&slot_settings(1), &[local, lines, member("ns/a", &["192.0.2.3"])]);
    let expected = [
        ("edge/0", addresses(&["192.0.2.3"])),
        ("edge/ns/lines", addresses(&["192.0.2.2"])),
        ("edge/ns/local", addresses(&["192.0.2.1", "2001:db8::1"])),
    ];
    assert_eq!(held(&made), expected.into());
    assert!(made.iter().all(|instance| instance.form.anchor));
    assert_eq!((made[2].is_kept_off(0), made[2].is_kept_off(1)), (true, false));
    assert_eq!(made[1].lines, ["track_src_ip"]);
}

#[test]
fn among_slots_a_service_has_an_instance_of_its_own_only_with_an_address() {
    let local = |texts| Member { only_on: Some([1].into()), ..member("ns/local", texts) };
    let settings = slot_settings(1);
    for (texts, expected) in [(&[][..], None), (&["192.0.2.1"], Some("edge/ns/local".to_string()))]
    {
        let member = local(texts);
        assert_eq!(own_instance(&settings, &member), expected);
        assert_eq!(carriers(&settings, &member), expected.clone().into_iter().collect());
        let names = names(&settings, &[member]);
        assert_eq!(names, expected.into_iter().chain(["edge/0".to_string()]).collect());
    }
}

#[test]
fn the_carriers_of_a_service_are_the_instances_with_its_addresses() {
    for settings in [classic_settings(), slot_settings(5)] {
        let members = [
            member("ns/a", &["192.0.2.1", "192.0.2.2", "2001:db8::1"]),
            spread("ns/b", &["192.0.2.3", "192.0.2.4"]),
            Member { only_on: Some([1].into()), ..member("ns/local", &["192.0.2.5"]) },
        ];
        let made = made(&settings, &members);
        for member in &members {
            let with =
                made.iter().filter(|one| one.served().any(|it| member.addresses.contains(&it)));
            let with: BTreeSet<_> = with.map(|instance| instance.name.clone()).collect();
            assert_eq!(carriers(&settings, member), with);
        }
    }
}

#[test]
fn an_instance_without_a_router_id_is_left_out() {
    let members = [member("ns/a", &["192.0.2.1"]), member("ns/b", &["192.0.2.2"])];
    let ids = BTreeMap::from([("ns/b".to_string(), 9)]);
    let found = instances(&classic_settings(), &members, &nodes(), &ids, &BTreeMap::new());
    assert_eq!(
        found.iter().map(|it| (it.name.as_str(), it.router_id)).collect::<Vec<_>>(),
        [("ns/b", 9)]
    );
}

#[test]
fn adverts_are_unicast_only_between_nodes_of_the_family() {
    let unicast = Settings { unicast: true, ..classic_settings() };
    let members = [member("ns/four", &["192.0.2.1"]), member("ns/six", &["2001:db8::1"])];
    let (one, two) = (node("n1", &["10.0.0.1", "fd00::1"]), node("n2", &["10.0.0.2"]));
    for (case, nodes, four, six) in [
        ("no nodes", vec![], Transport::Multicast, Transport::Multicast),
        ("one node", vec![one.clone()], Transport::Multicast, Transport::Multicast),
        ("one of IPv6", vec![one, two], Transport::Unicast, Transport::Multicast),
        ("all of both", self::nodes(), Transport::Unicast, Transport::Unicast),
    ] {
        let found = made_with(&unicast, &members, &nodes, &BTreeMap::new());
        assert_eq!((found[0].form.transport, found[1].form.transport), (four, six), "{case}");
    }
}

#[test]
fn anchors_are_of_the_nodes_family() {
    for (case, nodes, expected) in [
        ("no nodes", vec![], "169.254.112.1"),
        ("both families", nodes(), "169.254.112.1"),
        ("IPv6 alone", vec![node("n1", &["fd00::1"])], "fe80::112:1"),
    ] {
        let found = made_with(&slot_settings(1), &[], &nodes, &BTreeMap::new());
        assert_eq!(found[0].form.advertised, addresses(&[expected]), "{case}");
    }
}

#[test]
fn only_version_2_has_passwords() {
    let settings = Settings { password: Some("p1".to_string()), ..classic_settings() };
    let members = [member("ns/four", &["192.0.2.1"]), member("ns/six", &["2001:db8::1"])];
    let found = made(&settings, &members);
    assert_eq!(found[0].form.password.as_deref(), Some("p1"));
    assert_eq!(found[1].form.password, None);
}

proptest! {
    #[test]
    fn every_address_is_held_once_and_no_service_moves_anothers(
        members in btree_map("[a-e]", (0..4_u8, any::<bool>(), any::<bool>()), 1..5),
        slots in proptest::option::of(1..9_u8),
        less in 0..5_usize,
    ) {
        let settings = slots.map_or_else(classic_settings, slot_settings);
        let all: Vec<_> = (0..).zip(&members).map(|(number, (name, (count, spread, local)))| Member {
            service: alloc::format!("ns/{name}"),
            addresses: (0..*count).map(|last| Ipv4Addr::new(192, 0, number, last).into()).collect(),
            spread: *spread,
            lines: vec![],
            only_on: local.then(|| [0].into()),
            advert_millis: None,
        }).collect();
        let ids: BTreeMap<_, _> = names(&settings, &all).into_iter().zip(1..).collect();
        let before = instances(&settings, &all, &nodes(), &ids, &BTreeMap::new());
        let mut held: Vec<_> = before.iter().flat_map(Instance::served).collect();
        held.sort_unstable();
        let mut asked: Vec<_> = all.iter().flat_map(|member| member.addresses.clone()).collect();
        asked.sort_unstable();
        prop_assert_eq!(held, asked);
        for instance in &before {
            prop_assert!(!instance.form.advertised.is_empty());
            prop_assert_eq!(instance.order.len(), nodes().len());
        }
        // One Service goes: all addresses of the others stay in their instances, advertised as before.
        let mut fewer = all.clone();
        let gone = fewer.remove(less % all.len());
        let after = instances(&settings, &fewer, &nodes(), &ids, &forms(&before));
        for instance in &after {
            let was = before.iter().find(|was| was.name == instance.name).unwrap();
            prop_assert_eq!(&was.form, &instance.form);
            let stayed: Vec<_> =
                was.excluded.iter().filter(|it| !gone.addresses.contains(it)).copied().collect();
            prop_assert_eq!(stayed, instance.excluded.clone());
        }
    }
}

#[test]
fn the_addresses_of_a_spread_service_are_dealt_evenly_over_the_nodes_that_may_hold_them() {
    let all = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"];
    let counts = |found: &[Instance]| {
        let mut counts: BTreeMap<NodeIndex, usize> = BTreeMap::new();
        for instance in found {
            *counts.entry(instance.order[0]).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_values().collect();
        counts.sort_unstable();
        counts
    };
    let three = ["n1", "n2", "n3"].map(|name| node(name, &["10.0.0.1"]));
    for (count, nodes, only_on, expected) in [
        (3, &three[..], None, vec![1, 1, 1]),
        (5, &three[..2], None, vec![2, 3]),
        (5, &three[..], Some([0, 2].into()), vec![2, 3]),
        (2, &three[..], Some([1].into()), vec![2]),
        (2, &three[..1], None, vec![2]),
    ] {
        let spread = Member { spread: true, only_on, ..member("ns/a", &all[..count]) };
        let found = made_with(&classic_settings(), &[spread], nodes, &BTreeMap::new());
        assert_eq!(counts(&found), expected, "{count} on {}", nodes.len());
        let orders = found.iter().map(|instance| instance.order.len());
        assert!(orders.into_iter().all(|order| order == nodes.len()));
    }
}
