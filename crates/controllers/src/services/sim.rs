//! A small API server and any number of operators with stale caches, for tests of the planner.
//!
//! Every step is one thing that can really happen: a watch delivers an event late, a call takes
//! hold, its answer arrives or is lost, an operator dies between two writes, a user changes his
//! mind. The operators are the real planner; only the calls are played here, by the same rules of
//! uniqueness and versions that the API server enforces.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use landfall_ipam::{ClaimFact, Family, HolderFact, Pool, PoolName, Violation, check};

use super::{
    effect::{Answer, Effect, Failure, Report, Then},
    plan::{News, Now, Planner, Watched},
    view::{
        ClaimView, HolderView, OutsiderKind, PoolView, Request, Reservation, ServiceKey,
        ServiceView, Tenure, Version,
    },
    wish::may_release,
};

/// A Service as the API server has it.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) view: ServiceView,
    pub(super) load_balancer: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Claims,
    Services,
    Pools,
    Namespaces,
}

pub(super) const KINDS: [Kind; 4] = [Kind::Claims, Kind::Services, Kind::Pools, Kind::Namespaces];

/// One change, as watches will tell it.
#[derive(Clone, Debug)]
enum Change {
    Claim(IpAddr, Version, Option<ClaimView>),
    Service(ServiceKey, Version, Option<ServiceView>),
    Pool(Box<PoolView>),
}

impl Change {
    const fn kind(&self) -> Kind {
        match self {
            Self::Claim(..) => Kind::Claims,
            Self::Service(..) => Kind::Services,
            Self::Pool(_) => Kind::Pools,
        }
    }

    fn news(&self) -> News {
        match self.clone() {
            Self::Claim(addr, version, Some(claim)) => {
                News::Claims(Watched::Is(addr, version, claim))
            }
            Self::Claim(addr, version, None) => News::Claims(Watched::IsNot(addr, version)),
            Self::Service(key, version, Some(service)) => {
                News::Services(Watched::Is(key, version, service))
            }
            Self::Service(key, version, None) => News::Services(Watched::IsNot(key, version)),
            Self::Pool(pool) => News::Pools(Watched::Is(pool.name.clone(), pool.version, pool)),
        }
    }
}

/// The API server: objects, versions, and the history that watches read.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    version: u64,
    uids: u64,
    pub(super) claims: BTreeMap<IpAddr, ClaimView>,
    pub(super) services: BTreeMap<ServiceKey, Stored>,
    pools: BTreeMap<PoolName, PoolView>,
    history: Vec<Change>,
    /// Every write that took hold, apart from the users'.
    pub(super) writes: Vec<&'static str>,
}

impl Cluster {
    fn next(&mut self) -> Version {
        self.version += 1;
        Version(self.version)
    }

    fn uid(&mut self, of: &str) -> Arc<str> {
        self.uids += 1;
        Arc::from(format!("{of}#{}", self.uids))
    }

    pub(super) fn set_pool(&mut self, name: &str, ranges: &str, excluded: &str) {
        let name = PoolName::new(name);
        let blocks = |text: &str| -> Vec<landfall_ipam::AddrBlock> {
            text.split_whitespace().map(|part| part.parse().unwrap()).collect()
        };
        let pool = Pool::new(name.clone(), blocks(ranges), blocks(excluded));
        self.put_pool(&name, |view| view.pool = Ok(pool));
    }

    pub(super) fn put_pool(&mut self, name: &PoolName, change: impl FnOnce(&mut PoolView)) {
        let version = self.next();
        let mut view = self.pools.get(name).cloned().unwrap_or_else(|| {
            let uid = Arc::from(format!("pool-{name}"));
            let mut new = PoolView::empty(name.clone(), Arc::from(name.as_str()), uid);
            new.generation = Some(0);
            new
        });
        change(&mut view);
        view.version = version;
        view.generation = view.generation.map(|generation| generation + 1);
        self.pools.insert(name.clone(), view.clone());
        self.history.push(Change::Pool(Box::new(view)));
    }

    /// A user creates a Service; nothing happens if it is there.
    pub(super) fn create_service(&mut self, key: &str) {
        let key = ServiceKey::parse(key).unwrap();
        if self.services.contains_key(&key) {
            return;
        }
        let mut view = super::fixtures::service(key.as_str());
        view.uid = self.uid(key.as_str());
        view.created = Timestamp::from_second(i64::try_from(self.version).unwrap()).unwrap();
        self.store(Stored { view, load_balancer: true });
    }

