//! What claims count for, derived from a claim and what is in flight about it by one function.

use std::{collections::BTreeSet, net::IpAddr};

use jiff::Timestamp;
use landfall_api::HolderKind;
use landfall_ipam::PoolName;

use super::{
    Change,
    claim::{Claim, HolderEntry, HolderRef},
    in_flight::InFlight,
};
use crate::index::Index;

/// The quota of a pool for a namespace.
type Quota = (PoolName, String);

/// Addresses by what they count for.
#[derive(Debug, Default)]
pub(super) struct Indexes {
    /// Addresses that a claim names a holder of.
    pub(super) held: Index<HolderRef, IpAddr>,
    /// Addresses of a pool that a namespace holds or is about to.
    pub(super) given: Index<Quota, IpAddr>,
    /// Addresses whose holders have a sharing key, or are about to.
    pub(super) sharing: Index<String, IpAddr>,
    /// Addresses of a pool that wait for deleted holders of a namespace, by when that ends.
    pub(super) retained: Index<Quota, (Timestamp, IpAddr)>,
    /// Addresses that are kept for a Service, or for any of a namespace, and have no holder.
    pub(super) kept: Index<(String, Option<String>), IpAddr>,
    /// Reservations without a holder, by when they end.
    pub(super) expiries: BTreeSet<(Timestamp, IpAddr)>,
}

/// What one address counts for.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Facts {
    held: Vec<HolderRef>,
    given: Vec<Quota>,
    sharing: Vec<String>,
    retained: Option<(Quota, Timestamp)>,
    kept: Option<(String, Option<String>)>,
    expires: Option<Timestamp>,
}

/// What an address counts for, by its claim and by what is in flight about it. Quotas and sharing count
/// both: what is given up counts until it is, and what is taken counts from the beginning.
pub(super) fn facts(claim: Option<&Claim>, in_flight: Option<&InFlight>) -> Facts {
    let mut facts = Facts::default();
    if let Some(claim) = claim {
        facts.held.extend(claim.holders().iter().map(HolderEntry::holder));
        if let Some(reservation) = claim.waits_for() {
            facts.expires = reservation.expires;
            if reservation.kind == HolderKind::Service {
                facts.kept = Some(reservation.whom());
            }
            let end = reservation.expires.filter(|_| reservation.retained);
            if let (Some(end), Some(pool)) = (end, &claim.pool) {
                let quota = (pool.clone(), reservation.namespace.clone());
                facts.given.push(quota.clone());
                facts.retained = Some((quota, end));
            }
        }
    }
    let expected = in_flight.and_then(|entry| entry.expected.as_deref());
    for claim in claim.into_iter().chain(expected) {
        for holder in claim.holders() {
            let quota = claim.pool.clone().zip(Some(holder.key.namespace().to_owned()));
            facts.given.extend(quota.filter(|quota| !facts.given.contains(quota)));
            let key = holder.terms.as_ref().and_then(|terms| terms.key.clone());
            facts.sharing.extend(key.filter(|key| !facts.sharing.contains(key)));
        }
    }
    facts
}

impl Indexes {
    /// An address counts for other things than it did.
    pub(super) fn replace(
        &mut self,
        addr: IpAddr,
        before: &Facts,
        after: &Facts,
        changes: &mut Vec<Change>,
    ) {
        if before == after {
            return;
        }
        for holder in gone(&before.held, &after.held) {
            self.held.remove(holder, &addr);
        }
        for holder in gone(&after.held, &before.held) {
            self.held.insert(holder.clone(), addr);
        }
        for key in gone(&before.sharing, &after.sharing) {
            self.sharing.remove(key.as_str(), &addr);
        }
        for key in gone(&after.sharing, &before.sharing) {
            self.sharing.insert(key.clone(), addr);
        }
        if before.retained != after.retained {
            if let Some((quota, end)) = &before.retained {
                self.retained.remove(quota, &(*end, addr));
            }
            if let Some((quota, end)) = &after.retained {
                self.retained.insert(quota.clone(), (*end, addr));
                changes.push(Change::Returned(quota.0.clone(), quota.1.clone()));
            }
        }
        if before.kept != after.kept {
            if let Some(whom) = &before.kept {
                self.kept.remove(whom, &addr);
            }
            if let Some(whom) = &after.kept {
                self.kept.insert(whom.clone(), addr);
            }
        }
        if before.expires != after.expires {
            before.expires.map(|expires| self.expiries.remove(&(expires, addr)));
            after.expires.map(|expires| self.expiries.insert((expires, addr)));
        }
        for (pool, namespace) in gone(&before.given, &after.given) {
            self.given.remove(&(pool.clone(), namespace.clone()), &addr);
            changes.push(Change::Returned(pool.clone(), namespace.clone()));
        }
        for (pool, namespace) in gone(&after.given, &before.given) {
            self.given.insert((pool.clone(), namespace.clone()), addr);
            changes.push(Change::Given(pool.clone(), namespace.clone()));
        }
    }
}

/// What is among the first and not among the second.
fn gone<'a, T: PartialEq>(first: &'a [T], second: &'a [T]) -> impl Iterator<Item = &'a T> {
    first.iter().filter(|item| !second.contains(item))
}
