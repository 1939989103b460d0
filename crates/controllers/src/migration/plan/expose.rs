//! Plans a `VirtualIP` that is not migrated: it gets an address, and a copy of its Service shows it.

use std::net::IpAddr;

use landfall_api::{
    VirtualIPStatus,
    keys::{FINALIZER_VIRTUALIP_IP, FINALIZER_VIRTUALIP_SERVICE},
    virtualip::State,
};

use super::{allocate, held_by, hold, mapping, say, status};
use crate::{
    cluster::virtual_ip::VirtualIpView,
    migration::{
        claim, clone,
        effect::{Reason, Step},
        world::{World, is_clone},
    },
    object::{ObjectKey, Version},
};

/// The next step, if there is one.
pub(super) fn plan(world: World<'_>, vip: &VirtualIpView) -> Option<Step> {
    let Some(text) = vip.status.address() else { return allocate::plan(world, vip) };
    let Ok(addr) = text.parse() else {
        return error(vip, format!("the address in the status cannot be read: {text}"));
    };
    match keep_claim(world, vip, addr) {
        Some(Ok(step)) => return Some(step),
        Some(Err(why)) => return error(vip, why),
        None => {}
    }
    if vip.status.service.as_deref() != Some(&vip.service) {
        let exposing = status(vip, State::Exposing, "exposing service with an external IP");
        return say(vip, VirtualIPStatus { service: Some(vip.service.clone()), ..exposing }, None);
    }
    let Some(original) = world.target() else { return error(vip, missing(&vip.service)) };
    if let Some(step) = hold(vip, FINALIZER_VIRTUALIP_SERVICE) {
        return Some(step);
    }
    let Some(copy) = world.at_clones_place() else {
        return Some(Step::Copy { copy: Box::new(clone::make(vip, original, addr)) });
    };
    if !is_clone(copy, &vip.uid) {
        let key = ObjectKey::of(&copy.metadata);
        return error(vip, format!("could not expose the service: Service {key} is in the way"));
    }
    if let Some(step) = align(world, vip, addr) {
        return Some(step);
    }
    if copy.metadata.deletion_timestamp.is_some() {
        // The copy is being deleted. When it is gone it is created again.
        return None;
    }
    let valid = status(vip, State::Valid, "successfully allocated an IP address");
    let copy = vip.clone_key().name().to_owned();
    let valid = VirtualIPStatus { ip: Some(addr.to_string()), cloned_service: Some(copy), ..valid };
    say(vip, valid, None)
}

/// Updates the copy from the Service, if both exist.
pub(super) fn align(world: World<'_>, vip: &VirtualIpView, addr: IpAddr) -> Option<Step> {
    let (copy, original) = (world.clone_of(vip)?, world.target()?);
    let going = copy.metadata.deletion_timestamp.is_some();
    let patch = clone::difference(copy, original, addr).filter(|_| !going)?;
    Some(Step::Align { copy: vip.clone_key(), version: Version::of(&copy.metadata), patch })
}

/// A step to make sure that the `VirtualIP` has a claim on the address, if one is needed, or why that
/// is impossible.
pub(super) fn keep_claim(
    world: World<'_>,
    vip: &VirtualIpView,
    addr: IpAddr,
) -> Option<Result<Step, String>> {
    if let Some(step) = hold(vip, FINALIZER_VIRTUALIP_IP) {
        return Some(Ok(step));
    }
    if let Some(claim) = world.claim(addr) {
        return (!claim.is_of(vip)).then(|| Err(held_by(claim)));
    }
    // The claim was deleted. It is created again unless another Service shows the address by now.
    if let Some(stranger) = world.stranger(addr, vip) {
        return Some(Err(format!("{addr} is shown by Service {stranger}")));
    }
    let at = (addr, Version::default());
    Some(Ok(Step::Take { claim: claim::for_virtual_ip(at, vip, mapping(world, vip, addr)) }))
}

pub(super) fn missing(service: &str) -> String {
    format!("could not get the service to be exposed: Service \"{service}\" not found")
}

pub(super) fn error(vip: &VirtualIpView, message: String) -> Option<Step> {
    say(vip, status(vip, State::Error, message), Some(Reason::NotExposed))
}
