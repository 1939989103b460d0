//! Which Service each address of a group is announced for.
//!
//! Any number of Services may name one address, and their authors write many of these names. So everything that
//! depends on the address alone is found out once per decision, and the winner of each address is chosen once: a
//! decision costs about as much as it takes to read the Services that name addresses of the group.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    net::IpAddr,
};

use kube::core::{Selector, SelectorExt as _};
use landfall_api::{GroupName, GroupSettings, announce::Obstacle, text};
use landfall_ipam::{Never, link_local};

use super::members::{Wishes, World};
use crate::{
    ledger::{Claim, ForeignAddress, HolderRef},
    object::ObjectKey,
};

/// How many addresses a group announces that one namespace chose freely: they are in `spec.externalIPs` alone, in
/// no pool, and have no claim, so that no quota counts them. The oldest Services come first.
pub(super) const MOST_CHOSEN: usize = 1024;

/// What only the memory about groups has.
#[derive(Clone, Copy)]
pub(super) struct Memory<'a> {
    /// Addresses that nodes of other groups may still hold.
    pub held: &'a BTreeSet<IpAddr>,
    /// Groups whose Secret has no password.
    pub without_password: &'a BTreeSet<ObjectKey>,
}

/// What a group does with an address that a Service asks it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It announces it for this Service.
    Announced,
    /// It announces it for another Service that shares it.
    Shared,
    /// Another group announces it, for a Service that shares it.
    Elsewhere,
}

/// Judges all addresses that Services ask a group for.
pub(super) struct Judge<'a> {
    world: World<'a>,
    group: &'a ObjectKey,
    facts: BTreeMap<IpAddr, Facts<'a>>,
    terms: BTreeMap<&'a ObjectKey, Terms<'a>>,
    /// The Service that each address is announced for, and its group.
    winners: BTreeMap<IpAddr, Party<'a>>,
}

/// A group and a Service that asks it for an address.
type Party<'a> = (&'a ObjectKey, &'a ObjectKey);

/// What is so for an address, whichever Service asks for it.
struct Facts<'a> {
    /// What kind of address it is, if no group announces such addresses.
    special: Option<&'static str>,
    /// What else has the address.
    taken: Option<Obstacle>,
    /// The claim on it, and the Services that it names.
    claim: Option<(&'a Claim, BTreeSet<&'a ObjectKey>)>,
    /// Whether Services in whose `spec.externalIPs` it is chose it freely.
    is_free_choice: bool,
}

/// What a group announces.
struct Terms<'a> {
    /// `None` if the group cannot be used.
    settings: Option<&'a GroupSettings>,
    /// Whether the group cannot be used, and its nodes go on with what they have.
    stays_as_it_is: bool,
    /// The namespaces of Services that it announces.
    namespaces: BTreeSet<&'a str>,
    /// The addresses that namespaces chose, as many as the group announces.
    chosen: BTreeSet<(&'a str, IpAddr)>,
}

/// The right of a Service to an address.
enum Right {
    Proved,
    /// Its namespace may list the address.
    Listed,
    None,
}

impl<'a> Judge<'a> {
    pub(super) fn new(
        world: World<'a>,
        wishes: &'a Wishes,
        group: &'a ObjectKey,
        memory: Memory<'_>,
    ) -> Self {
        let services = wishes.services_of(group);
        let addresses = services.flat_map(|service| wishes.addresses(service, group));
        let addresses: BTreeSet<IpAddr> = addresses.copied().collect();
        let parties = addresses.iter().flat_map(|address| wishes.groups_at(*address));
        let groups: BTreeSet<&ObjectKey> = parties.chain([group]).collect();
        let mut judge = Self {
            world,
            group,
            facts: BTreeMap::new(),
            terms: BTreeMap::new(),
            winners: BTreeMap::new(),
        };
        for address in &addresses {
            judge.facts.insert(*address, Facts::of(world, *address));
        }
        for group in groups {
            let terms = judge.terms_of(wishes, group, memory);
            judge.terms.insert(group, terms);
        }
        for address in addresses {
            if let Some(winner) = judge.winner(wishes, address, memory) {
                judge.winners.insert(address, winner);
            }
        }
        judge
    }

