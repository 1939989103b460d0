//! What watches tell, taken in.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use landfall_ipam::{AddrSet, PoolName};

use super::{ClaimView, Effect, Leftover, Plan, Planner, PoolView, ServiceView, status};
use crate::{
    object::{ObjectKey, Version},
    services::{
        decide::is_lease,
        view::{ForeignAddress, ForeignKind, PoolSource},
    },
    store::{Change, Put, Source, Watched},
};

/// The reason of an event about addresses in `spec.externalIPs` that do not count as taken.
const EXTERNAL_IGNORED: &str = "ExternalIPIgnored";
/// Addresses that such an event names.
const TOLD: usize = 3;

impl Watched<ForeignAddress, Vec<IpAddr>> {
    /// A foreign address without addresses need not be remembered.
    pub(crate) fn has(who: ForeignAddress, version: Version, addrs: Vec<IpAddr>) -> Self {
        if addrs.is_empty() { Self::Gone(who, version) } else { Self::Present(who, version, addrs) }
    }
}

/// Everything the planner is told by watches.
#[derive(Debug)]
pub(in crate::services) enum News {
    Claims(Watched<IpAddr, ClaimView>),
    Services(Watched<ObjectKey, ServiceView>),
    /// What replaced operators left on Services.
    Leftovers(Watched<ObjectKey, Leftover>),
    Pools(PoolSource, Watched<PoolName, Box<PoolView>>),
    /// Namespaces and their labels.
    Namespaces(Watched<String, BTreeMap<String, String>>),
    /// The ranges of `ServiceCIDR`s. Listed before Services.
    ServiceRanges(Watched<String, AddrSet>),
    /// Addresses that others have.
    ForeignAddresses(ForeignKind, Watched<ForeignAddress, Vec<IpAddr>>),
}

impl Planner {
    /// Takes in what a watch told.
    pub(in crate::services) fn on_news(&mut self, news: News) {
        match news {
            News::Claims(watched) => self.on_claims(watched),
            News::Services(watched) => self.on_services(watched),
            News::Leftovers(watched) => self.on_leftovers(watched),
            News::Pools(source, watched) => self.on_pools(source, watched),
            News::Namespaces(watched) => self.on_namespaces(watched),
            News::ServiceRanges(watched) => self.on_service_ranges(watched),
            News::ForeignAddresses(kind, watched) => self.on_foreign_addresses(kind, watched),
        }
    }

    fn on_claims(&mut self, watched: Watched<IpAddr, ClaimView>) {
        let busy = &self.world.busy;
        for change in self.world.claims.observe(watched, |addr| busy.contains_key(addr)) {
            match change {
                Change::Put(addr, old) => self.claim_put(addr, old.as_ref()),
                Change::Left(_, old) => self.claim_left(&old),
                Change::Unsure(addr) => {
                    if !self.world.is_busy(addr) {
                        self.look_at_claim(addr, Duration::ZERO, None);
                    }
                }
                // The answer to a call under way may be older than this list, and nothing in it
                // would tell.
                Change::Listed => self.reread.extend(self.world.busy.keys()),
            }
        }
    }

    pub(super) fn put_claim(&mut self, claim: ClaimView) {
        let (addr, version) = (claim.addr, claim.version);
        if let Put::New(old) = self.world.claims.put(addr, version, claim, Source::Own) {
            self.claim_put(addr, old.as_ref());
        }
    }

    /// There is a newer version of a claim.
    fn claim_put(&mut self, addr: IpAddr, old: Option<&ClaimView>) {
        let Some(claim) = self.world.claim(addr) else { return };
        let holders = claim.holders().to_vec();
        let pool = claim.pool.clone();
        let waits_for = claim.waits_for().cloned();
        if let Some(old) = old {
            self.unindex_claim(old);
        }
        for holder in &holders {
            self.repair.recheck(&holder.key);
            self.world.held.insert(holder.key.clone(), addr);
            self.count(pool.as_ref(), holder, addr);
            self.mark(&holder.key);
        }
        if let Some(old) = old {
            self.forget_those_without_claims(old);
        }
        if let Some(reservation) = waits_for {
            self.expiries.extend(reservation.expires.map(|expires| (expires, addr)));
            self.world.kept.insert(reservation.whom(), addr);
            self.retain(pool.as_ref(), &reservation, addr);
        }
        self.wake_about(addr);
        self.release_delays.remove(&addr);
        self.tries.claims.remove(&addr);
        self.repair.recheck_claim(addr);
        self.settle(addr);
    }

