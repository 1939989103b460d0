//! Delays writes that another program keeps undoing, such as one that serves the same Services or
//! another operator with other pools.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher as _},
    time::Duration,
};

use super::Now;
use crate::{backoff::Backoff, object::ObjectKey};

/// A write is forgotten after this time, and no longer counts as repeated.
const MEMORY: Duration = Duration::from_mins(5);
/// How often a write may be repeated without a delay: one undo may have been intended.
const FREE: u32 = 3;
/// Entries kept before old ones are pruned.
const FEW: usize = 1024;

/// The last time of a write.
#[derive(Debug)]
struct Last {
    at: Duration,
    /// How often it was repeated.
    again: u32,
}

/// Recent writes, by Service and content. A withdrawal and the write after it are two entries.
#[derive(Debug, Default)]
pub(super) struct Damper {
    lately: BTreeMap<(ObjectKey, u64), Last>,
    prune_at: usize,
}

impl Damper {
    /// The uptime until which this write must wait, if it was made and undone too often.
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
