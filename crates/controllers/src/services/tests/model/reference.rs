//! The naive model: what users wrote and which Service has which address, in plain lists.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use landfall_ipam::{Family, Reason, Terms};

use super::acts::{Act, Name, PoolEdit, Rank, Scope, Stack, v4, v6};
use crate::cluster::service::Place;

/// A Service as its owner wrote it, and what it should have and say.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the story")]
pub(super) struct Service {
    /// A number that grows with every creation: the lower, the older.
    pub(super) birth: u64,
    pub(super) load_balancer: bool,
    pub(super) deleting: bool,
    pub(super) class: Option<Name>,
    pub(super) stack: Stack,
    pub(super) asks: Vec<IpAddr>,
    pub(super) pools: Vec<Name>,
    pub(super) labelled: bool,
    pub(super) terms: Option<Terms>,
    pub(super) has: Vec<IpAddr>,
    /// Whether it has the label of a Service that kube-vip announces from its annotation.
    pub(super) marked: bool,
    /// Addresses that it no longer has and that stay its own for this many more rounds.
    pub(super) leaves: BTreeMap<IpAddr, u8>,
    pub(super) says: Option<Says>,
    pub(super) misses: Vec<No>,
}

impl Service {
    fn new(birth: u64, terms: Option<Terms>) -> Self {
        Self {
            birth,
            load_balancer: true,
            deleting: false,
            class: None,
            stack: Stack::V4,
            asks: Vec::new(),
            pools: Vec::new(),
            labelled: false,
            terms,
            has: Vec::new(),
            marked: false,
            leaves: BTreeMap::new(),
            says: None,
            misses: Vec::new(),
        }
    }

    /// It is no longer a `LoadBalancer`. Its label is removed before its addresses are.
    fn is_none_any_more(&mut self) {
        self.class = None;
        let had = std::mem::take(&mut self.has);
        if self.marked {
            self.leaves.extend(had.into_iter().map(|addr| (addr, 1)));
        }
    }
}

/// What a condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    Allocated,
    OutsidePool,
    Refused(Reason),
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct No {
    pub(super) reason: Reason,
    /// The pools that would serve and cannot, or of which an address was asked for and refused.
    pub(super) pools: BTreeSet<Name>,
    /// Whether it is about something that the Service asked for.
    pub(super) asked: bool,
}

/// A pool as an administrator wrote it.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "as many as an administrator can write")]
pub(super) struct Pool {
    pub(super) v4: Option<(u8, u8)>,
    pub(super) v6: Option<(u8, u8)>,
    pub(super) excluded: Vec<IpAddr>,
    pub(super) avoid_ends: bool,
    pub(super) priority: i32,
    pub(super) auto_assign: bool,
    pub(super) drain: bool,
    pub(super) some_namespaces: bool,
    pub(super) some_services: bool,
    pub(super) class: Option<Name>,
    pub(super) quota: (Option<u32>, Option<u32>),
    pub(super) retain_for: Option<i64>,
    pub(super) broken: bool,
    pub(super) rank: Rank,
    pub(super) falls_back: bool,
    pub(super) scope: Option<Scope>,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            v4: Some((0, 2)),
            v6: Some((0, 1)),
            excluded: Vec::new(),
            avoid_ends: false,
            priority: 100,
            auto_assign: true,
            drain: false,
            some_namespaces: false,
            some_services: false,
            class: None,
            quota: (None, None),
            retain_for: None,
            broken: false,
            rank: Rank::Usual,
            falls_back: false,
            scope: None,
        }
    }
}

