//! Decides the next step of one `VirtualIP`. Pure; changes nothing.
//!
//! Each step brings about the first post-condition that is not met, whatever stage the status names. So
//! it does not matter where the original operator or we were interrupted. A plan is one step; its
//! change triggers the next plan, and when nothing is left to do there is no step.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use landfall_api::{
    VirtualIP, VirtualIPStatus,
    keys::{FINALIZER_VIRTUALIP_IP, FINALIZER_VIRTUALIP_SERVICE},
    virtualip::State,
};

use super::{
    effect::{Reason, Step},
    world::{World, is_shown},
};
use crate::{
    cluster::{
        Cluster,
        virtual_ip::{CLONE_SUFFIX, MappingView, VirtualIpView},
    },
    event::{self, Event},
    ledger::{Claim, HolderRef, Ledger},
    object::ObjectKey,
};

mod allocate;
mod expose;
mod migrate;
#[cfg(test)]
mod tests;

/// The next step, if there is one.
pub(super) fn plan(world: World<'_>, vip: &VirtualIpView) -> Option<Step> {
    if vip.deleting {
        return delete(world, vip);
    }
    if vip.is_migrating() {
        if vip.status.address().is_some() {
            return migrate::plan(world, vip);
        }
        if vip.state() == Some(State::Migrated) {
            return let_go(vip);
        }
    }
    expose::plan(world, vip)
}

/// The release of a claim that a `VirtualIP` of this name left when it was deleted or replaced, if no
/// Service shows the address any more.
pub(super) fn left_over(cluster: &Cluster, ledger: &Ledger, key: &ObjectKey) -> Option<Step> {
    let now = cluster.virtual_ips.get(key);
    let mut claims = ledger.claims_of(&HolderRef::virtual_ip(key));
    let claim = claims.find(|claim| {
        claim.named_virtual_ip() == Some(key)
            && !now.is_some_and(|vip| claim.is_of(vip))
            && !is_shown(ledger, claim.addr)
    })?;
    let copy = ObjectKey::new(key.namespace(), &format!("{}{CLONE_SUFFIX}", key.name()));
    Some(Step::Release { claim: claim.clone(), copy })
}

/// Undoes the work for a `VirtualIP`: first the copy, then the claim, then the finalizers.
fn delete(world: World<'_>, vip: &VirtualIpView) -> Option<Step> {
    if !vip.is_held() {
        return None;
    }
    // The Service is about to get the address, and the user did not ask to take it away.
    if vip.is_migrating() && migrate::is_handed_over(world, vip) {
        return migrate::plan(world, vip);
    }
    if let Some(copy) = world.clone_of(vip) {
        return drop_copy(vip, copy);
    }
    if let Some(claim) = world.claims_of(vip).next() {
        return Some(Step::Release { claim: claim.clone(), copy: vip.clone_key() });
    }
    let_go(vip)
}

/// Deletes the copy, once.
fn drop_copy(vip: &VirtualIpView, copy: &Service) -> Option<Step> {
    let going = copy.metadata.deletion_timestamp.is_some();
    let uid = copy.metadata.uid.clone().filter(|_| !going)?;
    Some(Step::DropCopy { copy: vip.clone_key(), uid })
}

/// Removes our finalizers.
fn let_go(vip: &VirtualIpView) -> Option<Step> {
    let ours = [FINALIZER_VIRTUALIP_IP, FINALIZER_VIRTUALIP_SERVICE];
    let others = vip.finalizers.iter().filter(|one| !ours.contains(&one.as_str()));
    let finalizers: Vec<_> = others.cloned().collect();
    (finalizers != vip.finalizers).then_some(Step::Finalizers { version: vip.version, finalizers })
}

/// Adds a finalizer if it is missing.
fn hold(vip: &VirtualIpView, finalizer: &str) -> Option<Step> {
    if vip.has_finalizer(finalizer) {
        return None;
    }
    let mut finalizers = vip.finalizers.clone();
    finalizers.push(finalizer.to_owned());
    Some(Step::Finalizers { version: vip.version, finalizers })
}

/// Writes the status if it differs, with an event if there is a reason.
fn say(vip: &VirtualIpView, status: VirtualIPStatus, reason: Option<Reason>) -> Option<Step> {
    let event = reason.map(|reason| {
        Box::new(Event {
            about: event::about::<VirtualIP>(Some(vip.key.namespace()), vip.key.name(), &vip.uid),
            action: "Migrate",
            reason: reason.as_str().to_owned(),
            message: status.message.clone().unwrap_or_default(),
            warning: reason.is_warning(),
        })
    });
    (status != vip.status).then_some(Step::Status { version: vip.version, status, event })
}

/// The status with another state and message.
fn status(vip: &VirtualIpView, state: State, message: impl Into<String>) -> VirtualIPStatus {
    VirtualIPStatus {
        state: Some(state.as_str().to_owned()),
        message: Some(message.into()),
        ..vip.status.clone()
    }
}

/// The status to write when the API server refuses a step. Nothing is undone.
pub(super) fn refused(vip: &VirtualIpView, step: &Step, reply: &str) -> Option<Step> {
    let message = format!("{}: {reply}", step.refused());
    let stage = vip.stage().or_else(|| vip.is_migrating().then_some(State::Preparing));
    match stage {
        Some(stage) => say(vip, status(vip, stage, message), Some(Reason::MigrationWaits)),
        None => say(vip, status(vip, State::Error, message), Some(Reason::NotExposed)),
    }
}

/// The mapping that gave its address, else the one that covers it.
fn mapping<'a>(world: World<'a>, vip: &VirtualIpView, addr: IpAddr) -> Option<&'a MappingView> {
    let named = vip.status.gsm.as_deref();
    named
        .and_then(|name| world.cluster.mappings.get(&name.into()))
        .or_else(|| world.mapping_of(addr))
}

/// The message that another holder has the address.
fn held_by(claim: &Claim) -> String {
    format!("{} is held by {claim}", claim.addr)
}
