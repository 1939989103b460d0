//! Whether this process may act, as a deadline that runs out by itself.
//!
//! A flag would be wrong here: a process that was stopped past its lease (`SIGSTOP`, a frozen
//! virtual machine) wakes up with the flag still set and acts on it until the elector's task gets
//! its turn. A deadline on the monotonic clock is already over at the very first check.
//!
//! Leadership stays an optimisation: every write is guarded by itself (PROTOCOL.md).

use std::future::pending;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// What the elector said last.
#[derive(Clone, Copy, Debug)]
enum Term {
    /// Another process leads, or none.
    Standby,
    /// No election takes place: `--leader-elect=false`.
    Always,
    /// We lead for the `number`-th time, until `deadline` unless it is moved.
    Until { deadline: Instant, number: u64 },
}

/// The number of the term we are in at one moment, if we lead.
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

/// Makes a pair of which the setter belongs to the elector; nobody leads yet.
pub fn leadership() -> (LeadershipSetter, Leadership) {
    let (sender, term) = watch::channel(Term::Standby);
    (LeadershipSetter { term: sender, terms: 0 }, Leadership { term, seen: None })
}

/// Answers whether this process leads right now; cheap to clone, one per planner and applier.
#[derive(Clone, Debug)]
pub struct Leadership {
    term: watch::Receiver<Term>,
    /// What [`Leadership::changed`] of this handle told last.
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
    /// Reads the clock at each call, so ask right before each act instead of keeping the answer.
    pub fn is_leader(&self) -> bool {
        self.term.borrow().standing(Instant::now()).is_some()
    }

    /// Waits for a gain or a loss that this handle has not told yet.
    ///
    /// A loss that was followed by a new gain before anybody looked counts too, though
    /// [`is_leader`](Self::is_leader) is then what it was: whoever led in between may have changed
    /// what we remember. A fresh handle has told "standby", so it tells a gain that came before
    /// it; a clone has told what its original has. Dropping the future loses nothing.
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
                    // The setter is gone, and with it everything that could change but the time.
                    pending::<()>().await;
                }
            };
            match term {
                Term::Until { deadline, .. } if standing.is_some() => {
                    // Either way round the loop: the deadline may have been moved meanwhile.
                    timeout_at(deadline, next_term).await.ok();
                }
                Term::Until { .. } | Term::Standby | Term::Always => next_term.await,
            }
        }
    }
}

/// The elector's side of [`Leadership`]; dropping it stands down.
#[derive(Debug)]
pub struct LeadershipSetter {
    term: watch::Sender<Term>,
    terms: u64,
}

impl LeadershipSetter {
    /// Leads until `deadline`, unless it is moved by another call.
    ///
    /// The deadline counts from when the renewal was *sent*: from when it took hold nobody knows.
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
        // A dead elector renews nothing, so the rest of the term is worth nothing.
        self.stand_down();
    }
}