    /// A claim is gone: its holders need looking after, and its address may be free.
    pub(super) fn claim_left(&mut self, old: &ClaimView) {
        self.unindex_claim(old);
        self.forget_those_without_claims(old);
        self.release_delays.remove(&old.addr);
        self.tries.claims.remove(&old.addr);
        self.repair.recheck_claim(old.addr);
        self.settle(old.addr);
        self.wake_about(old.addr);
        // Somebody who shows the address without a claim can have one now.
        let showing: Vec<_> = self.world.shown.of(&old.addr).cloned().collect();
        for key in showing {
            self.mark(&key);
        }
    }

    fn unindex_claim(&mut self, old: &ClaimView) {
        if let Some(reservation) = old.waits_for() {
            if let Some(expires) = reservation.expires {
                self.expiries.remove(&(expires, old.addr));
            }
            self.world.kept.remove(&reservation.whom(), &old.addr);
            self.unretain(old.pool.as_ref(), reservation, old.addr);
        }
        for holder in old.holders() {
            self.repair.recheck(&holder.key);
            if let Some(pool) = &old.pool {
                self.ungive(pool, holder.key.namespace(), old.addr);
            }
            if let Some(key) = holder.terms.as_ref().and_then(|terms| terms.key.as_deref()) {
                self.world.unoffer(key, old.addr);
            }
            self.world.held.remove(&holder.key, &old.addr);
            self.mark(&holder.key);
        }
    }

    /// What was known of a missing Service is of no use once nothing is claimed in its name.
    fn forget_those_without_claims(&mut self, old: &ClaimView) {
        for holder in old.holders() {
            if !self.world.held.has(&holder.key) {
                self.absent.forget(&holder.key);
            }
        }
    }

    /// Something became of an address. Whoever waits for it is told what; whoever it is kept for,
    /// or waits under the sharing key of a holder, may be able to have it now.
    fn wake_about(&mut self, addr: IpAddr) {
        let mut turns = self.waiting.for_address(addr);
        if let Some(claim) = self.world.claim(addr) {
            for holder in claim.holders() {
                let key = holder.terms.as_ref().and_then(|terms| terms.key.as_deref());
                turns.extend(key.into_iter().flat_map(|key| self.waiting.under_key(key)));
            }
            if let Some(reservation) = claim.waits_for() {
                let waiting = self.waiting.in_namespace(&reservation.namespace);
                turns.extend(waiting.into_iter().filter(|(_, key)| reservation.is_for(key)));
            }
        }
        self.wake(turns);
    }

    pub(super) fn settle(&mut self, addr: IpAddr) {
        if self.world.settle(addr) {
            self.freed.insert(addr);
        }
        self.status_dirty = true;
        self.claims_changed = true;
        if !self.world.is_busy(addr) {
            for key in std::mem::take(&mut self.later) {
                self.mark(&key);
            }
        }
    }

    fn on_services(&mut self, watched: Watched<ObjectKey, ServiceView>) {
        for change in self.world.services.observe_only(watched) {
            match change {
                Change::Put(key, old) => self.service_put(&key, old),
                Change::Left(_, old) => self.service_left(&old),
                Change::Unsure(key) => drop(self.looks.entry(key).or_default()),
                Change::Listed => {}
            }
        }
    }

    pub(super) fn put_service(&mut self, service: ServiceView) {
        let (key, version) = (service.key.clone(), service.version);
        if let Put::New(old) = self.world.services.put(key.clone(), version, service, Source::Own) {
            self.service_put(&key, old);
        }
    }

