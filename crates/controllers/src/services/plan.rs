//! The planner: what is known, what is under way, and what to do next.
//!
//! One task owns it, so it needs no lock. It is synchronous and does no I/O: news goes in through
//! the `on_…` functions, effects come out of [`Planner::plan`], and what came of them goes in again
//! through [`Planner::on_report`]. Planning again without news gives nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use jiff::Timestamp;
use landfall_ipam::{Book, PoolName, Reason, Refusal, Verdict};

use super::{
    decide::{Decision, decide},
    effect::{About, Effect, Note},
    status,
    store::{Put, Source, Store},
    view::{ClaimView, PoolView, ServiceKey, ServiceView, Version},
    waiting::{Turn, Wait, Waiting},
    wish::could_want,
};

mod report;

/// The two clocks a plan needs: one for what people read, one that never jumps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub wall: Timestamp,
    /// Time since the process began.
    pub uptime: Duration,
}

/// A change of one watched object.
#[derive(Debug)]
pub(super) enum Watched<K, V> {
    ListBegins,
    ListEnds,
    /// It is there, in this version.
    Is(K, Version, V),
    /// It is not there any more, or no longer of the sort we keep.
    IsNot(K, Version),
}

/// Everything the planner is told by watches.
#[derive(Debug)]
pub(super) enum News {
    Claims(Watched<IpAddr, ClaimView>),
    Services(Watched<ServiceKey, ServiceView>),
    Pools(Watched<PoolName, Box<PoolView>>),
    /// Namespaces and their labels.
    Namespaces(Watched<String, BTreeMap<String, String>>),
}

/// What is known, with our own unechoed writes laid over it.
#[derive(Debug, Default)]
pub(super) struct World {
    claims: Store<IpAddr, ClaimView>,
    services: Store<ServiceKey, ServiceView>,
    pools: Store<PoolName, PoolView>,
    namespaces: Store<String, BTreeMap<String, String>>,
    book: Book,
    /// Pools in the order they are asked; those that cannot be used come last.
    order: Vec<PoolName>,
    /// Addresses claimed for a Service of that name.
    held: BTreeMap<ServiceKey, BTreeSet<IpAddr>>,
    /// Services that show an address, rightly or not.
    shown: BTreeMap<IpAddr, BTreeSet<ServiceKey>>,
    /// Addresses with a call about their claim under way or due.
    busy: BTreeMap<IpAddr, Busy>,
    no_labels: BTreeMap<String, String>,
}

/// What is under way about the claim on an address.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Busy {
    /// A write.
    Writing,
    /// A live read is due at this uptime, or under way; that Service waits for what it says.
    Looking { at: Option<Duration>, for_whom: Option<ServiceKey> },
}

impl World {
    pub(super) fn book(&self) -> &Book {
        &self.book
    }

    pub(super) fn claim(&self, addr: IpAddr) -> Option<&ClaimView> {
        self.claims.get(&addr)
    }

    pub(super) fn is_busy(&self, addr: IpAddr) -> bool {
        self.busy.contains_key(&addr)
    }

    pub(super) fn pools_in_order(&self) -> impl Iterator<Item = &PoolView> {
        self.order.iter().filter_map(|name| self.pools.get(name))
    }

    pub(super) fn serves_class(&self, class: &str) -> bool {
        self.pools.values().any(|pool| pool.class.as_deref() == Some(class))
    }

    pub(super) fn namespace_labels(&self, namespace: &str) -> &BTreeMap<String, String> {
        self.namespaces.get(&namespace.to_owned()).unwrap_or(&self.no_labels)
    }

    /// Claims that name this very Service under the class it has.
    pub(super) fn claims_of(&self, service: &ServiceView) -> Vec<&ClaimView> {
        let held = self.held.get(&service.key);
        let claims = held.into_iter().flatten().filter_map(|addr| self.claims.get(addr));
        claims
            .filter(|claim| {
                claim
                    .holder(service)
                    .is_some_and(|holder| holder.legacy || holder.class == service.class)
            })
            .collect()
    }

