//! Which Services a group announces with which addresses, and what keeps others from it.
//!
//! A Service's author writes its annotation and its `spec.externalIPs`. Hence an address is announced only for
//! a Service that the ledger, the status or the rights of its namespace give it to.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use jiff::Timestamp;
use kube::core::{Selector, SelectorExt as _};
use landfall_api::{GroupName, GroupSettings, announce::Obstacle, text};
use landfall_ipam::{Never, link_local};

use crate::{
    cluster::{Cluster, service::ServiceView},
    index::Index,
    ledger::{Claim, ForeignAddress, HolderRef, Ledger},
    object::ObjectKey,
};

/// The groups that Services ask for, each with the addresses that it would announce.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    asked: BTreeMap<ObjectKey, BTreeMap<ObjectKey, Vec<IpAddr>>>,
    by_group: Index<ObjectKey, ObjectKey>,
    by_address: Index<IpAddr, ObjectKey>,
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

impl Wishes {
    /// Takes in the present state of a Service; returns the groups that this concerns.
    pub(super) fn update(&mut self, world: World<'_>, service: &ObjectKey) -> BTreeSet<ObjectKey> {
        let wishes = world.wishes(service);
        let old = self.asked.remove(service).unwrap_or_default();
        let mut concerned: BTreeSet<_> = old.keys().chain(wishes.keys()).cloned().collect();
        for (group, addresses) in &old {
            self.by_group.remove(group, service);
            for address in addresses {
                self.by_address.remove(address, service);
            }
        }
        for (group, addresses) in &wishes {
            self.by_group.insert(group.clone(), service.clone());
            for address in addresses {
                self.by_address.insert(*address, service.clone());
            }
        }
        // Other Services with the same addresses may win or lose them.
        let addresses = old.values().chain(wishes.values()).flatten();
        let others = addresses.flat_map(|address| self.by_address.of(address));
        let others = others.filter_map(|other| self.asked.get(other));
        concerned.extend(others.flat_map(BTreeMap::keys).cloned());
        if !wishes.is_empty() {
            self.asked.insert(service.clone(), wishes);
        }
        concerned
    }

    /// The Services that ask for a group.
    pub(super) fn services_of(&self, group: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.by_group.of(group)
    }

    /// The groups that Services ask for.
    pub(super) fn groups_of(&self, service: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.asked.get(service).into_iter().flat_map(BTreeMap::keys)
    }

    /// The addresses of a Service that a group would announce.
    pub(super) fn addresses(&self, service: &ObjectKey, group: &ObjectKey) -> &[IpAddr] {
        let groups = self.asked.get(service);
        groups.and_then(|groups| groups.get(group)).map_or(&[], Vec::as_slice)
    }
}

