//! Takes in the events of all watches.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use landfall_ipam::{AddrSet, PoolName};

use super::{Claim, Effect, Leftover, Plan, Planner, PoolView, ServiceView, status};
use crate::{
    ledger::ForeignAddress,
    object::{ObjectKey, Version},
    services::{
        decide::is_lease,
        view::{ForeignKind, PoolSource},
    },
    store::{Change, Put, Source, Watched},
};

/// The reason of an event about addresses in `spec.externalIPs` that do not count as taken.
const EXTERNAL_IGNORED: &str = "ExternalIPIgnored";
/// Addresses that such an event names.
const TOLD: usize = 3;

impl Watched<ForeignAddress, Vec<IpAddr>> {
    /// An object without addresses need not be remembered.
    pub(crate) fn has(who: ForeignAddress, version: Version, addrs: Vec<IpAddr>) -> Self {
        if addrs.is_empty() { Self::Gone(who, version) } else { Self::Present(who, version, addrs) }
    }
}

/// An event of a watch, for the planner.
#[derive(Debug)]
pub(in crate::services) enum News {
    Claims(Watched<IpAddr, Claim>),
    Services(Watched<ObjectKey, ServiceView>),
    /// Services with marks that replaced operators left on them.
    Leftovers(Watched<ObjectKey, Leftover>),
    Pools(PoolSource, Watched<PoolName, Box<PoolView>>),
    /// Namespaces and their labels.
    Namespaces(Watched<String, BTreeMap<String, String>>),
    /// The ranges of `ServiceCIDR`s. Listed before Services.
    ServiceRanges(Watched<String, AddrSet>),
    /// Addresses of objects outside the ledger.
    ForeignAddresses(ForeignKind, Watched<ForeignAddress, Vec<IpAddr>>),
}

impl Planner {
    /// Takes in an event of a watch.
    pub(in crate::services) fn on_news(&mut self, news: News) {
        match news {
            News::Claims(watched) => {
                self.world.ledger.observe(watched);
                self.on_ledger_changes();
            }
            News::Services(watched) => self.on_services(watched),
            News::Leftovers(watched) => self.on_leftovers(watched),
            News::Pools(source, watched) => self.on_pools(source, watched),
            News::Namespaces(watched) => self.on_namespaces(watched),
            News::ServiceRanges(watched) => self.on_service_ranges(watched),
            News::ForeignAddresses(kind, watched) => self.on_foreign_addresses(kind, watched),
        }
    }

    fn on_services(&mut self, watched: Watched<ObjectKey, ServiceView>) {
        for change in self.world.services.observe_only(watched) {
            match change {
                Change::Put(key, old) => self.service_put(&key, old),
                Change::Left(_, old) => self.service_left(&old),
                Change::Unsure(key) => self.progress.read_at(&key, Duration::ZERO),
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
            if self.world.ledger.shown.insert(*addr, key.clone()) {
                // Its holders may have to report it.
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
        self.progress.end_write_delay(&old.key);
        if self.world.ledger.has_service(&old.key) || self.progress.is_engaged(&old.key) {
            self.absent.saw_leave(&old.key);
        }
        self.mark(&old.key);
    }

    fn unshow(&mut self, addr: IpAddr, key: &ObjectKey) {
        self.mark_holders(addr);
        self.world.ledger.shown.remove(&addr, key);
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

    /// A Service has no leftovers any more. Work that waited for that goes on, even if our own call
    /// seemed to fail.
    fn leftover_gone(&mut self, key: &ObjectKey) {
        self.progress.set_clean_up_delay(key, None);
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
        // Our own status writes do not count as changes.
        self.pools_changed |= !old.is_some_and(|old| pool.is_same_as(&old));
        self.pool_statuses.entry(name).or_default();
        self.status_dirty = true;
    }

    fn pool_left(&mut self, name: &PoolName) {
        self.pools_changed = true;
        self.pool_statuses.remove(name);
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

    /// Leaves out `ClusterIPs` that a `ServiceCIDR` covers: its range keeps them from being given, at
    /// no cost per Service, and the API server keeps the range while a `ClusterIP` is in it.
    fn beyond_service_ranges(
        &self,
        watched: Watched<ForeignAddress, Vec<IpAddr>>,
    ) -> Watched<ForeignAddress, Vec<IpAddr>> {
        let Watched::Present(who @ ForeignAddress::ClusterIp(_), version, mut addrs) = watched
        else {
            return watched;
        };
        addrs.retain(|addr| !self.world.ledger.book.cluster_ips().contains(*addr));
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
                self.world.ledger.outside.remove(addr, &who);
            }
            for addr in &came {
                self.world.ledger.outside.insert(*addr, who.clone());
            }
            for addr in gone.into_iter().chain(came) {
                self.outside_changed(addr);
            }
        }
    }

    /// An object outside the ledger has an address, or no longer has it.
    fn outside_changed(&mut self, addr: IpAddr) {
        self.settle(addr);
        self.wake_about(addr);
        // A VirtualIP may have kept a claim that no Service wants.
        self.mark_holders(addr);
    }

    /// Decides which addresses in `spec.externalIPs` count as taken, and tells Services about those
    /// that do not.
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
