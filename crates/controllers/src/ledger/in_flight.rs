//! Calls about claims, from planning until their outcome is known.

use std::{net::IpAddr, time::Duration};

use jiff::Timestamp;
use landfall_ipam::PoolName;

use super::{
    Change, Ledger,
    claim::{Claim, HolderEntry, HolderRef},
    index,
    write::{Answer, Then, Write},
};
use crate::{backoff::Backoff, call::Failure, clock::Now, object::Version};

/// The call that is in flight or due about the claim on an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InFlight {
    /// The claim after the write, if it succeeds; `None` if it is deleted or nothing is written. It
    /// counts for quotas and sharing until the outcome is known.
    pub(crate) expected: Option<Box<Claim>>,
    pub(crate) phase: Phase,
    /// The holder that gets no other address until the outcome is known.
    pub(crate) for_whom: Option<HolderRef>,
    /// Whether the claim is read when the call has ended, because the answer may be outdated.
    pub(super) reread: bool,
}

/// The phase of a call about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing is written yet: the address is held for a holder whose own call is in flight.
    Held,
    /// A write is in flight.
    Writing,
    /// A live read is due at this uptime.
    ReadDue(Duration),
    /// A live read is in flight.
    Reading,
}

impl Phase {
    pub(super) const fn read_due(self) -> Option<Duration> {
        match self {
            Self::ReadDue(at) => Some(at),
            Self::Held | Self::Writing | Self::Reading => None,
        }
    }
}

/// The outcome of a write, for the planner that asked for it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The claim is as written, or was found to be gone.
    Done,
    /// Another writer was faster. The claim is read before anything else is done about it.
    Conflict,
    /// The call was not sent, or its answer says nothing about the claim.
    Nothing,
    /// The API server did not perform the write: throttled, refused or blocked.
    Refused(Failure),
    /// The write may have happened or not; the claim will be read.
    Unknown,
    /// A read is done.
    Read,
    /// The live read of the holder forbade the release.
    Kept,
}

impl Ledger {
    /// Whether a call about the claim on an address is in flight or due.
    pub(crate) fn is_in_flight(&self, addr: IpAddr) -> bool {
        self.in_flight.contains_key(&addr)
    }

    /// The call in flight about the claim on an address.
    pub(crate) fn in_flight(&self, addr: IpAddr) -> Option<&InFlight> {
        self.in_flight.get(&addr)
    }

    /// The claim on an address as it will be if the write in flight succeeds.
    pub(crate) fn claim_to_be(&self, addr: IpAddr) -> Option<&Claim> {
        match self.in_flight.get(&addr) {
            Some(InFlight { phase: Phase::Held | Phase::Writing, expected, .. }) => {
                expected.as_deref()
            }
            Some(_) | None => self.claim(addr),
        }
    }

    /// Takes an address for a holder. From now on no planner gives it.
    pub(crate) fn take(&mut self, claim: Claim) -> Write {
        self.begin(claim.addr, Some(claim.clone()), Phase::Writing);
        Write::Take { claim }
    }

    /// Holds an address for a holder that is about to take it.
    pub(crate) fn hold(&mut self, claim: Claim) {
        self.begin(claim.addr, Some(claim), Phase::Held);
    }

    /// Writes an existing claim at its known version.
    pub(crate) fn touch(&mut self, claim: Claim) -> Write {
        self.begin(claim.addr, Some(claim.clone()), Phase::Writing);
        Write::Touch { claim }
    }

    /// Marks the release of a holder as in flight. The planner makes the call itself, because it knows
    /// how to read the holder live.
    pub(crate) fn begin_release(&mut self, claim: &Claim, holder: &HolderEntry, then: &Then) {
        self.begin(claim.addr, then.leaves(claim, holder), Phase::Writing);
    }

    /// Deletes a claim without a holder.
    pub(crate) fn expire(&mut self, addr: IpAddr) -> Option<Write> {
        let claim = self.claim(addr)?;
        let (uid, version) = (claim.uid.clone(), claim.version);
        self.begin(addr, None, Phase::Writing);
        Some(Write::Expire { addr, uid, version })
    }

    /// Deletes claims whose reservations have expired.
    pub(crate) fn expire_due(&mut self, now: Now) -> Vec<Write> {
        let expiries = &self.indexes.expiries;
        let over = |(expires, _): &&(Timestamp, IpAddr)| *expires <= now.wall;
        let next = expiries.iter().find(|entry| !over(entry));
        self.expiry_at = next.map(|(expires, _)| {
            let left = expires.duration_since(now.wall).try_into().unwrap_or_default();
            now.uptime.saturating_add(left)
        });
        let due: Vec<_> = expiries.iter().take_while(over).map(|(_, addr)| *addr).collect();
        // The report of the call or the end of the delay triggers this again.
        let free =
            |addr: &IpAddr| !self.is_in_flight(*addr) && self.release_delay(*addr, now).is_none();
        let due: Vec<_> = due.into_iter().filter(free).collect();
        due.into_iter().filter_map(|addr| self.expire(addr)).collect()
    }

