//! The promises of the documents, implemented a second time: no index, no shortcut, nothing shared with the
//! planner. Everything is decided again until nothing changes.

use std::{collections::BTreeSet, net::IpAddr};

use landfall_ipam::{Family, Reason};

use super::{
    acts::{Name, Rank, Stack},
    pools::{
        DRAINING, FULL, Given, HELD_BACK, MISSING, NO_FAMILY, NOT_ASKED, NOT_SELECTED, OVER_QUOTA,
        Verdict, nearest,
    },
    reference::{Claim, Holder, Model, No, Reserved, Says, Service, split},
};
use crate::cluster::service::Place;

/// More rounds than any chain of consequences takes.
const MOST_ROUNDS: usize = 40;

/// For how many more rounds an address stays the Service's own after it is no longer shown: the new claim, if
/// the Service moves, and the status come first, and others choose among free addresses meanwhile.
const ROUNDS_TO_MOVE: u8 = 2;
const ROUNDS_TO_WITHDRAW: u8 = 1;

/// The addresses that a Service should have now, and those it cannot have.
struct Due {
    given: Vec<Given>,
    misses: Vec<No>,
    /// Whether no further address will come in the next round.
    is_all: bool,
    /// A retained address that must be released before the Service can have one.
    after: Option<IpAddr>,
}

/// Why a Service cannot have an address now.
enum Missed {
    No(No),
    /// It can once this retained address is released.
    After(IpAddr),
}

impl Model {
    /// Serves every Service, oldest first, then frees the addresses they no longer have, until nothing
    /// changes. No address is freed before every Service was served: a Service that moves takes the new one
    /// first.
    pub(super) fn settle(&mut self) {
        for _ in 0..MOST_ROUNDS {
            let mut oldest_first: Vec<(u64, Name)> =
                self.services.iter().map(|(name, service)| (service.birth, *name)).collect();
            oldest_first.sort_unstable();
            let mut changed = false;
            self.fresh.clear();
            for (_, name) in &oldest_first {
                changed |= self.enter_terms(name);
            }
            for (_, name) in oldest_first {
                changed |= self.serve(name);
            }
            changed |= self.take_back();
            if !changed {
                return;
            }
        }
        panic!("the model never comes to rest: {self:#?}");
    }

    /// Records the terms on which a Service keeps its addresses, before others look for an address to share;
    /// returns whether anything changed.
    fn enter_terms(&mut self, name: Name) -> bool {
        let service = &self.services[name];
        if !service.load_balancer || service.deleting {
            return false;
        }
        let (birth, terms) = (service.birth, service.terms.clone());
        let mut entered = self.claims.values().flat_map(|claim| &claim.holders);
        if !entered.any(|holder| holder.name == name && holder.terms != terms) {
            return false;
        }
        let kept = self.due(name).given;
        let mut changed = false;
        for (addr, _) in kept {
            let holders = self.claims.get_mut(&addr).map(|claim| claim.holders.iter_mut());
            let its_own = |holder: &&mut Holder| (holder.name, holder.birth) == (name, birth);
            for holder in holders.into_iter().flatten().filter(its_own) {
                changed |= holder.terms != terms;
                holder.terms.clone_from(&terms);
            }
        }
        changed
    }

