//! Plans the status writes of pools, and events about odd or wrong pool definitions.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use landfall_ipam::{PoolName, Reason};

use super::{Effect, PoolView, Round, status};
use crate::{backoff::Backoff, call::Failure, cluster::Cluster, engine::Now, event::Event};

/// Pool status is for people and dashboards: once a second is often enough.
const INTERVAL: Duration = Duration::from_secs(1);

/// The reason of an event about a part of a pool's definition that is probably a mistake, though the
/// pool is usable.
const WARNED: &str = "PoolWarning";

/// The progress of a pool's status writes.
#[derive(Debug, Default)]
struct PoolStatus {
    /// The uptime before which it is not written again.
    next: Duration,
    in_flight: bool,
    /// Writes that failed in a row.
    failed: u32,
    /// Events already sent about the pool's definition, so that each is sent once.
    told: BTreeSet<String>,
}

/// The progress of the status writes of all pools.
#[derive(Debug, Default)]
pub(super) struct PoolStatuses {
    of: BTreeMap<PoolName, PoolStatus>,
    /// Whether a status may be out of date.
    pub(super) dirty: bool,
    /// When a status that was due too soon after the last write may be written.
    at: Option<Duration>,
}

impl PoolStatuses {
    /// A pool came, changed or is gone.
    pub(super) fn pool_changed(&mut self, name: &PoolName, cluster: &Cluster) {
        if cluster.pool(name).is_some() {
            self.of.entry(name.clone()).or_default();
            self.dirty = true;
        } else {
            self.of.remove(name);
        }
    }

    /// A status write has ended.
    pub(super) fn written(&mut self, name: &PoolName, failure: Option<&Failure>, now: Now) {
        self.dirty = true;
        let Some(status) = self.of.get_mut(name) else { return };
        status.in_flight = false;
        match failure {
            None => status.failed = 0,
            Some(Failure::NotSent) => {}
            Some(failure) => {
                let delay =
                    Backoff::after(status.failed, now).at_least(failure.asked_to_wait(), now);
                status.failed = delay.tries;
                status.next = delay.until.unwrap_or_default().max(status.next);
            }
        }
    }

    pub(super) const fn next_due(&self) -> Option<Duration> {
        self.at
    }
}

impl Round<'_> {
    pub(super) fn plan_pool_status(&mut self) {
        let due = self.own.statuses.at.is_some_and(|at| at <= self.now.uptime);
        let others_wait = self.own.waiting.take_changed();
        if !std::mem::take(&mut self.own.statuses.dirty) && !others_wait && !due {
            return;
        }
        self.own.statuses.at = None;
        for name in self.cluster.pool_names() {
            let Some(PoolStatus { next, in_flight, .. }) = self.own.statuses.of.get(name) else {
                continue;
            };
            if *in_flight {
                continue; // its report triggers this again
            }
            let next = *next;
            if next > self.now.uptime {
                self.own.statuses.at = Some(self.own.statuses.at.map_or(next, |at| at.min(next)));
                continue;
            }
            let Some(view) = self.cluster.pool(name) else { continue };
            let told = status::PoolFacts {
                book: &self.ledger.book,
                overlaps: self.cluster.overlapping(name),
                waiting: &self.own.waiting,
                blocked: self.ledger.blocked(),
                announces: self.cluster.keepalived_groups.listed(),
                findings: self.own.repair.about(name).collect(),
            };
            let next = status::pool(view, &told, self.now.wall);
            if next.is_some() || view.status.is_none() {
                let told = &mut self.own.statuses.of.entry(name.clone()).or_default().told;
                self.out.events.extend(events(view, told));
            }
            let Some(next) = next else {
                self.own.repair.told(name);
                continue;
            };
            self.out.effects.push(Effect::PoolStatus {
                pool: name.clone(),
                object: view.object.clone(),
                version: view.version,
                status: next,
            });
            let status = self.own.statuses.of.entry(name.clone()).or_default();
            status.in_flight = true;
            status.next = self.now.uptime.saturating_add(INTERVAL);
        }
    }
}

/// The events about a pool's definition that were not sent yet.
fn events(view: &PoolView, told: &mut BTreeSet<String>) -> impl Iterator<Item = Event> {
    let problem = status::problem(view).map(|problem| (Reason::PoolInvalid.as_str(), problem));
    let warnings = view.unreadable.iter().chain(&view.warnings);
    let warnings = warnings.map(|warning| (WARNED, warning.clone()));
    let all: Vec<_> = problem.into_iter().chain(warnings).collect();
    let before = std::mem::replace(told, all.iter().map(|(_, text)| text.clone()).collect());
    let new = all.into_iter().filter(move |(_, text)| !before.contains(text));
    new.map(move |(reason, message)| status::pool_event(view, reason, message))
}