    /// There is a newer version of a Service.
    fn service_put(&mut self, key: &ObjectKey, old: Option<ServiceView>) {
        let Some(service) = self.world.services.get(key) else { return };
        let shows = service.in_status().to_vec();
        self.absent.forget(key);
        self.pending_reads.forget(key);
        self.repair.recheck(key);
        self.note_asked_first(key, old.as_ref());
        let showed = old.map(|old| old.in_status().to_vec()).unwrap_or_default();
        for addr in &shows {
            if is_lease(*addr) {
                continue;
            }
            if self.world.shown.insert(*addr, key.clone()) {
                // Those who have it may have that to say.
                self.mark_holders(*addr);
            }
        }
        for addr in showed.iter().filter(|addr| !shows.contains(addr)) {
            self.unshow(*addr, key);
        }
        for addr in &shows {
            self.settle(*addr);
        }
        self.mark(key);
    }

    pub(super) fn service_left(&mut self, old: &ServiceView) {
        for addr in old.in_status() {
            self.unshow(*addr, &old.key);
        }
        self.pending_reads.forget(&old.key);
        self.repair.recheck(&old.key);
        self.waiting.clear(&old.key);
        self.contest(&old.key, None);
        self.world.asked_first.remove_key(&old.key);
        self.service_delays.remove(&old.key);
        if self.world.held.has(&old.key) || self.is_engaged(&old.key) {
            self.absent.saw_leave(&old.key);
        }
        self.mark(&old.key);
    }

    /// Those who have an address are decided about again.
    pub(super) fn mark_holders(&mut self, addr: IpAddr) {
        let holders = self.world.claim(addr).map(ClaimView::holders).unwrap_or_default();
        let keys: Vec<_> = holders.iter().map(|holder| holder.key.clone()).collect();
        for key in keys {
            self.mark(&key);
        }
    }

    fn unshow(&mut self, addr: IpAddr, key: &ObjectKey) {
        self.mark_holders(addr);
        self.world.shown.remove(&addr, key);
        self.settle(addr);
    }

    fn on_leftovers(&mut self, watched: Watched<ObjectKey, Leftover>) {
        for change in self.world.leftovers.observe_only(watched) {
            match change {
                Change::Put(key, _) => self.mark(&key),
                Change::Left(key, _) => {
                    self.leftover_gone(&key);
                    self.repair.recheck(&key);
                }
                Change::Unsure(_) | Change::Listed => {}
            }
        }
    }

    /// Nothing is left on a Service to be taken off. What waited for that may go on, also where our own
    /// call seemed to fail.
    fn leftover_gone(&mut self, key: &ObjectKey) {
        self.clean_up_delays.remove(key);
        self.mark(key);
    }

    fn on_pools(&mut self, source: PoolSource, watched: Watched<PoolName, Box<PoolView>>) {
        let pools = self.world.pools.entry(source).or_default();
        for change in pools.observe_only(watched.map(|view| *view)) {
            match change {
                Change::Put(name, old) => self.pool_put(name, old),
                Change::Left(name, _) => self.pool_left(&name),
                Change::Unsure(_) | Change::Listed => {}
            }
        }
    }

    pub(super) fn put_pool(&mut self, pool: PoolView) {
        let (name, version) = (pool.name.clone(), pool.version);
        let pools = self.world.pools.entry(pool.source).or_default();
        if let Put::New(old) = pools.put(name.clone(), version, pool, Source::Own) {
            self.pool_put(name, old);
        }
    }

    /// There is a newer version of a pool.
    fn pool_put(&mut self, name: PoolName, old: Option<PoolView>) {
        let Some(pool) = self.world.pool(&name) else { return };
        let (generation, uid) = (pool.generation, pool.uid.clone());
        self.pool_next.entry(name).or_default();
        self.status_dirty = true;
        // A change of status alone keeps the generation, and our own status writes are such.
        let same = old.is_some_and(|old| {
            old.uid == uid && generation.is_some() && old.generation == generation
        });
        self.pools_changed |= !same;
    }

    fn pool_left(&mut self, name: &PoolName) {
        self.pools_changed = true;
        self.pool_next.remove(name);
        self.pool_notes.remove(name);
        self.tries.pools.remove(name);
    }

