//! Plans the migration of a `VirtualIP` to a `LoadBalancer` Service with the same address.
//!
//! The order keeps the address shown at every moment: the claim passes to the Service, the Service
//! becomes a `LoadBalancer`, the allocator publishes the address on it, and only then is the copy
//! deleted. If anything is in the way, everything stays as it was.

use std::{net::IpAddr, ops::ControlFlow};

use k8s_openapi::api::core::v1::Service;
use landfall_api::{
    VirtualIPStatus, condition,
    keys::{CONDITION_ALLOCATED, FINALIZER_SERVICE, FINALIZER_VIRTUALIP_SERVICE},
    virtualip::State,
};

use super::{drop_copy, expose, held_by, hold, let_go, mapping, say, status};
use crate::{
    cluster::{service, virtual_ip::VirtualIpView},
    ledger::{Claim, HolderEntry},
    migration::{
        claim, clone,
        effect::{Reason, Step},
        world::{World, asks_for, is_headless, is_load_balancer, shows, shows_something},
    },
    object::{ObjectKey, Version},
};

const UNDER_WAY: &str = "VirtualIP is being migrated";
const OTHER_ADDRESS: &str =
    "service is already of type LoadBalancer, change service type to proceed with migration";
const ALIAS: &str =
    "service is of type ExternalName, change service type to proceed with migration";
const HEADLESS: &str =
    "service is headless, recreate it with a cluster IP to proceed with migration";

/// Whether the claim on its address already names the Service.
pub(super) fn is_handed_over(world: World<'_>, vip: &VirtualIpView) -> bool {
    let addr = vip.status.address().and_then(|text| text.parse::<IpAddr>().ok());
    let claim = addr.and_then(|addr| world.claim(addr));
    claim.is_some_and(|claim| is_of(claim, &vip.target(), world.target()))
}

fn is_of(claim: &Claim, target: &ObjectKey, service: Option<&Service>) -> bool {
    let uid = service.and_then(|service| service.metadata.uid.as_deref());
    claim.names(target, uid) || claim.is_only_for(target)
}

/// The next step, if there is one.
pub(super) fn plan(world: World<'_>, vip: &VirtualIpView) -> Option<Step> {
    let text = vip.status.address()?;
    let Ok(addr) = text.parse() else {
        let message = format!("the address in the status cannot be read: {text}");
        return waits(vip, State::Preparing, message);
    };
    let claim = world.claim(addr);
    if is_over(world, vip, claim) {
        return None;
    }
    let Some(service) = world.target() else { return without_service(world, vip, claim) };
    let case = Case { world, vip, addr, claim, service, target: vip.target() };
    if case.is_shown() {
        return case.finish();
    }
    if case.is_elsewhere() {
        return case.stay(OTHER_ADDRESS.to_owned());
    }
    if let Some(why) = case.unfit() {
        return case.stay(why.to_owned());
    }
    if let Some(rival) = case.rival() {
        let message = format!("VirtualIP {rival} of the same service is migrated first");
        return case.stay(message);
    }
    if vip.stage().is_none() && vip.state() != Some(State::Migrated) {
        return enter(vip, State::Preparing);
    }
    // The copy keeps working until the very end.
    if let Some(step) = expose::align(world, vip, addr) {
        return Some(step);
    }
    for part in [Case::hand_over, Case::convert] {
        if let ControlFlow::Break(step) = part(&case) {
            return step;
        }
    }
    case.wait_for_the_allocator()
}

/// Whether its migration is complete, whatever happened to the Service since.
fn is_over(world: World<'_>, vip: &VirtualIpView, claim: Option<&Claim>) -> bool {
    vip.state() == Some(State::Migrated)
        && !vip.is_held()
        && world.clone_of(vip).is_none()
        && claim.is_none_or(|claim| !claim.is_of(vip))
        && !was_given_up(world, vip, claim)
}

/// Whether the original operator gave up before converting the Service, and said `Migrated`.
///
/// It looks like a Service whose user turned it back later. But the original operator puts its
/// finalizer on a Service as soon as that shows an address, and never removes it from such a one.
fn was_given_up(world: World<'_>, vip: &VirtualIpView, claim: Option<&Claim>) -> bool {
    let Some(service) = world.target() else { return false };
    let finalizers = service.metadata.finalizers.as_deref().unwrap_or_default();
    let served = finalizers.iter().any(|finalizer| finalizer == FINALIZER_SERVICE);
    let of_the_original = claim.is_some_and(|claim| {
        claim.is_of_the_original() && claim.names(&vip.target(), service.metadata.uid.as_deref())
    });
    of_the_original && !served && !is_load_balancer(service)
}

