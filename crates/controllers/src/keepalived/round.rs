//! One decision about one group, and the calls that bring the group in line with it.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use landfall_api::{GroupSettings, KeepalivedGroup, keepalived_group::AnnouncedAddress};
use landfall_vrrp::{Node, Plan};
use serde_json::{Map, Value, json};

use super::{
    adopt::{Hidden, is_of, taken},
    change::{Nodes, PATIENCE},
    children::{self, Child, Pods},
    decide::{Decision, Known, decide},
    effect::{Effect, Part, Step},
    file,
    members::{Wishes, World},
    moves::moves,
    neighbours::Neighbours,
    password::{self, Password},
    progress::Progress,
    status::{self, Situation, Summary},
};
use crate::{
    cluster::keepalived::{ChildKind, GroupView},
    engine::{Now, Plan as Out},
    event::{self, Event},
    object::ObjectKey,
};

/// How long a plan lasts at least: Services come in bursts, and an agent reloads at most twice a second.
pub(super) const PLAN_INTERVAL: Duration = Duration::from_millis(500);
/// How long a group's status lasts at least, except for router ids.
pub(super) const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// How many bytes a plan and the file beside it may have: the API server stores no `ConfigMap` of more than a MiB.
pub(super) const MOST_BYTES: usize = 900 * 1024;
/// The reason of an event about addresses that other nodes hold now.
const MOVED: &str = "Moved";
/// How often the Secret with a password is looked at. It is not watched, since that would show us the password.
pub(super) const SECRET_INTERVAL: Duration = Duration::from_mins(1);
/// The same while there is none: its group waits for it.
pub(super) const MISSING_SECRET_INTERVAL: Duration = Duration::from_secs(5);

/// What is remembered of other groups.
pub(super) struct Others {
    /// Addresses that their nodes may still hold.
    pub(super) hold: BTreeSet<IpAddr>,
    /// Those whose Secret has no password.
    pub(super) without_password: BTreeSet<ObjectKey>,
    pub(super) neighbours: Neighbours,
}

/// One decision about one group.
pub(super) struct Round<'a, 'b> {
    pub(super) progress: &'b mut Progress,
    pub(super) world: World<'a>,
    pub(super) view: &'a GroupView,
    pub(super) now: Now,
    pub(super) out: &'b mut Out<Effect>,
    /// Objects of others that have the names of the group's.
    pub(super) taken: Vec<String>,
    /// Which node carries which address, as far as that is to be told.
    pub(super) places: Vec<(IpAddr, Option<String>)>,
    /// Whether addresses that other groups may wait for are no longer held.
    pub(super) lets_go: bool,
}

