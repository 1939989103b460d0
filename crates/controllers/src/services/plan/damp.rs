//! Patience with somebody who keeps undoing what we write: another program that serves the same
//! Services, or another operator that knows other pools.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher as _},
    time::Duration,
};

use super::Now;
use crate::{backoff::Backoff, object::ObjectKey};

/// What is said again only after this long is not said again.
const MEMORY: Duration = Duration::from_mins(5);
/// How often the same may be said without waiting: whoever wiped it may have meant it once.
const FREE: u32 = 3;
/// Entries kept before old ones are looked for.
const FEW: usize = 1024;

/// When something was written last.
#[derive(Debug)]
struct Last {
    at: Duration,
    /// How often it was written before.
    again: u32,
}

/// What was written lately, by Service and by what it was. A withdrawal and what follows it are two.
#[derive(Debug, Default)]
pub(super) struct Damper {
    lately: BTreeMap<(ObjectKey, u64), Last>,
    prune_at: usize,
}

impl Damper {
    /// Until when to wait before this is written, because it was written and undone too often.
    pub(super) fn hold(&mut self, key: &ObjectKey, what: impl Hash, now: Now) -> Option<Duration> {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        let what = (key.clone(), hasher.finish());
        let recent = |last: &&mut Last| now.uptime < last.at.saturating_add(MEMORY);
        if let Some(last) = self.lately.get_mut(&what).filter(recent) {
            let wait = last.again.checked_sub(FREE);
            let until =
                wait.and_then(|tries| Backoff::after(tries, Now { uptime: last.at, ..now }).until);
            if until.is_some_and(|until| until > now.uptime) {
                return until;
            }
            (last.at, last.again) = (now.uptime, last.again.saturating_add(1));
            return None;
        }
        self.lately.insert(what, Last { at: now.uptime, again: 0 });
        if self.lately.len() > self.prune_at.max(FEW) {
            self.lately.retain(|_, last| now.uptime < last.at.saturating_add(MEMORY));
            self.prune_at = self.lately.len().saturating_mul(2);
        }
        None
    }
}
