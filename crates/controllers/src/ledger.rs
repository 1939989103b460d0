//! The ledger: every claim on an address, the calls in flight about claims, and the book of all pools.
//!
//! Nothing else reads or writes claims. The known state of a claim is the newest that the watch or the
//! answer to a call has shown. While a call about it is in flight, the address is taken for every
//! planner, and counts for quotas and sharing as if the call had succeeded.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use landfall_ipam::{AddrSet, Book, Pool, PoolName};

pub(crate) use self::{
    claim::{Claim, HolderEntry, HolderRef, Reservation, Tenure},
    compare::Showing,
    external::Lister,
    foreign::ForeignAddress,
    in_flight::{Outcome, Phase},
    keeper::Keeper,
    log::Reader,
    write::{Answer, Held, Live, LiveHolder, Then, Write, release},
};
use self::{
    due::Due, external::Externals, in_flight::InFlight, index::Indexes, log::Log, place::Places,
};
use crate::{
    backoff::Backoff,
    clock::Now,
    index::Index,
    object::ObjectKey,
    store::{Change as StoreChange, Put, Source, Store, Watched},
};

mod claim;
mod compare;
mod due;
mod external;
mod foreign;
mod in_flight;
mod index;
mod keeper;
mod log;
pub(crate) mod object;
mod place;
mod write;

/// A change in the ledger. To learn the present state, ask the ledger itself.
#[derive(Debug, PartialEq)]
pub(crate) enum Change {
    /// A claim was created, changed or deleted. The value is the claim before the change.
    Claim(IpAddr, Option<Claim>),
    /// A namespace has, or is about to have, one more address of a pool.
    Given(PoolName, String),
    /// A namespace has one address of a pool less, or one that waits for a deleted Service and can go.
    Returned(PoolName, String),
    /// No call about the claim on an address is in flight any more.
    Ended(IpAddr),
    /// The reasons why an address cannot be given may have changed.
    Settled(IpAddr),
    /// An address became free.
    Freed(IpAddr),
    /// A release that failed may be tried again.
    ReleaseDue(IpAddr),
    /// A live read of the claim on an address has ended. The holder, if any, waited for it.
    Read(IpAddr, Option<HolderRef>),
    /// A Service shows an address in its status or lists it in `spec.externalIPs`, or no longer does.
    Shown(IpAddr),
    /// An object outside the ledger has an address, or no longer has it.
    Outside(IpAddr),
    /// Addresses in `spec.externalIPs` of a Service do not count as taken.
    ExternalIgnored(Lister, Vec<IpAddr>),
    /// A Service that had such addresses has none any more.
    ExternalRelieved,
    /// A webhook without a backend refuses every write of a claim, or no longer does.
    Blocked,
    Unblocked,
}

/// Failed calls about one address since its claim last changed.
#[derive(Debug, Default)]
struct Setback {
    /// Writes that conflicted and reads that failed, in a row.
    reads: u32,
    /// When a release may be tried again.
    release: Option<Backoff>,
}

/// All claims, and everything known of addresses.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    claims: Store<IpAddr, Claim>,
    in_flight: BTreeMap<IpAddr, InFlight>,
    /// The live reads among them that are due.
    reads: Due,
    setbacks: BTreeMap<IpAddr, Setback>,
    /// The releases among them that may be tried again.
    releases: Due,
    indexes: Indexes,
    /// All pools, and every address that is taken.
    pub(crate) book: Book,
    /// The objects outside the ledger that have an address.
    pub(crate) outside: Index<IpAddr, ForeignAddress>,
    /// Services that show an address in their status, rightly or not.
    pub(crate) shown: Index<IpAddr, ObjectKey>,
    /// Addresses that Services list in `spec.externalIPs`.
    externals: Externals,
    /// Whether some pools have addresses in common.
    pools_overlap: bool,
    /// When the next reservation ends.
    expiry_at: Option<Duration>,
    /// Why no claim can be written, while a webhook without a backend refuses it.
    blocked: Option<String>,
    places: Places,
    log: Log<Change>,
}

impl Ledger {
    /// The claim on an address.
    pub(crate) fn claim(&self, addr: IpAddr) -> Option<&Claim> {
        self.claims.get(&addr)
    }

