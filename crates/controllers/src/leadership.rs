//! Tells whether this process may act, by a deadline that runs out by itself.
//!
//! A flag would be wrong: a process that was stopped past its lease (`SIGSTOP`, a frozen virtual
//! machine) wakes up with the flag still set and acts on it until the elector's task runs. A deadline
//! on the monotonic clock is already over at the very first check.
//!
//! Leadership is an optimisation: every write is guarded by itself (PROTOCOL.md).

use std::future::pending;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The last state that the elector set.
#[derive(Clone, Copy, Debug)]
enum Term {
    /// Another process leads, or none.
    Standby,
    /// No election takes place: `--leader-elect=false`.
    Always,
    /// We lead for the `number`-th time, until `deadline` unless it is extended.
    Until { deadline: Instant, number: u64 },
}

/// The number of our term at one moment, if we lead.
type Standing = Option<u64>;

impl Term {
    fn standing(self, now: Instant) -> Standing {
        match self {
            Self::Standby => None,
            Self::Always => Some(0),
            Self::Until { deadline, number } => (now < deadline).then_some(number),
        }
    }
}

/// Creates a pair; the setter belongs to the elector. No process leads yet.
pub fn leadership() -> (LeadershipSetter, Leadership) {
    let (sender, term) = watch::channel(Term::Standby);
    (LeadershipSetter { term: sender, terms: 0 }, Leadership { term, seen: None })
}

/// Tells whether this process leads right now; cheap to clone, one per planner and applier.
#[derive(Clone, Debug)]
pub struct Leadership {
    term: watch::Receiver<Term>,
    /// The last state that [`Leadership::changed`] of this handle reported.
    seen: Standing,
}

impl Leadership {
    /// Leads for ever, for a process that runs without an election.
    pub fn always() -> Self {
        // The sender may go: a closed channel keeps its last value.
        Self { term: watch::channel(Term::Always).1, seen: Term::Always.standing(Instant::now()) }
    }

    /// Whether we lead at this moment.
    ///
    /// Reads the clock at each call: ask right before each act, and do not keep the answer.
    pub fn is_leader(&self) -> bool {
        self.term.borrow().standing(Instant::now()).is_some()
    }

    /// Waits for a gain or a loss that this handle has not reported yet.
    ///
    /// A loss followed by a new gain before the next check counts as well, though
    /// [`is_leader`](Self::is_leader) is the same again: another leader in between may have changed the
    /// objects we remember. A fresh handle starts as "standby", so it reports an earlier gain; a clone
    /// continues its original. Dropping the future loses nothing.
    pub async fn changed(&mut self) {
        loop {
            let term = *self.term.borrow_and_update();
            let standing = term.standing(Instant::now());
            if standing != self.seen {
                self.seen = standing;
                return;
            }
            let next_term = async {
                if self.term.changed().await.is_err() {
                    // The setter is gone, so nothing but time can change the state.
                    pending::<()>().await;
                }
            };
            match term {
                Term::Until { deadline, .. } if standing.is_some() => {
                    // Check again in either case: the deadline may have been extended.
                    timeout_at(deadline, next_term).await.ok();
                }
                Term::Until { .. } | Term::Standby | Term::Always => next_term.await,
            }
        }
    }
}

/// The elector's side of [`Leadership`]; dropping it ends leadership.
#[derive(Debug)]
pub struct LeadershipSetter {
    term: watch::Sender<Term>,
    terms: u64,
}

impl LeadershipSetter {
    /// Leads until `deadline`, unless another call extends it.
    ///
    /// The deadline counts from when the renewal was *sent*: when it took effect is unknown.
    pub fn lead_until(&mut self, deadline: Instant) {
        if self.term.borrow().standing(Instant::now()).is_none() {
            self.terms = self.terms.saturating_add(1);
        }
        self.term.send_replace(Term::Until { deadline, number: self.terms });
    }

    /// Stops leading at once.
    pub fn stand_down(&mut self) {
        self.term.send_replace(Term::Standby);
    }
}

impl Drop for LeadershipSetter {
    fn drop(&mut self) {
        // A dead elector renews nothing, so the rest of the term is worthless.
        self.stand_down();
    }
}
