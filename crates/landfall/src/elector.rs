//! Elects the one of several operators that acts: client-go's rules on a `coordination.k8s.io/v1` `Lease`.
//!
//! Why two do not lead at once, with any delays, lost answers and pauses: a leader leads for the renew
//! deadline after it *sent* the last renewal that succeeded. Every other candidate waits for the lease
//! duration, which is longer, after it *saw* that renewal, which is later. No clocks of two machines are
//! compared; they only have to run at about the same speed. And every write names the version it replaces, so
//! of several candidates that try, one succeeds.
//!
//! Where waiting would not help, a candidate does not wait: for a lease that was deleted, for a holder that
//! ran in its own Pod before it, and for a holder whose record claims a lease many times longer than ours.
//! The first and the last can make two leaders for a moment, of which the older one gives way at its next
//! renewal. The guards of PROTOCOL.md still hold then: an overlap is harmless, and Services without any
//! leader are not.

mod calls;
mod identity;
mod rules;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use landfall_controllers::leadership::LeadershipSetter;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

pub use calls::{CallError, KubeLeases, Leases, Written};
pub use identity::{Identity, process_name};
pub use rules::{Candidate, Decision, LEASE_NAME, Timing};

/// The outcome of a round.
enum Outcome {
    Leading,
    /// The holder is alive until then, as far as we can see.
    Standby(Instant),
    /// Other candidates wrote while we tried.
    Outrun,
}

/// Runs for one lease and says through [`LeadershipSetter`] when it leads.
pub struct Elector<L> {
    leases: L,
    candidate: Candidate,
    setter: LeadershipSetter,
    /// When the leadership ends unless it is renewed; `None` on a standby.
    deadline: Option<Instant>,
    wall: fn() -> Timestamp,
}

impl<L: Leases> Elector<L> {
    /// `wall` fills the times that people read in the lease, nothing else.
    pub fn new(
        leases: L,
        candidate: Candidate,
        setter: LeadershipSetter,
        wall: fn() -> Timestamp,
    ) -> Self {
        Self { leases, candidate, setter, deadline: None, wall }
    }

    /// Runs until `stop`, then releases the lease.
    ///
    /// It never fails: without an API server there is nothing to lead, and the process goes on as a standby.
    /// Stop the work before `stop`, because the next leader may begin right after it.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let next = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                next = self.round() => next,
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = sleep_until(next) => {}
            }
        }
        self.release().await;
    }

    /// One round; returns when to begin the next.
    ///
    /// No jitter: two candidates in step do no harm, because only one of their writes succeeds.
    async fn round(&mut self) -> Instant {
        let began = Instant::now();
        if self.deadline.is_some_and(|deadline| deadline <= began) {
            // The deadline passed while the process slept or because every call failed.
            self.lose("not renewed in time");
        }
        let outcome = self.attempt().await;
        // Counted from the beginning of the round: a call that took long counts as waiting.
        let timing = self.candidate.timing();
        let next = began + timing.retry_period();
        match outcome {
            Ok(Outcome::Leading | Outcome::Outrun) => next,
            // Not later than the expiry we know of, not earlier than now.
            Ok(Outcome::Standby(until)) => {
                debug!(holder = self.candidate.rival(), "another operator leads");
                until.min(began + timing.look_period())
            }
            Err(error) => {
                let hint = error.hint();
                warn!(error = &error as &dyn std::error::Error, hint, "lease call failed");
                // At the deadline at the latest, to report the loss; by then leadership has already run out.
                self.deadline.map_or(next, |deadline| next.min(deadline))
            }
        }
    }

    async fn attempt(&mut self) -> Result<Outcome, CallError> {
        // Twice, because a leader whose last answer was lost learns the new version only by a refusal. More
        // would only compete; the next round comes soon enough.
        for _ in 0..2 {
            // A holder renews what it wrote itself; every other candidate reads each time.
            if !self.candidate.holds() {
                self.look().await?;
            }
            let sent = Instant::now();
            let written = match self.candidate.decide(sent, (self.wall)()) {
                Decision::Look => continue,
                Decision::Wait(until) => return Ok(Outcome::Standby(until)),
                Decision::Create(lease) => {
                    self.candidate.forget();
                    self.in_time(self.leases.create(&lease)).await?
                }
                Decision::Update(lease) => {
                    self.candidate.forget();
                    self.in_time(self.leases.update(&lease)).await?
                }
            };
            if let Written::Done(lease) = written {
                self.candidate.observe(Some(*lease), Instant::now());
                self.lead_from(sent);
                return Ok(Outcome::Leading);
            }
        }
        Ok(Outcome::Outrun)
    }

    async fn look(&mut self) -> Result<(), CallError> {
        self.candidate.forget();
        let answer = self.in_time(self.leases.read()).await?;
        self.candidate.observe(answer, Instant::now());
        if self.deadline.is_some() && self.candidate.rival().is_some() {
            self.lose("another operator holds the lease");
        }
        Ok(())
    }

    /// Puts a deadline on a call: at the end of our leadership at the latest.
    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let own = Instant::now() + self.candidate.timing().call_deadline();
        let until = self.deadline.map_or(own, |deadline| own.min(deadline));
        timeout_at(until, call).await.unwrap_or(Err(CallError::Late))
    }

    fn lead_from(&mut self, sent: Instant) {
        let deadline = sent + self.candidate.timing().renew_deadline();
        self.setter.lead_until(deadline);
        if self.deadline.replace(deadline).is_none() {
            info!(identity = self.candidate.identity(), "leading");
        }
    }

    fn lose(&mut self, why: &'static str) {
        self.setter.stand_down();
        self.deadline = None;
        // Another candidate may have replaced what we wrote last.
        self.candidate.forget();
        warn!(identity = self.candidate.identity(), why, "leadership lost");
    }

    /// Releases the lease, so that the next leader need not wait until it expires.
    async fn release(&mut self) {
        self.setter.stand_down();
        self.deadline = None;
        // Once more after a refusal: the write that `stop` interrupted may have come through.
        for _ in 0..2 {
            match self.try_release().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    warn!(error, "lease not given back; it expires by itself");
                    return;
                }
            }
        }
    }

    /// Whether there is nothing left to release.
    async fn try_release(&mut self) -> Result<bool, CallError> {
        // Also unsure when `stop` cut a write: it may have made us the holder after all.
        if self.candidate.is_unsure() {
            self.look().await?;
        }
        let Some(lease) = self.candidate.released((self.wall)()) else { return Ok(true) };
        self.candidate.forget();
        match self.in_time(self.leases.update(&lease)).await? {
            Written::Done(_) => {
                info!(identity = self.candidate.identity(), "lease given back");
                Ok(true)
            }
            Written::Refused => Ok(false),
        }
    }
}
