//! Indexes of claims, derived by one function from a claim and the call in flight about it.

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

/// Addresses, indexed.
#[derive(Debug, Default)]
pub(super) struct Indexes {
    /// Addresses by the holders that their claims name.
    pub(super) held: Index<HolderRef, IpAddr>,
    /// Addresses of a pool that a namespace holds or is about to hold.
    pub(super) given: Index<Quota, IpAddr>,
    /// Addresses with a holder that has a sharing key, or is about to have it.
    pub(super) sharing: Index<String, IpAddr>,
    /// Addresses of a pool that wait for deleted Services of a namespace, by expiry.
    pub(super) retained: Index<Quota, (Timestamp, IpAddr)>,
    /// Addresses without a holder that are reserved for one Service, or for any Service of a namespace.
    pub(super) kept: Index<(String, Option<String>), IpAddr>,
    /// Reservations without a holder, by expiry.
    pub(super) expiries: BTreeSet<(Timestamp, IpAddr)>,
}

/// The index entries of one address.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Facts {
    held: Vec<HolderRef>,
    given: Vec<Quota>,
    sharing: Vec<String>,
    retained: Option<(Quota, Timestamp)>,
    kept: Option<(String, Option<String>)>,
    expires: Option<Timestamp>,
}

/// The index entries of an address, from its claim and the call in flight. Quotas and sharing count
/// both: an address counts from the planning of its take until its release is done.
pub(super) fn facts(claim: Option<&Claim>, in_flight: Option<&InFlight>) -> Facts {
    let mut facts = Facts::default();
    if let Some(claim) = claim {
        facts.held.extend(claim.holders().iter().map(HolderEntry::holder));
        if let Some(reservation) = claim.waits_for() {
            facts.expires = reservation.expires;
            let for_services = reservation.kind == HolderKind::Service && !claim.has_another_use();
            if for_services {
                facts.kept = Some(reservation.whom());
            }
            let end = reservation.expires.filter(|_| reservation.retained);
            if let (Some(end), Some(pool)) = (end, &claim.pool) {
                let quota = (pool.clone(), reservation.namespace.clone());
                facts.given.push(quota.clone());
                facts.retained = Some((quota, end)).filter(|_| for_services);
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
    /// Replaces the index entries of an address; returns what that changes for quotas.
    pub(super) fn replace(&mut self, addr: IpAddr, before: &Facts, after: &Facts) -> Vec<Change> {
        let mut changes = Vec::new();
        if before == after {
            return changes;
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
        changes
    }
}

/// The items of the first list that are not in the second.
fn gone<'a, T: PartialEq>(first: &'a [T], second: &'a [T]) -> impl Iterator<Item = &'a T> {
    first.iter().filter(|item| !second.contains(item))
}
