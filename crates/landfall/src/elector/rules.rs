//! The rules of the election as pure decisions, without calls or clocks of their own.

use std::mem;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::Instant;

use super::identity::Identity;

/// How many times our own lease duration another holder is believed to be alive after a sign of life,
/// whatever its record says. client-go's 15 seconds are within it; an edited record that says 68 years must
/// not stop every candidate for that long.
const MOST_BELIEVED: u32 = 4;

/// The default name of the lease that all operators of one namespace compete for.
pub const LEASE_NAME: &str = "landfall-operator";

/// The durations of the election; all candidates of one lease use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    lease_seconds: u16,
    renew_deadline: Duration,
    retry_period: Duration,
}

impl Timing {
    /// `None` unless lease > renew deadline > retry period > 0.
    ///
    /// The distance between the first two keeps two leaders apart when their clocks run at different speeds;
    /// without it there would be two leaders whenever one is cut off.
    pub fn new(
        lease_seconds: u16,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Option<Self> {
        let sound = Duration::from_secs(lease_seconds.into()) > renew_deadline
            && renew_deadline > retry_period
            && !retry_period.is_zero();
        sound.then_some(Self { lease_seconds, renew_deadline, retry_period })
    }

    /// client-go's defaults.
    pub fn client_go() -> Self {
        Self {
            lease_seconds: 15,
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// How long other candidates wait for an unchanged record to change.
    pub fn lease(&self) -> Duration {
        Duration::from_secs(self.lease_seconds.into())
    }

    /// How long a leader leads after it sent a renewal that succeeded.
    pub fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// From the start of one round to the start of the next.
    pub fn retry_period(&self) -> Duration {
        self.retry_period
    }

    /// The same for a standby. It looks twice per renewal: the delay of a look is added to the time without a
    /// leader.
    pub fn look_period(&self) -> Duration {
        self.retry_period / 2
    }

    /// How long one call may take: two of them fit into the renew deadline, so that one call lost
    /// on a dead connection does not cost the leadership.
    pub fn call_deadline(&self) -> Duration {
        self.renew_deadline / 2
    }
}

impl Default for Timing {
    /// A standby serves within six seconds of its leader's death. client-go's programs wait longer, because
    /// their process ends when a leader loses its lease over a slow API server.
    fn default() -> Self {
        Self {
            lease_seconds: 5,
            renew_deadline: Duration::from_secs(4),
            retry_period: Duration::from_secs(1),
        }
    }
}

/// What we know of the record on the server.
#[derive(Clone, Debug, Default, PartialEq)]
enum Known {
    /// Nothing was seen yet, or a call of ours ended without an answer.
    #[default]
    Unknown,
    Missing,
    Record(Box<Lease>),
}

/// Another holder, believed alive until `expires`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rival {
    holder: String,
    version: String,
    expires: Instant,
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Read the lease: its state is unknown.
    Look,
    /// Wait: the holder is alive until then as far as we can see.
    Wait(Instant),
    /// Create the lease with us as holder.
    Create(Box<Lease>),
    /// Take or renew it; carries the version it replaces.
    Update(Box<Lease>),
}

/// One candidate's memory of the lease, and what follows from it.
///
/// Whether another holder is alive is judged only by how long *we* have seen its record unchanged.
/// The times in the record come from another machine's clock and are there for people to read.
#[derive(Debug)]
pub struct Candidate {
    identity: Identity,
    timing: Timing,
    known: Known,
    rival: Option<Rival>,
    /// Whether the server has answered us once.
    has_looked: bool,
    /// The process of our Pod that held the lease when we first looked. It has ended, or we would not run.
    predecessor: Option<String>,
}

impl Candidate {
    pub fn new(identity: Identity, timing: Timing) -> Self {
        Self {
            identity,
            timing,
            known: Known::Unknown,
            rival: None,
            has_looked: false,
            predecessor: None,
        }
    }

    pub fn identity(&self) -> &str {
        self.identity.name()
    }

    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Whether the server's record names us, as far as we know; this does not mean that we lead.
    pub fn holds(&self) -> bool {
        matches!(&self.known, Known::Record(lease) if holder(lease) == self.identity())
    }

    /// Whether the record must be read before anything can be said about it.
    pub fn is_unsure(&self) -> bool {
        matches!(self.known, Known::Unknown)
    }

    /// The other holder of the lease, if there is one.
    pub fn rival(&self) -> Option<&str> {
        self.rival.as_ref().map(|rival| rival.holder.as_str())
    }

    /// Takes in an answer of the server that arrived at `at`.
    ///
    /// It must be the time of arrival, which is later than the holder's write. Counting from when
    /// we asked could end the holder's lease before the holder itself believes so.
    pub fn observe(&mut self, answer: Option<Lease>, at: Instant) {
        let is_first = !mem::replace(&mut self.has_looked, true);
        let Some(lease) = answer else {
            // Free for every candidate: a leader by the deleted lease finds out at its next renewal.
            self.known = Known::Missing;
            self.rival = None;
            return;
        };
        let holder = holder(&lease);
        // Only at the first look: a process of our Pod that takes the lease later came after us, and two
        // processes that each take the other for dead would take the lease from each other for ever.
        if is_first && self.identity.shares_pod_with(holder) {
            self.predecessor = Some(holder.to_owned());
        }
        let is_free = holder.is_empty() || self.predecessor.as_deref() == Some(holder);
        if is_free || holder == self.identity() {
            self.rival = None;
        } else {
            // Any write counts as a sign of life; the error is on the side of waiting.
            let version = lease.metadata.resource_version.clone().unwrap_or_default();
            if self.rival.as_ref().is_none_or(|rival| rival.version != version) {
                let expires = at + self.believed(&lease);
                self.rival = Some(Rival { holder: holder.to_owned(), version, expires });
            }
        }
        self.known = Known::Record(Box::new(lease));
    }

    /// Marks the record as unknown: before each write, and when an answer is missing.
    pub fn forget(&mut self) {
        self.known = Known::Unknown;
    }

    /// Decides the next step; `wall` only becomes text in the record.
    pub fn decide(&self, now: Instant, wall: Timestamp) -> Decision {
        let alive = self.rival.as_ref().map(|rival| rival.expires).filter(|until| now < *until);
        match (&self.known, alive) {
            (Known::Unknown, _) => Decision::Look,
            (Known::Missing | Known::Record(_), Some(until)) => Decision::Wait(until),
            (Known::Missing, None) => Decision::Create(Box::new(self.claim(None, wall))),
            (Known::Record(lease), None) => {
                Decision::Update(Box::new(self.claim(Some(lease), wall)))
            }
        }
    }

    /// The record without a holder, so that the next leader need not wait; `None` if it is not ours.
    pub fn released(&self, wall: Timestamp) -> Option<Lease> {
        let Known::Record(lease) = &self.known else { return None };
        if !self.holds() {
            return None;
        }
        let mut lease = Lease::clone(lease);
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        // The API server refuses zero.
        spec.lease_duration_seconds = Some(1);
        spec.acquire_time = Some(MicroTime(wall));
        spec.renew_time = Some(MicroTime(wall));
        Some(lease)
    }

    /// How long we believe the holder of this record alive: as long as the record says, within limits.
    fn believed(&self, lease: &Lease) -> Duration {
        let own = self.timing.lease();
        let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0)
            .map_or(own, |seconds| Duration::from_secs(seconds).min(own * MOST_BELIEVED))
    }

    /// The record that makes us the holder; fields that others added to the object stay.
    fn claim(&self, old: Option<&Lease>, wall: Timestamp) -> Lease {
        let mut lease = old.cloned().unwrap_or_default();
        let renewal = old.is_some_and(|old| holder(old) == self.identity());
        let spec: &mut LeaseSpec = lease.spec.get_or_insert_default();
        if !renewal {
            spec.acquire_time = None;
            let transitions = spec.lease_transitions.filter(|_| old.is_some());
            let next =
                transitions.map_or_else(|| i32::from(old.is_some()), |n| n.saturating_add(1));
            spec.lease_transitions = Some(next);
        }
        spec.holder_identity = Some(self.identity().to_owned());
        spec.lease_duration_seconds = Some(self.timing.lease_seconds.into());
        spec.acquire_time.get_or_insert(MicroTime(wall));
        spec.renew_time = Some(MicroTime(wall));
        lease
    }
}

/// Empty if the lease has no holder.
fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}
