//! Effects that wait for their turn.

use std::collections::{BTreeMap, VecDeque};

use super::effect::Effect;

/// Events are dropped first: the newest matter most.
const NOTES_KEPT: usize = 512;

/// Effects by rank, first in first out within a rank; events apart, in a bounded line of their own.
#[derive(Debug, Default)]
pub(super) struct Queue {
    ranks: BTreeMap<u8, VecDeque<Effect>>,
    notes: VecDeque<Effect>,
    dropped: u64,
}

impl Queue {
    pub(super) fn push(&mut self, effect: Effect) {
        if matches!(effect, Effect::Note(_)) {
            if self.notes.len() >= NOTES_KEPT {
                self.notes.pop_front();
                self.dropped = self.dropped.saturating_add(1);
            }
            self.notes.push_back(effect);
        } else {
            self.ranks.entry(effect.rank()).or_default().push_back(effect);
        }
    }

    /// The next effect that is not an event.
    pub(super) fn pop(&mut self) -> Option<Effect> {
        self.ranks.values_mut().find_map(VecDeque::pop_front)
    }

    /// The next event, if nothing more important waits.
    pub(super) fn pop_note(&mut self) -> Option<Effect> {
        if self.ranks.values().all(VecDeque::is_empty) { self.notes.pop_front() } else { None }
    }

    /// How many events were dropped since this was asked last.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        object::ObjectKey,
        services::{
            effect::{About, Note},
            fixtures::ip,
        },
    };

    fn note(message: &str) -> Effect {
        let about = About::Service { key: ObjectKey::new("shop", "web"), uid: "u".into() };
        let (reason, message) = (String::new(), message.to_owned());
        Effect::Note(Note { about, warning: false, reason, message })
    }

    #[test]
    fn what_was_begun_is_finished_first_and_telling_comes_last() {
        let mut queue = Queue::default();
        let look = |last: u8| Effect::LookAtClaim { addr: [10, 0, 0, last].into(), known: None };
        let take = Effect::Take {
            addr: ip("10.0.0.9"),
            pool: Some(landfall_ipam::PoolName::new("IPGroup/a")),
            holder: crate::services::fixtures::holder_of(&crate::services::fixtures::service(
                "a/b",
            )),
        };
        for effect in [note("n"), take.clone(), look(1), look(2)] {
            queue.push(effect);
        }
        assert_eq!(queue.pop_note(), None, "allocations wait");
        assert_eq!(queue.pop(), Some(look(1)));
        assert_eq!(queue.pop(), Some(look(2)));
        assert_eq!(queue.pop(), Some(take));
        assert_eq!(queue.pop(), None);
        assert_eq!(queue.pop_note(), Some(note("n")));
    }

    #[test]
    fn a_flood_of_events_keeps_the_newest() {
        let mut queue = Queue::default();
        for n in 0..NOTES_KEPT + 3 {
            queue.push(note(&n.to_string()));
        }
        assert_eq!(queue.take_dropped(), 3);
        assert_eq!(queue.pop_note(), Some(note("3")));
    }
}