    /// Whether the group announces Services of a namespace.
    pub(super) fn allows_namespace(&self, namespace: &str) -> bool {
        self.terms.get(self.group).is_some_and(|terms| terms.namespaces.contains(namespace))
    }

    /// What the group does with an address of a Service in a namespace that it allows.
    pub(super) fn verdict(
        &self,
        name: &GroupName,
        service: &ObjectKey,
        address: IpAddr,
    ) -> Result<Verdict, Obstacle> {
        let (Some(facts), Some(terms)) = (self.facts.get(&address), self.terms.get(self.group))
        else {
            return Err(Obstacle::GroupUnusable(name.clone()));
        };
        if let Some(what) = facts.special {
            return Err(Obstacle::Unusable(address, what));
        }
        if !terms.settings.is_some_and(|settings| settings.allows(address)) {
            return Err(Obstacle::OutsideRanges(name.clone(), address));
        }
        if let Some(taken) = &facts.taken {
            return Err(taken.clone());
        }
        let namespace = service.namespace();
        match (self.right(service, address, facts), &facts.claim) {
            (Right::Proved, _) => {}
            (Right::Listed, _) if terms.carries(namespace, address, facts) => {}
            (Right::Listed, _) => {
                let (name, namespace) = (name.clone(), namespace.to_owned());
                return Err(Obstacle::TooManyChosen(name, address, namespace, MOST_CHOSEN));
            }
            (Right::None, Some((claim, _))) => {
                return Err(Obstacle::AddressConflict(address, claim.to_string()));
            }
            (Right::None, None) => {
                return Err(Obstacle::NotEntitled(address, namespace.to_owned()));
            }
        }
        match self.winners.get(&address) {
            Some((_, winner)) if *winner == service => Ok(Verdict::Announced),
            Some((group, winner)) => match facts.claim {
                Some(_) if *group == self.group => Ok(Verdict::Shared),
                Some(_) => Ok(Verdict::Elsewhere),
                None => {
                    let winner = HolderRef::service(winner).to_string();
                    Err(Obstacle::AddressConflict(address, winner))
                }
            },
            None => Err(Obstacle::GroupUnusable(name.clone())),
        }
    }

