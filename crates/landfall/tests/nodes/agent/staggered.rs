//! Plans that reach the nodes one after the other, and many plans.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use landfall_testkit::{Bed, Proxy, wait};
use landfall_vrrp::{Node, Plan, Preempt};

use super::group::Group;
use super::kinds::{Family, Kind, addresses, instance, is_taking_back, mixed};
use super::site::{ALL, Site, node};
use crate::LONG;

/// Longer than any instance here waits for a holder that it does not hear.
const LONG_WITHOUT_ADVERTS: Duration = Duration::from_secs(4);
const RELOADS: u8 = 100;

/// What a change does, and the change; it knows the nodes of the bed.
type Change = (&'static str, fn(&mut Plan, &[Node]));

/// Changes that nodes need not make together.
const CHANGES: [Change; 5] = [
    ("addresses come, and other nodes are preferred", |plan, _| {
        for (number, instance) in (50..).zip(&mut plan.instances) {
            instance.excluded.extend([Bed::vip4(number), Bed::vip6(number)]);
            instance.order.rotate_left(1);
        }
    }),
    ("addresses go, and an instance comes", |plan, _| {
        for instance in &mut plan.instances {
            instance.excluded.pop();
        }
        let new = instance(Kind::Slot, Family::V4, 20, &[2, 1, 0], Preempt::Never);
        plan.instances.push(new);
    }),
    ("a node leaves", |plan, _| {
        plan.nodes.pop();
        for instance in &mut plan.instances {
            instance.order.retain(|index| *index != 2);
        }
    }),
    ("a node comes, and is preferred", |plan, nodes| {
        plan.nodes = nodes.to_vec();
        for instance in &mut plan.instances {
            instance.order.insert(0, 2);
        }
    }),
    ("an instance goes, and others take no address back", |plan, _| {
        plan.instances.pop();
        for instance in &mut plan.instances {
            instance.preempt = Preempt::Never;
        }
    }),
];

/// Lets the nodes have a plan one after the other, each when the others have had time to disagree about it.
async fn reaches_one_by_one(
    site: &mut Site,
    proxies: &BTreeMap<&'static str, Proxy>,
    order: &[&'static str],
) {
    proxies.values().for_each(Proxy::freeze_all);
    site.group.write(&site.plan).await;
    for (place, name) in order.iter().enumerate() {
        proxies[name].thaw();
        let members = order[..=place].iter().filter(|name| site.plan.node_index(name).is_some());
        let members: Vec<_> = members.copied().collect();
        site.group.applied(site.plan.generation, &members).await;
        let applied = Instant::now();
        wait::until("a while with two plans", LONG, async || {
            site.sampler.record().last() > applied + LONG_WITHOUT_ADVERTS
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn plans_that_reach_nodes_one_after_the_other_double_nothing_and_move_what_they_say() {
    let Some(mut group) = Group::new("agent-staggered").await else { return };
    let mut proxies = BTreeMap::new();
    for name in ALL {
        proxies.insert(name, group.start_apart(name).await);
    }
    let mut site = Site::new(group, mixed(&[Kind::Slot, Kind::Classic])).await;
    let mut order = ALL;
    let nodes = site.plan.nodes.clone();
    for (what, change) in CHANGES {
        let mut before = BTreeMap::new();
        for instance in site.instances() {
            let holder = site.holder(&instance, &ALL).await;
            before.insert(instance.name.clone(), (holder, instance));
        }
        let begin = Instant::now();
        site.plan.generation += 1;
        change(&mut site.plan, &nodes);
        reaches_one_by_one(&mut site, &proxies, &order).await;
        order.rotate_left(1);
        for instance in site.instances() {
            let old = before.remove(&instance.name);
            let is_member = |name: &str| site.plan.node_index(name).is_some();
            let stays = old.as_ref().map(|(holder, _)| *holder).filter(|it| is_member(it));
            let expected = match (instance.preempt, stays) {
                (Preempt::Never, Some(holder)) => vec![holder],
                (Preempt::Never, None) => ALL.into_iter().filter(|it| is_member(it)).collect(),
                _ => vec![node(instance.order[0])],
            };
            let holder = site.holder(&instance, &ALL).await;
            assert!(expected.contains(&holder), "{what}: {holder} holds {}", instance.name);
            let record = site.record_since(begin).await;
            let was_there = |address: &IpAddr| {
                old.as_ref().is_some_and(|(_, it)| addresses(it).contains(address))
            };
            for address in addresses(&instance) {
                let doubled = record.doubled(address, &ALL);
                let holdings = record.holdings(address);
                let said =
                    format!("{what}, {address} of {}: {doubled:?} {holdings:?}", instance.name);
                // Once for each node that hears of the change.
                assert!(is_taking_back(doubled, 3), "{said}");
                if instance.preempt == Preempt::Never && stays.is_some() {
                    assert!(doubled.is_none(), "{said}");
                    assert!(holdings.len() == 1 || !was_there(&address), "{said}");
                }
            }
        }
        // An instance that is gone is held nowhere.
        let record = site.record_since(begin).await;
        for (_, instance) in before.into_values() {
            for address in addresses(&instance) {
                assert!(record.holders(address).is_empty(), "{what}: {address}");
            }
        }
    }
}

#[tokio::test]
async fn a_hundred_reloads_move_nothing() {
    let Some(group) = Group::with_agents("agent-reloads").await else { return };
    let mut site = Site::new(group, mixed(&Kind::ALL)).await;
    let mut before = Vec::new();
    for instance in site.instances() {
        before.push((site.holder(&instance, &ALL).await, instance));
    }
    let begin = Instant::now();
    for number in 1..=RELOADS {
        site.plan.generation += 1;
        // Each instance in turn gets an address or loses it.
        let count = site.plan.instances.len();
        let instance = &mut site.plan.instances[usize::from(number) % count];
        let address = Bed::vip4(u16::from(100 + instance.router_id));
        match instance.excluded.iter().position(|it| *it == address) {
            Some(place) => drop(instance.excluded.remove(place)),
            None => instance.excluded.push(address),
        }
        site.group.write(&site.plan).await;
        site.group.applied(site.plan.generation, &ALL).await;
    }
    for name in ALL {
        let reloads = site.group.metric(name, "landfall_agent_reloads_total");
        assert_eq!(reloads, u64::from(RELOADS) + 1, "{name}");
        assert_eq!(site.group.metric(name, "landfall_agent_reload_failures_total"), 0);
    }
    let record = site.record_since(begin).await;
    assert!(record.all_doubled(&ALL).is_empty(), "{:?}", record.all_doubled(&ALL));
    for (holder, instance) in before {
        for address in addresses(&instance) {
            let holdings = record.holdings(address);
            assert_eq!(holdings.len(), 1, "{address}: {holdings:?}");
            assert_eq!(record.holders(address), [holder], "{address}");
        }
    }
}