    /// Gives one Service what it can have now; returns whether anything changed.
    fn serve(&mut self, name: Name) -> bool {
        let service = &self.services[name];
        if !service.load_balancer || service.deleting || self.is_foreign(name) {
            let loses_label = service.marked && !service.load_balancer && self.may_unmark(name);
            let service = self.services.get_mut(name).expect("it is there");
            service.misses.clear();
            if !service.deleting {
                service.says = None;
            }
            service.marked &= !loses_label;
            return loses_label;
        }
        let Due { given, misses, is_all, after } = self.due(name);
        if let Some(retained) = after {
            // What an earlier Service of its name left behind is taken back first: it may be enough.
            return self.leaves_something(name) || self.given_up.insert(retained);
        }
        let service = &self.services[name];
        let addrs: Vec<IpAddr> = given.iter().map(|(addr, _)| *addr).collect();
        let content = misses.is_empty()
            || (!addrs.is_empty()
                && service.stack != Stack::Require
                && misses.iter().all(|no| !no.asked));
        let says = match misses.first() {
            Some(no) if !content => Says::Refused(no.reason),
            _ if addrs.iter().all(|addr| self.first_pool(*addr).is_some()) => Says::Allocated,
            _ => Says::OutsidePool,
        };
        let (birth, class, terms) = (service.birth, service.class, service.terms.clone());
        let pools = service.pools.clone();
        let changed = service.has != addrs;
        let left: Vec<IpAddr> =
            service.has.iter().copied().filter(|addr| !addrs.contains(addr)).collect();
        let mut rounds = ROUNDS_TO_WITHDRAW;
        for (addr, pool) in given {
            let is_new = !self.named_by(name).contains(&addr);
            if is_new {
                let pool = self.first_pool(addr);
                self.claims.entry(addr).and_modify(|claim| claim.pool = claim.pool.or(pool));
                self.fresh.insert(addr);
                rounds = ROUNDS_TO_MOVE;
            }
            let claim =
                self.claims.entry(addr).or_insert_with(|| Claim { pool, ..Claim::default() });
            let before = claim.holders.iter().find(|holder| holder.name == name);
            let before = before.filter(|holder| holder.birth == birth);
            let asked = before.map_or_else(|| pools.clone(), |holder| holder.asked.clone());
            claim.holders.retain(|holder| holder.name != name);
            claim.holders.push(Holder { name, birth, class, terms: terms.clone(), asked });
            // A temporary reservation has served its purpose.
            claim.reserved = claim.reserved.take().filter(|reserved| reserved.ends.is_none());
        }
        let annotated = self.place == Place::Annotation && !addrs.is_empty();
        let service = self.services.get_mut(name).expect("it is there");
        service.leaves.retain(|addr, _| !addrs.contains(addr));
        service.leaves.extend(left.into_iter().map(|addr| (addr, rounds)));
        // Nothing is published before every address is there.
        if is_all {
            service.says = Some(says);
            service.marked |= annotated;
        }
        service.has = addrs;
        service.misses = misses;
        changed
    }

    /// Whether the label on a Service is known to be ours.
    fn may_unmark(&self, name: Name) -> bool {
        let mut holders = self.claims.values().flat_map(|claim| &claim.holders);
        holders.any(|holder| holder.name == name)
            || (self.place == Place::Annotation && !self.pools.is_empty())
    }

    /// Frees addresses without a holder unless they are reserved; returns whether anything changed.
    fn take_back(&mut self) -> bool {
        let mut changed = false;
        let clock = self.clock;
        for addr in self.claims.keys().copied().collect::<Vec<_>>() {
            let claim = &self.claims[&addr];
            let (mut kept, mut gone) = (claim.clone(), Vec::new());
            kept.holders.retain(|holder| {
                let has = self.still_has(holder, addr);
                if !has {
                    gone.push((holder.name, holder.birth));
                }
                has
            });
            changed |= !gone.is_empty();
            if let Some((last, birth)) = gone.last().filter(|_| kept.holders.is_empty()) {
                let bears_its_name = self.services.get(last);
                let deleted = bears_its_name.is_none_or(|service| service.birth != *birth);
                let seconds = self.retention(&kept).filter(|_| deleted);
                let (namespace, name) = split(last);
                let retained = seconds.map(|seconds| Reserved {
                    namespace,
                    name: Some(name),
                    ends: Some(clock + seconds),
                    retained: true,
                });
                kept.reserved = kept.reserved.or(retained);
            }
            let over = |reserved: &Reserved| reserved.ends.is_some_and(|ends| ends <= clock);
            let over = |reserved: &Reserved| over(reserved) || self.given_up.contains(&addr);
            if kept.holders.is_empty() && kept.reserved.as_ref().is_none_or(over) {
                self.claims.remove(&addr);
                changed = true;
            } else {
                self.claims.insert(addr, kept);
            }
        }
        self.given_up.clear();
        for service in self.services.values_mut() {
            changed |= !service.leaves.is_empty();
            service.leaves.retain(|_, rounds| {
                let leaves = *rounds > 0;
                *rounds = rounds.saturating_sub(1);
                leaves
            });
        }
        changed
    }

    /// Whether an address is still its holder's own.
    fn still_has(&self, holder: &Holder, addr: IpAddr) -> bool {
        self.services.get(holder.name).is_some_and(|service| {
            let leaves = service.leaves.get(&addr).is_some_and(|rounds| *rounds > 0);
            service.birth == holder.birth && (service.has.contains(&addr) || leaves)
        })
    }

    /// Whether an address is about to be taken back from a Service, or from an earlier one of its name.
    fn leaves_something(&self, name: Name) -> bool {
        self.claims.iter().any(|(addr, claim)| {
            let mut holders = claim.holders.iter().filter(|holder| holder.name == name);
            holders.any(|holder| !self.still_has(holder, *addr))
        })
    }

