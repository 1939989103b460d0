//! What the planner asks for, and what came of it.

use std::{net::IpAddr, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use landfall_api::IPGroupStatus;
use landfall_ipam::PoolName;

use super::{
    apply::apply,
    view::{ClaimView, HolderView, PoolView, Reservation, ServiceView, Tenure},
};
use crate::{
    call::Failure,
    engine::{Call, Floor},
    event::Event,
    object::{ObjectKey, Version},
};

/// What the allocator asks for.
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
        /// Written once it is done.
        event: Option<Event>,
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
        event: Option<Event>,
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
}

impl Call for Effect {
    type Answer = Answer;

    /// Finish what was begun, then begin more, then tidy up.
    fn rank(&self) -> u8 {
        match self {
            Self::Publish { .. } | Self::Annotate { .. } => 0,
            Self::LookAtClaim { .. } | Self::LookAtService { .. } | Self::Touch { .. } => 1,
            Self::Take { .. } => 2,
            Self::Release { .. }
            | Self::Expire { .. }
            | Self::CleanUp { .. }
            | Self::Retract { .. } => 3,
            Self::PoolStatus { .. } => 4,
        }
    }

    fn label(&self) -> &'static str {
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
        }
    }

    fn object(&self) -> String {
        match self {
            Self::Take { addr, .. }
            | Self::Touch { addr, .. }
            | Self::Expire { addr, .. }
            | Self::LookAtClaim { addr, .. } => addr.to_string(),
            Self::Release { claim, holder, .. } => format!("{} of {}", claim.addr, holder.key),
            Self::Publish { key, ingress: Some(addrs), .. }
            | Self::Annotate { key, addrs: Some(addrs), .. } => format!("{key}: {addrs:?}"),
            Self::Publish { key, .. }
            | Self::Annotate { key, .. }
            | Self::CleanUp { key, .. }
            | Self::Retract { key, .. }
            | Self::LookAtService { key, .. } => key.to_string(),
            Self::PoolStatus { pool, .. } => pool.to_string(),
        }
    }

    fn matters_to_users(&self) -> bool {
        match self {
            Self::Release { .. }
            | Self::CleanUp { .. }
            | Self::Publish { ingress: Some(_), .. }
            | Self::Annotate { addrs: Some(_), .. } => true,
            Self::Take { .. }
            | Self::Touch { .. }
            | Self::Expire { .. }
            | Self::Publish { .. }
            | Self::Annotate { .. }
            | Self::Retract { .. }
            | Self::LookAtClaim { .. }
            | Self::LookAtService { .. }
            | Self::PoolStatus { .. } => false,
        }
    }

    fn floor(&self) -> Floor {
        match self {
            Self::LookAtClaim { known, .. } | Self::LookAtService { known, .. } => {
                known.map_or(Floor::None, Floor::Version)
            }
            Self::Take { .. } => Floor::NewestClaim,
            Self::Touch { version, .. }
            | Self::Publish { version, .. }
            | Self::Annotate { version, .. }
            | Self::CleanUp { version, .. }
            | Self::Retract { version, .. } => Floor::Version(*version),
            Self::Release { .. } | Self::Expire { .. } | Self::PoolStatus { .. } => Floor::None,
        }
    }

    fn version_of(&self, answer: &Answer) -> Option<Version> {
        match answer {
            Answer::Claim(claim) if !matches!(self, Self::Release { .. }) => Some(claim.version),
            Answer::Service(service) => Some(service.version),
            Answer::OtherService(version) => Some(*version),
            Answer::Claim(_)
            | Answer::NoClaim
            | Answer::NoService
            | Answer::Pool(_)
            | Answer::Released { .. }
            | Answer::Kept => None,
        }
    }

    async fn perform(&self, client: &Client) -> Result<Answer, Failure> {
        apply(client, self).await
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
}
