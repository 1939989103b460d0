//! The simulated API server and any number of operators with stale caches, for tests of the planner.
//!
//! Every step is one thing that can really happen: a watch delivers an event late, a call succeeds, its
//! answer arrives or is lost, an operator dies between two writes, a user changes a Service. The operators
//! are the real planner; only the calls are simulated here, by the same rules of uniqueness and versions that
//! the API server enforces.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use jiff::Timestamp;
use landfall_api::Finding;
use landfall_ipam::Family;

use super::{
    effect::{Answer, Effect},
    explain::{Explanation, explain},
    plan::{RepairMode, Settings},
    runner::Runner,
    world::Tenancy,
};
pub(in crate::services) use crate::sim::{ApiServer, KINDS, Kind, Stored};
use crate::{
    call::Failure,
    cluster::service::{Balancer, Place, Request},
    engine::Now,
    event::Event,
    object::ObjectKey,
};

/// If something still happens after this many rounds, it never ends.
const ROUNDS: usize = 2000;

/// A call of one operator.
#[derive(Clone, Debug)]
struct Call {
    effect: Effect,
    /// The result of a release's live read: the Service, if it is one that can hold addresses.
    read: Option<Box<[Balancer]>>,
    /// The server's answer, once the call was carried out.
    result: Option<Result<Answer, Failure>>,
}

/// How long an operator waits for Services that it never saw.
const ORPHAN_GRACE: Duration = Duration::from_secs(3);

/// One operator: a planner with stale caches and calls in flight.
#[derive(Debug)]
pub(in crate::services) struct Operator {
    pub(in crate::services) runner: Runner,
    /// How much of the history each watch has delivered; `None` before its first list.
    cursors: BTreeMap<Kind, usize>,
    calls: Vec<Call>,
    events: Vec<Event>,
}

impl Default for Operator {
    fn default() -> Self {
        let runner = Runner::new(Settings { orphan_grace: ORPHAN_GRACE, ..Settings::default() });
        Self { runner, cursors: BTreeMap::new(), calls: Vec::new(), events: Vec::new() }
    }
}

impl Operator {
    /// The work left to do, for the message of a test that never settles.
    fn memory(&self) -> String {
        self.runner.planner.memory(&self.runner.shared.ledger)
    }
}

/// The whole simulation: one cluster and its operators.
#[derive(Debug, Default)]
pub(in crate::services) struct Sim {
    pub(in crate::services) cluster: ApiServer,
    pub(in crate::services) operators: Vec<Operator>,
    /// Calls whose sender is dead or has given up, which may still be carried out.
    strays: Vec<Call>,
    clock: Duration,
}

impl Sim {
    pub(in crate::services) fn new(operators: usize) -> Self {
        Self { operators: (0..operators).map(|_| Operator::default()).collect(), ..Self::default() }
    }

    /// The same, in a cluster whose pools publish addresses in that place.
    pub(in crate::services) fn showing_in(place: Place, operators: usize) -> Self {
        let mut sim = Self::new(operators);
        sim.cluster.place = place;
        sim
    }

    fn now(&self) -> Now {
        let seconds = i64::try_from(self.clock.as_secs()).unwrap();
        Now { wall: Timestamp::from_second(seconds).unwrap(), uptime: self.clock }
    }

    /// Sets how all operators treat the findings of repair.
    pub(in crate::services) fn set_mode(&mut self, repair: RepairMode) {
        for operator in &mut self.operators {
            operator.runner =
                Runner::new(Settings { orphan_grace: ORPHAN_GRACE, repair, ..Settings::default() });
        }
    }

    /// Sets what namespaces see and get of each other.
    pub(in crate::services) fn set_tenancy(&mut self, tenancy: Tenancy) {
        for operator in 0..self.operators.len() {
            let settings = Settings { orphan_grace: ORPHAN_GRACE, tenancy, ..Settings::default() };
            self.operators[operator].runner = Runner::new(settings);
            for kind in KINDS {
                self.list(operator, kind);
            }
        }
    }

    /// Plans, and returns how many events come of that; everything else must be at rest.
    pub(in crate::services) fn events_planned(&mut self, operator: usize) -> usize {
        let now = self.now();
        let plan = self.operators[operator].runner.plan(now);
        assert_eq!(plan.effects, []);
        plan.events.len()
    }