    /// A user changes a Service that is there.
    pub(super) fn edit_service(&mut self, key: &str, change: impl FnOnce(&mut Stored)) {
        let key = ServiceKey::parse(key).unwrap();
        let Some(mut stored) = self.services.get(&key).cloned() else { return };
        change(&mut stored);
        if !stored.load_balancer {
            // As the API server does since 1.28.
            stored.view.shows.clear();
            stored.view.class = None;
        }
        self.store(stored);
    }

    pub(super) fn delete_service(&mut self, key: &str) {
        let key = ServiceKey::parse(key).unwrap();
        if self.services.remove(&key).is_some() {
            let version = self.next();
            self.history.push(Change::Service(key, version, None));
        }
    }

    pub(super) fn delete_claim(&mut self, addr: IpAddr) {
        if self.claims.remove(&addr).is_some() {
            let version = self.next();
            self.history.push(Change::Claim(addr, version, None));
        }
    }

    fn store(&mut self, mut stored: Stored) {
        let version = self.next();
        stored.view.version = version;
        let key = stored.view.key.clone();
        let seen = stored.load_balancer.then(|| stored.view.clone());
        self.history.push(Change::Service(key.clone(), version, seen));
        self.services.insert(key, stored);
    }

    fn put_claim(
        &mut self,
        addr: IpAddr,
        pool: Option<PoolName>,
        holders: Vec<HolderView>,
    ) -> ClaimView {
        let version = self.next();
        let uid = match self.claims.get(&addr) {
            Some(claim) => claim.uid.clone(),
            None => self.uid("claim"),
        };
        let reserved = self.claims.get(&addr).and_then(|claim| claim.reserved.clone());
        let tenure = Tenure::Services(holders);
        let claim = ClaimView { addr, uid, version, pool, reserved, tenure };
        self.claims.insert(addr, claim.clone());
        self.history.push(Change::Claim(addr, version, Some(claim.clone())));
        claim
    }

    /// An administrator keeps a free address for somebody.
    pub(super) fn reserve(&mut self, addr: IpAddr, reservation: Reservation) {
        if !self.claims.contains_key(&addr) {
            self.put_claim(addr, None, Vec::new());
            self.set_reservation(addr, Some(reservation));
        }
    }

    fn set_reservation(&mut self, addr: IpAddr, reservation: Option<Reservation>) -> ClaimView {
        let version = self.next();
        let claim = self.claims.get_mut(&addr).unwrap();
        claim.reserved = reservation;
        claim.version = version;
        let claim = claim.clone();
        self.history.push(Change::Claim(addr, version, Some(claim.clone())));
        claim
    }

    fn live(&self, key: &ServiceKey) -> Option<ServiceView> {
        self.services
            .get(key)
            .filter(|stored| stored.load_balancer)
            .map(|stored| stored.view.clone())
    }

    fn answer(&self, key: &ServiceKey) -> Answer {
        match self.services.get(key) {
            None => Answer::NoService,
            Some(stored) if stored.load_balancer => Answer::Service(stored.view.clone()),
            Some(stored) => Answer::OtherService(stored.view.version),
        }
    }

