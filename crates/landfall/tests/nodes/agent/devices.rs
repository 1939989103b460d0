//! Nodes whose devices have different names, and devices that are found by a route.

use std::collections::BTreeMap;
use std::net::IpAddr;

use landfall_testkit::{Bed, wait};
use landfall_vrrp::{Instance, Preempt};

use super::group::Group;
use super::kinds::{Family, Kind, addresses, instance};
use super::site::{ALL, Site};
use crate::LONG;

const SECOND: &str = "lan0";

/// Of every family, in both layouts, one instance that its first node takes back. Adverts to each node's own address
/// are sent from the device that has such an address.
fn instances(order: &[u32]) -> Vec<Instance> {
    let kinds = [Kind::Slot, Kind::Classic];
    let families = kinds.iter().flat_map(|kind| Family::BOTH.map(|family| (*kind, family)));
    let numbered = (1..).zip(families);
    numbered
        .map(|(number, (kind, family))| instance(kind, family, number, order, Preempt::AtOnce))
        .collect()
}

/// Waits until a node has these addresses on one device and on no other.
async fn has_on(bed: &Bed, node: &str, device: &str, addresses: &[IpAddr]) {
    let other = if device == SECOND { "eth0" } else { SECOND };
    wait::until(format!("{node} to have its addresses on {device}"), LONG, async || {
        let shown = |device: &str| {
            let shown = bed.node(node).ip(&format!("-brief address show dev {device}"));
            shown.unwrap_or_default()
        };
        let (here, there) = (shown(device), shown(other));
        let is_on = |shown: &str, ip: &IpAddr| shown.contains(&format!(" {ip}/"));
        let all = addresses.iter().all(|ip| is_on(&here, ip) && !is_on(&there, ip));
        if all { Ok(()) } else { Err(format!("{here}{there}")) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_node_whose_device_has_another_name_takes_part_on_that_device() {
    let Some(mut group) = Group::new("agent-devices").await else { return };
    group.bed.node("n2").add_device(SECOND).await.unwrap();
    let mut plan = group.plan(1, instances(&[1, 2, 0]));
    plan.interfaces = BTreeMap::from([("n2".to_owned(), SECOND.to_owned())]);
    for name in ALL {
        group.start(name);
    }
    let mut site = Site::with_plan(group, plan).await;
    for (name, device) in [("n1", "eth0"), ("n2", SECOND), ("n3", "eth0")] {
        let found = site.group.reported(name).await.unwrap().device;
        assert_eq!(found.as_deref(), Some(device), "{name}");
    }
    let all: Vec<_> = site.instances().iter().flat_map(addresses).collect();
    let held_by = async |site: &Site, name, device| {
        for instance in site.instances() {
            site.holder(&instance, &[name]).await;
            site.holder(&instance, &ALL).await;
        }
        has_on(&site.group.bed, name, device, &all).await;
    };
    held_by(&site, "n2", SECOND).await;
    assert!(site.group.agent("n2").terminate(LONG).await.unwrap().success());
    held_by(&site, "n3", "eth0").await;
    site.group.start("n2");
    held_by(&site, "n2", SECOND).await;
}

#[tokio::test]
async fn addresses_follow_the_route_to_another_device() {
    for (namespace, target, network) in [
        ("agent-route-four", "198.51.100.1", "198.51.100.0/24"),
        ("agent-route-six", "2001:db8::1", "2001:db8::/64"),
    ] {
        let Some(mut group) = Group::new(namespace).await else { return };
        for node in group.bed.nodes() {
            node.add_device(SECOND).await.unwrap();
            node.ip(&format!("route add {network} dev eth0")).unwrap();
        }
        let mut plan = group.plan(1, instances(&[0, 1, 2]));
        plan.interface = "nosuch0".to_owned();
        plan.interface_from = Some(target.parse().unwrap());
        for name in ALL {
            group.start(name);
        }
        let site = Site::with_plan(group, plan).await;
        let all: Vec<_> = site.instances().iter().flat_map(addresses).collect();
        for instance in site.instances() {
            site.holder(&instance, &["n1"]).await;
        }
        has_on(&site.group.bed, "n1", "eth0", &all).await;
        // Backups first, so that one after the other is on the other device.
        for name in ["n3", "n2", "n1"] {
            let node = site.group.bed.node(name);
            node.ip(&format!("route add {network} dev {SECOND} metric 1")).unwrap();
            node.ip(&format!("route del {network} dev eth0")).unwrap();
            site.group
                .says(name, "the other device", |node| node.device.as_deref() == Some(SECOND))
                .await;
            site.group.ready(name).await;
        }
        for instance in site.instances() {
            site.holder(&instance, &["n1"]).await;
            site.holder(&instance, &ALL).await;
        }
        has_on(&site.group.bed, "n1", SECOND, &all).await;
    }
}