impl Pool {
    fn edit(&mut self, edit: &PoolEdit) {
        match edit {
            PoolEdit::V4(range) => self.v4 = *range,
            PoolEdit::V6(range) => self.v6 = *range,
            PoolEdit::Exclude(addrs) => self.excluded.clone_from(addrs),
            PoolEdit::AvoidEnds(on) => self.avoid_ends = *on,
            PoolEdit::Priority(priority) => self.priority = *priority,
            PoolEdit::AutoAssign(on) => self.auto_assign = *on,
            PoolEdit::Drain(on) => self.drain = *on,
            PoolEdit::SomeNamespaces(on) => self.some_namespaces = *on,
            PoolEdit::SomeServices(on) => self.some_services = *on,
            PoolEdit::Class(class) => self.class = *class,
            PoolEdit::Quota(each, shop) => self.quota = (*each, *shop),
            PoolEdit::RetainFor(seconds) => self.retain_for = *seconds,
            PoolEdit::Broken(on) => self.broken = *on,
            PoolEdit::Rank(rank) => self.rank = *rank,
            PoolEdit::FallsBack(on) => self.falls_back = *on,
            PoolEdit::Scope(scope) => self.scope = *scope,
        }
    }

    /// Every address it covers, lowest first; none if it is invalid.
    pub(super) fn covers(&self) -> Vec<IpAddr> {
        let run = |range: Option<(u8, u8)>, addr: fn(u8) -> IpAddr| {
            range.into_iter().flat_map(move |(first, last)| (first..=last).map(addr))
        };
        if self.broken { Vec::new() } else { run(self.v4, v4).chain(run(self.v6, v6)).collect() }
    }

    /// Whether it serves Services that do not ask for it or for one of its addresses.
    pub(super) fn gives_unasked(&self) -> bool {
        self.auto_assign && self.rank != Rank::OnRequest
    }

    /// Whether it is the pool of other namespaces, by their names.
    pub(super) fn is_of_others(&self, namespace: &str) -> bool {
        match self.scope {
            None => false,
            Some(Scope::Only(name)) => name != namespace,
            Some(Scope::AllBut(name)) => name == namespace,
        }
    }

    pub(super) fn has_family(&self, family: Family) -> bool {
        self.covers().iter().any(|addr| Family::of(*addr) == family)
    }

    /// Whether it holds back an address that network gear may mistake for a network or broadcast address.
    pub(super) fn holds_back(&self, addr: IpAddr) -> bool {
        self.avoid_ends && addr == v4(0)
    }

    pub(super) fn limit(&self, namespace: &str) -> Option<u32> {
        let (each, shop) = self.quota;
        shop.filter(|_| namespace == "shop").or(each)
    }
}

/// One entry of the ledger.
#[derive(Clone, Debug, Default)]
pub(super) struct Claim {
    pub(super) pool: Option<Name>,
    pub(super) holders: Vec<Holder>,
    pub(super) reserved: Option<Reserved>,
}

#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) name: Name,
    pub(super) birth: u64,
    pub(super) class: Option<Name>,
    pub(super) terms: Option<Terms>,
    /// The pools that the Service asked for when it got the address.
    pub(super) asked: Vec<Name>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reserved {
    pub(super) namespace: Name,
    pub(super) name: Option<Name>,
    /// A second on the clock.
    pub(super) ends: Option<i64>,
    /// Whether it waits for a deleted Service.
    pub(super) retained: bool,
}

impl Reserved {
    pub(super) fn is_for(&self, service: Name) -> bool {
        split(service).0 == self.namespace && self.name.is_none_or(|name| name == split(service).1)
    }
}

/// Namespace and name.
pub(super) fn split(service: Name) -> (Name, Name) {
    service.split_once('/').expect("a namespace and a name")
}

/// The whole model.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    /// Where addresses of its pools are published.
    pub(super) place: Place,
    pub(super) services: BTreeMap<Name, Service>,
    pub(super) pools: BTreeMap<Name, Pool>,
    pub(super) labelled_namespaces: BTreeSet<Name>,
    pub(super) nodes: BTreeMap<Name, Vec<IpAddr>>,
    pub(super) claims: BTreeMap<IpAddr, Claim>,
    /// Addresses given in this round: a Service that would join one must wait for the next round.
    pub(super) fresh: BTreeSet<IpAddr>,
    /// Retained addresses of deleted Services that are released early for other Services.
    pub(super) given_up: BTreeSet<IpAddr>,
    /// Seconds.
    pub(super) clock: i64,
    births: u64,
}

impl Model {
    pub(super) fn new(place: Place) -> Self {
        Self { place, ..Self::default() }
    }

