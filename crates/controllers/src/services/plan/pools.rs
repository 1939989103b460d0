//! Plans the status writes of pools, and events about odd or wrong pool definitions.

use std::{collections::BTreeSet, time::Duration};

use landfall_ipam::Reason;

use super::{Effect, Now, Plan, Planner, PoolView, STATUS_INTERVAL, status};
use crate::event::Event;

/// The reason of an event about a part of a pool's definition that is probably a mistake, though the
/// pool is usable.
const WARNED: &str = "PoolWarning";

/// The progress of a pool's status writes.
#[derive(Debug, Default)]
pub(super) struct PoolStatus {
    /// The uptime before which it is not written again.
    pub(super) next: Duration,
    pub(super) in_flight: bool,
    /// Writes that failed in a row.
    pub(super) failed: u32,
    /// Events already sent about the pool's definition, so that each is sent once.
    told: BTreeSet<String>,
}

impl Planner {
    pub(super) fn plan_pool_status(&mut self, now: Now, out: &mut Plan<Effect>) {
        let due = self.status_at.is_some_and(|at| at <= now.uptime);
        let others_wait = self.waiting.take_changed();
        if !std::mem::take(&mut self.status_dirty) && !others_wait && !due {
            return;
        }
        self.status_at = None;
        for name in self.world.order.clone() {
            let Some(PoolStatus { next, in_flight, .. }) = self.pool_statuses.get(&name) else {
                continue;
            };
            if *in_flight {
                continue; // its report triggers this again
            }
            let next = *next;
            if next > now.uptime {
                self.status_at = Some(self.status_at.map_or(next, |at| at.min(next)));
                continue;
            }
            let Some(view) = self.world.pool(&name) else { continue };
            let told = status::PoolFacts {
                book: &self.world.ledger.book,
                overlaps: self.world.overlaps.get(&name),
                waiting: &self.waiting,
                blocked: self.blocked.as_ref().map(|blocked| blocked.message.as_str()),
                findings: self.repair.about(&name).collect(),
            };
            let next = status::pool(view, &told, now.wall);
            if next.is_some() || view.status.is_none() {
                let told = &mut self.pool_statuses.entry(name.clone()).or_default().told;
                out.events.extend(events(view, told));
            }
            let Some(next) = next else {
                self.repair.told(&name);
                continue;
            };
            out.effects.push(Effect::PoolStatus {
                pool: name.clone(),
                object: view.object.clone(),
                version: view.version,
                status: next,
            });
            let status = self.pool_statuses.entry(name).or_default();
            status.in_flight = true;
            status.next = now.uptime.saturating_add(STATUS_INTERVAL);
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
