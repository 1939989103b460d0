//! The planner of keepalived groups: which Services ask for which group, what is in flight, and what comes next.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use landfall_api::{GroupSettings, announce::Obstacle, keepalived_group::PasswordSource};
use landfall_vrrp::Plan;
use serde_json::{Map, Value, json};

use super::{
    adopt::{self, Hidden, is_of, taken},
    change::{Nodes, PATIENCE},
    children::{self, Child, Pods},
    decide::{Decision, Known, decide, nodes_of},
    effect::{Answer, Effect, Part, Step},
    file,
    leftovers::Leftovers,
    members::{Wishes, World, key_of},
    notices::Notices,
    password::Password,
    status::{self, Situation},
};
use crate::{
    backoff::Backoff,
    call::Failure,
    cluster::{
        Change, Cluster, Kind,
        keepalived::{ChildKind, ChildView, GroupView},
    },
    engine::{self, Lent, Now, Plan as Out, Report},
    ledger::{Change as LedgerChange, Claim, Ledger, Reader},
    object::ObjectKey,
};

/// How long a plan lasts at least: Services come in bursts, and each plan is a reload on every node.
const PLAN_INTERVAL: Duration = Duration::from_millis(200);
/// How long a group's status lasts at least, except for router ids.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// How often the Secret with a password is looked at. It is not watched, since that would show us the password.
const SECRET_INTERVAL: Duration = Duration::from_mins(1);
/// The same while there is none: its group waits for it.
const MISSING_SECRET_INTERVAL: Duration = Duration::from_secs(5);

/// What is in flight or due for one group.
#[derive(Debug, Default)]
struct Progress {
    in_flight: BTreeSet<Part>,
    setbacks: BTreeMap<Part, Setback>,
    /// Objects with the names of the group's that no watch shows.
    hidden: BTreeMap<Part, Hidden>,
    planned_at: Option<Duration>,
    status_at: Option<Duration>,
    /// The name of the password in the Secret, if there is one, and when the Secret was looked at.
    secret: Option<(Option<String>, Duration)>,
    /// The last plan that could be read. It has the forms of instances, which must not be forgotten.
    plan: Option<Plan>,
    /// When each step of a change was seen first, by the generation that began it.
    steps: BTreeMap<i64, Duration>,
    /// When there is something to decide even without news.
    due: Option<Duration>,
}

/// A call that failed.
#[derive(Debug)]
struct Setback {
    delay: Backoff,
    /// The API server's message if it refused.
    message: Option<String>,
}

/// Decides what each keepalived group should be.
#[derive(Debug)]
pub(super) struct Planner {
    reader: Reader,
    pods: Pods,
    wishes: Wishes,
    /// Services whose wishes may have changed.
    services: BTreeSet<ObjectKey>,
    /// Groups to decide about.
    dirty: BTreeSet<ObjectKey>,
    progress: BTreeMap<ObjectKey, Progress>,
    notices: Notices,
    leftovers: Leftovers,
}

impl Planner {
    pub(super) fn new(pods: Pods, ledger: &mut Ledger) -> Self {
        Self {
            reader: ledger.reader(),
            pods,
            wishes: Wishes::default(),
            services: BTreeSet::new(),
            dirty: BTreeSet::new(),
            progress: BTreeMap::new(),
            notices: Notices::default(),
            leftovers: Leftovers::default(),
        }
    }

    /// Every group may be concerned.
    fn wake_groups(&mut self, cluster: &Cluster) {
        self.dirty.extend(cluster.keepalived_groups.keys().cloned());
    }

    /// The wishes of every Service may have changed.
    fn wake_services(&mut self, cluster: &Cluster) {
        self.services.extend(cluster.services.keys().cloned());
    }

