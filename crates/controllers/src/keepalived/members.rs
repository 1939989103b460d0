//! Which Services a group announces with which addresses, and what keeps others from it.
//!
//! A Service's author writes its annotation and its `spec.externalIPs`. Hence an address is announced only for
//! a Service that the ledger, the status or the rights of its namespace give it to.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use jiff::Timestamp;
use landfall_api::{GroupName, announce::Obstacle};

use super::judge::{Judge, Memory, Verdict};
use crate::{
    cluster::Cluster,
    index::Index,
    ledger::{Claim, Ledger},
    object::ObjectKey,
};

/// The groups that Services ask for, each with the addresses that it would announce.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    asked: BTreeMap<ObjectKey, BTreeMap<ObjectKey, Vec<IpAddr>>>,
    by_group: Index<ObjectKey, ObjectKey>,
    /// The Services that ask a group for an address. Groups that do not exist have none.
    by_address: Index<(IpAddr, ObjectKey), ObjectKey>,
    /// The groups in it.
    groups_at: Index<IpAddr, ObjectKey>,
}

/// The cluster and the ledger.
#[derive(Clone, Copy)]
pub(super) struct World<'a> {
    pub cluster: &'a Cluster,
    pub ledger: &'a Ledger,
}

/// A Service that a group announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    pub service: ObjectKey,
    pub addresses: Vec<IpAddr>,
}

/// What becomes of the Services that ask for a group.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Members {
    /// Those that it announces, in the order of their names.
    pub announced: Vec<Announced>,
    /// What is in the way of others, or of some of their addresses.
    pub obstacles: BTreeMap<ObjectKey, Vec<Obstacle>>,
    /// The Service that each address of the group is announced for.
    pub winners: BTreeMap<IpAddr, ObjectKey>,
    /// Addresses that another group announces, for a Service that shares them.
    pub elsewhere: BTreeSet<IpAddr>,
}

impl Wishes {
    /// Takes in the present state of a Service; returns the groups that this concerns.
    pub(super) fn update(&mut self, world: World<'_>, service: &ObjectKey) -> BTreeSet<ObjectKey> {
        let exists = |group: &ObjectKey| world.cluster.keepalived_groups.get(group).is_some();
        let wishes = world.wishes(service);
        let old = self.asked.remove(service).unwrap_or_default();
        let groups = old.keys().chain(wishes.keys()).filter(|group| exists(group));
        let mut concerned: BTreeSet<_> = groups.cloned().collect();
        for (group, addresses) in &old {
            self.by_group.remove(group, service);
            for address in addresses {
                self.remove_address(*address, group, service);
            }
        }
        for (group, addresses) in &wishes {
            self.by_group.insert(group.clone(), service.clone());
            for address in addresses.iter().filter(|_| exists(group)) {
                self.by_address.insert((*address, group.clone()), service.clone());
                self.groups_at.insert(*address, group.clone());
            }
        }
        // Other Services with the same addresses may win or lose them.
        let addresses = old.values().chain(wishes.values()).flatten();
        concerned.extend(addresses.flat_map(|address| self.groups_at.of(address)).cloned());
        if !wishes.is_empty() {
            self.asked.insert(service.clone(), wishes);
        }
        concerned
    }

    fn remove_address(&mut self, address: IpAddr, group: &ObjectKey, service: &ObjectKey) {
        let key = (address, group.clone());
        if self.by_address.remove(&key, service) && !self.by_address.has(&key) {
            self.groups_at.remove(&address, group);
        }
    }

    /// The Services that ask for a group.
    pub(super) fn services_of(&self, group: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.by_group.of(group)
    }

    /// The groups that Services ask for.
    pub(super) fn groups_of(&self, service: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.asked.get(service).into_iter().flat_map(BTreeMap::keys)
    }

    /// The groups that Services ask for an address.
    pub(super) fn groups_at(&self, address: IpAddr) -> impl Iterator<Item = &ObjectKey> {
        self.groups_at.of(&address)
    }

