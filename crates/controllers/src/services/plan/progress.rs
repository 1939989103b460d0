//! The progress of each Service: calls in flight, reads that are due, delays after failures.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use super::{Now, Refusal};
use crate::{
    backoff::Backoff,
    call::Failure,
    object::{ObjectKey, Version},
};

/// The call that a Service has in flight, due or to wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    /// It waits for a call about an address to end.
    AwaitsAddress,
    /// A live read is due at this uptime.
    ReadDue(Duration),
    /// This many calls are in flight. A live read may be due when they have ended.
    Calling { calls: u32, read_at: Option<Duration> },
}

/// Everything that is in flight or due for one Service. An idle Service has no entry.
#[derive(Debug, Default, PartialEq)]
struct Progress {
    stage: Stage,
    /// Live reads that failed in a row.
    failed_reads: u32,
    /// The delay after failed writes, and the refusal if the API server refused one.
    write: Option<(Backoff, Option<Refusal>)>,
    /// The delay after failed attempts to remove leftovers from the Service. It delays nothing else.
    clean_up: Option<Backoff>,
    /// Addresses held for the Service until its call has ended, and the version at which it wanted them.
    held: Option<(Version, Vec<IpAddr>)>,
}

impl Progress {
    /// The uptimes at which something is due.
    fn dues(&self) -> impl Iterator<Item = Duration> {
        let read = if let Stage::ReadDue(at) = self.stage { Some(at) } else { None };
        let write = self.write.as_ref().and_then(|(delay, _)| delay.until);
        let clean_up = self.clean_up.and_then(|delay| delay.until);
        [read, write, clean_up].into_iter().flatten()
    }
}

/// The progress of every Service for which anything is in flight or due.
#[derive(Debug, Default)]
pub(super) struct Progresses {
    of: BTreeMap<ObjectKey, Progress>,
    /// Services by the times at which something is due for them.
    due: BTreeSet<(Duration, ObjectKey)>,
    /// Services that wait for a call about an address to end.
    awaiting: BTreeSet<ObjectKey>,
    /// Services with calls in flight.
    calling: usize,
}

impl Progresses {
    /// Changes the progress of a Service and updates the indexes.
    fn edit<R>(&mut self, key: &ObjectKey, change: impl FnOnce(&mut Progress) -> R) -> R {
        let mut progress = self.of.remove(key).unwrap_or_default();
        for at in progress.dues() {
            self.due.remove(&(at, key.clone()));
        }
        let was_calling = matches!(progress.stage, Stage::Calling { .. });
        let result = change(&mut progress);
        for at in progress.dues() {
            self.due.insert((at, key.clone()));
        }
        if progress.stage == Stage::AwaitsAddress {
            self.awaiting.insert(key.clone());
        } else {
            self.awaiting.remove(key);
        }
        let is_calling = matches!(progress.stage, Stage::Calling { .. });
        self.calling = self
            .calling
            .saturating_add(usize::from(is_calling))
            .saturating_sub(usize::from(was_calling));
        if progress != Progress::default() {
            self.of.insert(key.clone(), progress);
        }
        result
    }

    fn stage(&self, key: &ObjectKey) -> Stage {
        self.of.get(key).map_or(Stage::Idle, |progress| progress.stage)
    }

    /// Whether a call about the Service is in flight or due.
    pub(super) fn is_engaged(&self, key: &ObjectKey) -> bool {
        matches!(self.stage(key), Stage::ReadDue(_) | Stage::Calling { .. })
    }

    /// Whether no call about any Service is in flight.
    pub(super) const fn is_quiet(&self) -> bool {
        self.calling == 0
    }

    pub(super) fn begin_call(&mut self, key: &ObjectKey) {
        self.edit(key, |progress| {
            progress.stage = match progress.stage {
                Stage::Calling { calls, read_at } => {
                    Stage::Calling { calls: calls.saturating_add(1), read_at }
                }
                Stage::ReadDue(at) => Stage::Calling { calls: 1, read_at: Some(at) },
                Stage::Idle | Stage::AwaitsAddress => Stage::Calling { calls: 1, read_at: None },
            };
        });
    }

    pub(super) fn end_call(&mut self, key: &ObjectKey) {
        self.edit(key, |progress| {
            progress.stage = match progress.stage {
                Stage::Calling { calls: 0 | 1, read_at } => {
                    read_at.map_or(Stage::Idle, Stage::ReadDue)
                }
                Stage::Calling { calls, read_at } => {
                    Stage::Calling { calls: calls.saturating_sub(1), read_at }
                }
                stage @ (Stage::Idle | Stage::AwaitsAddress | Stage::ReadDue(_)) => stage,
            };
        });
    }