    /// All claims, the lowest address first.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.claims.values()
    }

    /// Whether claims have been listed.
    pub(crate) fn listed(&self) -> bool {
        self.claims.listed()
    }

    /// Adds a reader, which gets all changes from now on.
    pub(crate) fn reader(&mut self) -> Reader {
        self.log.reader()
    }

    /// The changes since the last call for this reader.
    pub(crate) fn take_changes(&mut self, reader: Reader) -> Vec<Arc<Change>> {
        self.log.take(reader)
    }

    fn tell(&mut self, change: Change) {
        self.log.push(change);
    }

    /// Why no claim can be written, if a webhook without a backend refuses it.
    pub(crate) fn blocked(&self) -> Option<&str> {
        self.blocked.as_deref()
    }

    /// Takes in an event of the watch of claims.
    pub(crate) fn observe(&mut self, news: Watched<IpAddr, Claim>) {
        let in_flight = &self.in_flight;
        for change in self.claims.observe(news, |addr| in_flight.contains_key(addr)) {
            match change {
                StoreChange::Put(addr, old) => self.claim_changed(addr, old),
                StoreChange::Left(addr, old) => self.claim_changed(addr, Some(old)),
                StoreChange::Unsure(addr) => {
                    if !self.is_in_flight(addr) {
                        self.read_at(addr, Duration::ZERO, None);
                    }
                }
                // The answer to a call in flight may be older than this list, and nothing in the answer
                // shows it.
                StoreChange::Listed => {
                    for entry in self.in_flight.values_mut() {
                        entry.reread = true;
                    }
                }
            }
        }
    }

    /// Takes in the answer to a call about a claim. It may be older than what the watch has shown
    /// meanwhile, and the store can only tell while the call counts as in flight.
    fn put(&mut self, claim: Claim) {
        let (addr, version) = (claim.addr, claim.version);
        if let Put::New(old) = self.claims.put(addr, version, claim, Source::Own) {
            self.claim_changed(addr, old);
        }
    }

    fn claim_changed(&mut self, addr: IpAddr, before: Option<Claim>) {
        let facts = index::facts(before.as_ref(), self.in_flight.get(&addr));
        self.reindex(addr, &facts);
        self.setbacks.remove(&addr);
        self.releases.set(addr, None);
        self.recheck_place(addr);
        self.tell(Change::Claim(addr, before));
        self.settle(addr);
    }

    /// Updates the indexes from the claim on an address and the call in flight about it.
    fn reindex(&mut self, addr: IpAddr, before: &index::Facts) {
        let after = index::facts(self.claims.get(&addr), self.in_flight.get(&addr));
        for change in self.indexes.replace(addr, before, &after) {
            if let Change::Given(_, namespace) | Change::Returned(_, namespace) = &change {
                self.externals.recheck(namespace);
            }
            self.tell(change);
        }
    }

    /// Updates the book with what is known of one address.
    pub(crate) fn settle(&mut self, addr: IpAddr) {
        let taken = self.claims.get(&addr).is_some()
            || self.in_flight.contains_key(&addr)
            || self.shown.has(&addr)
            || self.outside.has(&addr);
        if taken {
            self.book.take(addr);
            self.count_for_giver(addr);
        } else if self.book.release(addr) {
            self.tell(Change::Freed(addr));
        }
        self.tell(Change::Settled(addr));
    }

    /// Counts an address as used in the pool that gave it. If no pools overlap, that is the one pool
    /// that contains it.
    fn count_for_giver(&mut self, addr: IpAddr) {
        if self.pools_overlap {
            let giver = self.claim_to_be(addr).and_then(|claim| claim.pool.clone());
            self.book.count_for(addr, giver.as_ref());
        }
    }

    /// Replaces all pools, and the ranges from which the cluster gives `ClusterIPs`; returns the pools
    /// that share addresses with other pools.
    pub(crate) fn set_pools(
        &mut self,
        pools: Vec<Pool>,
        cluster_ips: &AddrSet,
    ) -> BTreeMap<PoolName, BTreeSet<PoolName>> {
        if self.book.cluster_ips() != cluster_ips {
            self.book.set_cluster_ips(cluster_ips.clone());
        }
        self.book.replace_pools(pools);
        self.externals.recheck_all();
        let overlaps = self.book.overlaps();
        self.pools_overlap = !overlaps.is_empty();
        if self.pools_overlap {
            let taken: Vec<_> = self.claims.keys().chain(self.in_flight.keys()).copied().collect();
            for addr in taken {
                self.count_for_giver(addr);
            }
        }
        overlaps
    }

    /// The addresses of all claims that name a holder.
    pub(crate) fn held<'a>(
        &'a self,
        holder: &HolderRef,
    ) -> impl DoubleEndedIterator<Item = &'a IpAddr> + use<'a> {
        self.indexes.held.of(holder)
    }

    /// All claims that name a holder, the lowest address first.
    pub(crate) fn claims_of<'a>(
        &'a self,
        holder: &HolderRef,
    ) -> impl Iterator<Item = &'a Claim> + use<'a> {
        self.held(holder).filter_map(|addr| self.claim(*addr))
    }

    /// Whether any claim names a holder.
    pub(crate) fn has_holder(&self, holder: &HolderRef) -> bool {
        self.indexes.held.has(holder)
    }

    /// The addresses of a Service, by its name.
    pub(crate) fn held_by_service(&self, key: &ObjectKey) -> Vec<IpAddr> {
        self.held(&HolderRef::service(key)).copied().collect()
    }

    /// Whether a claim names a Service of this name.
    pub(crate) fn has_service(&self, key: &ObjectKey) -> bool {
        self.has_holder(&HolderRef::service(key))
    }

    /// All holders that claims name.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &HolderRef> {
        self.indexes.held.keys()
    }

    /// How many addresses of a pool a namespace holds or is about to hold.
    pub(crate) fn count(&self, pool: &PoolName, namespace: &str) -> usize {
        self.indexes.given.count(&(pool.clone(), namespace.to_owned()))
    }

    /// Whether an address of a pool counts for a namespace.
    pub(crate) fn counts(&self, pool: &PoolName, namespace: &str, addr: IpAddr) -> bool {
        self.indexes.given.contains(&(pool.clone(), namespace.to_owned()), &addr)
    }

    /// Addresses with a holder that has this sharing key, or is about to have it.
    pub(crate) fn under_sharing_key(&self, key: &str) -> impl DoubleEndedIterator<Item = &IpAddr> {
        self.indexes.sharing.of(key)
    }

    /// How many addresses of a pool wait for deleted Services of a namespace, and the one that has
    /// waited longest.
    pub(crate) fn retained(&self, pool: &PoolName, namespace: &str) -> (usize, Option<IpAddr>) {
        let quota = (pool.clone(), namespace.to_owned());
        let oldest = self.indexes.retained.of(&quota).next().map(|(_, addr)| *addr);
        (self.indexes.retained.count(&quota), oldest)
    }

    /// Addresses that are reserved for Services of a namespace and have no holder: for the Service
    /// `name` if it is given, else those reserved for any Service.
    pub(crate) fn kept_for(
        &self,
        namespace: &str,
        name: Option<&str>,
    ) -> impl Iterator<Item = &IpAddr> {
        self.indexes.kept.of(&(namespace.to_owned(), name.map(str::to_owned)))
    }

    /// The uptime at which something is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let dues = [self.reads.next(), self.releases.next(), self.expiry_at, self.next_place()];
        dues.into_iter().flatten().min()
    }

    /// Whether a release of an address failed and must wait.
    pub(crate) fn release_delay(&self, addr: IpAddr, now: Now) -> Option<Backoff> {
        let delay = self.setbacks.get(&addr)?.release?;
        delay.holds(now).then_some(delay)
    }

    /// Tells of addresses whose release may be tried again from now on.
    fn end_release_delays(&mut self, now: Now) {
        for addr in self.releases.take(now) {
            let setback = self.setbacks.get_mut(&addr);
            if let Some(delay) = setback.and_then(|setback| setback.release.as_mut()) {
                delay.end(now);
            }
            self.tell(Change::ReleaseDue(addr));
        }
    }

    /// Ends the delays of all releases that failed.
    fn retry_releases(&mut self) {
        for addr in self.releases.all() {
            let setback = self.setbacks.get_mut(&addr);
            if let Some(delay) = setback.and_then(|setback| setback.release.as_mut()) {
                delay.until = Some(Duration::ZERO);
            }
            self.releases.set(addr, Some(Duration::ZERO));
        }
    }

    /// The calls in flight, for the message of a test that never settles.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> String {
        format!("claims {:?}, in flight {:?}, {:?}", self.claims, self.in_flight, self.setbacks)
    }
}

#[cfg(test)]
mod tests;