    /// Live reads that are due.
    pub(crate) fn read_due(&mut self, now: Now) -> Vec<Write> {
        let mut reads = Vec::new();
        for addr in self.reads.take(now) {
            if let Some(entry) = self.in_flight.get_mut(&addr) {
                entry.phase = Phase::Reading;
                let known = self.claims.get(&addr).map(|claim| claim.version);
                reads.push(Write::Read { addr, known });
            }
        }
        reads
    }

    /// Schedules a live read of the claim on an address. A holder may wait for the result.
    pub(crate) fn read_at(&mut self, addr: IpAddr, at: Duration, for_whom: Option<HolderRef>) {
        self.replace(addr, |entry| {
            let reread = entry.is_some_and(|entry| entry.reread);
            Some(InFlight { expected: None, phase: Phase::ReadDue(at), for_whom, reread })
        });
        self.settle(addr);
    }

    /// Takes in the result of a take, a touch, an expiry or a read.
    pub(crate) fn written(
        &mut self,
        write: &Write,
        for_whom: Option<HolderRef>,
        result: Result<Answer, Failure>,
        now: Now,
    ) -> Outcome {
        let addr = write.addr();
        match write {
            Write::Read { known, .. } => return self.read(addr, *known, result, now),
            Write::Expire { version, .. } => {
                return self.release_ended(addr, *version, result, now);
            }
            Write::Take { .. } | Write::Touch { .. } | Write::Place { .. } => {}
        }
        self.note_blocked(&result);
        match result {
            Ok(Answer::Claim(claim)) => {
                self.put(claim);
                self.end(addr);
                Outcome::Done
            }
            Ok(_) | Err(Failure::NotSent) => {
                self.end(addr);
                Outcome::Nothing
            }
            Err(Failure::Exists | Failure::Conflict | Failure::NotFound) => {
                self.read_after_conflict(addr, now);
                Outcome::Conflict
            }
            // The write did not happen, so there is nothing to read.
            Err(failure @ (Failure::Throttled(_) | Failure::Refused(_) | Failure::Blocked(_))) => {
                self.end(addr);
                if matches!(write, Write::Place { .. }) {
                    self.delay_place(addr, failure.asked_to_wait(), now);
                }
                Outcome::Refused(failure)
            }
            Err(failure @ Failure::Unknown(_)) => {
                self.read_later(addr, &failure, for_whom, now);
                Outcome::Unknown
            }
        }
    }

    /// Takes in the result of a release that was decided at this version of the claim.
    pub(crate) fn release_ended(
        &mut self,
        addr: IpAddr,
        version: Version,
        result: Result<Answer, Failure>,
        now: Now,
    ) -> Outcome {
        self.note_blocked(&result);
        match result {
            Ok(Answer::Released { .. }) => {
                self.deleted(addr, version);
                self.end(addr);
                Outcome::Done
            }
            // The claim stays, for other holders or as a reservation.
            Ok(Answer::Claim(claim)) => {
                self.put(claim);
                self.end(addr);
                Outcome::Done
            }
            Ok(Answer::Kept) => {
                self.end(addr);
                self.delay_release(addr, Duration::ZERO, now);
                Outcome::Kept
            }
            Ok(Answer::NoClaim) | Err(Failure::NotSent) => {
                self.end(addr);
                Outcome::Nothing
            }
            Err(failure @ (Failure::Throttled(_) | Failure::Refused(_) | Failure::Blocked(_))) => {
                self.end(addr);
                self.delay_release(addr, failure.asked_to_wait(), now);
                Outcome::Refused(failure)
            }
            Err(Failure::Conflict | Failure::NotFound | Failure::Exists) => {
                self.read_after_conflict(addr, now);
                Outcome::Conflict
            }
            Err(failure @ Failure::Unknown(_)) => {
                self.read_later(addr, &failure, None, now);
                Outcome::Unknown
            }
        }
    }

    /// Notes whether a webhook without a backend refuses every write of a claim. When one has
    /// succeeded, every refused write is worth another try.
    fn note_blocked(&mut self, result: &Result<Answer, Failure>) {
        match result {
            Err(Failure::Blocked(message)) => {
                self.blocked = Some(message.clone());
                self.tell(Change::Blocked);
            }
            Ok(Answer::Claim(_) | Answer::Released { .. }) => {
                if self.blocked.take().is_some() {
                    self.retry_releases();
                    self.tell(Change::Unblocked);
                }
            }
            Ok(Answer::NoClaim | Answer::Kept) | Err(_) => {}
        }
    }

