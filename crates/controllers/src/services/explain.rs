//! Explains which addresses a Service has, what it asked for, and why it has no more.
//!
//! The Service's condition is made from this. [`Snapshot`] gives the same answer without an operator.

use std::net::IpAddr;

use landfall_api::{HolderKind, text};
use landfall_ipam::{PoolName, Refusal, Verdict};
use serde::Serialize;

pub use self::snapshot::{Error, Snapshot};
use super::{
    decide::{Decision, Given, decide, is_known, is_lease, with_terms},
    world::World,
};
use crate::{
    cluster::service::{Balancer, Request},
    object::ObjectKey,
};

mod snapshot;
#[cfg(test)]
mod tests;

/// The reason of a Service that has what it wants.
pub(super) const ALLOCATED: &str = "Allocated";
/// The reason of a Service whose address an edit left outside every pool.
const OUTSIDE_POOL: &str = "OutsidePool";
/// The reason of a Service whose address is shown by another Service that has no right to it.
pub(super) const ALSO_SHOWN: &str = "AlsoShown";
/// The reason of a Service that shares its address in a way that is refused to others by now.
const SHARED_AS_BEFORE: &str = "SharedAsBefore";
/// The reason of a Service for which something is about to be written.
const PENDING: &str = "Pending";
/// The reason of a Service that no pool or setting makes ours.
const NOT_SERVED: &str = "NotServed";

/// What a Service has, what it asked for, and why it has no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `namespace/name` of the Service.
    pub service: String,
    pub outcome: Outcome,
    /// The reason, as in the condition `landfall.dev/Allocated`.
    pub reason: String,
    /// The text of the condition, unless it is longer than a condition may be.
    pub message: String,
    pub has: Vec<Address>,
    pub asked: Asked,
    /// Why it does not have what it wants, or not all of it.
    pub missing: Vec<Missing>,
}

/// Whether a Service has what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// It has what it wants, or puts up with what it has.
    Allocated,
    /// It does not have what it wants.
    Refused,
    /// An operator is about to change what it has.
    Pending,
    /// It is none of ours.
    NotServed,
}

/// An address that a Service has, or is about to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    pub address: IpAddr,
    /// The pool that gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Where the address is from, in words.
    pub text: String,
}

/// What a Service asks for. Any address of any pool will do if it names none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    pub addresses: Vec<IpAddr>,
    pub pools: Vec<String>,
}

/// Why a Service does not have something that it wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    pub reason: String,
    /// The address that it asked for and cannot have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The holder that is in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// What each pool says, in the order in which they were asked.
    pub pools: Vec<PoolVerdict>,
    /// The refusal in words, with the nearest fix.
    pub text: String,
    pub fix: String,
}

/// What one pool says to a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolVerdict {
    pub pool: String,
    pub reason: String,
    pub text: String,
}

impl Explanation {
    /// A Service that has these addresses, and what else it might have had.
    pub(super) fn allocated(
        world: World<'_>,
        service: &Balancer,
        addrs: &[IpAddr],
        missing: &[Refusal],
    ) -> Self {
        let has: Vec<_> = addrs.iter().map(|addr| address(world, *addr)).collect();
        let known = || addrs.iter().filter(|addr| !is_lease(**addr) && is_known(world, **addr));
        let also_shown: Vec<_> =
            known().flat_map(|addr| also_shown(world, service, *addr)).collect();
        let odd: Vec<_> = known().filter_map(|addr| odd_company(world, service, *addr)).collect();
        let is_outside = known().any(|addr| world.ledger.book.pool_of(*addr).is_none());
        let reason = match (also_shown.is_empty(), odd.is_empty(), is_outside) {
            (false, ..) => ALSO_SHOWN,
            (true, false, _) => SHARED_AS_BEFORE,
            (true, true, true) => OUTSIDE_POOL,
            (true, true, false) => ALLOCATED,
        };
        let missing: Vec<_> = missing.iter().map(Missing::of).collect();
        let texts = has.iter().map(|address| &address.text).chain(&also_shown).chain(&odd);
        let message = joined(texts.chain(missing.iter().map(|missing| &missing.text)));
        Self { outcome: Outcome::Allocated, has, missing, ..Self::new(service, reason, message) }
    }

    /// A Service that does not have what it wants, whatever it keeps meanwhile.
    pub(super) fn refused(service: &Balancer, keeps: &[IpAddr], refusals: &[Refusal]) -> Self {
        let kept = (!keeps.is_empty()).then(|| {
            let addrs: Vec<_> = keeps.iter().map(ToString::to_string).collect();
            format!("keeps {}", addrs.join(", "))
        });
        let missing: Vec<_> = refusals.iter().map(Missing::of).collect();
        let texts = missing.iter().map(|missing| &missing.text);
        let message = joined(kept.iter().chain(texts));
        let reason = refusals.first().map_or(ALLOCATED, |refusal| refusal.reason().as_str());
        let has = keeps.iter().map(|addr| Address::bare(*addr)).collect();
        Self { outcome: Outcome::Refused, has, missing, ..Self::new(service, reason, message) }
    }

    /// A Service for which an operator is about to write something.
    fn pending(service: &Balancer, takes: &[Given]) -> Self {
        let has: Vec<_> = service.shows.iter().map(|addr| Address::bare(*addr)).collect();
        let takes = takes.iter().map(|(addr, pool)| from_pool(*addr, pool.as_ref()));
        let takes: Vec<_> = takes.map(|text| format!("is about to get {text}")).collect();
        let message = if takes.is_empty() {
            "an operator is about to change what it has".to_owned()
        } else {
            takes.join("; ")
        };
        Self { has, ..Self::new(service, PENDING, message) }
    }

