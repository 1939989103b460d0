//! The effects that the migration planner asks for, and the answers to them.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use kube::Client;
use landfall_api::VirtualIPStatus;
use serde_json::Value;

use super::apply::apply;
use crate::{
    call::Failure,
    cluster::Seen,
    engine::Call,
    event::Event,
    ledger::{self, Claim, Write},
    object::{ObjectKey, Version},
};

/// A step on behalf of one `VirtualIP`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Effect {
    pub vip: ObjectKey,
    pub step: Step,
    /// The call that the ledger makes of the step, if that writes a claim and is no release.
    pub write: Option<Write>,
}

/// One step of a `VirtualIP`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Read its Services live, before the next step is decided.
    Look { target: ObjectKey, copy: ObjectKey },
    /// Write its status at exactly this version, and an event if there is one.
    Status { version: Version, status: VirtualIPStatus, event: Option<Box<Event>> },
    /// Write its finalizers at exactly this version.
    Finalizers { version: Version, finalizers: Vec<String> },
    /// Create a claim. Fails if the address already has one.
    Take { claim: Claim },
    /// Write a claim at exactly the version that it carries.
    Pass { claim: Claim },
    /// Remove the reservation from a claim, at exactly the version that it carries.
    EndReservation { claim: Claim },
    /// Read the `VirtualIP` and its copy live, and delete its claim at exactly this version if the
    /// `VirtualIP` is gone or being deleted and the copy is gone.
    Release { claim: Claim, copy: ObjectKey },
    /// Create the copy.
    Copy { copy: Box<Service> },
    /// Change the copy at exactly this version.
    Align { copy: ObjectKey, version: Version, patch: Value },
    /// Delete the copy, if it is still the one that was seen.
    DropCopy { copy: ObjectKey, uid: String },
    /// Make the Service a `LoadBalancer` that asks for the address, at exactly this version.
    Convert { service: ObjectKey, version: Version, addr: IpAddr },
    /// Remove the Service's request for an address, at exactly this version.
    StopAsking { service: ObjectKey, version: Version },
}

impl Call for Effect {
    type Answer = Answer;

    /// After the publishing calls of the allocator: these kinds are few, and nothing waits for them in
    /// a burst.
    fn rank(&self) -> u8 {
        1
    }

    fn label(&self) -> &'static str {
        self.step.label()
    }

    fn object(&self) -> String {
        self.vip.to_string()
    }

    fn matters_to_users(&self) -> bool {
        !matches!(self.step, Step::Look { .. })
    }

    fn take_seen(answer: &mut Answer) -> Option<Seen> {
        match answer {
            Answer::Seen(seen) => seen.take(),
            Answer::Services(_) | Answer::Ledger(_) => None,
        }
    }

    async fn perform(&self, client: &Client) -> Result<Answer, Failure> {
        apply(client, self).await
    }
}

impl Step {
    pub(super) const fn label(&self) -> &'static str {
        match self {
            Self::Look { .. } => "look",
            Self::Status { .. } => "status",
            Self::Finalizers { .. } => "finalizers",
            Self::Take { .. } => "take",
            Self::Pass { .. } => "pass",
            Self::EndReservation { .. } => "end_reservation",
            Self::Release { .. } => "release",
            Self::Copy { .. } => "copy",
            Self::Align { .. } => "align",
            Self::DropCopy { .. } => "drop_copy",
            Self::Convert { .. } => "convert",
            Self::StopAsking { .. } => "stop_asking",
        }
    }

    /// What failed if this was refused, as the beginning of a sentence.
    pub(super) const fn refused(&self) -> &'static str {
        match self {
            Self::Look { .. } => "could not read the service",
            Self::Status { .. } | Self::Finalizers { .. } => "could not update the VirtualIP",
            Self::Take { .. } | Self::Pass { .. } | Self::EndReservation { .. } => {
                "could not write the IP object"
            }
            Self::Release { .. } => "could not delete the IP object",
            Self::Copy { .. } | Self::Align { .. } => "could not expose the service",
            Self::DropCopy { .. } => "could not delete the cloned service",
            Self::Convert { .. } | Self::StopAsking { .. } => "could not convert the service",
        }
    }

    /// The address whose claim it writes.
    pub(super) const fn addr(&self) -> Option<IpAddr> {
        match self {
            Self::Take { claim }
            | Self::Pass { claim }
            | Self::EndReservation { claim }
            | Self::Release { claim, .. } => Some(claim.addr),
            Self::Look { .. }
            | Self::Status { .. }
            | Self::Finalizers { .. }
            | Self::Copy { .. }
            | Self::Align { .. }
            | Self::DropCopy { .. }
            | Self::Convert { .. }
            | Self::StopAsking { .. } => None,
        }
    }
}

/// The reason of an event about a `VirtualIP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// A `VirtualIP` has no address, or its Service is not exposed.
    NotExposed,
    /// A migration waits for a person or another program.
    MigrationWaits,
    Migrated,
}

impl Reason {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::NotExposed => "NotExposed",
            Self::MigrationWaits => "MigrationWaits",
            Self::Migrated => "Migrated",
        }
    }

    pub(super) const fn is_warning(self) -> bool {
        match self {
            Self::NotExposed | Self::MigrationWaits => true,
            Self::Migrated => false,
        }
    }
}

/// The Services of a `VirtualIP`, as they were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Services {
    /// The one that has or will have the address.
    pub target: Option<Box<Service>>,
    /// The one with the name of the copy.
    pub copy: Option<Box<Service>>,
}

/// The answer to a successful call.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Services(Box<Services>),
    Ledger(ledger::Answer),
    /// What it shows of a watched object, until the engine has taken that in.
    Seen(Option<Seen>),
}
