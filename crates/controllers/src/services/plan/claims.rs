//! Takes, touches and gives up claims for a Service.

use std::net::IpAddr;

use landfall_api::Use;
use landfall_ipam::{Family, PoolName};

use super::{Balancer, Claim, Effect, HolderEntry, Round, status::names};

impl Round<'_> {
    pub(super) fn take(&mut self, service: &Balancer, addr: IpAddr, pool: Option<PoolName>) {
        self.own.progress.begin_call(&service.key);
        let claim = self.claim_for(service, addr, pool);
        let write = self.ledger.take(claim);
        self.on_ledger_changes();
        self.out.effects.push(Effect::Claim { write, service: Some(service.key.clone()) });
    }

    /// The claim that a Service is to take on an address.
    pub(super) fn claim_for(
        &self,
        service: &Balancer,
        addr: IpAddr,
        pool: Option<PoolName>,
    ) -> Claim {
        let replaces = self.replaced_by(service, addr);
        let holder = HolderEntry { replaces, ..service.holder_entry() };
        Claim::new(addr, Use::LoadBalancer, pool, holder)
    }

    /// The address of another pool that this one is to replace on a Service.
    fn replaced_by(&self, service: &Balancer, addr: IpAddr) -> Option<IpAddr> {
        let family = Family::of(addr);
        let asked = service.request.is_about(family) || service.shows.contains(&addr);
        let held = |shown: &IpAddr| {
            let claim = self.ledger.claim(*shown);
            claim.is_some_and(|claim| claim.holder(service).is_some())
        };
        let mut shown = service.shows.iter().filter(|shown| Family::of(**shown) == family);
        shown.find(|shown| !asked && held(shown)).copied()
    }

    /// Frees an address that waits for a deleted Service, so that another Service of the namespace can
    /// have one. The address of an earlier Service of its own name is released first: that may be enough.
    pub(super) fn free_retained(&mut self, service: &Balancer, addr: IpAddr) {
        let key = &service.key;
        if self.release_unwanted(service) {
            self.own.progress.await_address(key);
            return;
        }
        if let Some(delay) = self.ledger.release_delay(addr, self.now) {
            self.own.progress.delay_writes(key, delay, None);
            return;
        }
        self.own.progress.await_address(key);
        let write = self.ledger.expire(addr);
        self.on_ledger_changes();
        self.out.effects.extend(write.map(|write| Effect::Claim { write, service: None }));
    }

    /// Writes what the Service wants now into its claim. If no pool is recorded as the giver and
    /// `is_given` is set, the pool that contains the address is recorded.
    pub(super) fn touch(&mut self, service: &Balancer, claim: &Claim, is_given: bool) {
        if !self.is_no_older_than(service, claim) {
            return;
        }
        let mut new = service.holder_entry();
        if self.is_held_back(&service.key, (claim.addr, &new.uid, &new.terms)) {
            return;
        }
        let had = service.shows.contains(&claim.addr) || names(service, claim.addr);
        let mut holders = claim.services().to_vec();
        if let Some(holder) = holders.iter_mut().find(|holder| holder.key == service.key) {
            if holder.is(service) && holder.seen.is_some() {
                // The pools that it asked for when it got the address tell what it asks for since. Until it
                // shows the address, it has not got it.
                if had {
                    new.asked_pools.clone_from(&holder.asked_pools);
                }
                new.replaces = holder.replaces;
            }
            *holder = new;
        } else {
            new.replaces = self.replaced_by(service, claim.addr);
            holders.push(new);
        }
        // A reservation that expires ends with its first holder; one that does not stays.
        let end_reservation = claim.reserved.as_ref().is_some_and(|kept| kept.expires.is_some());
        let is_extra_family = service.extra_family == Some(Family::of(claim.addr));
        let of_its_pool = || Some(self.ledger.book.pool_of(claim.addr)?.name.clone());
        let is_given = is_given && !is_extra_family;
        let pool = claim.pool.clone().or_else(|| of_its_pool().filter(|_| is_given));
        self.own.progress.begin_call(&service.key);
        // A claim without a pool gets the one that contains the address.
        let write = self.ledger.touch(Claim {
            purpose: Some(Use::LoadBalancer),
            pool,
            reserved: claim.reserved.clone().filter(|_| !end_reservation),
            ..claim.held_by(holders)
        });
        self.on_ledger_changes();
        self.out.effects.push(Effect::Claim { write, service: Some(service.key.clone()) });
    }

    /// Whether an address that a Service has or inherits counts as given by the pool that contains it.
    /// One taken without a pool stays so, even for the next Service of the same name.
    pub(super) fn is_given(service: &Balancer, claim: &Claim) -> bool {
        let mut before = claim.services().iter().filter(|holder| holder.key == service.key);
        !before.any(|holder| holder.seen.is_some())
    }
}