    /// Who has a taken address, for people.
    pub(super) fn who_has(&self, addr: IpAddr) -> String {
        if let Some(claim) = self.claims.get(&addr) {
            return claim.described();
        }
        match self.shown.get(&addr).and_then(BTreeSet::first) {
            Some(key) => format!("Service {key}, which shows it without a claim"),
            None => "a Service whose claim is being written".to_owned(),
        }
    }

    /// Brings the book in line with what is known of one address; says whether it became free.
    fn settle(&mut self, addr: IpAddr) -> bool {
        let taken = self.claims.get(&addr).is_some()
            || self.busy.contains_key(&addr)
            || self.shown.contains_key(&addr);
        if taken {
            self.book.take(addr);
            false
        } else {
            self.book.release(addr)
        }
    }

    fn rebuild_pools(&mut self) {
        let usable = self.pools.values().filter_map(|view| view.pool.as_ref().ok());
        self.book.replace_pools(usable.cloned());
        let invalid = self.pools.values().filter(|view| view.pool.is_err());
        let invalid: Vec<_> = invalid.map(|view| view.name.clone()).collect();
        self.order = self.book.pools().map(|pool| pool.name.clone()).chain(invalid).collect();
    }
}

/// How long to wait before another try, growing with each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Delay {
    until: Duration,
    tries: u32,
}

const FIRST_DELAY: Duration = Duration::from_millis(250);
const LONGEST_DELAY: Duration = Duration::from_mins(1);
/// Pool status is for people and dashboards: once a second is often enough.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Decides who gets which address, one effect at a time.
#[derive(Debug, Default)]
pub(super) struct Planner {
    world: World,
    /// Services to decide about, oldest first.
    dirty: BTreeSet<Turn>,
    /// Calls under way for each Service.
    calls: BTreeMap<ServiceKey, u32>,
    /// Services to look at live at this uptime.
    looks: BTreeMap<ServiceKey, Duration>,
    /// Services that wait for a call about an address to end.
    later: BTreeSet<ServiceKey>,
    waiting: Waiting,
    /// Addresses that became free since the last plan.
    freed: BTreeSet<IpAddr>,
    pools_changed: bool,
    /// Failed writes of Services, and what the API server said if it refused.
    service_delays: BTreeMap<ServiceKey, (Delay, Option<String>)>,
    /// Releases that the live read forbade.
    release_delays: BTreeMap<IpAddr, Delay>,
    pool_next: BTreeMap<PoolName, Duration>,
    pool_calls: BTreeSet<PoolName>,
    pool_notes: BTreeMap<PoolName, String>,
    status_due: bool,
}

impl Planner {
    pub(super) fn world(&self) -> &World {
        &self.world
    }

    /// When a Service was created, if we know it.
    pub(super) fn created(&self, key: &ServiceKey) -> Option<Timestamp> {
        self.world.services.get(key).map(|service| service.created)
    }

    /// How many Services wait, by reason.
    pub(super) fn pending(&self) -> BTreeMap<Reason, usize> {
        self.waiting.by_reason()
    }

    /// Whether everything has been listed once; before that nothing is planned.
    pub(super) const fn has_listed(&self) -> bool {
        self.world.claims.listed()
            && self.world.services.listed()
            && self.world.pools.listed()
            && self.world.namespaces.listed()
    }

    /// Takes in what a watch told.
    pub(super) fn on_news(&mut self, news: News) {
        match news {
            News::Claims(watched) => self.on_claims(watched),
            News::Services(watched) => self.on_services(watched),
            News::Pools(watched) => self.on_pools(watched),
            News::Namespaces(watched) => self.on_namespaces(watched),
        }
    }

    /// Looks at everything anew, as after gaining leadership.
    pub(super) fn reconsider_all(&mut self) {
        let keys: Vec<_> =
            self.world.services.keys().chain(self.world.held.keys()).cloned().collect();
        for key in keys {
            self.mark(&key);
        }
        self.status_due = true;
    }