    /// The Services that ask for an address, each with the group.
    pub(super) fn parties(
        &self,
        address: IpAddr,
    ) -> impl Iterator<Item = (&ObjectKey, &ObjectKey)> {
        self.groups_at(address).flat_map(move |group| {
            let services = self.by_address.of(&(address, group.clone()));
            services.map(move |service| (group, service))
        })
    }

    /// The addresses of a Service that a group would announce.
    pub(super) fn addresses(&self, service: &ObjectKey, group: &ObjectKey) -> &[IpAddr] {
        let groups = self.asked.get(service);
        groups.and_then(|groups| groups.get(group)).map_or(&[], Vec::as_slice)
    }
}

impl<'a> World<'a> {
    /// The groups that are to announce a Service, each with the addresses.
    fn wishes(self, service: &ObjectKey) -> BTreeMap<ObjectKey, Vec<IpAddr>> {
        let mut wishes: BTreeMap<ObjectKey, Vec<IpAddr>> = BTreeMap::new();
        let Some(view) = self.cluster.services.get(service) else { return wishes };
        let asked = view.announceable.as_ref().and_then(|asked| asked.request.group.as_ref());
        match asked {
            Some(Ok(group)) => {
                let mut addresses = view.in_status().to_vec();
                addresses.extend(&view.external);
                addresses.sort_unstable();
                addresses.dedup();
                wishes.insert(key_of(group), addresses);
            }
            Some(Err(_)) => {}
            None => {
                for address in view.in_status() {
                    let group = self.ledger.claim(*address).and_then(|claim| {
                        let held = claim.services().iter().any(|entry| entry.key == *service);
                        self.cluster.pool(claim.pool.as_ref()?)?.announce.as_ref().filter(|_| held)
                    });
                    if let Some(group) = group {
                        wishes.entry(group.clone()).or_default().push(*address);
                    }
                }
            }
        }
        wishes
    }

    /// What becomes of the Services that ask for a group.
    pub(super) fn members(self, wishes: &Wishes, group: &ObjectKey, memory: Memory<'_>) -> Members {
        let mut members = Members::default();
        let Ok(name) = group.to_string().parse::<GroupName>() else { return members };
        let judge = Judge::new(self, wishes, group, memory);
        for service in wishes.services_of(group) {
            let (mut addresses, mut obstacles) = (Vec::new(), Vec::new());
            if judge.allows_namespace(service.namespace()) {
                for address in wishes.addresses(service, group) {
                    match judge.verdict(&name, service, *address) {
                        Ok(Verdict::Announced) => {
                            addresses.push(*address);
                            members.winners.insert(*address, service.clone());
                        }
                        Ok(Verdict::Shared) => {}
                        Ok(Verdict::Elsewhere) => drop(members.elsewhere.insert(*address)),
                        Err(obstacle) => obstacles.push(obstacle),
                    }
                }
            } else {
                let namespace = service.namespace().to_owned();
                obstacles.push(Obstacle::NamespaceRefused(name.clone(), namespace));
            }
            if obstacles.is_empty() || !addresses.is_empty() {
                members.announced.push(Announced { service: service.clone(), addresses });
            }
            if !obstacles.is_empty() {
                members.obstacles.insert(service.clone(), obstacles);
            }
        }
        members
    }

    /// The claim on an address, and the Services that it names.
    pub(super) fn holders(self, address: IpAddr) -> Option<(&'a Claim, BTreeSet<&'a ObjectKey>)> {
        let claim = self
            .ledger
            .claim(address)
            .filter(|claim| claim.waits_for().is_none() || claim.has_another_use())?;
        Some((claim, claim.services().iter().map(|entry| &entry.key).collect()))
    }

    /// When a Service was created.
    pub(super) fn created(self, service: &ObjectKey) -> Timestamp {
        let view = self.cluster.services.get(service);
        let balancer = view.and_then(|view| view.balancer.as_ref()).map(|view| view.created);
        let asked = || view.and_then(|view| view.announceable.as_ref()).map(|view| view.created);
        balancer.or_else(asked).unwrap_or(Timestamp::MAX)
    }
}

/// The key of a group that a user named.
pub(super) fn key_of(group: &GroupName) -> ObjectKey {
    ObjectKey::new(group.namespace(), group.name())
}
