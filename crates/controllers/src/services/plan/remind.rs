//! Reminders: repeats the event that says why a Service waits, before the API server forgets it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Now, Round, status};
use crate::object::ObjectKey;

/// The delay of the first reminder. The first event is visible until then.
const FIRST: Duration = Duration::from_mins(5);
/// By default the API server forgets events after an hour.
const LONGEST: Duration = Duration::from_mins(55);

/// The waiting Services and when their reminders are due.
#[derive(Debug, Default)]
pub(super) struct Reminders {
    due: BTreeSet<(Duration, ObjectKey)>,
    /// When each reminder is due, and how long the interval before it was.
    at: BTreeMap<ObjectKey, (Duration, Duration)>,
}

impl Reminders {
    /// A Service waits. It may have waited before.
    pub(super) fn begin(&mut self, key: &ObjectKey, now: Now) {
        if !self.at.contains_key(key) {
            self.schedule(key, FIRST, now);
        }
    }

    pub(super) fn next_due(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    fn schedule(&mut self, key: &ObjectKey, wait: Duration, now: Now) {
        let at = now.uptime.saturating_add(wait);
        self.due.insert((at, key.clone()));
        self.at.insert(key.clone(), (at, wait));
    }

    fn take_due(&mut self, now: Now) -> Option<(ObjectKey, Duration)> {
        self.due.first().filter(|(at, _)| *at <= now.uptime)?;
        let (_, key) = self.due.pop_first()?;
        let (_, waited) = self.at.remove(&key)?;
        Some((key, waited))
    }
}

impl Round<'_> {
    /// Repeats why Services wait, at growing intervals.
    pub(super) fn remind(&mut self) {
        while let Some((key, waited)) = self.own.reminders.take_due(self.now) {
            if !self.own.waiting.contains(&key) {
                continue;
            }
            let service = self.cluster.balancer(&key);
            self.out.events.extend(service.and_then(status::reminder));
            self.own.reminders.schedule(&key, waited.saturating_mul(2).min(LONGEST), self.now);
        }
    }
}