    /// Does a call, as the API server would. A release is two: `read` is what its first half saw.
    fn call(&mut self, effect: &Effect, read: Option<&[ServiceView]>) -> Result<Answer, Failure> {
        match effect {
            Effect::Take { addr, pool, holder } => {
                if self.claims.contains_key(addr) {
                    return Err(Failure::Exists);
                }
                self.writes.push("take");
                Ok(Answer::Claim(self.put_claim(*addr, Some(pool.clone()), vec![holder.clone()])))
            }
            Effect::Touch { addr, version, pool, holders, end_reservation } => {
                match self.claims.get(addr) {
                    None => Err(Failure::NotFound),
                    Some(claim) if claim.version != *version => Err(Failure::Conflict),
                    Some(_) => {
                        self.writes.push("touch");
                        let claim = self.put_claim(*addr, pool.clone(), holders.clone());
                        Ok(Answer::Claim(if *end_reservation {
                            self.set_reservation(*addr, None)
                        } else {
                            claim
                        }))
                    }
                }
            }
            Effect::Publish { key, uid, version, ingress, conditions, .. } => {
                let Some(mut stored) = self.services.get(key).cloned() else {
                    return Err(Failure::NotFound);
                };
                if stored.view.version != *version || stored.view.uid != *uid {
                    return Err(Failure::Conflict);
                }
                if let Some(addrs) = ingress {
                    stored.view.shows.clone_from(addrs);
                }
                stored.view.conditions.clone_from(conditions);
                self.store(stored);
                self.writes.push("publish");
                Ok(self.answer(key))
            }
            Effect::Release { addr, uid, version, holder, then } => {
                let live = read.and_then(<[_]>::first);
                if !may_release(live, holder, *addr) {
                    return Ok(Answer::Kept);
                }
                match self.claims.get(addr) {
                    None => Err(Failure::NotFound),
                    Some(claim) if claim.version != *version || claim.uid != *uid => {
                        Err(Failure::Conflict)
                    }
                    Some(claim) => {
                        self.writes.push("release");
                        let gone = !self.services.contains_key(&holder.key);
                        let reservation = match then {
                            Then::Reserve(reservation) => Some(reservation),
                            Then::RetainIfGone(reservation) => Some(reservation).filter(|_| gone),
                            Then::Free => None,
                        };
                        if reservation.is_none() {
                            self.delete_claim(*addr);
                            return Ok(Answer::Released);
                        }
                        let pool = claim.pool.clone();
                        self.put_claim(*addr, pool, Vec::new());
                        Ok(Answer::Claim(self.set_reservation(*addr, reservation.cloned())))
                    }
                }
            }
            Effect::Expire { addr, uid, version } => match self.claims.get(addr) {
                None => Err(Failure::NotFound),
                Some(claim) if claim.version != *version || claim.uid != *uid => {
                    Err(Failure::Conflict)
                }
                Some(_) => {
                    self.writes.push("expire");
                    self.delete_claim(*addr);
                    Ok(Answer::Released)
                }
            },
            Effect::LookAtClaim { addr, .. } => {
                Ok(self.claims.get(addr).cloned().map_or(Answer::NoClaim, Answer::Claim))
            }
            Effect::LookAtService { key, .. } => Ok(self.answer(key)),
            Effect::PoolStatus { pool, version, status, .. } => {
                let next = Version(self.version + 1);
                match self.pools.get_mut(pool) {
                    Some(view) if view.version == *version => {
                        view.status = status.clone();
                        view.version = next;
                        let view = view.clone();
                        self.version += 1;
                        self.history.push(Change::Pool(Box::new(view.clone())));
                        Ok(Answer::Pool(Box::new(view)))
                    }
                    Some(_) => Err(Failure::Conflict),
                    None => Err(Failure::NotFound),
                }
            }
            Effect::Note(_) => Ok(Answer::Done),
        }
    }

    /// What the invariant checker sees.
    pub(super) fn violations(&self) -> BTreeSet<Violation> {
        let claims: Vec<_> = self
            .claims
            .values()
            .map(|claim| ClaimFact {
                addr: claim.addr,
                holders: claim
                    .holders()
                    .iter()
                    .map(|holder| holder.uid.as_deref().unwrap_or_default().to_owned())
                    .collect(),
                reserved: matches!(claim.tenure, Tenure::Other(_)) || claim.reserved.is_some(),
            })
            .collect();
        let holders: Vec<_> = self
            .services
            .values()
            .map(|stored| HolderFact {
                id: stored.view.uid.to_string(),
                shows: stored.view.shows.clone(),
            })
            .collect();
        check(&claims, &holders)
    }

    /// Addresses shown without a claim that names the Service: never, not even for a moment,
    /// unless a user did it.
    pub(super) fn shown_without_claim(&self) -> Vec<Violation> {
        let shown = |violation: &Violation| {
            matches!(violation, Violation::ShownWithoutClaim(..) | Violation::ShownTwice(..))
        };
        self.violations().into_iter().filter(shown).collect()
    }
}

/// A call of one operator.
#[derive(Clone, Debug)]
struct Call {
    effect: Effect,
    /// What the first half of a release read: the Service, if it is one that can hold addresses.
    read: Option<Box<[ServiceView]>>,
    /// What the server answered, once it has taken hold.
    result: Option<Result<Answer, Failure>>,
}

/// One operator: a planner with stale caches and calls under way.
#[derive(Debug, Default)]
pub(super) struct Operator {
    planner: Planner,
    /// How much of the history each watch has delivered; `None` before its first list.
    cursors: BTreeMap<Kind, usize>,
    calls: Vec<Call>,
}

