//! Whom claims name and who is not there: those who may yet come, and those who do not.
//!
//! Claims can be restored from a backup before those who hold them, and what is released then is
//! lost. One that we saw leave does not come back.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{engine::Now, object::ObjectKey};

#[derive(Debug, Default)]
pub(crate) struct Absent {
    /// How long a claim waits for one who was not there when we came.
    grace: Duration,
    /// Those whom we saw leave while something was claimed in their name.
    left: BTreeSet<ObjectKey>,
    /// Those whom we never saw, and since when.
    missing: BTreeMap<ObjectKey, Duration>,
    /// Those who did not come in time.
    orphaned: BTreeSet<ObjectKey>,
}

impl Absent {
    pub(crate) fn new(grace: Duration) -> Self {
        Self { grace, ..Self::default() }
    }

    pub(crate) fn saw_leave(&mut self, key: &ObjectKey) {
        self.left.insert(key.clone());
    }

    /// It is there, or nothing is claimed in its name any more.
    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        self.left.remove(key);
        self.missing.remove(key);
        self.orphaned.remove(key);
    }

    /// Whether one that is named and not there may yet come. Its time begins with the first question.
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

    /// Whether it was waited for in vain.
    pub(crate) fn is_orphaned(&self, key: &ObjectKey) -> bool {
        self.orphaned.contains(key)
    }

    /// When somebody's time is over.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.missing.values().map(|since| since.saturating_add(self.grace)).min()
    }

    /// Those whose time is over since this was last asked.
    pub(crate) fn give_up(&mut self, now: Now) -> Vec<ObjectKey> {
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
    fn one_that_was_never_seen_is_waited_for_and_one_that_left_is_not() {
        let (unseen, left) = (ObjectKey::new("a", "unseen"), ObjectKey::new("a", "left"));
        let mut absent = Absent::new(Duration::from_mins(5));
        absent.saw_leave(&left);
        assert!(!absent.in_grace(&left, at(10)));
        assert!(!absent.is_orphaned(&left));
        for seconds in [10, 200] {
            assert!(absent.in_grace(&unseen, at(seconds)), "{seconds}");
        }
        assert_eq!(absent.next_due(), Some(Duration::from_secs(310)));
        assert_eq!(absent.give_up(at(309)), []);
        assert_eq!(absent.give_up(at(310)), std::slice::from_ref(&unseen));
        assert!(absent.is_orphaned(&unseen) && !absent.in_grace(&unseen, at(311)));
        assert_eq!(absent.next_due(), None);

        // Who came and goes missing again has all of the time again.
        absent.forget(&unseen);
        assert!(absent.in_grace(&unseen, at(400)));
        assert_eq!(absent.next_due(), Some(Duration::from_secs(700)));
    }

    #[test]
    fn without_a_grace_nobody_is_waited_for() {
        let (mut absent, key) = (Absent::new(Duration::ZERO), ObjectKey::new("a", "unseen"));
        assert!(!absent.in_grace(&key, at(1)));
        assert!(absent.is_orphaned(&key));
    }
}