    fn not_served(service: &Balancer) -> Self {
        let has = service.shows.iter().map(|addr| Address::bare(*addr)).collect();
        let message = "no pool serves its class, or another program gave it its address".to_owned();
        Self { outcome: Outcome::NotServed, has, ..Self::new(service, NOT_SERVED, message) }
    }

    fn new(service: &Balancer, reason: &str, message: String) -> Self {
        let addresses = match &service.request {
            Request::Addresses(addrs) => addrs.clone(),
            Request::Any | Request::Bad(_) => Vec::new(),
        };
        let pools = service.pools.iter().flatten().map(ToString::to_string).collect();
        Self {
            service: service.key.to_string(),
            outcome: Outcome::Pending,
            reason: reason.to_owned(),
            message,
            has: Vec::new(),
            asked: Asked { addresses, pools },
            missing: Vec::new(),
        }
    }
}

/// Explains a Service by everything that is known; `None` if it is not there, or no `LoadBalancer`.
pub(super) fn explain(world: World<'_>, key: &ObjectKey) -> Option<Explanation> {
    let service = with_terms(world, world.service(key)?);
    Some(match decide(world, &service) {
        Decision::Show { addrs, refusals, satisfied: true } => {
            Explanation::allocated(world, &service, &addrs, &refusals)
        }
        Decision::Show { addrs, refusals, satisfied: false } => {
            Explanation::refused(&service, &addrs, &refusals)
        }
        Decision::Disputed(refusal) => Explanation::refused(&service, &service.shows, &[refusal]),
        Decision::Take(takes) => Explanation::pending(&service, &takes),
        Decision::Later | Decision::Follow | Decision::FreeRetained(_) => {
            Explanation::pending(&service, &[])
        }
        Decision::LeaveAlone => Explanation::not_served(&service),
    })
}

impl Address {
    fn bare(address: IpAddr) -> Self {
        Self { address, pool: None, text: address.to_string() }
    }
}

impl Missing {
    fn of(refusal: &Refusal) -> Self {
        let (held_by, verdicts): (_, &[(PoolName, Verdict)]) = match refusal {
            Refusal::TakenBy(_, holder)
            | Refusal::Reserved(_, holder)
            | Refusal::SharingRefused(_, holder, _) => (Some(holder.clone()), &[]),
            Refusal::NoneGives(_, verdicts) | Refusal::NotServed(_, verdicts) => (None, verdicts),
            Refusal::Unparseable { .. }
            | Refusal::TwoOfOneFamily(..)
            | Refusal::OutsideEveryPool(_)
            | Refusal::Excluded(..)
            | Refusal::NeverGiven(..)
            | Refusal::HeldBack(..)
            | Refusal::WrongFamily(_)
            | Refusal::LedgerRefused(_)
            | Refusal::HolderRefused(_) => (None, &[]),
        };
        let pools = verdicts.iter().map(|(pool, verdict)| PoolVerdict {
            pool: pool.to_string(),
            reason: verdict.reason().as_str().to_owned(),
            text: text::verdict(HolderKind::Service, *verdict).into_owned(),
        });
        Self {
            reason: refusal.reason().as_str().to_owned(),
            address: refusal.address(),
            held_by,
            pools: pools.collect(),
            text: text::refusal(HolderKind::Service, refusal),
            fix: text::fix(HolderKind::Service, refusal.reason()).into_owned(),
        }
    }
}

/// Where an address that a Service has is from.
fn address(world: World<'_>, address: IpAddr) -> Address {
    let pool = world.claim(address).and_then(|claim| claim.pool.as_ref());
    let text = if is_lease(address) {
        format!("{address}: kube-vip asks DHCP for an address")
    } else if !is_known(world, address) {
        format!("{address}, which another program gave it")
    } else if world.ledger.book.pool_of(address).is_none() {
        format!("{address}, which no pool covers any more")
    } else {
        from_pool(address, pool)
    };
    Address { address, pool: pool.map(ToString::to_string), text }
}

fn from_pool(address: IpAddr, pool: Option<&PoolName>) -> String {
    pool.map_or_else(|| address.to_string(), |pool| format!("{address} from {pool}"))
}

/// Other Services that show an address of this one without a claim on it.
fn also_shown(world: World<'_>, service: &Balancer, addr: IpAddr) -> Vec<String> {
    let others = world.shown_without_claim(addr).map(|key| world.audience(service).service(key));
    let texts =
        others.map(|other| format!("{addr} is also shown by {other}, which has no claim on it"));
    texts.collect()
}

/// The holder with which a Service shares an address though by today's rules it could not.
fn odd_company(world: World<'_>, service: &Balancer, addr: IpAddr) -> Option<String> {
    let audience = world.audience(service);
    let (holder, clash) = world.claim(addr)?.odd_company(service)?;
    let other = audience.service(&holder.key);
    let clash = text::clash(HolderKind::Service, &audience.clash(clash));
    Some(format!("{addr} is shared with {other} as before, though today it could not be: {clash}"))
}

fn joined<'a>(parts: impl Iterator<Item = &'a String>) -> String {
    parts.map(String::as_str).collect::<Vec<_>>().join("; ")
}