    /// How long the pool of a claim retains the address for a Service that is created again.
    fn retention(&self, claim: &Claim) -> Option<i64> {
        self.pools.get(claim.pool?)?.retain_for
    }

    /// Whether a Service is of a class that another program serves.
    pub(super) fn is_foreign(&self, name: Name) -> bool {
        let service = &self.services[name];
        let served = |class: Name| self.pools.values().any(|pool| pool.class == Some(class));
        service.class.is_some_and(|class| !served(class)) && self.named_by(name).is_empty()
    }

    /// Addresses whose claims name this very Service, under the class it has.
    fn named_by(&self, name: Name) -> Vec<IpAddr> {
        let service = &self.services[name];
        let names = |claim: &Claim| {
            claim.holders.iter().any(|holder| {
                (holder.name, holder.birth, holder.class) == (name, service.birth, service.class)
            })
        };
        self.claims.iter().filter(|(_, claim)| names(claim)).map(|(addr, _)| *addr).collect()
    }

    fn due(&self, name: Name) -> Due {
        let service = &self.services[name];
        let mut mine = self.named_by(name);
        mine.retain(|addr| !self.clashes(name, &self.claims[addr]));
        let old = |family: Family| {
            let of_family = || mine.iter().copied().filter(|addr| Family::of(*addr) == family);
            let shown = of_family().find(|addr| service.has.contains(addr));
            shown.or_else(|| of_family().next()).map(|addr| (addr, None))
        };
        let mut given: Vec<Given> = Vec::new();
        let mut misses = Vec::new();
        let (mut is_all, mut soon, mut after) = (true, 0, None);
        for family in service.stack.families() {
            let wish = wish(service, family);
            if let Ok(Some(addr)) = wish
                && self.fresh.contains(&addr)
                && !mine.contains(&addr)
            {
                // A Service that joins an address taken in this round waits a round, and keeps what it has.
                is_all = false;
                match old(family) {
                    Some(keeps) => given.push(keeps),
                    None => soon += 1,
                }
                continue;
            }
            let asked = match wish {
                Ok(None) => None,
                Ok(Some(addr)) if mine.contains(&addr) => Some(Ok((addr, None))),
                Ok(Some(addr)) => Some(self.grant(name, addr, &given)),
                Err(reason) => {
                    Some(Err(Missed::No(No { reason, pools: BTreeSet::new(), asked: true })))
                }
            };
            let found = match asked {
                Some(Ok(granted)) => Ok(Some(granted)),
                Some(Err(Missed::After(retained))) => Err(Missed::After(retained)),
                Some(Err(Missed::No(no))) => match old(family) {
                    Some(keeps) => {
                        misses.push(no);
                        Ok(Some(keeps))
                    }
                    None => Err(Missed::No(no)),
                },
                None => match old(family) {
                    Some((addr, _)) if self.asks_elsewhere(name, addr) => {
                        match self.find_in_pools(name, family, &given) {
                            // It moves in the next round, and keeps what it has.
                            Ok(None) => {
                                is_all = false;
                                Ok(Some((addr, None)))
                            }
                            Err(Missed::No(no)) => {
                                misses.push(No { asked: true, ..no });
                                Ok(Some((addr, None)))
                            }
                            found => found,
                        }
                    }
                    Some(keeps) => Ok(Some(keeps)),
                    None => self.find(name, family, &given),
                },
            };
            match found {
                Ok(Some(one)) => given.push(one),
                Ok(None) => soon += 1,
                Err(Missed::No(no)) => misses.push(no),
                Err(Missed::After(retained)) => after = after.or(Some(retained)),
            }
        }
        let families = service.stack.families();
        if service.stack == Stack::Require && (soon > 0 || given.len() < families.len()) {
            // Both or nothing new, but it keeps the address it has. An address it might have soon may be an
            // older Service's by then.
            given = families.into_iter().filter_map(old).collect();
        }
        Due { given, misses, is_all: is_all && soon == 0, after }
    }

    /// Whether a Service has come to ask for pools, none of which covers its address, since it got it.
    fn asks_elsewhere(&self, name: Name, addr: IpAddr) -> bool {
        let service = &self.services[name];
        let Some(claim) = self.claims.get(&addr) else { return false };
        let holder = claim.holders.iter().find(|holder| holder.name == name);
        let covers = |pool: &Name| {
            claim.pool == Some(*pool)
                || self.pools.get(pool).is_some_and(|pool| pool.covers().contains(&addr))
        };
        service.has.contains(&addr)
            && !service.pools.is_empty()
            && holder.is_some_and(|holder| holder.asked != service.pools)
            && !service.pools.iter().any(covers)
    }

