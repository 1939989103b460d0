//! Which addresses may be on the node on our behalf.

use std::{collections::BTreeSet, net::IpAddr};

use landfall_vrrp::{NodeIndex, Plan};

use crate::OwnedAddress;

pub(super) type Owned = BTreeSet<OwnedAddress>;

/// The addresses that a configuration may put on the device.
pub(super) fn of(plan: &Plan, node: Option<NodeIndex>, device: &str) -> Owned {
    let Some(node) = node else { return Owned::new() };
    let addresses = plan.instances.iter().flat_map(|instance| instance.addresses_on(node));
    addresses.map(|address| OwnedAddress { address, interface: device.to_owned() }).collect()
}

/// The addresses of a plan that the device has and that are not ours: some other program put them there, and they
/// may be what the node lives by.
pub(super) fn strangers(
    plan: &Plan,
    node: Option<NodeIndex>,
    device: &str,
    held: &BTreeSet<(IpAddr, &str)>,
    ours: &Owned,
) -> BTreeSet<IpAddr> {
    let wanted = of(plan, node, device).into_iter();
    let there = wanted.filter(|it| held.contains(&(it.address, it.interface.as_str())));
    let is_ours = |ip: IpAddr| ours.iter().any(|owned| owned.address == ip);
    there.map(|it| it.address).filter(|ip| !is_ours(*ip)).collect()
}

/// A plan as far as it does without some addresses. An instance that would advertise one of them is left out, because
/// adverts without it would not be those of the other nodes.
pub(super) fn without(plan: &Plan, strangers: &BTreeSet<IpAddr>, node: NodeIndex) -> Plan {
    let mut plan = plan.clone();
    plan.instances.retain_mut(|instance| {
        instance.excluded.retain(|address| !strangers.contains(address));
        instance.form_on(node).advertised.iter().all(|address| !strangers.contains(address))
    });
    plan
}

/// What is still ours once a configuration runs: what it has, and what is on the node yet.
pub(super) fn remaining(all: &Owned, running: &Owned, held: &BTreeSet<(IpAddr, &str)>) -> Owned {
    let is_ours = |owned: &&OwnedAddress| {
        running.contains(*owned) || held.contains(&(owned.address, owned.interface.as_str()))
    };
    all.iter().filter(is_ours).cloned().collect()
}

#[cfg(test)]
mod tests {
    use landfall_vrrp::{Change, Step};

    use super::*;
    use crate::worker::samples::{form, instance, plan};

    fn owned(entries: &[(&str, &str)]) -> Owned {
        let entry = |(address, interface): &(&str, &str)| OwnedAddress {
            address: address.parse().unwrap(),
            interface: (*interface).to_owned(),
        };
        entries.iter().map(entry).collect()
    }

    #[test]
    fn every_address_of_the_nodes_form_is_ours() {
        let mut changing = instance("ns/a", 1, form(&["192.0.2.9"]));
        changing.excluded = vec!["2001:db8::9".parse().unwrap()];
        changing.change =
            Some(Change { before: form(&["192.0.2.8"]), holder: 1, step: Step::Holder, since: 1 });
        let plan = plan(vec![changing, instance("ns/b", 2, form(&["192.0.2.10"]))]);
        for (node, first) in [(0, "192.0.2.8"), (1, "192.0.2.9")] {
            let expected =
                owned(&[(first, "eth1"), ("192.0.2.10", "eth1"), ("2001:db8::9", "eth1")]);
            assert_eq!(of(&plan, Some(node), "eth1"), expected);
        }
        assert_eq!(of(&plan, None, "eth1"), Owned::new());
    }

    #[test]
    fn an_address_that_the_device_had_before_is_not_used() {
        let mut classic = instance("ns/a", 1, form(&["192.0.2.9"]));
        classic.excluded = vec!["2001:db8::9".parse().unwrap()];
        let mut slot = instance("ns/b", 2, form(&["169.254.112.2"]));
        slot.excluded = ["192.0.2.10", "192.0.2.11"].map(|text| text.parse().unwrap()).to_vec();
        let plan = plan(vec![classic, slot]);
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let held = [
            (ip("192.0.2.9"), "eth1"),
            (ip("192.0.2.10"), "eth1"),
            (ip("192.0.2.11"), "kube-ipvs0"),
            (ip("2001:db8::9"), "eth1"),
        ];
        let ours = owned(&[("2001:db8::9", "eth0")]);
        let found = strangers(&plan, Some(0), "eth1", &held.into(), &ours);
        assert_eq!(found, [ip("192.0.2.9"), ip("192.0.2.10")].into());
        let rest = without(&plan, &found, 0);
        let left: Vec<_> = rest.instances.iter().flat_map(|it| it.addresses_on(0)).collect();
        assert_eq!(left, [ip("169.254.112.2"), ip("192.0.2.11")]);
        assert_eq!(strangers(&plan, None, "eth1", &held.into(), &ours), BTreeSet::new());
    }

    #[test]
    fn an_address_stays_ours_as_long_as_it_is_on_the_node() {
        let all = owned(&[("192.0.2.1", "eth0"), ("192.0.2.2", "eth0"), ("192.0.2.3", "eth0")]);
        let running = owned(&[("192.0.2.1", "eth0")]);
        let held = [("192.0.2.2".parse().unwrap(), "eth0"), ("192.0.2.3".parse().unwrap(), "eth1")];
        let expected = owned(&[("192.0.2.1", "eth0"), ("192.0.2.2", "eth0")]);
        assert_eq!(remaining(&all, &running, &held.into()), expected);
    }
}