    fn read(
        &mut self,
        addr: IpAddr,
        known: Option<Version>,
        result: Result<Answer, Failure>,
        now: Now,
    ) -> Outcome {
        let for_whom = self.in_flight.get(&addr).and_then(|entry| entry.for_whom.clone());
        match result {
            Ok(Answer::Claim(claim)) => self.put(claim),
            Ok(Answer::NoClaim) => {
                if let Some(known) = known {
                    self.deleted(addr, known);
                }
            }
            Ok(_) | Err(Failure::NotSent) => {
                self.end(addr);
                return Outcome::Nothing;
            }
            Err(failure) => {
                self.read_later(addr, &failure, for_whom, now);
                return Outcome::Unknown;
            }
        }
        self.end(addr);
        self.tell(Change::Read(addr, for_whom));
        Outcome::Read
    }

    fn deleted(&mut self, addr: IpAddr, version: Version) {
        if let Some(old) = self.claims.deleted(&addr, version) {
            self.claim_changed(addr, Some(old));
        }
    }

    /// Ends the hold on an address: the Service takes it, or no longer wants it.
    pub(crate) fn drop_hold(&mut self, addr: IpAddr) {
        self.end(addr);
    }

    /// A call about the claim on an address has ended.
    fn end(&mut self, addr: IpAddr) {
        let reread = self.in_flight.get(&addr).is_some_and(|entry| entry.reread);
        self.replace(addr, |_| None);
        self.claims.unpin(&addr);
        if reread {
            self.read_at(addr, Duration::ZERO, None);
            return;
        }
        self.settle(addr);
        self.tell(Change::Ended(addr));
    }

    /// Schedules a read of a claim after a write of it conflicted. One conflict can happen to any
    /// write, so the first read is immediate. If nothing newer is found and the next write conflicts as
    /// well, the delay grows.
    fn read_after_conflict(&mut self, addr: IpAddr, now: Now) {
        let reads = &mut self.setbacks.entry(addr).or_default().reads;
        let at = reads.checked_sub(1).and_then(|again| Backoff::after(again, now).until);
        *reads = reads.saturating_add(1);
        self.read_at(addr, at.unwrap_or(now.uptime), None);
    }

    /// Schedules a read of a claim after a call about it failed, with a growing delay. Until then the
    /// expected claim counts.
    fn read_later(
        &mut self,
        addr: IpAddr,
        failure: &Failure,
        for_whom: Option<HolderRef>,
        now: Now,
    ) {
        let reads = &mut self.setbacks.entry(addr).or_default().reads;
        let delay = Backoff::after(*reads, now).at_least(failure.asked_to_wait(), now);
        *reads = delay.tries;
        let at = delay.until.unwrap_or(now.uptime);
        self.replace(addr, |entry| {
            let (expected, reread) =
                entry.map_or((None, false), |entry| (entry.expected, entry.reread));
            Some(InFlight { expected, phase: Phase::ReadDue(at), for_whom, reread })
        });
        self.settle(addr);
    }

    fn delay_release(&mut self, addr: IpAddr, wait: Duration, now: Now) {
        let release = &mut self.setbacks.entry(addr).or_default().release;
        let tries = release.map_or(0, |delay| delay.tries);
        let delay = Backoff::after(tries, now).at_least(wait, now);
        *release = Some(delay);
        self.releases.set(addr, delay.until);
    }

    pub(super) fn begin(&mut self, addr: IpAddr, expected: Option<Claim>, phase: Phase) {
        let expected = expected.map(Box::new);
        self.replace(addr, |_| Some(InFlight { expected, phase, for_whom: None, reread: false }));
        self.settle(addr);
    }

    fn replace(&mut self, addr: IpAddr, next: impl FnOnce(Option<InFlight>) -> Option<InFlight>) {
        let before = index::facts(self.claims.get(&addr), self.in_flight.get(&addr));
        let next = next(self.in_flight.remove(&addr));
        self.reads.set(addr, next.as_ref().and_then(|entry| entry.phase.read_due()));
        if let Some(next) = next {
            self.in_flight.insert(addr, next);
        }
        self.reindex(addr, &before);
    }

    /// The pool that contains an address, else the one that its claim names.
    pub(crate) fn pool_of(&self, addr: IpAddr) -> Option<PoolName> {
        let covering = self.book.pool_of(addr).map(|pool| pool.name.clone());
        covering.or_else(|| self.claim(addr)?.pool.clone())
    }
}
