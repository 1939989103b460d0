//! What the planner asks for, and what came of it.

use std::{net::IpAddr, sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use landfall_api::IPGroupStatus;
use landfall_ipam::PoolName;

use super::view::{ClaimView, HolderView, PoolSource, PoolView, Reservation, ServiceView, Tenure};
use crate::object::{ObjectKey, Version};

/// One guarded, idempotent call. Everything is decided; applying it has nothing left to choose.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Effect {
    /// Create the claim: fails if anyone has the address.
    Take { addr: IpAddr, pool: Option<PoolName>, holder: HolderView },
    /// Write a claim that already names the holder, so that nobody who knew the old version can
    /// delete it under us.
    ///
    /// Joining those who have the address is the same write: it adds the holder.
    Touch {
        /// For which of the holders.
        key: ObjectKey,
        addr: IpAddr,
        version: Version,
        pool: Option<PoolName>,
        holders: Vec<HolderView>,
        /// Whether a reservation that has served its purpose goes.
        end_reservation: bool,
    },
    /// Write the Service's status at exactly this version.
    Publish {
        key: ObjectKey,
        uid: Arc<str>,
        version: Version,
        /// The ingress; `None` leaves it as it is.
        ingress: Option<Vec<IpAddr>>,
        conditions: Vec<Condition>,
        /// What to tell about it once it is done.
        note: Option<Note>,
        /// Whether it has had no address before.
        first: bool,
    },
    /// Write the annotation that kube-vip reads, and what goes with it, at exactly this version.
    Annotate {
        key: ObjectKey,
        uid: Arc<str>,
        version: Version,
        /// The addresses, in order; `None` leaves them as they are.
        addrs: Option<Vec<IpAddr>>,
        /// The network interface to announce them on.
        interface: Option<Arc<str>>,
        note: Option<Note>,
        first: bool,
    },
    /// Take off a Service what a replaced operator left on it, or we when it was a `LoadBalancer`,
    /// at exactly this version.
    CleanUp {
        key: ObjectKey,
        uid: Arc<str>,
        version: Version,
        /// The finalizers it keeps; `None` leaves them as they are.
        finalizers: Option<Vec<String>>,
        /// Whether the annotation and what goes with it go, too.
        marks: bool,
    },
    /// Take our condition off a Service that is no `LoadBalancer` any more, at exactly this version.
    Retract { key: ObjectKey, uid: Arc<str>, version: Version, conditions: Vec<Condition> },
    /// Read the holder live, and give up the claim at exactly this version if the holder neither
    /// shows nor could want the address.
    ///
    /// Others who share the address keep the claim, and then only this holder leaves it.
    Release {
        claim: ClaimView,
        holder: HolderView,
        then: Then,
        /// Whether what the holder shows in kube-vip's annotation counts.
        annotated: bool,
    },
    /// Delete, at exactly this version, a claim that names nobody and whose reservation is over or
    /// given up.
    Expire { addr: IpAddr, uid: Arc<str>, version: Version },
    /// Find out by a live read what became of a claim, of which we knew this version. "Not there"
    /// is news only as long as nothing newer is known.
    LookAtClaim { addr: IpAddr, known: Option<Version> },
    /// The same for a Service.
    LookAtService { key: ObjectKey, known: Option<Version> },
    /// Write a pool's status.
    PoolStatus { pool: PoolName, object: Arc<str>, version: Version, status: IPGroupStatus },
    /// Tell people. Best effort.
    Note(Note),
}

impl Effect {
    /// What goes first when more is asked for than can be under way: finish what was begun, then
    /// begin more, then tidy up. Telling people comes last.
    pub(super) const fn rank(&self) -> u8 {
        match self {
            Self::Publish { .. } | Self::Annotate { .. } => 0,
            Self::LookAtClaim { .. } | Self::LookAtService { .. } | Self::Touch { .. } => 1,
            Self::Take { .. } => 2,
            Self::Release { .. }
            | Self::Expire { .. }
            | Self::CleanUp { .. }
            | Self::Retract { .. } => 3,
            Self::PoolStatus { .. } => 4,
            Self::Note(_) => 5,
        }
    }

