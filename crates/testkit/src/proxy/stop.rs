//! Counts the writes after which all traffic ends.

use super::{Filter, Record};

pub(super) struct Stop {
    filter: Filter,
    allowed: usize,
    forwarded: usize,
    answered: usize,
}

/// How a request matters to the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Not counted.
    Free,
    /// One of the allowed writes; report its answer.
    Counted,
    /// One too many while others are still being answered: never to be passed on.
    Beyond,
    /// The first, where none is allowed.
    Stop,
}

impl Stop {
    pub(super) fn after(allowed: usize, filter: Filter) -> Self {
        Self { filter, allowed, forwarded: 0, answered: 0 }
    }

    pub(super) fn turn(&mut self, request: &Record) -> Turn {
        if !request.is_write() || !(self.filter)(request) {
            Turn::Free
        } else if self.forwarded < self.allowed {
            self.forwarded += 1;
            Turn::Counted
        } else if self.allowed == 0 {
            Turn::Stop
        } else {
            Turn::Beyond
        }
    }

    /// Whether that was the last answer.
    pub(super) fn answered(&mut self) -> bool {
        self.answered += 1;
        self.answered == self.allowed
    }
}