impl<'a> Round<'a, '_> {
    /// A text of the group's `ConfigMap`.
    fn text(&self, key: &str) -> Option<&'a str> {
        let map = self.world.cluster.child(ChildKind::ConfigMap, &self.view.key)?;
        map.object.get("data")?.get(key)?.as_str()
    }

    /// Notes since when the steps of the present plan last.
    pub(super) fn time_steps(&mut self) {
        let (forgotten, next) = self.progress.forget_unanswered(self.now);
        self.lets_go |= forgotten;
        if let Some(at) = next {
            self.due_at(at);
        }
        let Some(plan) = &self.progress.plan else { return };
        let changing = plan.instances.iter().filter_map(|instance| instance.change.as_ref());
        let leaving = plan.leaving.values().map(|one| one.since);
        let joining = plan.joining.values().copied();
        let departing = plan.departing.values().map(|one| one.since);
        let nodes = joining.chain(departing);
        let steps: Vec<_> =
            changing.map(|change| change.since).chain(leaving).chain(nodes).collect();
        self.progress.steps.retain(|since, _| steps.contains(since));
        for since in steps {
            let began = *self.progress.steps.entry(since).or_insert(self.now.uptime);
            let ends = began.saturating_add(PATIENCE);
            if self.now.uptime < ends {
                self.due_at(ends);
            }
        }
    }

    /// The password in use. Its Secret is looked at now and then.
    pub(super) fn password(&mut self, settings: &GroupSettings) -> Password {
        let plan = self.progress.plan.as_ref();
        let source = password::source(settings, plan, self.text(children::FILE));
        let Some(source) = source else {
            self.progress.secret = None;
            return Password::NotUsed;
        };
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

    pub(super) fn decide(
        &mut self,
        wishes: &Wishes,
        settings: &GroupSettings,
        password: &Password,
        others: Others,
    ) -> Decision {
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
            neighbours: others.neighbours,
            others_hold: others.hold,
            without_password: others.without_password,
            full: false,
            nodes: Nodes { status: &self.view.status, ready: &ready, waited: &waited },
        };
        let mut decision = decide(self.world, wishes, &known);
        if !self.fits(&decision, settings) {
            decision = decide(self.world, wishes, &Known { full: true, ..known });
        }
        self.progress.router_ids = decision.ids.values().copied().collect();
        self.progress.waits = decision.waits || !decision.without_id.is_empty();
        self.lets_go |= !self.progress.leaving.is_subset(&decision.lingering);
        self.progress.leaving.clone_from(&decision.lingering);
        decision
    }

    /// Whether the plan of a decision can be written, with room to spare for changes that must not wait. The first plan
    /// always counts as one that can: it has the addresses that the nodes hold already.
    fn fits(&self, decision: &Decision, settings: &GroupSettings) -> bool {
        let Some(before) = &self.progress.plan else { return true };
        let next = decision.plan.clone().and_then(|plan| plan.succeeding(Some(before)));
        next.is_none_or(|plan| {
            let text = serde_json::to_string(&plan).unwrap_or_default();
            text.len().saturating_add(self.file(&plan, settings).len()) <= MOST_BYTES
        })
    }

    /// The file for all nodes.
    fn file(&self, plan: &Plan, settings: &GroupSettings) -> String {
        let reports = &self.view.status.nodes;
        let has_agent = |node: &Node| reports.iter().any(|report| report.node == node.name);
        let by_others = !plan.nodes.iter().all(has_agent);
        file::text(plan, settings, self.text(children::FILE), by_others)
    }

    /// Writes what differs: router ids before the plan that uses them, and the plan before the pods that need it.
    pub(super) fn carry_out(&mut self, decision: &Decision, settings: &GroupSettings, pods: &Pods) {
        let Some(plan) = &decision.plan else {
            self.write_ids(decision);
            return;
        };
        let before = self.progress.plan.clone();
        let next = plan.clone().succeeding(before.as_ref());
        let next = next.map(|next| match (&before, self.view.status.generation) {
            // Nodes may run a plan that was deleted. What they report of it must not count as news of this one.
            (None, Some(generation)) => next.later_than(generation),
            (None, None) | (Some(_), _) => next,
        });
        let is_due = |at: &Duration| self.now.uptime < at.saturating_add(PLAN_INTERVAL);
        if let Some(at) = self.progress.planned_at.filter(is_due).filter(|_| next.is_some()) {
            self.due_at(at.saturating_add(PLAN_INTERVAL));
        } else if let Some(plan) = next.as_ref().or(before.as_ref()) {
            let file = self.file(plan, settings);
            if let Ok(text) = serde_json::to_string(plan)
                && self.align(children::plan(self.view, &text, &file))
            {
                self.progress.sent = Some(plan.clone());
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

    /// Creates an object of the group, or changes it if it is not as it should be; returns whether it asked for
    /// that.
    fn align(&mut self, child: Child) -> bool {
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
                let Some(object) = children::difference(found, &child) else { return false };
                let (uid, version) = (found.uid.clone(), found.version);
                Step::Align { child: Child { object, ..child }, uid, version }
            }
            Ok(_) => {
                self.taken.push(taken(&child));
                return false;
            }
        };
        let writes = !matches!(step, Step::LookAt { .. });
        let is_sent = self.send(step);
        if is_sent && is_plan {
            self.progress.planned_at = Some(self.now.uptime);
        }
        is_sent && writes
    }

    /// Brings the group's status in line with everything that is known.
    pub(super) fn tell(&mut self, password: &Password, decision: Option<&Decision>) {
        let cluster = self.world.cluster;
        let exists = |node: &str| cluster.nodes.get(&node.to_owned()).is_some();
        let is_ready =
            |node: &str| cluster.nodes.get(&node.to_owned()).is_some_and(|view| view.ready);
        let Progress { lags, plan, .. } = &mut *self.progress;
        lags.follow(plan.as_ref(), &self.view.status, is_ready, self.now);
        let next_late = lags.next_late(self.now);
        let refused = self.progress.setbacks.values();
        let refused = refused.filter_map(|setback| setback.message.as_deref());
        let refused = refused.chain(self.taken.iter().map(String::as_str)).collect();
        let situation = Situation {
            view: self.view,
            plan: self.progress.plan.as_ref(),
            password,
            decision,
            is_ready: &is_ready,
            exists: &exists,
            late: self.progress.lags.late(self.now),
            refused,
        };
        let Summary { patch, addresses } = status::summary(&situation, self.now.wall);
        if let Some(at) = next_late {
            self.due_at(at);
        }
        let Some(status) = patch else {
            self.place(&addresses);
            return;
        };
        let until = self.progress.status_at.map(|at| at.saturating_add(STATUS_INTERVAL));
        match until.filter(|until| self.now.uptime < *until) {
            Some(until) => self.due_at(until),
            None => {
                if self.write_status(status) {
                    self.progress.status_at = Some(self.now.uptime);
                    self.progress.events = self.moves(&addresses);
                    self.place(&addresses);
                }
            }
        }
    }

    /// What there is to say about addresses that other nodes hold now.
    fn moves(&self, addresses: &[AnnouncedAddress]) -> Vec<Event> {
        let (key, uid) = (&self.view.key, &self.view.uid);
        let about = event::about::<KeepalivedGroup>(Some(key.namespace()), key.name(), uid);
        let event = |message| Event {
            about: about.clone(),
            action: "Announce",
            reason: MOVED.to_owned(),
            message,
            warning: false,
        };
        moves(&self.view.status.addresses, addresses).into_iter().map(event).collect()
    }

    /// Notes which node carries which address, for the ledger.
    fn place(&mut self, addresses: &[AnnouncedAddress]) {
        let all = addresses.iter();
        let now = all.filter_map(|entry| Some((entry.address.parse().ok()?, entry.node.clone())));
        self.places = now.collect();
        let carried: BTreeSet<IpAddr> = self.places.iter().map(|(address, _)| *address).collect();
        let left = self.progress.placed.difference(&carried);
        self.places.extend(left.map(|address| (*address, None)));
        self.progress.placed = carried;
    }

    fn write_status(&mut self, status: Value) -> bool {
        // The later version is on its way.
        if self.progress.outdated == Some(self.view.version) {
            return false;
        }
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
