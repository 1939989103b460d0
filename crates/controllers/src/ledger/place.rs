//! The nodes that carry addresses, as planners tell and as the status of claims says.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use super::{Ledger, Phase, Write};
use crate::{backoff::Backoff, clock::Now};

/// How many of these writes are planned at once: they are for people to read, and others wait.
const AT_ONCE: usize = 64;

/// Which node carries which address.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// What planners told; `None` if no node does. Addresses of which none told anything stay as they are.
    told: BTreeMap<IpAddr, Option<Arc<str>>>,
    /// Addresses whose claims may say something else. Each round walks them: they are only those that are
    /// still to be compared or written.
    unsure: BTreeSet<IpAddr>,
    /// Addresses whose claims could not be written, and when to try again.
    delays: BTreeMap<IpAddr, Backoff>,
}

impl Ledger {
    /// A node carries an address, or none does.
    pub(crate) fn place(&mut self, addr: IpAddr, node: Option<&str>) {
        let places = &mut self.places;
        if places.told.get(&addr).map(Option::as_deref) != Some(node) {
            places.told.insert(addr, node.map(Arc::from));
            places.unsure.insert(addr);
        }
    }

    /// The status of a claim may have changed.
    pub(super) fn recheck_place(&mut self, addr: IpAddr) {
        let places = &mut self.places;
        if places.told.contains_key(&addr) {
            places.unsure.insert(addr);
        }
    }

    /// The writes that bring the status of claims in line with what was told.
    pub(super) fn place_due(&mut self, now: Now) -> Vec<Write> {
        let mut writes = Vec::new();
        for addr in self.places.unsure.clone() {
            if writes.len() == AT_ONCE {
                break;
            }
            // The end of the call is a reason to look again.
            if self.in_flight.contains_key(&addr) || self.is_place_delayed(addr, now) {
                continue;
            }
            self.places.unsure.remove(&addr);
            let Some(told) = self.places.told.get(&addr).cloned() else { continue };
            let claim = self.claims.get(&addr);
            let Some(claim) = claim.filter(|claim| claim.node != told) else {
                self.places.delays.remove(&addr);
                if told.is_none() {
                    self.places.told.remove(&addr);
                }
                continue;
            };
            let version = claim.version;
            let mut placed = claim.clone();
            placed.node.clone_from(&told);
            self.begin(addr, Some(placed), Phase::Writing);
            self.places.unsure.insert(addr);
            writes.push(Write::Place { addr, version, node: told });
        }
        writes
    }

    /// A write was refused: it is tried again later.
    pub(super) fn delay_place(&mut self, addr: IpAddr, wait: Duration, now: Now) {
        let tries = self.places.delays.get(&addr).map_or(0, |delay| delay.tries);
        let delay = Backoff::after(tries, now).at_least(wait, now);
        self.places.delays.insert(addr, delay);
    }

    fn is_place_delayed(&self, addr: IpAddr, now: Now) -> bool {
        self.places.delays.get(&addr).is_some_and(|delay| delay.holds(now))
    }

    /// The uptime at which a write may be planned, if any is due.
    pub(super) fn next_place(&self) -> Option<Duration> {
        let idle = self.places.unsure.iter().filter(|addr| !self.in_flight.contains_key(addr));
        let due = idle.map(|addr| self.places.delays.get(addr).and_then(|delay| delay.until));
        due.map(Option::unwrap_or_default).min()
    }
}