    /// An address of a family for a Service that asks for none in particular; `None` for now if it is one to
    /// share that was taken in this round.
    fn find(&self, name: Name, family: Family, also: &[Given]) -> Result<Option<Given>, Missed> {
        match self.kept(name, family) {
            Some(addr) => Ok(Some((addr, self.first_pool(addr)))),
            None => self.find_in_pools(name, family, also),
        }
    }

    /// The same without addresses reserved for it.
    fn find_in_pools(
        &self,
        name: Name,
        family: Family,
        also: &[Given],
    ) -> Result<Option<Given>, Missed> {
        let mut verdicts = Vec::new();
        for pools in self.turns(name) {
            if let Some(given) = self.joinable(name, family, also, &pools) {
                return Ok(Some(given).filter(|(addr, _)| !self.fresh.contains(addr)));
            }
            for pool in pools {
                match self.free(name, family, also, pool) {
                    Ok(addr) => return Ok(Some((addr, Some(pool)))),
                    Err(OVER_QUOTA) if let Some(retained) = self.retained_to_free(pool, name) => {
                        return Err(Missed::After(retained));
                    }
                    Err(verdict) => verdicts.push((pool, verdict)),
                }
            }
        }
        Err(Missed::No(nearest(&verdicts, Reason::NoPool, false)))
    }

    /// The lowest free address of a family that a pool gives a Service, or why it gives none.
    fn free(
        &self,
        name: Name,
        family: Family,
        also: &[Given],
        pool_name: Name,
    ) -> Result<IpAddr, Verdict> {
        let pool = self.pools.get(pool_name).ok_or(MISSING)?;
        self.serves(pool, name)?;
        if !pool.has_family(family) {
            return Err(NO_FAMILY);
        }
        if !pool.gives_unasked() && self.services[name].pools.is_empty() {
            return Err(NOT_SELECTED);
        }
        if pool.drain {
            return Err(DRAINING);
        }
        if self.over_quota(pool_name, name, None, also) {
            return Err(OVER_QUOTA);
        }
        let free = pool.covers().into_iter().find(|addr| {
            Family::of(*addr) == family
                && !self.claims.contains_key(addr)
                && !self.is_foreign_address(*addr)
                && self.excluded_by(*addr).is_none()
                && !pool.holds_back(*addr)
        });
        free.ok_or(FULL)
    }

    /// Whether an address is reserved for a Service; `Some(true)` if for any of its namespace. An address that
    /// its namesake held until now counts as retained in time.
    fn keeps(&self, claim: &Claim, name: Name) -> Option<bool> {
        let birth = self.services[name].birth;
        let mut holders = claim.holders.iter();
        let left = holders.all(|holder| holder.name == name && holder.birth != birth);
        match &claim.reserved {
            _ if !left => None,
            Some(reserved) => reserved.is_for(name).then_some(reserved.name.is_none()),
            None => self.retention(claim).map(|_| false),
        }
    }

    /// The address that is reserved for a Service: by its name before by its namespace, then the lowest.
    fn kept(&self, name: Name, family: Family) -> Option<IpAddr> {
        let mut fitting: Vec<(bool, IpAddr)> = Vec::new();
        for (addr, claim) in &self.claims {
            let possible = Family::of(*addr) == family
                && self.first_pool(*addr).is_some()
                && !self.is_foreign_address(*addr);
            let for_any = self.keeps(claim, name).filter(|_| possible);
            fitting.extend(for_any.map(|for_any| (for_any, *addr)));
        }
        fitting.into_iter().min().map(|(_, addr)| addr)
    }

    /// The lowest address that a Service may share with its holders.
    fn joinable(
        &self,
        name: Name,
        family: Family,
        also: &[Given],
        pools: &[Name],
    ) -> Option<Given> {
        let named = !self.services[name].pools.is_empty();
        for (addr, claim) in &self.claims {
            if Family::of(*addr) != family
                || self.may_join(name, claim).is_err()
                || self.is_foreign_address(*addr)
                || self.excluded_by(*addr).is_some()
            {
                continue;
            }
            let by = pools.iter().copied().find(|pool_name| {
                self.pools.get(pool_name).is_some_and(|pool| {
                    (named || pool.rank != Rank::OnRequest)
                        && pool.covers().contains(addr)
                        && !pool.holds_back(*addr)
                        && !pool.drain
                        && self.serves(pool, name).is_ok()
                        && !self.over_quota(pool_name, name, Some(*addr), also)
                })
            });
            if by.is_some() {
                return Some((*addr, by));
            }
        }
        None
    }

