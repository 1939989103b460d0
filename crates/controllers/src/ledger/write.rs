//! The calls that read and write claims. No other code makes such calls.

use std::{future::Future, net::IpAddr, sync::Arc};

use kube::{Api, Client, core::DeserializeGuard};
use landfall_api::{IP, Use, name};
use serde_json::json;

use super::{
    claim::{Claim, HolderEntry, Reservation},
    object,
};
use crate::{
    call::{Failure, creating, deleting, failure, found, guarded, patching},
    object::Version,
};

/// One guarded call about one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// Create the claim. Fails if the address already has one.
    Take { claim: Claim },
    /// Replace an existing claim, at exactly the version that this one carries.
    ///
    /// Even a claim that already names the holder is written before the address is published, so that
    /// no operator that knew the old version can delete it.
    Touch { claim: Claim },
    /// Delete, at exactly this version, a claim that has no holder and whose reservation has expired or
    /// is given up.
    Expire { addr: IpAddr, uid: Arc<str>, version: Version },
    /// Write into the claim's status, at exactly this version, which node carries the address.
    Place { addr: IpAddr, version: Version, node: Option<Arc<str>> },
    /// Read a claim live that was last known at this version. "Not found" counts only if nothing newer
    /// is known by then.
    Read { addr: IpAddr, known: Option<Version> },
}

impl Write {
    pub(crate) const fn addr(&self) -> IpAddr {
        match self {
            Self::Take { claim } | Self::Touch { claim } => claim.addr,
            Self::Expire { addr, .. } | Self::Place { addr, .. } | Self::Read { addr, .. } => *addr,
        }
    }

    pub(super) async fn send(&self, client: &Client) -> Result<Answer, Failure> {
        let claims: Api<IP> = Api::all(client.clone());
        match self {
            Self::Take { claim } => {
                let created = claims.create(&creating(), &object::object(claim)).await;
                match created.map_err(|error| failure(&error)) {
                    Ok(ip) => answer(ip),
                    // A create gets this answer only if the kind itself is missing.
                    Err(Failure::NotFound) => Err(Failure::Refused(
                        "the API server does not know the kind IP; apply deploy/crds".to_owned(),
                    )),
                    Err(failure) => Err(failure),
                }
            }
            Self::Touch { claim } => write(client, claim).await,
            Self::Expire { addr, uid, version } => {
                delete(client, *addr, uid, *version).await?;
                Ok(Answer::Released { by: None })
            }
            Self::Place { addr, version, node } => {
                let patch = guarded(*version, json!({ "status": { "node": node.as_deref() } }));
                let written = claims.patch_status(&name::of(*addr), &patching(), &patch).await;
                answer(written.map_err(|error| failure(&error))?)
            }
            Self::Read { addr, .. } => match found(claims.get(&name::of(*addr)).await)? {
                Some(ip) => answer(ip),
                None => Ok(Answer::NoClaim),
            },
        }
    }
}

/// The answer to a call about a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Claim(Claim),
    NoClaim,
    /// The claim is deleted. The uid is that of its last holder, if that still exists.
    Released {
        by: Option<Arc<str>>,
    },
    /// The live read forbade the release.
    Kept,
}

/// What happens to a claim when its last holder is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It is deleted, and the address is free.
    Free,
    /// It stays as the reservation that an administrator made.
    Reserve(Reservation),
    /// If the holder is gone, even if a new object has its name by now, the claim waits for an object
    /// of that name; otherwise it is deleted.
    RetainIfGone(Reservation),
}

impl Then {
    /// The claim that is left when a holder that no longer exists is released; `None` if it is deleted.
    pub(crate) fn leaves(&self, claim: &Claim, holder: &HolderEntry) -> Option<Claim> {
        let others = claim.holders_without(holder);
        match self {
            _ if !others.is_empty() => Some(claim.held_by(others)),
            Self::Free => None,
            Self::Reserve(reservation) | Self::RetainIfGone(reservation) => Some(Claim {
                // With another use it stays with the planner of that use.
                purpose: if claim.has_another_use() { claim.purpose } else { Some(Use::Reserved) },
                reserved: Some(reservation.clone()),
                ..claim.held_by(Vec::new())
            }),
        }
    }
}

/// A claim, and one of the holders that it names.
pub(crate) type Held<'a> = (&'a Claim, &'a HolderEntry);

/// The result of a live read of a holder.
pub(crate) struct Live {
    /// Whether the holder neither shows the address nor could want it.
    pub may_release: bool,
    /// The uid of the object that has the holder's name now.
    pub uid: Option<Arc<str>>,
}

/// A holder that must be read live before it loses an address. The rule is the same for all kinds of
/// holders; how to tell which addresses a holder shows or could want is not.
pub(crate) trait LiveHolder: Sync {
    /// Reads the holder that an entry of a claim names.
    fn read(
        &self,
        client: &Client,
        held: Held<'_>,
    ) -> impl Future<Output = Result<Live, Failure>> + Send;
}

/// Removes one holder from a claim, and deletes or reserves the claim if that was the last.
///
/// The order matters: the claim's version is known first, then the holder is read, and the write
/// succeeds only at that version.
pub(crate) async fn release(
    client: &Client,
    reader: &impl LiveHolder,
    (claim, holder): Held<'_>,
    then: &Then,
) -> Result<Answer, Failure> {
    let live = reader.read(client, (claim, holder)).await?;
    if !live.may_release {
        return Ok(Answer::Kept);
    }
    let gone = match (&holder.uid, &live.uid) {
        (_, None) => true,
        (Some(named), Some(now)) => named != now,
        (None, Some(_)) => false,
    };
    let left = match then {
        Then::RetainIfGone(_) if !gone => Then::Free.leaves(claim, holder),
        Then::Free | Then::Reserve(_) | Then::RetainIfGone(_) => then.leaves(claim, holder),
    };
    if let Some(left) = left {
        return write(client, &left).await;
    }
    delete(client, claim.addr, &claim.uid, claim.version).await?;
    Ok(Answer::Released { by: live.uid.filter(|_| !gone) })
}

async fn write(client: &Client, claim: &Claim) -> Result<Answer, Failure> {
    let claims: Api<IP> = Api::all(client.clone());
    let patch = guarded(claim.version, object::patch(claim));
    let written = claims.patch(&name::of(claim.addr), &patching(), &patch).await;
    answer(written.map_err(|error| failure(&error))?)
}

async fn delete(client: &Client, addr: IpAddr, uid: &str, version: Version) -> Result<(), Failure> {
    let claims: Api<IP> = Api::all(client.clone());
    let deleted = claims.delete(&name::of(addr), &deleting(uid, Some(version))).await;
    deleted.map(drop).map_err(|error| failure(&error))
}

fn answer(ip: IP) -> Result<Answer, Failure> {
    let claim = object::read(&DeserializeGuard(Ok(ip)));
    claim
        .map(Answer::Claim)
        .ok_or_else(|| Failure::Unknown("the answer names no address".to_owned()))
}