    /// The Service that an address is announced for: the oldest of those that have a right to it and whose group
    /// announces it.
    fn winner(&self, wishes: &'a Wishes, address: IpAddr, memory: Memory<'_>) -> Option<Party<'a>> {
        let facts = self.facts.get(&address)?;
        if facts.special.is_some() || facts.taken.is_some() {
            return None;
        }
        let candidates = wishes.parties(address).filter_map(|(group, service)| {
            let terms = self.terms.get(group)?;
            let announces = match terms.settings {
                Some(settings) => {
                    settings.allows(address) && terms.namespaces.contains(service.namespace())
                }
                None => terms.stays_as_it_is && memory.held.contains(&address),
            };
            let has_right = announces
                && match self.right(service, address, facts) {
                    Right::Proved => true,
                    Right::Listed => terms.carries(service.namespace(), address, facts),
                    Right::None => false,
                };
            // What such a group holds, no other group can have.
            let can_let_go = !terms.stays_as_it_is;
            has_right.then(|| ((can_let_go, self.world.created(service), service), group))
        });
        candidates.min().map(|((.., service), group)| (group, service))
    }

    /// The right of a Service to an address. Users write no status, and no claim.
    fn right(&self, service: &ObjectKey, address: IpAddr, facts: &Facts<'_>) -> Right {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
        if let Some((_, holders)) = &facts.claim {
            return if holders.contains(service) { Right::Proved } else { Right::None };
        }
        let World { cluster, ledger } = self.world;
        let Some(view) = cluster.services.get(service) else { return Right::None };
        let listed = || ForeignAddress::External(service.clone(), view.uid.clone());
        if view.in_status().contains(&address) {
            Right::Proved
        } else if ledger.outside.contains(&address, &listed()) {
            Right::Listed
        } else {
            Right::None
        }
    }

    fn terms_of(
        &mut self,
        wishes: &'a Wishes,
        group: &'a ObjectKey,
        memory: Memory<'_>,
    ) -> Terms<'a> {
        let view = self.world.cluster.keepalived_groups.get(group).filter(|view| !view.deleting);
        let settings = view.and_then(|view| view.settings.as_deref().ok()).filter(|settings| {
            settings.password.is_none() || !memory.without_password.contains(group)
        });
        let mut terms = Terms {
            settings,
            stays_as_it_is: view.is_some() && settings.is_none(),
            namespaces: BTreeSet::new(),
            chosen: BTreeSet::new(),
        };
        let Some(settings) = settings else { return terms };
        let selector = settings.allowed_namespaces.clone().map(Selector::try_from);
        let allows = |namespace: &str| match &selector {
            None => true,
            Some(Ok(selector)) => selector.matches(self.world.cluster.namespace_labels(namespace)),
            Some(Err(_)) => false,
        };
        let namespaces: BTreeSet<_> = wishes.services_of(group).map(ObjectKey::namespace).collect();
        terms.namespaces = namespaces.into_iter().filter(|namespace| allows(namespace)).collect();
        terms.chosen = self.chosen(wishes, group, settings, &terms.namespaces);
        terms
    }

    /// The addresses that namespaces chose freely, as many as a group announces.
    fn chosen(
        &mut self,
        wishes: &'a Wishes,
        group: &'a ObjectKey,
        settings: &GroupSettings,
        namespaces: &BTreeSet<&'a str>,
    ) -> BTreeSet<(&'a str, IpAddr)> {
        let mut chosen = BTreeSet::new();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let services = wishes.services_of(group);
        let services = services.filter(|service| namespaces.contains(service.namespace()));
        let mut services: Vec<_> =
            services.map(|service| (self.world.created(service), service)).collect();
        services.sort_unstable();
        for (_, service) in services {
            let namespace = service.namespace();
            let count = counts.entry(namespace).or_default();
            for address in wishes.addresses(service, group) {
                if *count >= MOST_CHOSEN {
                    break;
                }
                if chosen.contains(&(namespace, *address)) || !settings.allows(*address) {
                    continue;
                }
                self.learn(*address);
                let Some(facts) = self.facts.get(address) else { continue };
                let counts = facts.is_free_choice
                    && matches!(self.right(service, *address, facts), Right::Listed);
                if counts {
                    chosen.insert((namespace, *address));
                    *count = count.saturating_add(1);
                }
            }
        }
        chosen
    }

    fn learn(&mut self, address: IpAddr) {
        if let Entry::Vacant(vacant) = self.facts.entry(address) {
            vacant.insert(Facts::of(self.world, address));
        }
    }
}

impl<'a> Facts<'a> {
    fn of(world: World<'a>, address: IpAddr) -> Self {
        let local = || link_local().contains(address).then_some("a link-local address");
        let special = Never::of(address).map(text::never).or_else(local);
        let taken = world.ledger.outside.of(&address).find_map(|outside| match outside {
            ForeignAddress::Node(node) => Some(Obstacle::AddressOfNode(address, node.clone())),
            ForeignAddress::ApiServer(_) => Some(Obstacle::AddressOfApiServer(address)),
            ForeignAddress::ClusterIp(other) => {
                let other = HolderRef::service(other).to_string();
                Some(Obstacle::AddressConflict(address, other))
            }
            ForeignAddress::External(..) | ForeignAddress::VirtualIp(_) => None,
        });
        let claim = world.ledger.claim(address);
        let is_free_choice = special.is_none()
            && taken.is_none()
            && claim.is_none()
            && world.ledger.book.pool_of(address).is_none();
        Self { special, taken, claim: world.holders(address), is_free_choice }
    }
}

impl Terms<'_> {
    /// Whether the group announces an address that a namespace may list.
    fn carries(&self, namespace: &str, address: IpAddr, facts: &Facts<'_>) -> bool {
        !facts.is_free_choice || self.chosen.contains(&(namespace, address))
    }
}

#[cfg(test)]
thread_local! {
    /// How often a judge of this thread has looked at one address of one Service.
    pub(super) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