    /// Schedules a live read of a Service at this uptime, unless an earlier one is scheduled.
    pub(super) fn read_at(&mut self, key: &ObjectKey, at: Duration) {
        self.edit(key, |progress| {
            progress.stage = match progress.stage {
                Stage::Idle | Stage::AwaitsAddress => Stage::ReadDue(at),
                Stage::ReadDue(before) => Stage::ReadDue(before.min(at)),
                Stage::Calling { calls, read_at } => {
                    let read_at = Some(read_at.map_or(at, |before| before.min(at)));
                    Stage::Calling { calls, read_at }
                }
            };
        });
    }

    /// Schedules a live read of a Service after a failed call, with a growing delay.
    pub(super) fn read_later(&mut self, key: &ObjectKey, failure: &Failure, now: Now) {
        let tries = self.of.get(key).map_or(0, |progress| progress.failed_reads);
        let delay = Backoff::after(tries, now).at_least(failure.asked_to_wait(), now);
        self.edit(key, |progress| progress.failed_reads = delay.tries);
        self.read_at(key, delay.until.unwrap_or(now.uptime));
    }

    /// A live read of a Service succeeded, or was not sent.
    pub(super) fn forget_failed_reads(&mut self, key: &ObjectKey) {
        if self.of.get(key).is_some_and(|progress| progress.failed_reads > 0) {
            self.edit(key, |progress| progress.failed_reads = 0);
        }
    }

    /// Services whose live read is due. Each has a call in flight from now on.
    pub(super) fn take_reads(&mut self, now: Now) -> Vec<ObjectKey> {
        let due = self.due.iter().take_while(|(at, _)| *at <= now.uptime);
        let reads =
            |key: &ObjectKey| matches!(self.stage(key), Stage::ReadDue(at) if at <= now.uptime);
        let keys: BTreeSet<_> = due.map(|(_, key)| key).filter(|key| reads(key)).cloned().collect();
        for key in &keys {
            self.edit(key, |progress| {
                progress.stage = Stage::Calling { calls: 1, read_at: None };
            });
        }
        keys.into_iter().collect()
    }

    /// A Service waits for a call about an address to end.
    pub(super) fn await_address(&mut self, key: &ObjectKey) {
        self.edit(key, |progress| {
            if progress.stage == Stage::Idle {
                progress.stage = Stage::AwaitsAddress;
            }
        });
    }

    pub(super) fn awaits_address(&self, key: &ObjectKey) -> bool {
        self.awaiting.contains(key)
    }

    /// A call about an address has ended: returns the Services that waited for any such call.
    pub(super) fn take_awaiting(&mut self) -> BTreeSet<ObjectKey> {
        let keys = std::mem::take(&mut self.awaiting);
        for key in &keys {
            self.edit(key, |progress| progress.stage = Stage::Idle);
        }
        keys
    }

    /// The delay after failed writes of a Service, and the refusal if there was one. It is remembered
    /// after its end, until a write succeeds.
    pub(super) fn write_delay(&self, key: &ObjectKey) -> Option<&(Backoff, Option<Refusal>)> {
        self.of.get(key)?.write.as_ref()
    }

    /// Whether writes of a Service must wait.
    pub(super) fn is_delayed(&self, key: &ObjectKey, now: Now) -> bool {
        self.write_delay(key).is_some_and(|(delay, _)| delay.holds(now))
    }

    pub(super) fn delay_writes(
        &mut self,
        key: &ObjectKey,
        delay: Backoff,
        refused: Option<Refusal>,
    ) {
        self.edit(key, |progress| progress.write = Some((delay, refused)));
    }

    /// A write of a Service succeeded, or the Service is gone.
    pub(super) fn end_write_delay(&mut self, key: &ObjectKey) {
        if self.write_delay(key).is_some() {
            self.edit(key, |progress| progress.write = None);
        }
    }

