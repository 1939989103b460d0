//! How a group announces the Services that ask for it, as the reports of its nodes show.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use jiff::Timestamp;
use landfall_api::{GroupName, announce::Obstacle, keepalived_group::KeepalivedGroupStatus};
use landfall_vrrp::{Instance, Plan};

use super::{
    decide::Decision,
    members::{Wishes, World},
    status::holder,
    telling::Found,
};
use crate::{cluster::keepalived::GroupView, object::ObjectKey};

/// The node that holds an address, and since when.
type Held = (String, Timestamp);

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
    let reports = Reports { world, known, name, carriers };
    let services = wishes.services_of(&known.view.key);
    let own = services.map(|service| {
        let addresses = wishes.addresses(service, &known.view.key);
        (service.clone(), reports.service(service, addresses))
    });
    let mut all: BTreeMap<_, _> = own.collect();
    for address in reports.announced() {
        let mut found = None;
        for service in guests(world, wishes, &known.view.key, address) {
            let found = found.get_or_insert_with(|| reports.address(address)).clone();
            all.entry(service.clone()).or_default().add(address, found);
        }
    }
    all.into_iter().map(|(service, found)| (service, Some(found))).collect()
}

/// Every Service of which a group tells, as long as nothing is known of the group.
pub(super) fn unknown(
    world: World<'_>,
    wishes: &Wishes,
    group: &ObjectKey,
) -> BTreeMap<ObjectKey, Option<Found>> {
    let services = || wishes.services_of(group);
    let addresses = services().flat_map(|service| wishes.addresses(service, group));
    let addresses: BTreeSet<_> = addresses.copied().collect();
    let guests = addresses.into_iter().flat_map(|address| guests(world, wishes, group, address));
    services().chain(guests).map(|service| (service.clone(), None)).collect()
}

/// The Services that share an address with one of the group and ask another group for it.
fn guests<'a>(
    world: World<'a>,
    wishes: &'a Wishes,
    group: &ObjectKey,
    address: IpAddr,
) -> Vec<&'a ObjectKey> {
    let others = wishes.parties(address).filter(|(other, _)| *other != group);
    let mut others = others.map(|(_, service)| service).peekable();
    let holders = others.peek().and_then(|_| world.holders(address));
    let Some((_, holders)) = holders else { return Vec::new() };
    others.filter(|service| holders.contains(service)).collect()
}

struct Reports<'a> {
    world: World<'a>,
    known: &'a Known<'a>,
    name: GroupName,
    /// The instance that carries each address.
    carriers: BTreeMap<IpAddr, &'a Instance>,
}

impl Reports<'_> {
    fn service(&self, service: &ObjectKey, addresses: &[IpAddr]) -> Found {
        let refused = self.known.decision.and_then(|decision| decision.obstacles.get(service));
        let mut found =
            Found { obstacles: refused.cloned().unwrap_or_default(), ..Found::default() };
        let about: BTreeSet<_> = found.obstacles.iter().filter_map(Obstacle::address).collect();
        // An obstacle without an address is one for all of them.
        if found.obstacles.iter().any(|obstacle| obstacle.address().is_none()) {
            return found;
        }
        // Of the addresses that another group announces, that group tells.
        let elsewhere = |address: &IpAddr| {
            self.known.decision.is_some_and(|decision| decision.elsewhere.contains(address))
        };
        let open = |address: &&IpAddr| !about.contains(address) && !elsewhere(address);
        for address in addresses.iter().filter(open) {
            found.add(*address, self.address(*address));
        }
        found
    }

    /// The addresses that the group should announce. One that cannot be used goes on with those it has.
    fn announced(&self) -> Vec<IpAddr> {
        match self.known.decision {
            Some(decision) => decision.winners.keys().copied().collect(),
            None => self.carriers.keys().copied().collect(),
        }
    }

    /// What is in the way of the Service that an address is announced for, and so of all that share the address.
    fn of_winner(&self, address: IpAddr) -> Option<Obstacle> {
        let decision = self.known.decision?;
        let obstacles = decision.obstacles.get(decision.winners.get(&address)?)?;
        obstacles.iter().find(|obstacle| obstacle.address().is_none()).cloned()
    }

    fn address(&self, address: IpAddr) -> Result<Held, Obstacle> {
        let name = || self.name.clone();
        let (Some(plan), Some(instance)) = (self.known.plan, self.carriers.get(&address)) else {
            let next = self.known.plan.map_or(1, |plan| plan.generation.saturating_add(1));
            return Err(match self.known.decision {
                Some(_) => {
                    self.of_winner(address).unwrap_or_else(|| Obstacle::NotApplied(name(), next))
                }
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

impl Found {
    fn add(&mut self, address: IpAddr, found: Result<Held, Obstacle>) {
        match found {
            Ok((node, since)) => self.held.push((address, node, since)),
            Err(obstacle) => {
                let is_known = obstacle.address().is_none() && self.obstacles.contains(&obstacle);
                if !is_known {
                    self.obstacles.push(obstacle);
                }
            }
        }
    }
}

/// Whether some node runs a plan in which the instance has all its addresses.
fn is_applied(status: &KeepalivedGroupStatus, instance: &Instance) -> bool {
    let generations = status.nodes.iter().filter_map(|node| node.generation);
    generations.max().is_some_and(|generation| generation >= instance.generation)
}
