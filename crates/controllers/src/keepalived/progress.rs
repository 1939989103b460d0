//! What is remembered about one group from one decision to the next.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use landfall_vrrp::{Instance, Plan};

use super::{
    adopt::{self, Hidden, taken},
    children::{self, Child},
    effect::Part,
    lag::Lags,
};
use crate::{
    backoff::Backoff,
    call::Failure,
    cluster::keepalived::{ChildView, GroupView},
    engine::Now,
    event::Event,
    object::Version,
};

/// After so long without an answer a write no longer happens: API servers end requests after a minute.
const UNANSWERED: Duration = Duration::from_secs(90);

/// What is in flight or due for one group.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) in_flight: BTreeSet<Part>,
    pub(super) setbacks: BTreeMap<Part, Setback>,
    /// Objects with the names of the group's that no watch shows.
    pub(super) hidden: BTreeMap<Part, Hidden>,
    pub(super) planned_at: Option<Duration>,
    pub(super) status_at: Option<Duration>,
    /// The name of the password in the Secret, if there is one, and when the Secret was looked at.
    pub(super) secret: Option<(Option<String>, Duration)>,
    /// The last plan that could be read. It has the forms of instances, which must not be forgotten.
    pub(super) plan: Option<Plan>,
    /// The version of the `ConfigMap` that was read last.
    read: Option<Version>,
    /// The plan that is being written for that version.
    pub(super) sent: Option<Plan>,
    /// Plans that were sent for that version before, without an answer, and until when they may be written.
    unanswered: Vec<(Plan, Duration)>,
    /// When each step of a change was seen first, by the generation that began it.
    pub(super) steps: BTreeMap<i64, Duration>,
    /// The router ids that it was last given, which its status may not have yet.
    pub(super) router_ids: BTreeSet<u8>,
    /// Whether addresses or instances wait until others have let addresses or router ids go.
    pub(super) waits: bool,
    /// Addresses that have left its instances, and that some node may still hold.
    pub(super) leaving: BTreeSet<IpAddr>,
    /// The addresses that it is to announce, or that its nodes hold while it cannot be decided about.
    pub(super) announced: BTreeSet<IpAddr>,
    /// Addresses of which it was told which node carries them.
    pub(super) placed: BTreeSet<IpAddr>,
    /// The version at which the status could not be written, because there was a later one.
    pub(super) outdated: Option<Version>,
    /// What is to be said once the status that is being written has been written.
    pub(super) events: Vec<Event>,
    pub(super) lags: Lags,
    /// When there is something to decide even without news.
    pub(super) due: Option<Duration>,
}

/// A call that failed.
#[derive(Debug)]
pub(super) struct Setback {
    pub(super) delay: Backoff,
    /// The API server's message if it refused.
    pub(super) message: Option<String>,
}

impl Progress {
    /// Whether its Secret, if it needs one, was found to have no password.
    pub(super) const fn lacks_password(&self) -> bool {
        matches!(self.secret, Some((None, _)))
    }

    /// Takes in the group's `ConfigMap`; returns whether addresses that other groups wait for may be free.
    pub(super) fn read_plan(&mut self, map: Option<&ChildView>) -> bool {
        let Some(map) = map.filter(|map| self.read != Some(map.version)) else { return false };
        self.read = Some(map.version);
        // Whatever was sent for an earlier version is written by now, or never will be.
        let was_sent = self.sent.is_some() || !self.unanswered.is_empty();
        self.sent = None;
        self.unanswered.clear();
        let text = map.object.get("data").and_then(|data| data.get(children::PLAN)?.as_str());
        let plan: Option<Plan> = text.and_then(|text| serde_json::from_str(text).ok());
        let is_new = plan.is_some() && self.plan != plan;
        if let Some(plan) = plan {
            // Until the reports of nodes are looked at, they may hold all of them.
            self.leaving.extend(plan.leaving.keys());
            self.plan = Some(plan);
        }
        is_new || was_sent
    }

    /// A plan could not be written, or there was no answer.
    pub(super) fn plan_failed(&mut self, failure: &Failure, now: Now) {
        let sent = self.sent.take();
        if let (Failure::Unknown(_), Some(plan)) = (failure, sent) {
            self.unanswered.retain(|(other, _)| *other != plan);
            self.unanswered.push((plan, now.uptime.saturating_add(UNANSWERED)));
        }
    }

    /// Forgets plans that can no longer be written; returns whether there were any, and when to look again.
    pub(super) fn forget_unanswered(&mut self, now: Now) -> (bool, Option<Duration>) {
        let before = self.unanswered.len();
        self.unanswered.retain(|(_, until)| *until > now.uptime);
        let next = self.unanswered.iter().map(|(_, until)| *until).min();
        (self.unanswered.len() < before, next)
    }

    /// The plans that nodes may carry out now or in a moment.
    pub(super) fn plans(&self) -> impl Iterator<Item = &Plan> {
        let unanswered = self.unanswered.iter().map(|(plan, _)| plan);
        self.plan.iter().chain(&self.sent).chain(unanswered)
    }

    /// Addresses that nodes of the group may hold.
    pub(super) fn may_hold(&self) -> impl Iterator<Item = IpAddr> {
        let instances = self.plans().flat_map(|plan| &plan.instances);
        instances.flat_map(Instance::may_be_held).chain(self.leaving.iter().copied())
    }

    /// Takes in what has the name of one of the group's objects, if anything has.
    pub(super) fn found(
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
    pub(super) fn set_back(
        &mut self,
        part: Part,
        wait: Duration,
        message: Option<String>,
        now: Now,
    ) {
        let tries = self.setbacks.get(&part).map_or(0, |setback| setback.delay.tries);
        let delay = Backoff::after(tries, now).at_least(wait, now);
        self.setbacks.insert(part, Setback { delay, message });
    }
}