    fn decide_group(&mut self, world: World<'_>, key: &ObjectKey, now: Now, out: &mut Out<Effect>) {
        let view = world.cluster.keepalived_groups.get(key).filter(|view| !view.deleting);
        let Some(view) = view else {
            self.progress.remove(key);
            return;
        };
        let progress = self.progress.entry(key.clone()).or_default();
        progress.due = None;
        let mut round = Round { progress, world, view, now, out, taken: Vec::new() };
        round.remember_plan();
        let Ok(settings) = &view.settings else {
            return round.tell(&Password::NotUsed, None);
        };
        let password = round.password(settings.password.as_ref());
        match password {
            // The answer comes soon, and what the status says holds until then.
            Password::Unknown if !round.progress.setbacks.contains_key(&Part::Secret) => return,
            Password::Unknown | Password::Missing => return round.tell(&password, None),
            Password::NotUsed | Password::Named(_) => {}
        }
        let decision = round.decide(&self.wishes, settings, &password);
        round.carry_out(&decision, settings, &self.pods);
        round.tell(&password, Some(&decision));
        for service in self.wishes.services_of(key) {
            let obstacles = decision.obstacles.get(service).map_or(&[][..], Vec::as_slice);
            self.notices.tell(world, service, obstacles, out);
        }
    }

    /// Says to the Services that ask for a group why it does not announce them, if there is no such group or
    /// none can be read.
    fn tell_lost(&mut self, world: World<'_>, service: &ObjectKey, out: &mut Out<Effect>) {
        let Some(view) = world.cluster.services.get(service) else {
            self.notices.forget(service);
            return;
        };
        let asked = view.announceable.as_ref().and_then(|asked| asked.request.group.as_ref());
        let obstacle = match asked {
            Some(Err(problem)) => Some(Obstacle::Unparseable(problem.clone())),
            Some(Ok(group)) => {
                let is_there = world.cluster.keepalived_groups.get(&key_of(group)).is_some();
                (!is_there).then(|| Obstacle::GroupUnknown(group.clone()))
            }
            None => None,
        };
        match obstacle {
            Some(obstacle) => self.notices.tell(world, service, &[obstacle], out),
            None if self.wishes.groups_of(service).next().is_none() => self.notices.forget(service),
            None => {}
        }
    }
}

/// One decision about one group.
struct Round<'a, 'b> {
    progress: &'b mut Progress,
    world: World<'a>,
    view: &'a GroupView,
    now: Now,
    out: &'b mut Out<Effect>,
    /// Objects of others that have the names of the group's.
    taken: Vec<String>,
}

