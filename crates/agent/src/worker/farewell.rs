//! What the keeper needs in order to say goodbye in keepalived's place.

use std::{collections::BTreeMap, net::IpAddr};

use landfall_vrrp::{NodeIndex, Plan, Transport, render::usable_password};

use crate::Farewell;

/// One for each instance of the configuration of a node.
pub(super) fn farewells(
    plan: &Plan,
    node: Option<NodeIndex>,
    device: &str,
    passwords: &BTreeMap<String, String>,
) -> Vec<Farewell> {
    let Some((index, own)) = node.and_then(|index| Some((index, plan.node(index)?))) else {
        return Vec::new();
    };
    let instances = plan.instances.iter().map(|instance| {
        let form = instance.form_on(index);
        let is_unicast = form.transport == Transport::Unicast;
        let group = || other_group(plan, form.advertised.first()?);
        let password = form.password.as_ref().and_then(|name| passwords.get(name));
        Farewell {
            instance: instance.name.clone(),
            router_id: instance.router_id,
            form: form.clone(),
            interface: device.to_owned(),
            source: form.address_of(own).filter(|_| is_unicast),
            peers: if is_unicast {
                plan.peers(form, Some(own)).collect()
            } else {
                group().into_iter().collect()
            },
            password: password.and_then(|text| usable_password(text).ok()).map(str::to_owned),
        }
    });
    instances.collect()
}

/// The multicast group of an instance that advertises this address, if a line of the plan sets it.
fn other_group(plan: &Plan, like: &IpAddr) -> Option<IpAddr> {
    let keyword = if like.is_ipv4() { "vrrp_mcast_group4 " } else { "vrrp_mcast_group6 " };
    // The last one counts.
    plan.global_lines.iter().rev().find_map(|line| line.strip_prefix(keyword)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use landfall_vrrp::{Change, Form, Step, Version};

    use super::*;
    use crate::worker::samples::{form, instance, plan};

    #[test]
    fn a_farewell_is_said_as_adverts_are_sent() {
        let old = Form {
            version: Version::V2,
            advert_millis: 1000,
            password: Some("p1".to_owned()),
            ..form(&["192.0.2.9"])
        };
        let unicast = Form { transport: Transport::Unicast, ..form(&["2001:db8::9"]) };
        let mut changing = instance("ns/a", 1, unicast);
        changing.change =
            Some(Change { before: old.clone(), holder: 1, step: Step::Holder, since: 1 });
        let plan = plan(vec![changing]);
        let passwords = [("p1".to_owned(), "s3cr3tpw-and-more\n".to_owned())].into();
        let said = |node| farewells(&plan, Some(node), "eth1", &passwords).remove(0);
        let first = said(0);
        assert_eq!((first.form, first.source, first.peers), (old, None, vec![]));
        assert_eq!(first.password.as_deref(), Some("s3cr3tpw"));
        assert_eq!((first.interface.as_str(), first.router_id), ("eth1", 1));
        let second = said(1);
        assert_eq!(second.source, Some("2001:db8::2".parse().unwrap()));
        assert_eq!(second.peers, ["2001:db8::1".parse::<IpAddr>().unwrap()]);
        assert_eq!(second.password, None);
        assert_eq!(farewells(&plan, None, "eth1", &passwords), []);
    }

    #[test]
    fn a_farewell_by_multicast_goes_to_the_group_of_the_plan() {
        let mut plan = plan(vec![
            instance("ns/a", 1, form(&["192.0.2.9"])),
            instance("ns/b", 2, form(&["2001:db8::9"])),
        ]);
        let said = |plan: &Plan| -> Vec<Vec<IpAddr>> {
            let all = farewells(plan, Some(0), "eth0", &BTreeMap::new());
            all.into_iter().map(|farewell| farewell.peers).collect()
        };
        assert_eq!(said(&plan), [Vec::<IpAddr>::new(), vec![]]);
        plan.global_lines = ["vrrp_garp_master_refresh 60", "vrrp_mcast_group4 224.0.0.19"]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(said(&plan), [vec!["224.0.0.19".parse::<IpAddr>().unwrap()], vec![]]);
        plan.global_lines.push("vrrp_mcast_group6 ff02::13".to_owned());
        assert_eq!(said(&plan)[1], ["ff02::13".parse::<IpAddr>().unwrap()]);
    }
}