impl World<'_> {
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

    /// What a group announces, and what is in the way of the rest. The Services are in the order of their names.
    pub(super) fn announced(
        self,
        wishes: &Wishes,
        group: &ObjectKey,
        settings: &GroupSettings,
    ) -> (Vec<Announced>, BTreeMap<ObjectKey, Vec<Obstacle>>) {
        let (mut announced, mut obstacles) = (Vec::new(), BTreeMap::new());
        let Ok(name) = group.to_string().parse::<GroupName>() else {
            return (announced, obstacles);
        };
        let namespaces = settings.allowed_namespaces.clone().map(Selector::try_from);
        let allows_namespace = |namespace: &str| match &namespaces {
            None => true,
            Some(Ok(selector)) => selector.matches(self.cluster.namespace_labels(namespace)),
            Some(Err(_)) => false,
        };
        for service in wishes.services_of(group) {
            let mut found = Vec::new();
            let mut addresses = Vec::new();
            if allows_namespace(service.namespace()) {
                for address in wishes.addresses(service, group) {
                    match self.judge(wishes, service, *address, (&name, settings)) {
                        Ok(true) => addresses.push(*address),
                        Ok(false) => {}
                        Err(obstacle) => found.push(obstacle),
                    }
                }
            } else {
                let namespace = service.namespace().to_owned();
                found.push(Obstacle::NamespaceRefused(name.clone(), namespace));
            }
            if found.is_empty() || !addresses.is_empty() {
                announced.push(Announced { service: service.clone(), addresses });
            }
            if !found.is_empty() {
                obstacles.insert(service.clone(), found);
            }
        }
        (announced, obstacles)
    }

    /// Whether a group announces this address for this Service, or, if not, announces it for another one that
    /// shares it.
    fn judge(
        self,
        wishes: &Wishes,
        service: &ObjectKey,
        address: IpAddr,
        (group, settings): (&GroupName, &GroupSettings),
    ) -> Result<bool, Obstacle> {
        let never = Never::of(address).map(text::never);
        let local = || link_local().contains(address).then_some("a link-local address");
        if let Some(what) = never.or_else(local) {
            return Err(Obstacle::Unusable(address, what));
        }
        if !settings.allows(address) {
            return Err(Obstacle::OutsideRanges(group.clone(), address));
        }
        for outside in self.ledger.outside.of(&address) {
            match outside {
                ForeignAddress::Node(node) => {
                    return Err(Obstacle::AddressOfNode(address, node.clone()));
                }
                ForeignAddress::ApiServer(_) => return Err(Obstacle::AddressOfApiServer(address)),
                ForeignAddress::ClusterIp(other) => {
                    let other = HolderRef::service(other).to_string();
                    return Err(Obstacle::AddressConflict(address, other));
                }
                ForeignAddress::External(..) | ForeignAddress::VirtualIp(_) => {}
            }
        }
        let first = |candidates: &mut dyn Iterator<Item = &ObjectKey>| {
            candidates.min_by_key(|key| (self.created(key), (*key).clone())).cloned()
        };
        if let Some(claim) = self.ledger.claim(address).filter(|claim| claim.waits_for().is_none())
        {
            if !holds(claim, service) {
                return Err(Obstacle::AddressConflict(address, claim.to_string()));
            }
            let sharers = wishes.by_address.of(&address).filter(|other| holds(claim, other));
            return Ok(first(&mut sharers.into_iter()).as_ref() == Some(service));
        }
        if !self.is_entitled(service, address) {
            return Err(Obstacle::OutsideRanges(group.clone(), address));
        }
        let entitled =
            wishes.by_address.of(&address).filter(|other| self.is_entitled(other, address));
        match first(&mut entitled.into_iter()) {
            Some(first) if first != *service => {
                Err(Obstacle::AddressConflict(address, HolderRef::service(&first).to_string()))
            }
            Some(_) | None => Ok(true),
        }
    }

    /// Whether an address without a claim is this Service's: it is in its status, which no user can write, or
    /// in its `spec.externalIPs`, and its namespace has a right to it.
    fn is_entitled(self, service: &ObjectKey, address: IpAddr) -> bool {
        let in_status = |view: &ServiceView| view.in_status().contains(&address);
        self.cluster.services.get(service).is_some_and(in_status)
            || self.ledger.outside.of(&address).any(|outside| outside.is(service))
    }

    fn created(self, service: &ObjectKey) -> Timestamp {
        let view = self.cluster.services.get(service);
        let balancer = view.and_then(|view| view.balancer.as_ref()).map(|view| view.created);
        let asked = || view.and_then(|view| view.announceable.as_ref()).map(|view| view.created);
        balancer.or_else(asked).unwrap_or(Timestamp::MAX)
    }
}

fn holds(claim: &Claim, service: &ObjectKey) -> bool {
    claim.services().iter().any(|entry| entry.key == *service)
}

/// The key of a group that a user named.
pub(super) fn key_of(group: &GroupName) -> ObjectKey {
    ObjectKey::new(group.namespace(), group.name())
}
