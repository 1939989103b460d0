//! Tracks holders that claims name and that do not exist: whether they may still appear.
//!
//! Claims can be restored from a backup before their holders, and an address released then is lost. A
//! holder whose deletion we saw does not come back.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{clock::Now, object::ObjectKey};

#[derive(Debug, Default)]
pub(crate) struct Absent {
    /// How long a claim waits for a holder that was missing when we started.
    grace: Duration,
    /// Holders whose deletion we saw while a claim named them.
    left: BTreeSet<ObjectKey>,
    /// Holders that we never saw, and since when they are missing.
    missing: BTreeMap<ObjectKey, Duration>,
    /// Holders that did not appear in time.
    orphaned: BTreeSet<ObjectKey>,
}

impl Absent {
    pub(crate) fn new(grace: Duration) -> Self {
        Self { grace, ..Self::default() }
    }

    pub(crate) fn saw_leave(&mut self, key: &ObjectKey) {
        self.left.insert(key.clone());
    }

    /// The holder exists, or no claim names it any more.
    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        self.left.remove(key);
        self.missing.remove(key);
        self.orphaned.remove(key);
    }

    /// Whether a missing holder may still appear. Its time begins with the first question.
    pub(crate) fn in_grace(&mut self, key: &ObjectKey, now: Now) -> bool {
        if self.left.contains(key) || self.orphaned.contains(key) {
            return false;
        }
        if self.grace.is_zero() {
            self.orphaned.insert(key.clone());
            return false;
        }
        self.missing.entry(key.clone()).or_insert(now.uptime);
        true
    }

    /// Whether the holder did not appear in time.
    pub(crate) fn is_orphaned(&self, key: &ObjectKey) -> bool {
        self.orphaned.contains(key)
    }

    /// The uptime at which the next holder's time is over.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.missing.values().map(|since| since.saturating_add(self.grace)).min()
    }

    /// Holders whose time has run out since the last call.
    pub(crate) fn end_grace(&mut self, now: Now) -> Vec<ObjectKey> {
        let grace = self.grace;
        let over: Vec<_> = self
            .missing
            .extract_if(.., |_, since| since.saturating_add(grace) <= now.uptime)
            .map(|(key, _)| key)
            .collect();
        self.orphaned.extend(over.iter().cloned());
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Now {
        Now { wall: jiff::Timestamp::UNIX_EPOCH, uptime: Duration::from_secs(seconds) }
    }

    #[test]
    fn a_holder_that_was_never_seen_is_waited_for_and_one_that_left_is_not() {
        let (unseen, left) = (ObjectKey::new("a", "unseen"), ObjectKey::new("a", "left"));
        let mut absent = Absent::new(Duration::from_mins(5));
        absent.saw_leave(&left);
        assert!(!absent.in_grace(&left, at(10)));
        assert!(!absent.is_orphaned(&left));
        for seconds in [10, 200] {
            assert!(absent.in_grace(&unseen, at(seconds)), "{seconds}");
        }
        assert_eq!(absent.next_due(), Some(Duration::from_secs(310)));
        assert_eq!(absent.end_grace(at(309)), []);
        assert_eq!(absent.end_grace(at(310)), std::slice::from_ref(&unseen));
        assert!(absent.is_orphaned(&unseen) && !absent.in_grace(&unseen, at(311)));
        assert_eq!(absent.next_due(), None);

        // A holder that appeared and goes missing again gets the full time again.
        absent.forget(&unseen);
        assert!(absent.in_grace(&unseen, at(400)));
        assert_eq!(absent.next_due(), Some(Duration::from_secs(700)));
    }

    #[test]
    fn without_a_grace_no_holder_is_waited_for() {
        let (mut absent, key) = (Absent::new(Duration::ZERO), ObjectKey::new("a", "unseen"));
        assert!(!absent.in_grace(&key, at(1)));
        assert!(absent.is_orphaned(&key));
    }
}
