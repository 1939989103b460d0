//! Two groups on the same nodes and the same network: what one does is nothing to the other.

use std::time::Instant;

use landfall_testkit::{Bed, wait};
use landfall_vrrp::{Instance, Preempt};

use super::group::Group;
use super::kinds::{Family, Kind, addresses, instance};
use super::site::{ALL, Site};
use crate::LONG;

/// Of every kind and family one instance that its first node takes back, with router ids from this number on.
fn instances(from: u8) -> Vec<Instance> {
    let families = Kind::ALL.iter().flat_map(|kind| Family::BOTH.map(|family| (*kind, family)));
    let numbered = (from..).zip(families);
    numbered
        .map(|(number, (kind, family))| instance(kind, family, number, &[0, 1, 2], Preempt::AtOnce))
        .collect()
}

/// Who holds the instances of a group.
async fn holders(site: &Site) -> Vec<(&'static str, Instance)> {
    let mut holders = Vec::new();
    for instance in site.instances() {
        holders.push((site.holder(&instance, &ALL).await, instance));
    }
    holders
}

/// Lets a group do everything that moves addresses of its own.
async fn changes(site: &mut Site, added: u16) {
    let mut next = site.plan.clone();
    for (number, instance) in (added..).zip(&mut next.instances) {
        instance.excluded.push(Bed::vip4(number));
        instance.order.rotate_left(1);
    }
    let removed = next.instances.pop().unwrap();
    next.generation += 1;
    site.group.write(&next).await;
    site.group.applied(next.generation, &ALL).await;
    site.plan = next;
    for instance in site.instances() {
        assert_eq!(site.holder(&instance, &["n2"]).await, "n2");
    }
    wait::until("no holder of an instance that is gone", LONG, async || {
        site.sampler.next_sample().await;
        let record = site.sampler.record();
        let held = addresses(&removed).into_iter().filter(|it| !record.holders(*it).is_empty());
        let held: Vec<_> = held.collect();
        if held.is_empty() { Ok(()) } else { Err(format!("{held:?}")) }
    })
    .await
    .unwrap();
}

/// Nothing of these instances has moved since a moment.
async fn stayed(site: &Site, before: &[(&'static str, Instance)], begin: Instant) {
    let record = site.record_since(begin).await;
    for (holder, instance) in before {
        for address in addresses(instance) {
            let holdings = record.holdings(address);
            assert_eq!(holdings.len(), 1, "{address}: {holdings:?}");
            assert_eq!(record.holders(address), [*holder], "{address}");
        }
    }
}

#[tokio::test]
async fn two_groups_on_the_same_nodes_move_nothing_of_each_other() {
    let Some(group) = Group::with_agents("agent-beside-one").await else { return };
    let beside = group.beside("agent-beside-two").await;
    let mut one = Site::new(group, instances(1)).await;
    let mut two = Site::new(beside, instances(101)).await;

    holders(&one).await;
    let (before, begin) = (holders(&two).await, Instant::now());
    changes(&mut one, 51).await;
    stayed(&two, &before, begin).await;

    let (before, begin) = (holders(&one).await, Instant::now());
    changes(&mut two, 151).await;
    for name in ALL {
        let status = two.group.agent(name).terminate(LONG).await.unwrap();
        assert!(status.success(), "{name}: {status}");
    }
    stayed(&one, &before, begin).await;
    let record = one.sampler.record();
    for address in two.instances().iter().flat_map(addresses) {
        assert!(record.holders(address).is_empty(), "{address} is left behind");
    }
    for name in ALL {
        assert_eq!(one.group.metric(name, "landfall_agent_swept_total"), 0, "{name}");
        two.group.start(name);
    }
    two.all_ready().await;
    holders(&two).await;
    stayed(&one, &before, begin).await;
}