/// There is no Service to take over. If the `VirtualIP` is deleted all the same, its claim must not
/// stay reserved for ever for a Service whose migration will never be finished.
fn without_service(world: World<'_>, vip: &VirtualIpView, claim: Option<&Claim>) -> Option<Step> {
    if vip.deleting {
        if let Some(copy) = world.clone_of(vip) {
            return drop_copy(vip, copy);
        }
        let Some(claim) = claim.filter(|claim| claim.is_kept_for(&vip.target())) else {
            return let_go(vip);
        };
        return Some(if claim.waits_for().is_some() {
            // No Service would use it, so it is released like every claim of a `VirtualIP`.
            back_to(world, vip, claim)
        } else {
            end_reservation(claim)
        });
    }
    let stage = vip.stage().unwrap_or(State::Preparing);
    waits(vip, stage, expose::missing(vip.target().name()))
}

/// One `VirtualIP` with its address and the Service that is to have it.
struct Case<'a> {
    world: World<'a>,
    vip: &'a VirtualIpView,
    addr: IpAddr,
    claim: Option<&'a Claim>,
    service: &'a Service,
    target: ObjectKey,
}

impl Case<'_> {
    fn is_shown(&self) -> bool {
        is_load_balancer(self.service) && shows(self.service).eq([self.addr])
    }

    fn is_asked_for(&self) -> bool {
        let asked = asks_for(self.service).and_then(|text| text.parse::<IpAddr>().ok());
        asked == Some(self.addr)
    }

    fn is_handed_over(&self) -> bool {
        self.claim.is_some_and(|claim| is_of(claim, &self.target, Some(self.service)))
    }

    /// Whether the Service is a `LoadBalancer` with another address, not by this migration.
    fn is_elsewhere(&self) -> bool {
        let service = self.service;
        let on_its_way = self.is_asked_for()
            || self.is_handed_over() && !shows_something(service) && asks_for(service).is_none();
        is_load_balancer(service) && !on_its_way
    }

    /// Why the Service cannot have an address. The API server might turn an alias into a
    /// `LoadBalancer`, but users of the alias would no longer reach its target.
    fn unfit(&self) -> Option<&'static str> {
        let spec = self.service.spec.as_ref()?;
        if spec.type_.as_deref() == Some("ExternalName") {
            return Some(ALIAS);
        }
        is_headless(spec).then_some(HEADLESS)
    }

    /// Another `VirtualIP` of the same Service that comes first: a Service can have only one address.
    fn rival(&self) -> Option<ObjectKey> {
        if self.is_handed_over() {
            return None;
        }
        let (world, vip) = (self.world, self.vip);
        let mut others = world.cluster.virtual_ips.values().filter(|other| other.key != vip.key);
        let first = others.find(|other| {
            let addr = other.status.address().and_then(|text| text.parse::<IpAddr>().ok());
            let claim = addr.and_then(|addr| world.claim(addr));
            addr.is_some()
                && other.target() == self.target
                && other.is_migrating()
                && !is_over(world, other, claim)
                && (is_handed_over(world, other) || (!other.deleting && other.key < vip.key))
        });
        first.map(|other| other.key.clone())
    }

    /// Keeps everything as if no migration had been asked for.
    fn stay(&self, message: String) -> Option<Step> {
        let Self { world, vip, addr, .. } = *self;
        let step = match self.claim {
            // It was handed over, and then the Service changed in another way.
            Some(claim) if claim.is_only_for(&self.target) => Some(back_to(world, vip, claim)),
            Some(_) | None => match expose::keep_claim(world, vip, addr) {
                Some(Ok(step)) => Some(step),
                Some(Err(why)) => {
                    return waits(vip, State::Preparing, format!("{message}; {why}"));
                }
                None => None,
            },
        };
        step.or_else(|| hold(vip, FINALIZER_VIRTUALIP_SERVICE))
            .or_else(|| {
                let free = world.at_clones_place().is_none();
                free.then(|| Step::Copy { copy: Box::new(clone::make(vip, self.service, addr)) })
            })
            .or_else(|| expose::align(world, vip, addr))
            .or_else(|| waits(vip, State::Preparing, message))
    }

    /// Passes the claim to the Service; continues if it has it.
    ///
    /// It is reserved for the Service by name as well: an operator that knows nothing of the
    /// `VirtualIP` would otherwise release it, because the Service is no `LoadBalancer` yet.
    fn hand_over(&self) -> ControlFlow<Option<Step>> {
        let Self { world, vip, addr, .. } = *self;
        if self.claim.is_some_and(|claim| self.is_complete(claim)) {
            return ControlFlow::Continue(());
        }
        let version = match self.claim {
            Some(claim) if claim.is_of(vip) || claim.is_only_for(&self.target) => {
                Ok(Some(claim.version))
            }
            Some(claim) => Err(held_by(claim)),
            None => world
                .stranger(addr, vip)
                .map_or(Ok(None), |stranger| Err(format!("{addr} is shown by Service {stranger}"))),
        };
        let pool = world.group_of(addr).ok_or_else(|| self.no_group());
        ControlFlow::Break(match (version, pool) {
            (Err(why), _) | (Ok(_), Err(why)) => waits(vip, State::Reassociating, why),
            (Ok(version), Ok(pool)) => {
                let at = (addr, version.unwrap_or_default());
                let pass = |holder| {
                    let claim = claim::for_service(at, holder, pool);
                    match version {
                        Some(_) => Step::Pass { claim },
                        None => Step::Take { claim },
                    }
                };
                enter(vip, State::Reassociating).or_else(|| self.holder().map(pass))
            }
        })
    }

    /// Whether the claim is complete until the Service shows the address.
    fn is_complete(&self, claim: &Claim) -> bool {
        let uid = self.service.metadata.uid.as_deref();
        let kept =
            self.is_shown() || !claim.is_of_the_original() && claim.is_kept_for(&self.target);
        kept && claim.names(&self.target, uid)
    }

    fn no_group(&self) -> String {
        let mapping = self.world.mapping_of(self.addr);
        let range = mapping.map_or_else(String::new, |mapping| {
            format!(" (GroupSegmentMapping {} has {})", mapping.name, mapping.segment)
        });
        format!("could not get IPGroup object of IP: no IPGroup covers {}{range}", self.addr)
    }

    /// The holder entry that the allocator would write for this Service after its conversion.
    fn holder(&self) -> Option<HolderEntry> {
        let mut converted = self.service.clone();
        converted.spec.get_or_insert_default().type_ = Some("LoadBalancer".to_owned());
        service::balancer(&converted).map(|view| view.holder_entry())
    }

    fn convert(&self) -> ControlFlow<Option<Step>> {
        if is_load_balancer(self.service) {
            return ControlFlow::Continue(());
        }
        let version = Version::of(&self.service.metadata);
        let convert = Step::Convert { service: self.target.clone(), version, addr: self.addr };
        ControlFlow::Break(enter(self.vip, State::Converting).or(Some(convert)))
    }

    /// Waits for the allocator, and repeats what it says about the Service.
    fn wait_for_the_allocator(&self) -> Option<Step> {
        let conditions =
            self.service.status.as_ref().and_then(|status| status.conditions.as_deref());
        let allocated = condition::get(conditions.unwrap_or_default(), CONDITION_ALLOCATED);
        match allocated.filter(|allocated| allocated.status == "False") {
            Some(why) => {
                let message = format!("{UNDER_WAY}; its service says: {}", why.message);
                say(self.vip, status(self.vip, State::Assigning, message), None)
            }
            None => enter(self.vip, State::Assigning),
        }
    }

    /// The Service shows the address: everything else can go.
    fn finish(&self) -> Option<Step> {
        let Self { world, vip, addr, .. } = *self;
        let clean = |step: Step| enter(vip, State::CleaningUp).unwrap_or(step);
        if let ControlFlow::Break(step) = self.hand_over() {
            return step;
        }
        if let Some(claim) = self.claim.filter(|claim| claim.is_kept_for(&self.target)) {
            return Some(clean(end_reservation(claim)));
        }
        if let Some(copy) = world.clone_of(vip) {
            return drop_copy(vip, copy).map(clean);
        }
        if vip.wanted.is_none() && self.is_asked_for() {
            // The user did not ask for a certain address, so the Service must not either.
            let version = Version::of(&self.service.metadata);
            return Some(clean(Step::StopAsking { service: self.target.clone(), version }));
        }
        if let Some(step) = let_go(vip) {
            return Some(clean(step));
        }
        let migrated = status(vip, State::Migrated, "VirtualIP has been migrated");
        let migrated = VirtualIPStatus {
            ip: Some(addr.to_string()),
            service: Some(self.target.name().to_owned()),
            keepalived_group: None,
            gsm: None,
            cloned_service: None,
            ..migrated
        };
        say(vip, migrated, Some(Reason::Migrated))
    }
}

/// Gives a claim back to the `VirtualIP`.
fn back_to(world: World<'_>, vip: &VirtualIpView, claim: &Claim) -> Step {
    let at = (claim.addr, claim.version);
    let mapping = mapping(world, vip, claim.addr);
    Step::Pass { claim: claim::for_virtual_ip(at, vip, mapping) }
}

/// Removes the reservation from a claim: the Service that it is for has it, or never will.
fn end_reservation(claim: &Claim) -> Step {
    Step::EndReservation { claim: Claim { reserved: None, ..claim.clone() } }
}

/// Writes that a stage began, unless the status says so already.
fn enter(vip: &VirtualIpView, stage: State) -> Option<Step> {
    if vip.state() == Some(stage) {
        return None;
    }
    say(vip, status(vip, stage, UNDER_WAY), None)
}

/// Writes why the migration waits.
fn waits(vip: &VirtualIpView, stage: State, message: String) -> Option<Step> {
    say(vip, status(vip, stage, message), Some(Reason::MigrationWaits))
}