    /// What to do now. Each effect is counted as under way until its report comes in.
    pub(super) fn plan(&mut self, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !self.has_listed() {
            return effects;
        }
        if std::mem::take(&mut self.pools_changed) {
            self.world.rebuild_pools();
            self.reconsider_all();
        }
        self.wake_delayed(now);
        self.plan_looks(now, &mut effects);
        while let Some((_, key)) = self.dirty.pop_first() {
            self.plan_service(&key, now, &mut effects);
        }
        self.serve_freed(now, &mut effects);
        self.plan_pool_status(now, &mut effects);
        effects
    }

    /// The uptime at which [`Planner::plan`] has something to do even without news.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let looks = self.looks.values().copied();
        let claim_looks = self.world.busy.values().filter_map(|busy| match busy {
            Busy::Looking { at, .. } => *at,
            Busy::Writing => None,
        });
        let services = self.service_delays.values().map(|(delay, _)| delay.until);
        let releases = self.release_delays.values().map(|delay| delay.until);
        let status = self.status_due.then(|| {
            let next = self.pool_next.iter().filter(|(name, _)| !self.pool_calls.contains(*name));
            next.map(|(_, next)| *next).min()
        });
        looks.chain(claim_looks).chain(services).chain(releases).chain(status.flatten()).min()
    }

    fn mark(&mut self, key: &ServiceKey) {
        let created =
            self.world.services.get(key).map_or(Timestamp::UNIX_EPOCH, |service| service.created);
        self.dirty.insert((created, key.clone()));
    }

    fn on_claims(&mut self, watched: Watched<IpAddr, ClaimView>) {
        match watched {
            Watched::ListBegins => self.world.claims.begin_list(),
            Watched::Is(addr, version, claim) => {
                self.put_claim(addr, version, claim, Source::Watch);
            }
            Watched::IsNot(addr, version) => {
                let pinned = self.world.is_busy(addr);
                if let Some(old) = self.world.claims.remove(&addr, version, pinned) {
                    self.claim_left(&old);
                }
            }
            Watched::ListEnds => {
                let end = self.world.claims.end_list();
                for (_, old) in end.vanished {
                    self.claim_left(&old);
                }
                for addr in end.unsure {
                    self.look_at_claim(addr, Duration::ZERO, None);
                }
            }
        }
    }

    fn put_claim(&mut self, addr: IpAddr, version: Version, claim: ClaimView, source: Source) {
        let keys: Vec<_> = claim.holders().iter().map(|holder| holder.key.clone()).collect();
        let Put::New(old) = self.world.claims.put(addr, version, claim, source) else { return };
        if let Some(old) = old {
            self.unindex_claim(&old);
        }
        for key in keys {
            self.world.held.entry(key.clone()).or_default().insert(addr);
            self.mark(&key);
        }
        self.release_delays.remove(&addr);
        self.settle(addr);
    }

    /// A claim is gone: its holders need looking after, and its address may be free.
    fn claim_left(&mut self, old: &ClaimView) {
        self.unindex_claim(old);
        self.release_delays.remove(&old.addr);
        self.settle(old.addr);
    }

    fn unindex_claim(&mut self, old: &ClaimView) {
        for holder in old.holders() {
            if let Some(addrs) = self.world.held.get_mut(&holder.key) {
                addrs.remove(&old.addr);
                if addrs.is_empty() {
                    self.world.held.remove(&holder.key);
                }
            }
            self.mark(&holder.key);
        }
    }

    fn settle(&mut self, addr: IpAddr) {
        if self.world.settle(addr) {
            self.freed.insert(addr);
        }
        self.status_due = true;
        if !self.world.is_busy(addr) {
            for key in std::mem::take(&mut self.later) {
                self.mark(&key);
            }
        }
    }

    fn on_services(&mut self, watched: Watched<ServiceKey, ServiceView>) {
        match watched {
            Watched::ListBegins => self.world.services.begin_list(),
            Watched::Is(key, version, service) => {
                self.put_service(&key, version, service, Source::Watch);
            }
            Watched::IsNot(key, version) => {
                let pinned = self.calls.contains_key(&key);
                if let Some(old) = self.world.services.remove(&key, version, pinned) {
                    self.service_left(&old);
                }
            }
            Watched::ListEnds => {
                let end = self.world.services.end_list();
                for (_, old) in end.vanished {
                    self.service_left(&old);
                }
                for key in end.unsure {
                    self.looks.entry(key).or_default();
                }
            }
        }
    }

    fn put_service(
        &mut self,
        key: &ServiceKey,
        version: Version,
        service: ServiceView,
        source: Source,
    ) {
        let shows = service.shows.clone();
        let Put::New(old) = self.world.services.put(key.clone(), version, service, source) else {
            return;
        };
        let showed = old.map(|old| old.shows).unwrap_or_default();
        for addr in &shows {
            self.world.shown.entry(*addr).or_default().insert(key.clone());
        }
        for addr in showed.iter().filter(|addr| !shows.contains(addr)) {
            self.unshow(*addr, key);
        }
        for addr in &shows {
            self.settle(*addr);
        }
        self.mark(key);
    }

    fn service_left(&mut self, old: &ServiceView) {
        for addr in &old.shows {
            self.unshow(*addr, &old.key);
        }
        self.waiting.clear(&old.key);
        self.service_delays.remove(&old.key);
        self.mark(&old.key);
    }

    fn unshow(&mut self, addr: IpAddr, key: &ServiceKey) {
        if let Some(keys) = self.world.shown.get_mut(&addr) {
            keys.remove(key);
            if keys.is_empty() {
                self.world.shown.remove(&addr);
            }
        }
        self.settle(addr);
    }

    fn on_pools(&mut self, watched: Watched<PoolName, Box<PoolView>>) {
        match watched {
            Watched::ListBegins => self.world.pools.begin_list(),
            Watched::Is(name, version, pool) => self.put_pool(name, version, *pool, Source::Watch),
            Watched::IsNot(name, version) => {
                let pinned = self.pool_calls.contains(&name);
                if self.world.pools.remove(&name, version, pinned).is_some() {
                    self.pool_left(&name);
                }
            }
            Watched::ListEnds => {
                for (name, _) in self.world.pools.end_list().vanished {
                    self.pool_left(&name);
                }
            }
        }
    }

    fn put_pool(&mut self, name: PoolName, version: Version, pool: PoolView, source: Source) {
        let (generation, uid) = (pool.generation, pool.uid.clone());
        let Put::New(old) = self.world.pools.put(name.clone(), version, pool, source) else {
            return;
        };
        self.pool_next.entry(name).or_default();
        self.status_due = true;
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
    }

    fn on_namespaces(&mut self, watched: Watched<String, BTreeMap<String, String>>) {
        let touched = match watched {
            Watched::ListBegins => {
                self.world.namespaces.begin_list();
                return;
            }
            Watched::ListEnds => {
                self.world.namespaces.end_list();
                return;
            }
            Watched::IsNot(name, version) => {
                self.world.namespaces.remove(&name, version, false);
                return;
            }
            Watched::Is(name, version, labels) => {
                let old = self.world.namespaces.put(name.clone(), version, labels, Source::Watch);
                let Put::New(old) = old else { return };
                if old.as_ref() == self.world.namespaces.get(&name) {
                    return;
                }
                name
            }
        };
        let keys: Vec<_> =
            self.waiting.keys().filter(|key| key.namespace() == touched).cloned().collect();
        for key in keys {
            self.mark(&key);
        }
    }

    fn wake_delayed(&mut self, now: Now) {
        let services =
            self.service_delays.iter().filter(|(_, (delay, _))| delay.until <= now.uptime);
        let services: Vec<_> = services.map(|(key, _)| key.clone()).collect();
        for key in &services {
            // What was refused is forgotten, so that it is tried again; how often, is not.
            if let Some((_, refused)) = self.service_delays.get_mut(key) {
                *refused = None;
            }
            self.mark(key);
        }
        let due = self.release_delays.iter().filter(|(_, delay)| delay.until <= now.uptime);
        let due: Vec<_> = due.map(|(addr, _)| *addr).collect();
        for addr in due {
            let holders = self.world.claim(addr).map(ClaimView::holders).unwrap_or_default();
            let keys: Vec<_> = holders.iter().map(|holder| holder.key.clone()).collect();
            for key in keys {
                self.mark(&key);
            }
        }
    }

    fn plan_looks(&mut self, now: Now, effects: &mut Vec<Effect>) {
        for (addr, busy) in &mut self.world.busy {
            if let Busy::Looking { at, .. } = busy
                && at.is_some_and(|at| at <= now.uptime)
            {
                *at = None;
                effects.push(Effect::LookAtClaim { addr: *addr });
            }
        }
        let due: Vec<_> = self
            .looks
            .iter()
            .filter(|(key, at)| **at <= now.uptime && !self.calls.contains_key(*key))
            .map(|(key, _)| key.clone())
            .collect();
        for key in due {
            self.looks.remove(&key);
            self.begin_call(&key);
            effects.push(Effect::LookAtService { key });
        }
    }

    fn begin_call(&mut self, key: &ServiceKey) {
        let calls = self.calls.entry(key.clone()).or_default();
        *calls = calls.saturating_add(1);
    }

    /// Decides about one Service and everything claimed in its name.
    fn plan_service(&mut self, key: &ServiceKey, now: Now, effects: &mut Vec<Effect>) {
        // What is under way or due comes back with a report, and that marks the Service again.
        if self.calls.contains_key(key) || self.looks.contains_key(key) {
            return;
        }
        let Some(service) = self.world.services.get(key) else {
            self.waiting.clear(key);
            self.release_all_but(key, &[], now, effects);
            return;
        };
        if service.deleting {
            let shows = service.shows.clone();
            self.waiting.clear(key);
            self.release_all_but(key, &shows, now, effects);
            return;
        }
        let service = service.clone();
        if let Some((delay, refused)) = self.service_delays.get(key)
            && delay.until > now.uptime
        {
            if let Some(words) = refused.clone() {
                let refusal = Refusal::LedgerRefused(words);
                self.wait(&service, std::slice::from_ref(&refusal));
                self.publish(&service, None, &status::Said::refused(&[], &[refusal]), now, effects);
            }
            return;
        }
        match decide(&self.world, &service) {
            Decision::LeaveAlone => {
                self.waiting.clear(key);
                self.release_all_but(key, &service.shows, now, effects);
            }
            Decision::Later => {
                self.later.insert(key.clone());
            }
            Decision::Take(takes) => {
                self.waiting.clear(key);
                for (addr, pool) in takes {
                    self.take(&service, addr, pool, effects);
                }
            }
            Decision::Disputed(refusal) => {
                let said = status::Said::refused(&service.shows, std::slice::from_ref(&refusal));
                self.wait(&service, &[refusal]);
                self.publish(&service, None, &said, now, effects);
            }
            Decision::Show { addrs, refusals, satisfied } => {
                self.show(&service, &addrs, &refusals, satisfied, now, effects);
            }
        }
    }

    fn take(
        &mut self,
        service: &ServiceView,
        addr: IpAddr,
        pool: PoolName,
        effects: &mut Vec<Effect>,
    ) {
        self.begin_call(&service.key);
        self.world.busy.insert(addr, Busy::Writing);
        self.settle(addr);
        effects.push(Effect::Take { addr, pool, holder: status::holder_now(service) });
    }

    /// Brings what the Service shows in line, in the order of the protocol: touch what is not
    /// fresh, publish, and only when that is done release what is left over.
    fn show(
        &mut self,
        service: &ServiceView,
        addrs: &[IpAddr],
        refusals: &[Refusal],
        satisfied: bool,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        if refusals.is_empty() {
            self.waiting.clear(&service.key);
        } else {
            self.wait(service, refusals);
        }
        let fresh: Vec<ClaimView> = addrs
            .iter()
            .filter(|addr| !service.shows.contains(addr))
            .filter_map(|addr| self.world.claim(*addr).cloned())
            .collect();
        let wanted = |claim: &ClaimView| {
            claim.holder(service).is_some_and(|holder| could_want(service, holder, claim.addr))
        };
        if !fresh.iter().all(wanted) {
            // Something else stands in its place. It must go first: while it is there, another
            // operator may rightly think that our claim is left over.
            let kept: Vec<_> =
                service.shows.iter().copied().filter(|shown| addrs.contains(shown)).collect();
            let said = status::Said::current(service);
            self.publish(service, Some(kept), &said, now, effects);
            return;
        }
        let stale = fresh.iter().filter(|claim| {
            claim.holder(service).and_then(|holder| holder.seen) != Some(service.version)
        });
        let stale: Vec<_> = stale.collect();
        if !stale.is_empty() {
            for claim in stale {
                self.touch(service, claim, effects);
            }
            return;
        }
        let said = if satisfied {
            status::Said::allocated(&self.world, addrs, refusals)
        } else {
            status::Said::refused(addrs, refusals)
        };
        let same = service.shows.len() == addrs.len()
            && addrs.iter().all(|addr| service.shows.contains(addr));
        let ingress = (!same).then(|| addrs.to_vec());
        if !self.publish(service, ingress, &said, now, effects) {
            self.release_all_but(&service.key, addrs, now, effects);
        }
    }

    fn touch(&mut self, service: &ServiceView, claim: &ClaimView, effects: &mut Vec<Effect>) {
        let holders = claim
            .holders()
            .iter()
            .map(|holder| {
                if holder.is(service) {
                    let mut next = status::holder_now(service);
                    next.ports.clone_from(&holder.ports);
                    next.sharing_key.clone_from(&holder.sharing_key);
                    next
                } else {
                    holder.clone()
                }
            })
            .collect();
        let pool =
            claim.pool.clone().or_else(|| Some(self.world.book.pool_of(claim.addr)?.name.clone()));
        self.begin_call(&service.key);
        self.world.busy.insert(claim.addr, Busy::Writing);
        effects.push(Effect::Touch { addr: claim.addr, version: claim.version, pool, holders });
    }

    /// Writes the status if it differs; says whether it does.
    fn publish(
        &mut self,
        service: &ServiceView,
        ingress: Option<Vec<IpAddr>>,
        said: &status::Said,
        now: Now,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let mut conditions = service.conditions.clone();
        let changed = said.write(&mut conditions, now.wall);
        if !changed && ingress.is_none() {
            return false;
        }
        let note = said.note(service);
        self.begin_call(&service.key);
        effects.push(Effect::Publish {
            key: service.key.clone(),
            uid: service.uid.clone(),
            version: service.version,
            ingress,
            conditions,
            note,
        });
        true
    }

    fn wait(&mut self, service: &ServiceView, refusals: &[Refusal]) {
        let Some(first) = refusals.first() else { return };
        let mut wait = Wait {
            created: service.created,
            reason: first.reason(),
            addrs: Vec::new(),
            pools: Vec::new(),
        };
        for refusal in refusals {
            match refusal {
                Refusal::TakenBy(addr, _) => wait.addrs.push(*addr),
                Refusal::NoneGives(family, verdicts) => {
                    let full =
                        verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Full(_)));
                    wait.pools.extend(full.map(|(pool, _)| (pool.clone(), *family)));
                }
                // These change only with a pool or with the Service, and both decide anew.
                Refusal::Unparseable { .. }
                | Refusal::OutsideEveryPool(_)
                | Refusal::Excluded(..)
                | Refusal::HeldBack(..)
                | Refusal::WrongFamily(_)
                | Refusal::LedgerRefused(_)
                | Refusal::NotServed(..) => {}
            }
        }
        self.waiting.set(&service.key, wait);
    }

    /// Releases every claim in the name of a Service, apart from some addresses.
    fn release_all_but(
        &mut self,
        key: &ServiceKey,
        keep: &[IpAddr],
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let held = self.world.held.get(key).cloned().unwrap_or_default();
        for addr in held.into_iter().filter(|addr| !keep.contains(addr)) {
            let delayed =
                self.release_delays.get(&addr).is_some_and(|delay| delay.until > now.uptime);
            if delayed || self.world.is_busy(addr) {
                continue;
            }
            let Some(claim) = self.world.claim(addr) else { continue };
            let Some(holder) = claim.holders().iter().find(|holder| holder.key == *key) else {
                continue;
            };
            effects.push(Effect::Release {
                addr,
                uid: claim.uid.clone(),
                version: claim.version,
                holder: holder.clone(),
            });
            self.world.busy.insert(addr, Busy::Writing);
        }
    }

    /// Gives each address that became free to the oldest that can use it.
    fn serve_freed(&mut self, now: Now, effects: &mut Vec<Effect>) {
        while let Some(addr) = self.freed.pop_first() {
            let covering = self.world.book.pools().filter(|pool| pool.contains(addr));
            let pools: Vec<_> = covering.map(|pool| pool.name.clone()).collect();
            let mut last: Option<Turn> = None;
            while !self.world.book.is_taken(addr) {
                let Some(turn) = self.waiting.next_for(addr, &pools, last.as_ref()) else { break };
                self.plan_service(&turn.1, now, effects);
                last = Some(turn);
            }
        }
    }

    fn plan_pool_status(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if !std::mem::take(&mut self.status_due) {
            return;
        }
        let names: Vec<_> = self.world.pools.keys().cloned().collect();
        for name in names {
            let Some(view) = self.world.pools.get(&name) else { continue };
            let Some(next) = status::pool(view, self.world.book.count(&name), now.wall) else {
                continue;
            };
            let due = self.pool_next.get(&name).copied().unwrap_or_default();
            if due > now.uptime || self.pool_calls.contains(&name) {
                // Not yet; `next_due` brings us back.
                self.status_due = true;
                continue;
            }
            let problem = status::problem(view);
            let told = self.pool_notes.get(&name);
            if let Some(problem) = problem.filter(|problem| told != Some(problem)) {
                let about = About::Pool { object: view.object.clone(), uid: view.uid.clone() };
                effects.push(Effect::Note(Note {
                    about,
                    warning: true,
                    reason: Reason::PoolInvalid.as_str().to_owned(),
                    message: problem.clone(),
                }));
                self.pool_notes.insert(name.clone(), problem);
            }
            effects.push(Effect::PoolStatus {
                pool: name.clone(),
                object: view.object.clone(),
                version: view.version,
                status: next,
            });
            self.pool_calls.insert(name.clone());
            self.pool_next.insert(name, now.uptime.saturating_add(STATUS_INTERVAL));
        }
    }

    fn look_at_claim(&mut self, addr: IpAddr, at: Duration, for_whom: Option<ServiceKey>) {
        self.world.busy.insert(addr, Busy::Looking { at: Some(at), for_whom });
        self.settle(addr);
    }
}

fn delay_after(tries: u32, now: Now) -> Delay {
    let factor = 1_u32.checked_shl(tries.min(16)).unwrap_or(u32::MAX);
    let wait = FIRST_DELAY.saturating_mul(factor).min(LONGEST_DELAY);
    Delay { until: now.uptime.saturating_add(wait), tries: tries.saturating_add(1) }
}

#[cfg(test)]
mod tests;