    /// The word for logs and metrics.
    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Take { .. } => "take",
            Self::Touch { .. } => "touch",
            Self::Publish { .. } => "publish",
            Self::Annotate { .. } => "annotate",
            Self::CleanUp { .. } => "clean_up",
            Self::Retract { .. } => "retract",
            Self::Release { .. } => "release",
            Self::Expire { .. } => "expire",
            Self::LookAtClaim { .. } | Self::LookAtService { .. } => "look",
            Self::PoolStatus { .. } => "pool_status",
            Self::Note(_) => "event",
        }
    }
}

/// What becomes of a claim that its last holder gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// It is deleted, and the address is free.
    Free,
    /// It is kept for whom an administrator reserved it.
    Reserve(Reservation),
    /// It waits for a Service of the same name if the holder is gone, though another may bear its
    /// name by now, and is deleted otherwise.
    RetainIfGone(Reservation),
}

impl Then {
    /// The claim that is left when a holder gives it up and, being gone, does not come back for it.
    pub(super) fn leaves(&self, claim: &ClaimView, holder: &HolderView) -> Option<ClaimView> {
        let others = claim.holders_without(holder);
        let reserved = match self {
            _ if !others.is_empty() => claim.reserved.clone(),
            Self::Free => return None,
            Self::Reserve(reservation) | Self::RetainIfGone(reservation) => {
                Some(reservation.clone())
            }
        };
        Some(ClaimView { reserved, tenure: Tenure::Services(others), ..claim.clone() })
    }
}

/// A Kubernetes event to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub about: About,
    pub warning: bool,
    pub reason: String,
    pub message: String,
}

/// The object an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum About {
    Service { key: ObjectKey, uid: Arc<str> },
    Pool { source: PoolSource, object: Arc<str>, uid: Arc<str> },
    Claim { addr: IpAddr, uid: Arc<str> },
}

impl About {
    pub(super) fn of_pool(view: &PoolView) -> Self {
        Self::Pool { source: view.source, object: view.object.clone(), uid: view.uid.clone() }
    }
}

/// An effect and what came of it.
#[derive(Debug)]
pub(super) struct Report {
    pub effect: Effect,
    pub result: Result<Answer, Failure>,
}

/// What a call that went through told us.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Claim(ClaimView),
    NoClaim,
    Service(ServiceView),
    /// The Service exists at this version and is not of type `LoadBalancer`.
    OtherService(Version),
    NoService,
    Pool(Box<PoolView>),
    /// The claim is deleted. The uid is that of its last holder, if it still exists.
    Released {
        by: Option<Arc<str>>,
    },
    /// The live read forbade the release.
    Kept,
    Done,
}

/// Why a call did not go through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Somebody has the name.
    Exists,
    /// The object is at another version.
    Conflict,
    /// There is no such object.
    NotFound,
    /// The API server said no, and will say so again until somebody changes something.
    Refused(String),
    /// A webhook that nobody answers for says no, and does so to every write of the kind.
    Blocked(String),
    /// The API server has too much to do: it did nothing, and asks to be left alone for so long.
    Throttled(Duration),
    /// It may have happened or not.
    Unknown(String),
    /// It was never sent: we do not lead.
    NotSent,
}

impl Failure {
    /// The word for metrics.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Exists => "exists",
            Self::Conflict => "conflict",
            Self::NotFound => "not_found",
            Self::Refused(_) => "refused",
            Self::Blocked(_) => "blocked",
            Self::Throttled(_) => "throttled",
            Self::Unknown(_) => "unknown",
            Self::NotSent => "not_sent",
        }
    }

    /// How long the API server asked to be left alone.
    pub(crate) const fn asked_to_wait(&self) -> Duration {
        match self {
            Self::Throttled(wait) => *wait,
            Self::Exists
            | Self::Conflict
            | Self::NotFound
            | Self::Refused(_)
            | Self::Blocked(_)
            | Self::Unknown(_)
            | Self::NotSent => Duration::ZERO,
        }
    }
}
