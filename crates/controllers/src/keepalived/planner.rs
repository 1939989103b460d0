//! The planner of keepalived groups: which Services ask for which group, what is in flight, and what comes next.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use landfall_api::announce::Obstacle;

use super::{
    adopt,
    change::PATIENCE,
    children::Pods,
    effect::{Answer, Effect, Part, Step},
    found::{self, found},
    leftovers::Leftovers,
    members::{Wishes, World},
    neighbours::Neighbours,
    notices::Notices,
    password::Password,
    progress::Progress,
    round::{Others, Round},
    telling::Telling,
};
use crate::{
    call::Failure,
    cluster::{
        Change, Cluster, Kind,
        keepalived::{ChildKind, GroupView},
    },
    engine::{self, Lent, Now, Plan as Out, Report},
    ledger::{Change as LedgerChange, Claim, Ledger, Reader},
    object::ObjectKey,
};

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
    /// Addresses of groups that are gone, and until when their nodes may hold them.
    departed: BTreeMap<IpAddr, Duration>,
    /// Which node carries which address, to be told to the ledger.
    places: Vec<(IpAddr, Option<String>)>,
    /// Whether claims may name a node for addresses that no group announces any longer.
    places_are_unsure: bool,
    telling: Telling,
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
            departed: BTreeMap::new(),
            places: Vec::new(),
            places_are_unsure: true,
            telling: Telling::default(),
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

    /// Addresses that nodes of all groups, but for one whose progress is set aside, may hold.
    fn held_by_others(&self, now: Now) -> BTreeSet<IpAddr> {
        let held = self.progress.values().flat_map(Progress::may_hold);
        let departed = self.departed.iter().filter(|(_, until)| **until > now.uptime);
        held.chain(departed.map(|(address, _)| *address)).collect()
    }

    /// Groups whose Secret has no password.
    fn without_password(&self) -> BTreeSet<ObjectKey> {
        let without = self.progress.iter().filter(|(_, progress)| progress.lacks_password());
        without.map(|(key, _)| key.clone()).collect()
    }

    fn decide_group(&mut self, world: World<'_>, key: &ObjectKey, now: Now, out: &mut Out<Effect>) {
        let view = world.cluster.keepalived_groups.get(key).filter(|view| !view.deleting);
        let Some(view) = view else {
            self.group_left(key, now);
            return;
        };
        let mut progress = self.progress.remove(key).unwrap_or_default();
        let others = Others {
            hold: self.held_by_others(now),
            without_password: self.without_password(),
            neighbours: Neighbours::of(world, view, &progress, &self.progress),
        };
        progress.due = None;
        let mut round = Round {
            progress: &mut progress,
            world,
            view,
            now,
            out,
            taken: Vec::new(),
            places: Vec::new(),
            lets_go: false,
        };
        round.time_steps();
        let mut decision = None;
        let mut password = Password::NotUsed;
        if let Ok(settings) = &view.settings {
            password = round.password(settings);
            if !matches!(password, Password::Unknown | Password::Missing) {
                let decided = round.decide(&self.wishes, settings, &password, others);
                round.carry_out(&decided, settings, &self.pods);
                decision = Some(decided);
            }
        }
        // The answer comes soon, and what the status says holds until then.
        let is_asked = !round.progress.setbacks.contains_key(&Part::Secret);
        if password != Password::Unknown || !is_asked {
            round.tell(&password, decision.as_ref());
        }
        round.progress.announced = match &decision {
            Some(decision) => {
                decision.announced.iter().flat_map(|one| &one.addresses).copied().collect()
            }
            None => round.progress.may_hold().collect(),
        };
        let lets_go = std::mem::take(&mut round.lets_go);
        self.places.append(&mut round.places);
        let departed = self.departed.values().filter(|until| **until > now.uptime).min().copied();
        if let Some(until) = departed.filter(|_| progress.waits) {
            progress.due = Some(progress.due.map_or(until, |due| due.min(until)));
        }
        let found = if password == Password::Unknown {
            found::unknown(world, &self.wishes, key)
        } else {
            let plan = progress.plan.as_ref();
            found(world, &self.wishes, &found::Known { view, plan, decision: decision.as_ref() })
        };
        self.progress.insert(key.clone(), progress);
        self.telling.heard(key, found);
        if lets_go {
            self.wake_waiting();
        }
    }

    /// A group is gone. Its pods need a while to end, and hold its addresses until then.
    fn group_left(&mut self, key: &ObjectKey, now: Now) {
        self.telling.heard(key, BTreeMap::new());
        self.departed.retain(|_, until| *until > now.uptime);
        let Some(progress) = self.progress.remove(key) else { return };
        let until = now.uptime.saturating_add(PATIENCE);
        self.departed.extend(progress.may_hold().map(|address| (address, until)));
        self.places.extend(progress.placed.into_iter().map(|address| (address, None)));
        self.wake_waiting();
    }

    /// Reads the plans of all groups that are about to be decided. After a start or a change of the leader, only the
    /// plan of a group shows that its nodes hold an address that another group is to have.
    fn read_plans(&mut self, cluster: &Cluster) {
        let mut lets_go = false;
        for key in self.dirty.iter().filter(|key| cluster.keepalived_groups.get(key).is_some()) {
            let map = cluster.child(ChildKind::ConfigMap, key);
            lets_go |= self.progress.entry(key.clone()).or_default().read_plan(map);
        }
        if lets_go {
            self.wake_waiting();
        }
    }

    /// No node carries the addresses that no group announces. A group or a Service may have gone while no operator ran.
    fn clear_places(&mut self, ledger: &Ledger) {
        let announced = self.progress.values().flat_map(|progress| &progress.announced);
        let announced: BTreeSet<_> = announced.collect();
        let placed = ledger.claims().filter(|claim| {
            let is_left = claim.is_of_services() && !announced.contains(&claim.addr);
            claim.node.is_some() && is_left
        });
        self.places.extend(placed.map(|claim| (claim.addr, None)));
    }

    /// Groups whose addresses wait for other groups are decided about again.
    fn wake_waiting(&mut self) {
        let waiting = self.progress.iter().filter(|(_, progress)| progress.waits);
        self.dirty.extend(waiting.map(|(key, _)| key.clone()));
    }

    /// Takes in whether there is no group that could announce a Service.
    fn note_lost(&mut self, world: World<'_>, service: &ObjectKey) {
        let view = world.cluster.services.get(service);
        let asked = view.and_then(|view| view.announceable.as_ref());
        let unreadable = match asked.and_then(|asked| asked.request.group.as_ref()) {
            Some(Err(problem)) => Some(Obstacle::Unparseable(problem.clone())),
            Some(Ok(_)) | None => None,
        };
        let unknown = || {
            let mut groups = self.wishes.groups_of(service);
            let gone = groups.find(|group| world.cluster.keepalived_groups.get(group).is_none())?;
            gone.to_string().parse().ok().map(Obstacle::GroupUnknown)
        };
        let lost = unreadable.or_else(unknown).filter(|_| view.is_some());
        self.telling.lost(service, lost);
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
        Kind::Endpoints,
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
                let is_same = |new: &GroupView, old: &GroupView| {
                    new.status.router_ids == old.status.router_ids
                        && new.settings == old.settings
                        && new.deleting == old.deleting
                };
                // Its router ids and its nodes concern other groups.
                if !new.zip(old.as_deref()).is_some_and(|(new, old)| is_same(new, old)) {
                    self.wake_groups(lent.cluster);
                }
                self.wake_waiting();
            }
            Change::Child(_, key) => {
                self.dirty.extend(adopt::groups_of(key));
                self.wake_waiting();
            }
            Change::Endpoints(service) => {
                let view = lent.cluster.services.get(service);
                if view.is_some_and(|view| view.local_traffic) {
                    self.dirty.extend(self.wishes.groups_of(service).cloned());
                }
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
            match &*change {
                LedgerChange::Claim(addr, before) => {
                    let after = lent.ledger.claim(*addr);
                    let holders = before.iter().chain(after).flat_map(Claim::services);
                    self.services.extend(holders.map(|entry| entry.key.clone()));
                    self.dirty.extend(self.wishes.groups_at(*addr).cloned());
                }
                // Rights of namespaces, quotas and ranges of pools among them.
                LedgerChange::Outside(addr) => {
                    self.dirty.extend(self.wishes.groups_at(*addr).cloned());
                }
                LedgerChange::Given(..)
                | LedgerChange::Returned(..)
                | LedgerChange::Ended(_)
                | LedgerChange::Settled(_)
                | LedgerChange::Freed(_)
                | LedgerChange::ReleaseDue(_)
                | LedgerChange::Read(..)
                | LedgerChange::Shown(_)
                | LedgerChange::ExternalIgnored(..)
                | LedgerChange::ExternalRelieved
                | LedgerChange::Blocked
                | LedgerChange::Unblocked => {}
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
        let failed = result.as_ref().err().filter(|_| step.writes_plan());
        let lets_go = failed.is_some();
        if let Some(failure) = failed {
            progress.plan_failed(failure, now);
        }
        match (step, result) {
            (Step::LookAt { child }, Ok(Answer::Found(found))) => {
                let group = cluster.keepalived_groups.get(&group);
                progress.found(group, &child, found.map(|found| *found), now);
            }
            // It waits for the later version, however many there are before it is written.
            (Step::Status { version, .. }, Err(Failure::Conflict)) => {
                progress.events.clear();
                progress.outdated = Some(version);
                progress.status_at = None;
            }
            (step, Ok(answer)) => {
                if let Step::Status { .. } = step {
                    out.events.append(&mut progress.events);
                }
                progress.setbacks.remove(&part);
                progress.hidden.remove(&part);
                if let Answer::Secret(name) = answer {
                    let lacked = progress.lacks_password();
                    progress.secret = Some((name, now.uptime));
                    if lacked != progress.lacks_password() {
                        self.wake_groups(cluster);
                    }
                }
            }
            (_, Err(Failure::NotSent)) => {}
            (Step::Create { .. }, Err(Failure::Exists)) => {
                progress.hidden.insert(part, adopt::Hidden::Unseen);
            }
            (step, Err(failure)) => {
                if let Step::Status { .. } = step {
                    progress.events.clear();
                }
                progress.hidden.remove(&part);
                let message = failure.refusal().map(str::to_owned);
                progress.set_back(part, failure.asked_to_wait(), message, now);
            }
        }
        if lets_go {
            self.wake_waiting();
        }
    }

    fn reconsider_all(&mut self, lent: Lent<'_>) {
        // Another operator may have led meanwhile.
        lent.announcements.forget_all();
        self.telling.say_again();
        self.leftovers.look_everywhere();
        self.places_are_unsure = true;
        self.wake_services(lent.cluster);
        self.wake_groups(lent.cluster);
    }

    fn plan(&mut self, lent: Lent<'_>, out: &mut Out<Effect>) {
        let Lent { cluster, ledger, announcements, now } = lent;
        let world = World { cluster, ledger };
        for service in std::mem::take(&mut self.services) {
            self.dirty.extend(self.wishes.update(world, &service));
            self.note_lost(world, &service);
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
        self.read_plans(cluster);
        while let Some(key) = self.dirty.pop_first() {
            self.decide_group(world, &key, now, out);
        }
        if std::mem::take(&mut self.places_are_unsure) {
            self.clear_places(ledger);
        }
        self.leftovers.plan(cluster, now, out);
        self.telling.tell(world, announcements, now, out);
        for (address, node) in self.places.drain(..) {
            ledger.place(address, node.as_deref());
        }
    }

    fn next_due(&self, _: &Cluster, _: &Ledger) -> Option<Duration> {
        let setbacks = self.progress.values().flat_map(|progress| progress.setbacks.values());
        let delays = setbacks.filter_map(|setback| setback.delay.until);
        let due = self.progress.values().filter_map(|progress| progress.due);
        let later = [self.telling.next_due(), self.leftovers.next_due()].into_iter().flatten();
        delays.chain(due).chain(later).min()
    }
}

#[cfg(test)]
mod tests;