    /// How often an operator found each kind of finding.
    pub(in crate::services) fn counted(&self, operator: usize) -> BTreeMap<Finding, u64> {
        self.operators[operator].runner.planner.counted().clone()
    }

    /// The wall clock.
    pub(in crate::services) fn wall(&self) -> Timestamp {
        self.now().wall
    }

    pub(in crate::services) fn pass_time(&mut self, time: Duration) {
        self.clock += time;
    }

    /// What is told about a Service by a caller that lists everything once, without an operator.
    pub(in crate::services) fn explain(&mut self, key: &str) -> Option<Explanation> {
        self.operators.push(Operator::default());
        let last = self.operators.len() - 1;
        for kind in KINDS {
            self.list(last, kind);
        }
        let now = self.now();
        let mut runner = self.operators.pop()?.runner;
        runner.take_stock(now);
        explain(runner.world(), &ObjectKey::parse(key)?)
    }

    /// A watch lists, for the first time or again after it was lost. Services are never listed
    /// before claims.
    pub(in crate::services) fn list(&mut self, operator: usize, kind: Kind) {
        let now = self.now();
        let operator = &mut self.operators[operator];
        if kind == Kind::Services && !operator.cursors.contains_key(&Kind::Claims) {
            return;
        }
        for news in self.cluster.list(kind) {
            operator.runner.hear(news, now);
        }
        operator.cursors.insert(kind, self.cluster.history.len());
    }

    /// Sets the ranges from which the cluster gives `ClusterIPs`, and tells all operators.
    pub(in crate::services) fn set_service_ranges(&mut self, ranges: &str) {
        let now = self.now();
        for operator in &mut self.operators {
            let news = self.cluster.set_service_ranges(ranges);
            operator.runner.hear(news, now);
        }
    }

    /// The number of Services with `ClusterIPs`, as far as an operator remembers them.
    pub(in crate::services) fn remembered_cluster_ips(&self, operator: usize) -> usize {
        let services = self.operators[operator].runner.shared.cluster.services.values();
        services.filter(|view| !view.cluster_ips.is_empty()).count()
    }

    /// A watch delivers its next events, up to `count`; returns whether there were any.
    pub(in crate::services) fn deliver(
        &mut self,
        operator: usize,
        kind: Kind,
        count: usize,
    ) -> bool {
        let now = self.now();
        let operator = &mut self.operators[operator];
        let Some(cursor) = operator.cursors.get_mut(&kind) else { return false };
        let mut left = count;
        while left > 0 && *cursor < self.cluster.history.len() {
            let change = &self.cluster.history[*cursor];
            *cursor += 1;
            if change.kind() == kind {
                operator.runner.hear(change.news(), now);
                left -= 1;
            }
        }
        left < count
    }

    /// An operator plans; its effects become calls in flight.
    pub(in crate::services) fn plan(&mut self, operator: usize) -> usize {
        let now = self.now();
        let operator = &mut self.operators[operator];
        let plan = operator.runner.plan(now);
        operator.events.extend(plan.events);
        let count = plan.effects.len();
        let calls = plan.effects.into_iter();
        operator.calls.extend(calls.map(|effect| Call { effect, read: None, result: None }));
        count
    }

    /// Whether an operator has a call about the claim on an address in flight.
    pub(in crate::services) fn is_in_flight(&self, operator: usize, addr: IpAddr) -> bool {
        self.operators[operator].runner.shared.ledger.is_in_flight(addr)
    }

    pub(in crate::services) fn calls(&self, operator: usize) -> usize {
        self.operators[operator].calls.len()
    }

    /// The call in flight that writes a Service's addresses or conditions.
    pub(in crate::services) fn publication(&self, operator: usize, of: &str) -> Option<usize> {
        let about = |effect: &Effect| {
            matches!(
                effect,
                Effect::Publish { key, .. } | Effect::Annotate { key, .. } if key.to_string() == of
            )
        };
        self.operators[operator].calls.iter().position(|call| about(&call.effect))
    }

    /// The events that an operator planned.
    pub(in crate::services) fn events(&self, operator: usize) -> &[Event] {
        &self.operators[operator].events
    }