    /// Ends the delays of all failed writes.
    pub(super) fn retry_writes(&mut self) {
        let delayed = self.of.iter().filter(|(_, progress)| progress.write.is_some());
        let keys: Vec<_> = delayed.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.edit(&key, |progress| {
                if let Some((delay, _)) = &mut progress.write {
                    delay.until = delay.until.map(|_| Duration::ZERO);
                }
            });
        }
    }

    /// The delay after failed attempts to clean up a Service.
    pub(super) fn clean_up_delay(&self, key: &ObjectKey) -> Option<Backoff> {
        self.of.get(key)?.clean_up
    }

    pub(super) fn set_clean_up_delay(&mut self, key: &ObjectKey, delay: Option<Backoff>) {
        if self.clean_up_delay(key) != delay {
            self.edit(key, |progress| progress.clean_up = delay);
        }
    }

    /// Services whose delays end now. Refusals are forgotten, so that the writes are tried again.
    pub(super) fn end_delays(&mut self, now: Now) -> Vec<ObjectKey> {
        let due = self.due.iter().take_while(|(at, _)| *at <= now.uptime);
        let keys: BTreeSet<_> = due.map(|(_, key)| key.clone()).collect();
        let mut ended = Vec::new();
        for key in keys {
            let is_over = self.edit(&key, |progress| {
                let mut is_over = false;
                if let Some((delay, refused)) = &mut progress.write
                    && delay.end(now)
                {
                    *refused = None;
                    is_over = true;
                }
                if let Some(delay) = &mut progress.clean_up {
                    is_over |= delay.end(now);
                }
                is_over
            });
            if is_over {
                ended.push(key);
            }
        }
        ended
    }

    /// The addresses that are held for a Service, and the version at which it wanted them.
    pub(super) fn held(&self, key: &ObjectKey) -> Option<&(Version, Vec<IpAddr>)> {
        self.of.get(key)?.held.as_ref()
    }

    /// Replaces the addresses that are held for a Service; returns the previous ones.
    pub(super) fn set_held(
        &mut self,
        key: &ObjectKey,
        held: Option<(Version, Vec<IpAddr>)>,
    ) -> Vec<IpAddr> {
        if self.held(key).is_none() && held.is_none() {
            return Vec::new();
        }
        let before = self.edit(key, |progress| std::mem::replace(&mut progress.held, held));
        before.map(|(_, addrs)| addrs).unwrap_or_default()
    }

    /// The uptime at which something is due.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn at(seconds: u64) -> Now {
        Now { wall: Timestamp::UNIX_EPOCH, uptime: Duration::from_secs(seconds) }
    }

    fn web() -> ObjectKey {
        ObjectKey::new("shop", "web")
    }

    #[test]
    fn a_read_waits_for_the_calls_in_flight() {
        let mut progress = Progresses::default();
        progress.begin_call(&web());
        progress.begin_call(&web());
        progress.read_at(&web(), Duration::from_secs(3));
        progress.end_call(&web());
        assert_eq!(progress.take_reads(at(5)), []);
        assert_eq!(progress.next_due(), None, "its report brings us back");
        progress.end_call(&web());
        assert!(progress.is_engaged(&web()) && progress.is_quiet());
        assert_eq!(progress.next_due(), Some(Duration::from_secs(3)));
        assert_eq!(progress.take_reads(at(2)), []);
        assert_eq!(progress.take_reads(at(3)), [web()]);
        assert!(!progress.is_quiet());
        progress.end_call(&web());
        assert!(!progress.is_engaged(&web()) && progress.of.is_empty());
    }

    #[test]
    fn failed_reads_are_repeated_less_and_less_often_until_one_goes_through() {
        let mut progress = Progresses::default();
        let failure = Failure::Unknown("lost".to_owned());
        let mut waits = Vec::new();
        for _ in 0..3 {
            progress.read_later(&web(), &failure, at(10));
            waits.push(progress.next_due().unwrap().as_millis() - 10_000);
            assert_eq!(progress.take_reads(at(100)), [web()]);
            progress.end_call(&web());
        }
        assert_eq!(waits, [250, 500, 1000]);
        progress.forget_failed_reads(&web());
        progress.read_later(&web(), &failure, at(10));
        assert_eq!(progress.next_due(), Some(Duration::from_millis(10_250)));
    }

    #[test]
    fn a_wait_ends_once_and_its_refused_write_is_forgotten_with_it() {
        let mut progress = Progresses::default();
        let refused = Refusal::LedgerRefused("no".to_owned());
        progress.delay_writes(&web(), Backoff::after(0, at(10)), Some(refused.clone()));
        progress.set_clean_up_delay(&web(), Some(Backoff::after(3, at(10))));
        assert!(progress.is_delayed(&web(), at(10)));
        assert_eq!(progress.write_delay(&web()).unwrap().1, Some(refused));
        assert_eq!(progress.end_delays(at(10)), []);
        assert_eq!(progress.end_delays(at(11)), [web()]);
        assert_eq!(progress.end_delays(at(11)), []);
        let (delay, refused) = progress.write_delay(&web()).unwrap();
        assert_eq!((delay.tries, refused), (1, &None), "the number of tries is remembered");
        assert_eq!(progress.end_delays(at(12)), [web()], "the clean-up");
        progress.end_write_delay(&web());
        progress.set_clean_up_delay(&web(), None);
        assert!(progress.of.is_empty() && progress.due.is_empty());
    }

    #[test]
    fn services_that_await_an_address_are_woken_unless_a_call_will_do_it() {
        let mut progress = Progresses::default();
        let dns = ObjectKey::new("shop", "dns");
        progress.await_address(&web());
        progress.await_address(&dns);
        progress.begin_call(&dns);
        assert!(progress.awaits_address(&web()) && !progress.awaits_address(&dns));
        assert_eq!(progress.take_awaiting(), BTreeSet::from([web()]));
        assert!(!progress.awaits_address(&web()) && progress.is_engaged(&dns));
        progress.await_address(&dns);
        assert_eq!(progress.take_awaiting(), BTreeSet::new());
    }
}