impl<'a> Round<'a, '_> {
    /// A text of the group's `ConfigMap`.
    fn text(&self, key: &str) -> Option<&'a str> {
        let map = self.world.cluster.child(ChildKind::ConfigMap, &self.view.key)?;
        map.object.get("data")?.get(key)?.as_str()
    }

    fn remember_plan(&mut self) {
        let read = self.text(children::PLAN).and_then(|text| serde_json::from_str(text).ok());
        let Some(plan) = read else { return };
        let changes = |plan: &Plan| -> Vec<i64> {
            let changing = plan.instances.iter().filter_map(|instance| instance.change.as_ref());
            changing.map(|change| change.since).collect()
        };
        let steps = changes(&plan);
        self.progress.steps.retain(|since, _| steps.contains(since));
        for since in steps {
            let began = *self.progress.steps.entry(since).or_insert(self.now.uptime);
            let ends = began.saturating_add(PATIENCE);
            if self.now.uptime < ends {
                self.due_at(ends);
            }
        }
        self.progress.plan = Some(plan);
    }

    /// The password in use. Its Secret is looked at now and then.
    fn password(&mut self, source: Option<&PasswordSource>) -> Password {
        let Some(source) = source else { return Password::NotUsed };
        let seen = self.progress.secret.clone();
        let again = |(name, at): &(Option<String>, Duration)| {
            let interval = if name.is_some() { SECRET_INTERVAL } else { MISSING_SECRET_INTERVAL };
            at.saturating_add(interval)
        };
        match seen.as_ref().map(again) {
            Some(again) if self.now.uptime < again => self.due_at(again),
            Some(_) | None => {
                let secret = ObjectKey::new(self.view.key.namespace(), &source.secret);
                self.send(Step::LookAtSecret { secret });
            }
        }
        match seen {
            None => Password::Unknown,
            Some((None, _)) => Password::Missing,
            Some((Some(name), _)) => Password::Named(name),
        }
    }

    fn decide(&self, wishes: &Wishes, settings: &GroupSettings, password: &Password) -> Decision {
        let nodes = &self.world.cluster.nodes;
        let is_ready = |name: &&String| nodes.get(name).is_some_and(|view| view.ready);
        let ready = nodes.keys().filter(is_ready).map(String::as_str).collect();
        let waited = |since: i64| {
            let seen = self.progress.steps.get(&since);
            seen.map_or(Duration::ZERO, |seen| self.now.uptime.saturating_sub(*seen))
        };
        let known = Known {
            view: self.view,
            settings,
            plan: self.progress.plan.as_ref(),
            file: self.text(children::FILE),
            password: password.name(),
            elsewhere: self.elsewhere(settings),
            nodes: Nodes { status: &self.view.status, ready: &ready, waited: &waited },
        };
        decide(self.world, wishes, &known)
    }

    /// The router ids of other groups that have a node in common with this one.
    fn elsewhere(&self, settings: &GroupSettings) -> BTreeSet<u8> {
        let names = |settings| -> BTreeSet<String> {
            nodes_of(self.world, settings).into_iter().map(|node| node.name).collect()
        };
        let own = names(settings);
        let others = self.world.cluster.keepalived_groups.values();
        let others = others.filter(|other| other.key != self.view.key);
        let near = others.filter(|other| {
            other.settings.as_ref().is_ok_and(|settings| !names(settings).is_disjoint(&own))
        });
        let ids = near.flat_map(|other| other.status.router_ids.values());
        ids.filter_map(|id| u8::try_from(*id).ok()).collect()
    }

    /// Writes what differs: router ids before the plan that uses them, and the plan before the pods that need it.
    fn carry_out(&mut self, decision: &Decision, settings: &GroupSettings, pods: &Pods) {
        let Some(plan) = &decision.plan else {
            self.write_ids(decision);
            return;
        };
        let before = self.progress.plan.clone();
        let next = plan.clone().succeeding(before.as_ref());
        let next = next.map(|next| match (&before, self.view.status.generation) {
            // Nodes may run a plan that was deleted, and take only later ones.
            (None, Some(generation)) => next.later_than(generation),
            (None, None) | (Some(_), _) => next,
        });
        let is_due = |at: &Duration| self.now.uptime < at.saturating_add(PLAN_INTERVAL);
        if let Some(at) = self.progress.planned_at.filter(is_due).filter(|_| next.is_some()) {
            self.due_at(at.saturating_add(PLAN_INTERVAL));
        } else if let Some(plan) = next.as_ref().or(before.as_ref()) {
            let by_others = self.view.status.nodes.len() < plan.nodes.len();
            let file = file::text(plan, self.text(children::FILE), by_others);
            if let Ok(text) = serde_json::to_string(plan) {
                self.align(children::plan(self.view, &text, &file));
            }
        }
        if self.text(children::PLAN).is_some() {
            let monitored = self.world.cluster.has_kind(ChildKind::PodMonitor);
            for child in children::around(self.view, settings, pods, monitored) {
                self.align(child);
            }
        }
    }

    fn write_ids(&mut self, decision: &Decision) {
        let mut ids = Map::new();
        // A merge patch removes an entry only if told so.
        for name in self.view.status.router_ids.keys() {
            ids.insert(name.clone(), Value::Null);
        }
        for (name, id) in &decision.ids {
            ids.insert(name.clone(), json!(id));
        }
        self.write_status(json!({ "routerIDs": ids }));
    }

    /// Creates an object of the group, or changes it if it is not as it should be.
    fn align(&mut self, child: Child) {
        let shown = self.world.cluster.child(child.kind, &child.key);
        let found = match (shown, self.progress.hidden.get(&Part::of(&child))) {
            (Some(found), _) => Ok(found),
            (None, Some(Hidden::Found(found))) => Ok(&**found),
            (None, Some(Hidden::Unseen)) => Err(Step::LookAt { child: child.clone() }),
            (None, None) => Err(Step::Create { child: child.clone() }),
        };
        let is_plan = child.kind == ChildKind::ConfigMap;
        let step = match found {
            Err(step) => step,
            Ok(found) if is_of(found, self.view) => {
                let Some(object) = children::difference(found, &child) else { return };
                let (uid, version) = (found.uid.clone(), found.version);
                Step::Align { child: Child { object, ..child }, uid, version }
            }
            Ok(_) => {
                self.taken.push(taken(&child));
                return;
            }
        };
        if self.send(step) && is_plan {
            self.progress.planned_at = Some(self.now.uptime);
        }
    }

    /// Brings the group's status in line with everything that is known.
    fn tell(&mut self, password: &Password, decision: Option<&Decision>) {
        let refused = self.progress.setbacks.values();
        let refused = refused.filter_map(|setback| setback.message.as_deref());
        let refused = refused.chain(self.taken.iter().map(String::as_str)).collect();
        let situation = Situation {
            view: self.view,
            plan: self.progress.plan.as_ref(),
            password,
            decision,
            refused,
        };
        let Some(status) = status::summary(&situation, self.now.wall) else { return };
        let until = self.progress.status_at.map(|at| at.saturating_add(STATUS_INTERVAL));
        match until.filter(|until| self.now.uptime < *until) {
            Some(until) => self.due_at(until),
            None => {
                if self.write_status(status) {
                    self.progress.status_at = Some(self.now.uptime);
                }
            }
        }
    }

    fn write_status(&mut self, status: Value) -> bool {
        let (uid, version) = (self.view.uid.clone(), self.view.version);
        self.send(Step::Status { uid, version, status })
    }

    /// Asks for a call, unless one about the same part is in flight or must wait; returns whether it did.
    fn send(&mut self, step: Step) -> bool {
        let part = step.part();
        let waits =
            self.progress.setbacks.get(&part).is_some_and(|setback| setback.delay.holds(self.now));
        if waits || !self.progress.in_flight.insert(part) {
            return false;
        }
        self.out.effects.push(Effect { group: self.view.key.clone(), step });
        true
    }

    fn due_at(&mut self, at: Duration) {
        let due = self.progress.due.unwrap_or(Duration::MAX);
        self.progress.due = Some(due.min(at));
    }
}

