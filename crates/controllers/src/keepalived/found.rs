//! How a group announces the Services that ask for it, as the reports of its nodes show.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use landfall_api::{GroupName, announce::Obstacle, keepalived_group::KeepalivedGroupStatus};
use landfall_vrrp::{Instance, Plan};

use super::{
    decide::Decision,
    members::{Wishes, World},
    status::holder,
    telling::Found,
};
use crate::{cluster::keepalived::GroupView, object::ObjectKey};

/// What is known of a group.
pub(super) struct Known<'a> {
    pub view: &'a GroupView,
    /// The plan that nodes are to carry out.
    pub plan: Option<&'a Plan>,
    /// What the group should be; `None` if it cannot be used as it is written.
    pub decision: Option<&'a Decision>,
}

/// How a group announces each Service that asks for it.
pub(super) fn found(
    world: World<'_>,
    wishes: &Wishes,
    known: &Known<'_>,
) -> BTreeMap<ObjectKey, Option<Found>> {
    let Ok(name) = known.view.key.to_string().parse::<GroupName>() else { return BTreeMap::new() };
    let instances = known.plan.iter().flat_map(|plan| &plan.instances);
    let carriers: BTreeMap<IpAddr, &Instance> = instances
        .flat_map(|instance| instance.served().map(move |address| (address, instance)))
        .collect();
    let judge = Judge { world, known, name, carriers };
    let services = wishes.services_of(&known.view.key);
    services
        .map(|service| {
            let addresses = wishes.addresses(service, &known.view.key);
            (service.clone(), Some(judge.service(service, addresses)))
        })
        .collect()
}

struct Judge<'a> {
    world: World<'a>,
    known: &'a Known<'a>,
    name: GroupName,
    /// The instance that carries each address.
    carriers: BTreeMap<IpAddr, &'a Instance>,
}

impl Judge<'_> {
    fn service(&self, service: &ObjectKey, addresses: &[IpAddr]) -> Found {
        let refused = self.known.decision.and_then(|decision| decision.obstacles.get(service));
        let mut found =
            Found { obstacles: refused.cloned().unwrap_or_default(), ..Found::default() };
        let about: BTreeSet<_> = found.obstacles.iter().filter_map(Obstacle::address).collect();
        // An obstacle without an address is one for all of them.
        if found.obstacles.iter().any(|obstacle| obstacle.address().is_none()) {
            return found;
        }
        for address in addresses.iter().filter(|address| !about.contains(address)) {
            match self.address(*address) {
                Ok((node, since)) => found.held.push((*address, node, since)),
                Err(obstacle) if found.obstacles.contains(&obstacle) => {}
                Err(obstacle) => found.obstacles.push(obstacle),
            }
        }
        found
    }

    fn address(&self, address: IpAddr) -> Result<(String, jiff::Timestamp), Obstacle> {
        let name = || self.name.clone();
        let (Some(plan), Some(instance)) = (self.known.plan, self.carriers.get(&address)) else {
            let next = self.known.plan.map_or(1, |plan| plan.generation.saturating_add(1));
            return Err(match self.known.decision {
                Some(_) => Obstacle::NotApplied(name(), next),
                None => Obstacle::GroupUnusable(name()),
            });
        };
        if plan.nodes.is_empty() {
            return Err(Obstacle::NoNodes(name()));
        }
        if instance.only_on.as_ref().is_some_and(Vec::is_empty) {
            return Err(Obstacle::NoReadyPod(name()));
        }
        let status = &self.known.view.status;
        let is_ready = |node: &str| {
            self.world.cluster.nodes.get(&node.to_owned()).is_some_and(|view| view.ready)
        };
        match holder(status, instance, &is_ready) {
            Some((node, since)) if is_ready(&node.node) => Ok((node.node.clone(), since)),
            Some((node, _)) => Err(Obstacle::HolderSilent(address, node.node.clone())),
            None if is_applied(status, instance) => Err(Obstacle::NoHolder(name(), address)),
            None => Err(Obstacle::NotApplied(name(), instance.generation)),
        }
    }
}

/// Whether some node runs a plan in which the instance has all its addresses.
fn is_applied(status: &KeepalivedGroupStatus, instance: &Instance) -> bool {
    let generations = status.nodes.iter().filter_map(|node| node.generation);
    generations.max().is_some_and(|generation| generation >= instance.generation)
}
