//! Gives freed addresses to waiting Services, oldest first.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use landfall_ipam::{Family, PoolName};

use super::{Effect, Round, Write};
use crate::services::waiting::Turn;

/// Freed addresses that are not taken yet, by the Services that could wait for them.
#[derive(Debug, Default)]
struct Freed {
    by_pool: BTreeMap<(PoolName, Family), BTreeSet<IpAddr>>,
    /// Those that some Service asks for by address.
    asked: BTreeSet<IpAddr>,
}

impl Freed {
    fn remove(&mut self, addr: IpAddr) {
        self.asked.remove(&addr);
        self.by_pool.retain(|_, addrs| {
            addrs.remove(&addr);
            !addrs.is_empty()
        });
    }
}

impl Round<'_> {
    /// Gives freed addresses to the oldest Services that can use them.
    ///
    /// Goes by Service, not by address: otherwise a Service that needs two addresses would take the
    /// second from an older Service.
    pub(super) fn serve_freed(&mut self) {
        let addrs = std::mem::take(&mut self.own.freed);
        let mut freed = Freed::default();
        for addr in &addrs {
            self.ledger.settle(*addr);
        }
        for addr in addrs.into_iter().filter(|addr| !self.ledger.book.is_taken(*addr)) {
            for pool in self.ledger.book.pools().filter(|pool| pool.contains(addr)) {
                let key = (pool.name.clone(), Family::of(addr));
                freed.by_pool.entry(key).or_default().insert(addr);
            }
            if self.own.waiting.is_awaited(addr) {
                freed.asked.insert(addr);
            }
        }
        let mut last: Option<Turn> = None;
        while let Some(turn) = self.next_turn(&freed, last.as_ref()) {
            // An older Service may have been woken for another reason, such as a quota or a
            // reservation.
            let older = self.own.woken.first().filter(|woken| **woken < turn).cloned();
            if let Some(woken) = older {
                self.own.woken.remove(&woken);
                self.serve(&woken, &mut freed);
            } else {
                self.serve(&turn, &mut freed);
                last = Some(turn);
            }
        }
        self.own.woken.clear();
    }

    /// The oldest Service after `last` that could use one of these addresses.
    fn next_turn(&self, freed: &Freed, last: Option<&Turn>) -> Option<Turn> {
        let pools =
            freed.by_pool.keys().filter_map(|pool| self.own.waiting.next_for_pool(pool, last));
        let asked = freed.asked.iter().filter_map(|addr| self.own.waiting.next_for(*addr, last));
        pools.chain(asked).min().cloned()
    }

    fn serve(&mut self, turn: &Turn, freed: &mut Freed) {
        let planned = self.out.effects.len();
        self.plan_service(&turn.1);
        let taken = self.out.effects.iter().skip(planned).filter_map(|effect| {
            if let Effect::Claim { write: Write::Take { claim }, .. } = effect {
                Some(claim.addr)
            } else {
                None
            }
        });
        for addr in taken.chain(self.held_until_its_call_ends(&turn.1)) {
            freed.remove(addr);
        }
    }
}