    /// The server carries out the next step of a call: a release first reads, then deletes.
    pub(in crate::services) fn take_hold(&mut self, operator: usize, call: usize) {
        step(&mut self.cluster, &mut self.operators[operator].calls[call]);
    }

    /// An operator gets the answer to a call that was carried out.
    pub(in crate::services) fn answer(&mut self, operator: usize, call: usize) {
        let now = self.now();
        let operator = &mut self.operators[operator];
        if operator.calls[call].result.is_none() {
            return;
        }
        let call = operator.calls.remove(call);
        let result = call.result.unwrap();
        operator.runner.report(call.effect, result, now);
    }

    /// An operator plans, and every call is answered at once: by `server`, or by the cluster where `server`
    /// gives no answer.
    pub(in crate::services) fn play(
        &mut self,
        operator: usize,
        mut server: impl FnMut(&Effect) -> Option<Result<Answer, Failure>>,
    ) {
        for kind in KINDS {
            self.deliver(operator, kind, usize::MAX);
        }
        self.plan(operator);
        for _ in 0..self.calls(operator) {
            self.operators[operator].calls[0].result =
                server(&self.operators[operator].calls[0].effect);
            while self.operators[operator].calls[0].result.is_none() {
                self.take_hold(operator, 0);
            }
            self.answer(operator, 0);
        }
    }

    /// The answer is lost, or the call itself: the operator does not know which. The call may still be
    /// carried out much later.
    pub(in crate::services) fn lose(&mut self, operator: usize, call: usize) {
        let now = self.now();
        let operator = &mut self.operators[operator];
        let call = operator.calls.remove(call);
        let effect = call.effect.clone();
        if call.result.is_none() {
            self.strays.push(call);
        }
        operator.runner.report(effect, Err(Failure::Unknown("lost".into())), now);
    }

    /// A call of a dead or impatient operator is carried out after all.
    pub(in crate::services) fn stray(&mut self, pick: usize) {
        if self.strays.is_empty() {
            return;
        }
        let index = pick % self.strays.len();
        step(&mut self.cluster, &mut self.strays[index]);
        if self.strays[index].result.is_some() {
            self.strays.remove(index);
        }
    }

    /// An operator dies, and another is started in its place; calls it had sent may still be carried out.
    pub(in crate::services) fn crash(&mut self, operator: usize) {
        let dead = std::mem::take(&mut self.operators[operator]);
        self.strays.extend(dead.calls.into_iter().filter(|call| call.result.is_none()));
    }

    /// Everything goes well until nothing is left to do now; later deadlines are not waited for.
    pub(in crate::services) fn quiet(&mut self) {
        for _ in 0..ROUNDS {
            if !self.round() {
                return;
            }
        }
        self.never_rests();
    }

    /// Everything goes well until nothing is left to do, now or ever.
    pub(in crate::services) fn settle(&mut self) {
        self.strays.clear();
        for _ in 0..ROUNDS {
            let busy = self.round();
            // Repair runs again for ever.
            let soon = self.clock + Duration::from_mins(2);
            let due = |operator: &Operator| operator.runner.next_due().is_some_and(|at| at < soon);
            let due = self.operators.iter().any(due);
            if !busy && !due {
                return;
            }
            self.pass_time(Duration::from_secs(2));
        }
        self.never_rests();
    }

    fn never_rests(&self) -> ! {
        let memories: Vec<_> = self.operators.iter().map(Operator::memory).collect();
        panic!(
            "it never comes to rest: {memories:#?}\n{:?}\nlast writes {:?}",
            self.cluster.claims,
            self.cluster.writes.iter().rev().take(5).collect::<Vec<_>>()
        );
    }

    /// Everything that can happen now happens once; returns whether anything did.
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

    /// Services that want an address and have none, though an address of a pool is free.
    pub(in crate::services) fn starved(&self) -> Vec<ObjectKey> {
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

fn step(cluster: &mut ApiServer, call: &mut Call) {
    if let (Effect::Release { holder, .. }, None) = (&call.effect, &call.read) {
        call.read = Some(cluster.live(&holder.key).into_iter().collect());
        return;
    }
    if call.result.is_none() {
        call.result = Some(cluster.call(&call.effect, call.read.as_deref()));
    }
}