/// Everything together.
#[derive(Debug, Default)]
pub(super) struct Sim {
    pub(super) cluster: Cluster,
    pub(super) operators: Vec<Operator>,
    /// Calls whose sender is dead or has given up, which may still take hold.
    strays: Vec<Call>,
    clock: Duration,
}

impl Sim {
    pub(super) fn new(operators: usize) -> Self {
        Self { operators: (0..operators).map(|_| Operator::default()).collect(), ..Self::default() }
    }

    fn now(&self) -> Now {
        let seconds = i64::try_from(self.clock.as_secs()).unwrap();
        Now { wall: Timestamp::from_second(seconds).unwrap(), uptime: self.clock }
    }

    /// What a clock on the wall says.
    pub(super) fn wall(&self) -> Timestamp {
        self.now().wall
    }

    pub(super) fn pass_time(&mut self, time: Duration) {
        self.clock += time;
    }

    /// A watch lists, for the first time or again after it was lost. Services are never listed
    /// before claims.
    pub(super) fn list(&mut self, operator: usize, kind: Kind) {
        let cluster = &self.cluster;
        let operator = &mut self.operators[operator];
        if kind == Kind::Services && !operator.cursors.contains_key(&Kind::Claims) {
            return;
        }
        let mut news = Vec::new();
        match kind {
            Kind::Claims => {
                news.push(News::Claims(Watched::ListBegins));
                news.extend(cluster.claims.values().map(|claim| {
                    News::Claims(Watched::Is(claim.addr, claim.version, claim.clone()))
                }));
                news.push(News::Claims(Watched::ListEnds));
            }
            Kind::Services => {
                news.push(News::Services(Watched::ListBegins));
                news.extend(cluster.services.values().map(|stored| {
                    let (key, version) = (stored.view.key.clone(), stored.view.version);
                    News::Services(if stored.load_balancer {
                        Watched::Is(key, version, stored.view.clone())
                    } else {
                        Watched::IsNot(key, version)
                    })
                }));
                news.push(News::Services(Watched::ListEnds));
            }
            Kind::Pools => {
                news.push(News::Pools(Watched::ListBegins));
                news.extend(cluster.pools.values().map(|pool| {
                    News::Pools(Watched::Is(
                        pool.name.clone(),
                        pool.version,
                        Box::new(pool.clone()),
                    ))
                }));
                news.push(News::Pools(Watched::ListEnds));
            }
            Kind::Namespaces => {
                news.push(News::Namespaces(Watched::ListBegins));
                news.push(News::Namespaces(Watched::ListEnds));
                for kind in OutsiderKind::ALL {
                    news.push(News::Outsiders(kind, Watched::ListBegins));
                    news.push(News::Outsiders(kind, Watched::ListEnds));
                }
            }
        }
        for item in news {
            operator.planner.on_news(item);
        }
        operator.cursors.insert(kind, cluster.history.len());
    }

    /// A watch delivers its next events, up to `count`; says whether there were any.
    pub(super) fn deliver(&mut self, operator: usize, kind: Kind, count: usize) -> bool {
        let operator = &mut self.operators[operator];
        let Some(cursor) = operator.cursors.get_mut(&kind) else { return false };
        let mut left = count;
        while left > 0 && *cursor < self.cluster.history.len() {
            let change = &self.cluster.history[*cursor];
            *cursor += 1;
            if change.kind() == kind {
                operator.planner.on_news(change.news());
                left -= 1;
            }
        }
        left < count
    }

    /// An operator plans; its effects become calls under way.
    pub(super) fn plan(&mut self, operator: usize) -> usize {
        let now = self.now();
        let operator = &mut self.operators[operator];
        let effects = operator.planner.plan(now);
        let count = effects.iter().filter(|effect| !matches!(effect, Effect::Note(_))).count();
        let calls = effects.into_iter().map(|effect| Call { effect, read: None, result: None });
        operator.calls.extend(calls);
        count
    }

    pub(super) fn calls(&self, operator: usize) -> usize {
        self.operators[operator].calls.len()
    }

    /// A call takes its next step on the server: a release first reads, then deletes.
    pub(super) fn take_hold(&mut self, operator: usize, call: usize) {
        step(&mut self.cluster, &mut self.operators[operator].calls[call]);
    }

