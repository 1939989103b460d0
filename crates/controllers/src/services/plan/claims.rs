//! Claims taken, touched and given up for a Service.

use std::net::IpAddr;

use landfall_ipam::{Family, PoolName};

use super::{Busy, ClaimView, Effect, HolderView, Now, Planner, ServiceView, Tenure, status};
use crate::object::{ObjectKey, Version};

impl Planner {
    pub(super) fn take(
        &mut self,
        service: &ServiceView,
        addr: IpAddr,
        pool: Option<PoolName>,
        effects: &mut Vec<Effect>,
    ) {
        self.begin_call(&service.key);
        let holder = self.count_as_taken(service, addr, pool.as_ref());
        effects.push(Effect::Take { addr, pool, holder });
    }

    /// Keeps an address from all others while a Service is about to take it.
    pub(super) fn count_as_taken(
        &mut self,
        service: &ServiceView,
        addr: IpAddr,
        pool: Option<&PoolName>,
    ) -> HolderView {
        let mut holder = status::holder_now(service);
        holder.replaces = self.replaced_by(service, addr);
        let claim = ClaimView {
            addr,
            uid: "".into(),
            version: Version::default(),
            pool: pool.cloned(),
            reserved: None,
            tenure: Tenure::Services(vec![holder.clone()]),
        };
        self.world.busy.insert(addr, Busy::Writing(Some(claim.into())));
        self.count(pool, &holder, addr);
        self.settle(addr);
        holder
    }

    /// The address that a Service has and that this one, of another pool, is to take the place of.
    fn replaced_by(&self, service: &ServiceView, addr: IpAddr) -> Option<IpAddr> {
        let family = Family::of(addr);
        let asked = service.request.is_about(family) || service.shows.contains(&addr);
        let held = |shown: &IpAddr| {
            let claim = self.world.claim(*shown);
            claim.is_some_and(|claim| claim.holder(service).is_some())
        };
        let mut shown = service.shows.iter().filter(|shown| Family::of(**shown) == family);
        shown.find(|shown| !asked && held(shown)).copied()
    }

    /// Gives up an address that waits for a deleted Service, so that a Service of the same namespace
    /// can have another.
    pub(super) fn give_up(
        &mut self,
        key: &ObjectKey,
        addr: IpAddr,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(delay) = self.release_delays.get(&addr).filter(|delay| delay.holds(now)) {
            self.service_delays.insert(key.clone(), (*delay, None));
            return;
        }
        self.later.insert(key.clone());
        if let Some(claim) = self.world.claim(addr) {
            let (uid, version) = (claim.uid.clone(), claim.version);
            effects.push(Effect::Expire { addr, uid, version });
            self.world.busy.insert(addr, Busy::Writing(None));
        }
    }

    /// Enters in a claim what the Service wants by now, and the pool that has the address if none gave it
    /// so far and it counts as given.
    pub(super) fn touch(
        &mut self,
        service: &ServiceView,
        claim: &ClaimView,
        is_given: bool,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        if !self.is_no_older_than(service, claim) {
            return;
        }
        let mut new = status::holder_now(service);
        if self.is_held_back(&service.key, (claim.addr, &new.uid, &new.terms), now) {
            return;
        }
        let mut holders = claim.holders().to_vec();
        if let Some(holder) = holders.iter_mut().find(|holder| holder.key == service.key) {
            if holder.is(service) && holder.seen.is_some() {
                // What it asked for when it got the address tells what it asks for since.
                new.asked_pools.clone_from(&holder.asked_pools);
                new.replaces = holder.replaces;
            }
            *holder = new;
        } else {
            new.replaces = self.replaced_by(service, claim.addr);
            holders.push(new);
        }
        // One with an end is for the next to come; one without is for good.
        let end_reservation = claim.reserved.as_ref().is_some_and(|kept| kept.expires.is_some());
        let is_extra_family = service.extra_family == Some(Family::of(claim.addr));
        let of_its_pool = || Some(self.world.book.pool_of(claim.addr)?.name.clone());
        let is_given = is_given && !is_extra_family;
        let pool = claim.pool.clone().or_else(|| of_its_pool().filter(|_| is_given));
        self.begin_call(&service.key);
        // For all of them: of no pool so far, it is of that of whoever joins.
        for holder in &holders {
            self.count(pool.as_ref(), holder, claim.addr);
        }
        let to_be = ClaimView {
            pool: pool.clone(),
            reserved: claim.reserved.clone().filter(|_| !end_reservation),
            tenure: Tenure::Services(holders.clone()),
            ..claim.clone()
        };
        self.world.busy.insert(claim.addr, Busy::Writing(Some(to_be.into())));
        let (key, addr, version) = (service.key.clone(), claim.addr, claim.version);
        effects.push(Effect::Touch { key, addr, version, pool, holders, end_reservation });
    }

    /// Whether an address that a Service has or inherits counts as given by the pool that has it now. What
    /// was taken of no pool stays so, also for the next Service of the same name.
    pub(super) fn is_given(service: &ServiceView, claim: &ClaimView) -> bool {
        let mut before = claim.holders().iter().filter(|holder| holder.key == service.key);
        !before.any(|holder| holder.seen.is_some())
    }
}
