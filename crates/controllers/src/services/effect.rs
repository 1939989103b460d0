//! The effects that the planner asks for, and the answers to them.

use std::{net::IpAddr, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use landfall_api::IPGroupStatus;
use landfall_ipam::PoolName;

use super::apply::apply;
use crate::{
    call::Failure,
    cluster::Seen,
    engine::{Call, Floor},
    event::Event,
    ledger::{self, Claim, HolderEntry, Then, Write},
    object::{ObjectKey, Version},
};

/// A call that the allocator asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Effect {
    /// Read or write a claim, perhaps on behalf of a Service.
    Claim { write: Write, service: Option<ObjectKey> },
    /// Write the Service's status at exactly this version.
    Publish {
        key: ObjectKey,
        uid: Arc<str>,
        version: Version,
        /// The ingress; `None` leaves it as it is.
        ingress: Option<Vec<IpAddr>>,
        conditions: Vec<Condition>,
        /// Sent once the write is done.
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
    /// Remove from a Service what a replaced operator left on it, or we when it was a `LoadBalancer`,
    /// at exactly this version.
    CleanUp {
        key: ObjectKey,
        uid: Arc<str>,
        version: Version,
        /// The finalizers it keeps; `None` leaves them as they are.
        finalizers: Option<Vec<String>>,
        /// Whether kube-vip's annotation and labels are removed as well.
        marks: bool,
    },
    /// Write the conditions of a Service, and nothing else, at exactly this version.
    SetConditions { key: ObjectKey, uid: Arc<str>, version: Version, conditions: Vec<Condition> },
    /// Read the holder live, and release the claim at exactly this version if the holder neither shows
    /// nor could want the address.
    ///
    /// If other holders share the address, the claim stays and only this holder leaves it.
    Release {
        claim: Claim,
        holder: HolderEntry,
        then: Then,
        /// Whether addresses in the holder's kube-vip annotation count as shown.
        annotated: bool,
        /// Whether the claim waited for its holder, which did not appear.
        orphaned: bool,
    },
    /// Read a Service live that was last known at this version. "Not found" counts only if nothing
    /// newer is known by then.
    LookAtService { key: ObjectKey, known: Option<Version> },
    /// Write a pool's status.
    PoolStatus { pool: PoolName, object: Arc<str>, version: Version, status: IPGroupStatus },
}

impl Call for Effect {
    type Answer = Answer;

    /// First finish work in progress, then begin more, then clean up.
    fn rank(&self) -> u8 {
        match self {
            Self::Publish { .. } | Self::Annotate { .. } => 0,
            Self::LookAtService { .. } => 1,
            Self::Claim { write, .. } => write.rank(),
            Self::Release { .. } | Self::CleanUp { .. } | Self::SetConditions { .. } => 3,
            Self::PoolStatus { .. } => 4,
        }
    }

    fn label(&self) -> &'static str {
        match self {
            Self::Claim { write, .. } => write.label(),
            Self::Publish { .. } => "publish",
            Self::Annotate { .. } => "annotate",
            Self::CleanUp { .. } => "clean_up",
            Self::SetConditions { .. } => "set_conditions",
            Self::Release { .. } => "release",
            Self::LookAtService { .. } => "look",
            Self::PoolStatus { .. } => "pool_status",
        }
    }

    fn object(&self) -> String {
        match self {
            Self::Claim { write, .. } => write.object(),
            Self::Release { claim, holder, .. } => format!("{} of {}", claim.addr, holder.key),
            Self::Publish { key, ingress: Some(addrs), .. }
            | Self::Annotate { key, addrs: Some(addrs), .. } => format!("{key}: {addrs:?}"),
            Self::Publish { key, .. }
            | Self::Annotate { key, .. }
            | Self::CleanUp { key, .. }
            | Self::SetConditions { key, .. }
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
            Self::Claim { .. }
            | Self::Publish { .. }
            | Self::Annotate { .. }
            | Self::SetConditions { .. }
            | Self::LookAtService { .. }
            | Self::PoolStatus { .. } => false,
        }
    }

    fn floor(&self) -> Floor {
        match self {
            Self::Claim { write, .. } => write.floor(),
            Self::LookAtService { known, .. } => known.map_or(Floor::None, Floor::Version),
            Self::Publish { version, .. }
            | Self::Annotate { version, .. }
            | Self::CleanUp { version, .. }
            | Self::SetConditions { version, .. } => Floor::Version(*version),
            Self::Release { .. } | Self::PoolStatus { .. } => Floor::None,
        }
    }

    fn version_of(&self, answer: &Answer) -> Option<Version> {
        match answer {
            Answer::Ledger(ledger::Answer::Claim(claim)) => {
                matches!(self, Self::Claim { .. }).then_some(claim.version)
            }
            Answer::Seen(Some(Seen::Service(service))) => Some(service.version),
            Answer::Ledger(_) | Answer::Seen(_) => None,
        }
    }

    fn take_seen(answer: &mut Answer) -> Option<Seen> {
        match answer {
            Answer::Seen(seen) => seen.take(),
            Answer::Ledger(_) => None,
        }
    }

    async fn perform(&self, client: &Client) -> Result<Answer, Failure> {
        apply(client, self).await
    }
}

/// The answer to a successful call.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Ledger(ledger::Answer),
    /// What it shows of a watched object, until the engine has taken that in.
    Seen(Option<Seen>),
}
