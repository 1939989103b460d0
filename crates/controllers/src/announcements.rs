//! How Services are announced, as the planners that announce them say it: facts for the planner that writes the
//! conditions of Services.

use std::collections::{BTreeMap, BTreeSet};

use crate::object::ObjectKey;

/// The condition `landfall.dev/Announced` of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Announcement {
    /// Whether nodes hold all its addresses.
    pub announced: bool,
    pub reason: &'static str,
    pub message: String,
}

/// What the condition of a Service should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wanted<'a> {
    /// As it is, whatever it says: nothing is known yet.
    AsItIs,
    /// None.
    Absent,
    This(&'a Announcement),
}

/// What is known of every Service that is announced.
#[derive(Debug, Default)]
pub(crate) struct Announcements {
    /// Services that are announced or should be; `None` while it is not known how they are.
    of: BTreeMap<ObjectKey, Option<Announcement>>,
    /// Services about which something else is said since the changes were last taken.
    changed: BTreeSet<ObjectKey>,
    /// Whether it is known of every Service if it should be announced.
    complete: bool,
}

impl Announcements {
    pub(crate) fn wanted(&self, service: &ObjectKey) -> Wanted<'_> {
        match self.of.get(service) {
            Some(Some(announcement)) => Wanted::This(announcement),
            None if self.complete => Wanted::Absent,
            Some(None) | None => Wanted::AsItIs,
        }
    }

    /// A Service should be announced; `None` if it is not known yet how it is.
    pub(crate) fn say(&mut self, service: &ObjectKey, announcement: Option<Announcement>) {
        if self.of.get(service) != Some(&announcement) {
            self.of.insert(service.clone(), announcement);
            self.changed.insert(service.clone());
        }
    }

    /// A Service is not announced.
    pub(crate) fn retract(&mut self, service: &ObjectKey) {
        if self.of.remove(service).is_some() {
            self.changed.insert(service.clone());
        }
    }

    /// Everything is said; returns whether it was not before. Then Services of which nothing was said should
    /// have no condition.
    pub(crate) fn complete(&mut self) -> bool {
        !std::mem::replace(&mut self.complete, true)
    }

    /// Lets the writer look at a Service again.
    pub(crate) fn look_again(&mut self, service: ObjectKey) {
        self.changed.insert(service);
    }

    /// Nothing is known any more.
    pub(crate) fn forget_all(&mut self) {
        *self = Self::default();
    }

    /// The Services about which something else is said since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut self.changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_loses_its_condition_only_when_all_are_known() {
        let (web, mail) = (ObjectKey::new("shop", "web"), ObjectKey::new("shop", "mail"));
        let held = Announcement { announced: true, reason: "Announced", message: "n1".to_owned() };
        let mut all = Announcements::default();
        assert_eq!(all.wanted(&web), Wanted::AsItIs);
        all.say(&web, Some(held.clone()));
        all.say(&mail, None);
        assert_eq!(all.take_changed(), [mail.clone(), web.clone()].into());
        all.say(&web, Some(held.clone()));
        assert_eq!(all.take_changed(), BTreeSet::new(), "nothing else is said");
        assert_eq!((all.wanted(&web), all.wanted(&mail)), (Wanted::This(&held), Wanted::AsItIs));
        all.retract(&web);
        assert_eq!(all.take_changed(), [web.clone()].into());
        assert_eq!(all.wanted(&web), Wanted::AsItIs);
        assert!(all.complete());
        assert!(!all.complete(), "it was before");
        assert_eq!((all.wanted(&web), all.wanted(&mail)), (Wanted::Absent, Wanted::AsItIs));
        all.forget_all();
        assert_eq!(all.wanted(&web), Wanted::AsItIs);
    }
}