    /// Carries out an act, and lets everything come to rest.
    pub(super) fn step(&mut self, act: &Act) {
        self.happen(act);
        self.settle();
        // A moment for the pools' status, which is written at most once a second.
        self.clock += 1;
        self.settle();
        self.clock += 1;
    }

    /// Whether an act has no effect: a Service that is being deleted is not edited.
    pub(super) fn ignores(&self, act: &Act) -> bool {
        let edited = act.edits().and_then(|name| self.services.get(name));
        edited.is_some_and(|service| service.deleting)
    }

    fn happen(&mut self, act: &Act) {
        if self.ignores(act) {
            return;
        }
        match act {
            Act::Create(name, terms) => self.create(name, terms.as_ref()),
            Act::Delete(name) => {
                self.services.remove(name);
            }
            Act::BeginDeletion(name) => self.edit(name, |service| service.deleting = true),
            Act::Recreate(name) => {
                self.births += 1;
                let birth = self.births;
                self.edit(name, |service| {
                    let new = Service::new(birth, service.terms.clone());
                    let Service { load_balancer, class, stack, labelled, .. } = *service;
                    let (asks, pools) = (service.asks.clone(), service.pools.clone());
                    *service =
                        Service { load_balancer, class, stack, asks, pools, labelled, ..new };
                });
            }
            Act::Type(name, load_balancer) => self.edit(name, |service| {
                service.load_balancer = *load_balancer;
                if !service.load_balancer {
                    service.is_none_any_more();
                }
            }),
            Act::Class(name, class) => self.change_class(name, *class),
            Act::Stack(name, stack) => self.edit(name, |service| service.stack = *stack),
            Act::Ask(name, addrs) => self.edit(name, |service| service.asks.clone_from(addrs)),
            Act::AskPools(name, pools) => {
                self.edit(name, |service| service.pools.clone_from(pools));
            }
            Act::LabelService(name, on) => self.edit(name, |service| service.labelled = *on),
            Act::Share(name, terms) => self.edit(name, |service| service.terms.clone_from(terms)),
            Act::LabelNamespace(name, true) => {
                self.labelled_namespaces.insert(name);
            }
            Act::LabelNamespace(name, false) => {
                self.labelled_namespaces.remove(name);
            }
            Act::EditPool(name, edit) => self.pools.entry(name).or_default().edit(edit),
            Act::DeletePool(name) => {
                self.pools.remove(name);
            }
            Act::Reserve { addr, namespace, name, ends_in } => {
                let ends = ends_in.map(|seconds| self.clock + seconds);
                let reserved = Some(Reserved { namespace, name: *name, ends, retained: false });
                let claim = Claim { reserved, ..Claim::default() };
                self.claims.entry(*addr).or_insert(claim);
            }
            Act::Unreserve(addr) => {
                if self.claims.get(addr).is_some_and(|claim| claim.holders.is_empty()) {
                    self.claims.remove(addr);
                }
            }
            Act::Node(name, addrs) => {
                self.nodes.insert(name, addrs.clone());
            }
            Act::PassTime(seconds) => self.clock += seconds,
            Act::Restart => {}
        }
    }

    /// As the API server allows it: only together with a change of type. It empties the status by itself, but
    /// not the annotation.
    fn change_class(&mut self, name: Name, class: Option<Name>) {
        let Some(service) = self.services.get_mut(name) else { return };
        if !service.load_balancer || service.class == class {
            return;
        }
        if service.marked {
            service.load_balancer = false;
            service.is_none_any_more();
            self.settle();
        }
        self.edit(name, |service| {
            service.has.clear();
            service.load_balancer = true;
            service.class = class;
        });
    }

    fn create(&mut self, name: Name, terms: Option<&Terms>) {
        self.births += 1;
        let new = Service::new(self.births, terms.cloned());
        self.services.entry(name).or_insert(new);
    }

    fn edit(&mut self, name: Name, change: impl FnOnce(&mut Service)) {
        if let Some(service) = self.services.get_mut(name) {
            change(service);
        }
    }
}