    fn on_namespaces(&mut self, watched: Watched<String, BTreeMap<String, String>>) {
        for change in self.world.namespaces.observe_only(watched) {
            let Change::Put(name, old) = change else { continue };
            if old.as_ref() != self.world.namespaces.get(&name) {
                self.world.externals.recheck(&name);
                self.wake(self.waiting.in_namespace(&name));
            }
        }
    }

    fn on_service_ranges(&mut self, watched: Watched<String, AddrSet>) {
        let store = &mut self.world.service_ranges;
        let changed = store.observe_only(watched).into_iter().any(|change| match change {
            Change::Put(name, old) => old.as_ref() != store.get(&name),
            Change::Left(..) => true,
            Change::Unsure(_) | Change::Listed => false,
        });
        if changed {
            self.world.rebuild_service_ranges();
            self.pools_changed = true;
        }
    }

    /// Leaves out `ClusterIPs` that a `ServiceCIDR` covers: its range keeps them from being given, at no
    /// cost per Service, and the API server keeps it for as long as a `ClusterIP` lies in it.
    fn beyond_service_ranges(
        &self,
        watched: Watched<ForeignAddress, Vec<IpAddr>>,
    ) -> Watched<ForeignAddress, Vec<IpAddr>> {
        let Watched::Present(who @ ForeignAddress::ClusterIp(_), version, mut addrs) = watched
        else {
            return watched;
        };
        addrs.retain(|addr| !self.world.book.cluster_ips().contains(*addr));
        Watched::has(who, version, addrs)
    }

    fn on_foreign_addresses(
        &mut self,
        kind: ForeignKind,
        watched: Watched<ForeignAddress, Vec<IpAddr>>,
    ) {
        let watched = self.beyond_service_ranges(watched);
        let store = self.world.foreign_addresses.entry(kind).or_default();
        for change in store.observe_only(watched) {
            let (who, gone) = match change {
                Change::Put(who, old) => (who, old.unwrap_or_default()),
                Change::Left(who, old) => (who, old),
                Change::Unsure(_) | Change::Listed => continue,
            };
            let store = self.world.foreign_addresses.get(&kind);
            let came = store.and_then(|store| store.get(&who)).cloned().unwrap_or_default();
            if let ForeignAddress::External(key, uid) = who {
                self.world.externals.set(&(key, uid), &gone, &came);
                continue;
            }
            for addr in &gone {
                self.world.outside.remove(addr, &who);
            }
            for addr in &came {
                self.world.outside.insert(*addr, who.clone());
            }
            for addr in gone.into_iter().chain(came) {
                self.outside_changed(addr);
            }
        }
    }

    /// Somebody outside the ledger has an address, or has it no more.
    fn outside_changed(&mut self, addr: IpAddr) {
        self.settle(addr);
        self.wake_about(addr);
        // A VirtualIP may have kept a claim that nobody else wants.
        self.mark_holders(addr);
    }

    /// Weighs which addresses in `spec.externalIPs` count as taken, and tells Services about those that
    /// do not.
    pub(super) fn weigh_externals(&mut self, out: &mut Plan<Effect>) {
        let weighed = self.world.weigh_externals();
        for addr in weighed.changed {
            self.outside_changed(addr);
        }
        if weighed.relieved {
            self.repair.recheck_all();
        }
        for (who, addrs) in weighed.refused {
            if !self.world.externals.is_news(&who, &addrs) {
                continue;
            }
            self.repair.recheck_all();
            let listed: Vec<_> = addrs.iter().take(TOLD).map(ToString::to_string).collect();
            let more = addrs.len().saturating_sub(TOLD);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let message = format!(
                "{}{more} in spec.externalIPs: a pool has it, and this namespace has no right to so many \
                 of its addresses, by its selector or its quota. It does not count as taken and may be \
                 given to another Service.",
                listed.join(", ")
            );
            let (key, uid) = who;
            let event = status::service_event(&key, &uid, true, EXTERNAL_IGNORED, message);
            out.events.push(event);
        }
    }
}