impl Progress {
    /// Takes in what has the name of one of the group's objects, if anything has.
    fn found(
        &mut self,
        group: Option<&GroupView>,
        child: &Child,
        found: Option<ChildView>,
        now: Now,
    ) {
        let part = Part::of(child);
        match found {
            None => drop(self.hidden.remove(&part)),
            Some(found) if group.is_some_and(|group| adopt::may_adopt(&found, group)) => {
                drop(self.hidden.insert(part, Hidden::Found(Box::new(found))));
            }
            Some(_) => {
                self.hidden.remove(&part);
                self.set_back(part, Duration::ZERO, Some(taken(child)), now);
            }
        }
    }

    /// Lets the next call about a part wait, longer with each failure.
    fn set_back(&mut self, part: Part, wait: Duration, message: Option<String>, now: Now) {
        let tries = self.setbacks.get(&part).map_or(0, |setback| setback.delay.tries);
        let delay = Backoff::after(tries, now).at_least(wait, now);
        self.setbacks.insert(part, Setback { delay, message });
    }
}

impl engine::Planner for Planner {
    const NAME: &'static str = "keepalived";
    const KINDS: &'static [Kind] = &[
        Kind::Claims,
        Kind::Services,
        Kind::IpGroups,
        Kind::Namespaces,
        Kind::Nodes,
        Kind::ApiServers,
        Kind::KeepalivedGroups,
        Kind::Children(ChildKind::ConfigMap),
        Kind::Children(ChildKind::DaemonSet),
        Kind::Children(ChildKind::ServiceAccount),
        Kind::Children(ChildKind::Role),
        Kind::Children(ChildKind::RoleBinding),
        Kind::Children(ChildKind::PodMonitor),
    ];
    type Effect = Effect;

    fn changed(&mut self, lent: Lent<'_>, change: &Change) {
        match change {
            Change::Service(key, _) => drop(self.services.insert(key.clone())),
            Change::Namespace(name, old) => {
                if old.as_ref() != lent.cluster.namespaces.get(name) {
                    self.wake_groups(lent.cluster);
                }
            }
            Change::Node(name, old) => {
                if old.as_deref() != lent.cluster.nodes.get(name) {
                    self.wake_groups(lent.cluster);
                }
            }
            Change::Pool(name, old) => {
                let announces = |pool: &crate::cluster::pool::PoolView| pool.announce.clone();
                let new = lent.cluster.pool(name).and_then(announces);
                if new != old.as_deref().and_then(announces) {
                    self.wake_services(lent.cluster);
                }
            }
            Change::KeepalivedGroup(key, old) => {
                self.dirty.insert(key.clone());
                if old.is_none() || lent.cluster.keepalived_groups.get(key).is_none() {
                    self.services.extend(self.wishes.services_of(key).cloned());
                }
                let new = lent.cluster.keepalived_groups.get(key);
                if new.is_none() {
                    self.leftovers.group_is_gone(key);
                }
                let ids = |view: &GroupView| view.status.router_ids.clone();
                if new.map(ids) != old.as_deref().map(ids) {
                    self.wake_groups(lent.cluster);
                }
            }
            Change::Child(_, key) => {
                self.dirty.extend(adopt::groups_of(key));
            }
            // A kind may be installed now.
            Change::ApiServer(..) | Change::Listed(Kind::Children(_)) => {
                self.wake_groups(lent.cluster);
            }
            Change::Listed(_)
            | Change::OtherService(_)
            | Change::ServiceUnsure(_)
            | Change::VirtualIp { .. }
            | Change::Mapping(_)
            | Change::PoolsSettled => {}
        }
    }

    fn catch_up(&mut self, lent: Lent<'_>, _: &mut Out<Effect>) {
        for change in lent.ledger.take_changes(self.reader) {
            if let LedgerChange::Claim(addr, before) = &*change {
                let after = lent.ledger.claim(*addr);
                let holders = before.iter().chain(after).flat_map(Claim::services);
                self.services.extend(holders.map(|entry| entry.key.clone()));
            }
        }
    }

    fn reported(&mut self, lent: Lent<'_>, report: Report<Effect>, out: &mut Out<Effect>) {
        let Lent { cluster, now, .. } = lent;
        let Some(report) = self.leftovers.reported(cluster, now, report, out) else { return };
        let Report { effect: Effect { group, step }, result } = report;
        let part = step.part();
        self.dirty.insert(group.clone());
        let Some(progress) = self.progress.get_mut(&group) else { return };
        progress.in_flight.remove(&part);
        match (step, result) {
            (Step::LookAt { child }, Ok(Answer::Found(found))) => {
                let group = cluster.keepalived_groups.get(&group);
                progress.found(group, &child, found.map(|found| *found), now);
            }
            (_, Ok(answer)) => {
                progress.setbacks.remove(&part);
                progress.hidden.remove(&part);
                if let Answer::Secret(name) = answer {
                    progress.secret = Some((name, now.uptime));
                }
            }
            (_, Err(Failure::NotSent)) => {}
            (Step::Create { .. }, Err(Failure::Exists)) => {
                progress.hidden.insert(part, Hidden::Unseen);
            }
            (_, Err(failure)) => {
                progress.hidden.remove(&part);
                let wait = failure.asked_to_wait();
                let message = match failure {
                    Failure::Refused(message) | Failure::Blocked(message) => Some(message),
                    Failure::Exists
                    | Failure::Conflict
                    | Failure::NotFound
                    | Failure::Throttled(_)
                    | Failure::Unknown(_)
                    | Failure::NotSent => None,
                };
                progress.set_back(part, wait, message, now);
            }
        }
    }

    fn reconsider_all(&mut self, lent: Lent<'_>) {
        self.wake_services(lent.cluster);
        self.wake_groups(lent.cluster);
        self.leftovers.look_everywhere();
    }

    fn plan(&mut self, lent: Lent<'_>, out: &mut Out<Effect>) {
        let Lent { cluster, ledger, now } = lent;
        let world = World { cluster, ledger };
        for service in std::mem::take(&mut self.services) {
            self.dirty.extend(self.wishes.update(world, &service));
            self.tell_lost(world, &service, out);
            self.notices.tell_lines(world, &service, out);
        }
        for (key, progress) in &mut self.progress {
            let is_due = |at: Duration| at <= now.uptime;
            let mut ended = false;
            for setback in progress.setbacks.values_mut() {
                ended |= setback.delay.end(now);
            }
            if ended || progress.due.is_some_and(is_due) {
                self.dirty.insert(key.clone());
            }
        }
        while let Some(key) = self.dirty.pop_first() {
            self.decide_group(world, &key, now, out);
        }
        self.leftovers.plan(cluster, now, out);
    }

    fn next_due(&self, _: &Cluster, _: &Ledger) -> Option<Duration> {
        let setbacks = self.progress.values().flat_map(|progress| progress.setbacks.values());
        let delays = setbacks.filter_map(|setback| setback.delay.until);
        let due = self.progress.values().filter_map(|progress| progress.due);
        delays.chain(due).chain(self.leftovers.next_due()).min()
    }
}

#[cfg(test)]
mod tests;