    /// Exactly this address, or why not.
    fn grant(&self, name: Name, addr: IpAddr, also: &[Given]) -> Result<Given, Missed> {
        let first_pool = self.first_pool(addr);
        let awaited = self.awaited(name, addr);
        let no = |reason: Reason, pool: Option<Name>| No {
            reason,
            pools: pool.into_iter().collect(),
            asked: true,
        };
        let claim = self.claims.get(&addr);
        let reserved = claim.filter(|claim| claim.holders.is_empty());
        let reserved = reserved.and_then(|claim| claim.reserved.as_ref());
        if reserved.is_some_and(|reserved| !reserved.is_for(name)) {
            return Err(Missed::No(no(Reason::Reserved, awaited)));
        }
        if claim.is_some_and(|claim| self.keeps(claim, name).is_some()) {
            return match first_pool {
                None => Err(Missed::No(no(Reason::OutsideEveryPool, None))),
                Some(_) if self.is_foreign_address(addr) => {
                    Err(Missed::No(no(Reason::TakenBy, awaited)))
                }
                Some(pool) => Ok((addr, Some(pool))),
            };
        }
        let service = &self.services[name];
        let mut verdicts = Vec::new();
        let mut about_addr = None;
        for pool_name in self.pools_in_order() {
            let pool = &self.pools[pool_name];
            if !pool.covers().contains(&addr) {
                continue;
            }
            let asked = service.pools.is_empty() || service.pools.contains(&pool_name);
            let mut after = None;
            let verdict = if !asked {
                Err(NOT_ASKED)
            } else if self.serves(pool, name).is_ok()
                && self.over_quota(pool_name, name, Some(addr), also)
            {
                after = self.retained_to_free(pool_name, name);
                if after.is_some() { Ok(()) } else { Err(OVER_QUOTA) }
            } else {
                self.serves(pool, name)
            };
            if let Err(verdict) = verdict {
                verdicts.push((pool_name, verdict));
                continue;
            }
            let joins = claim.map_or(Ok(()), |claim| self.may_join(name, claim));
            if let Err(reason) = joins {
                about_addr = Some(no(reason, awaited));
            } else if self.is_foreign_address(addr) {
                about_addr = Some(no(Reason::TakenBy, awaited));
            } else if self.excluded_by(addr).is_some() {
                about_addr = Some(no(Reason::Excluded, awaited));
            } else if pool.holds_back(addr) {
                verdicts.push((pool_name, HELD_BACK));
            } else if pool.drain {
                verdicts.push((pool_name, DRAINING));
            } else {
                return after.map_or(Ok((addr, Some(pool_name))), |addr| Err(Missed::After(addr)));
            }
        }
        match about_addr {
            Some(no) => Err(Missed::No(no)),
            None if self.may_write_by_hand(name, addr) => Ok((addr, None)),
            None => Err(Missed::No(nearest(&verdicts, Reason::OutsideEveryPool, true))),
        }
    }

    /// Whether a Service may have a free address though no pool gives it: kube-vip would announce it from the
    /// annotation anyway.
    fn may_write_by_hand(&self, name: Name, addr: IpAddr) -> bool {
        let is_free = !self.claims.contains_key(&addr) && !self.is_foreign_address(addr);
        let annotated = self.services[name].marked || self.meant_for(name).is_some();
        let in_use = self.place == Place::Annotation && !self.pools.is_empty();
        in_use && annotated && is_free && self.excluded_by(addr).is_none()
    }
}

/// The address of a family that a Service asks for, or why its request makes no sense.
fn wish(service: &Service, family: Family) -> Result<Option<IpAddr>, Reason> {
    let mut seen: Vec<IpAddr> = Vec::new();
    for addr in &service.asks {
        if !service.stack.families().contains(&Family::of(*addr)) {
            return Err(Reason::FamilyMissing);
        }
        if seen.iter().any(|other| Family::of(*other) == Family::of(*addr) && other != addr) {
            return Err(Reason::Unparseable);
        }
        seen.push(*addr);
    }
    Ok(seen.into_iter().find(|addr| Family::of(*addr) == family))
}