    /// An operator gets the answer to a call that has taken hold.
    pub(super) fn answer(&mut self, operator: usize, call: usize) {
        let now = self.now();
        let operator = &mut self.operators[operator];
        if operator.calls[call].result.is_none() {
            return;
        }
        let call = operator.calls.remove(call);
        let result = call.result.unwrap();
        operator.planner.on_report(Report { effect: call.effect, result }, now);
    }

    /// The answer is lost, or the call itself: the operator does not know. The call may still take
    /// hold much later.
    pub(super) fn lose(&mut self, operator: usize, call: usize) {
        let now = self.now();
        let operator = &mut self.operators[operator];
        let call = operator.calls.remove(call);
        let report =
            Report { effect: call.effect.clone(), result: Err(Failure::Unknown("lost".into())) };
        if call.result.is_none() {
            self.strays.push(call);
        }
        operator.planner.on_report(report, now);
    }

    /// A call of a dead or impatient operator takes hold after all.
    pub(super) fn stray(&mut self, pick: usize) {
        if self.strays.is_empty() {
            return;
        }
        let index = pick % self.strays.len();
        step(&mut self.cluster, &mut self.strays[index]);
        if self.strays[index].result.is_some() {
            self.strays.remove(index);
        }
    }

    /// An operator dies, and another is started in its place; what it had sent may still happen.
    pub(super) fn crash(&mut self, operator: usize) {
        let dead = std::mem::take(&mut self.operators[operator]);
        self.strays.extend(dead.calls.into_iter().filter(|call| call.result.is_none()));
    }

    /// Everything goes well until nothing is left to do now; what is due later is left alone.
    pub(super) fn quiet(&mut self) {
        while self.round() {}
    }

    /// Everything goes well until nothing is left to do, now or ever.
    pub(super) fn settle(&mut self) {
        self.strays.clear();
        for _ in 0..2000 {
            let busy = self.round();
            let due = self.operators.iter().any(|operator| operator.planner.next_due().is_some());
            if !busy && !due {
                return;
            }
            self.pass_time(Duration::from_secs(2));
        }
        let memories: Vec<_> =
            self.operators.iter().map(|operator| operator.planner.memory()).collect();
        panic!(
            "it never comes to rest: {memories:#?}\n{:?}\nlast writes {:?}",
            self.cluster.claims,
            self.cluster.writes.iter().rev().take(5).collect::<Vec<_>>()
        );
    }

    /// Everything that can happen now happens once; says whether anything did.
    fn round(&mut self) -> bool {
        let mut busy = false;
        for operator in 0..self.operators.len() {
            for kind in KINDS {
                if !self.operators[operator].cursors.contains_key(&kind) {
                    self.list(operator, kind);
                    busy = true;
                }
                busy |= self.deliver(operator, kind, usize::MAX);
            }
            busy |= self.plan(operator) > 0;
            while !self.operators[operator].calls.is_empty() {
                while self.operators[operator].calls[0].result.is_none() {
                    self.take_hold(operator, 0);
                }
                self.answer(operator, 0);
                busy = true;
            }
        }
        busy
    }

    /// Services that want an address and have none, though one of a pool is free.
    pub(super) fn starved(&self) -> Vec<ServiceKey> {
        let free = self.cluster.pools.values().any(|view| {
            view.pool.as_ref().is_ok_and(|pool| {
                let excluded = |addr| {
                    self.cluster.pools.values().any(|other| {
                        other.pool.as_ref().is_ok_and(|other| {
                            other.contains(addr) && other.excluded().contains(addr)
                        })
                    })
                };
                (0..64_u8).map(|last| IpAddr::from([10, 0, 0, last])).any(|addr| {
                    pool.contains(addr)
                        && !excluded(addr)
                        && !self.cluster.claims.contains_key(&addr)
                })
            })
        });
        let wants = |stored: &&Stored| {
            stored.load_balancer
                && stored.view.request == Request::Any
                && stored.view.shows.is_empty()
                && stored.view.class.is_none()
                && stored.view.families == [Family::V4]
        };
        let waiting = self.cluster.services.values().filter(wants);
        if free { waiting.map(|stored| stored.view.key.clone()).collect() } else { Vec::new() }
    }
}

fn step(cluster: &mut Cluster, call: &mut Call) {
    if let (Effect::Release { holder, .. }, None) = (&call.effect, &call.read) {
        call.read = Some(cluster.live(&holder.key).into_iter().collect());
        return;
    }
    if call.result.is_none() {
        call.result = Some(cluster.call(&call.effect, call.read.as_deref()));
    }
}
