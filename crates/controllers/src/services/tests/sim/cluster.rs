//! The simulated API server: objects, versions, and the history that watches read.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use jiff::Timestamp;
use landfall_api::{IPGroupStatus, Use, condition};
use landfall_ipam::{ClaimFact, HolderFact, Pool, PoolName, Violation, check, clash};

use super::super::{
    effect::Answer,
    fixtures,
    plan::News,
    status,
    view::{ForeignKind, Leftover, Place, PoolSource, PoolView, ServiceView},
};
use crate::{
    ledger::{Claim, ForeignAddress, HolderEntry, Reservation, Tenure},
    object::{ObjectKey, Version},
    store::Watched,
};

mod calls;

/// The source of all pools of the simulation: one watch is as good as two.
pub(super) const SOURCE: PoolSource = PoolSource::IpGroups;

/// A Service as the API server has it.
#[derive(Clone, Debug)]
pub(in crate::services) struct Stored {
    pub(in crate::services) view: ServiceView,
    pub(in crate::services) load_balancer: bool,
    /// Whether a replaced operator left its finalizer on it.
    pub(in crate::services) finalizer: bool,
}

impl Stored {
    pub(super) fn leftover(&self) -> Option<Leftover> {
        let ServiceView { uid, version, deleting, .. } = &self.view;
        let (uid, version, deleting) = (uid.clone(), *version, *deleting);
        let marked = !self.load_balancer && self.view.place == Place::Annotation;
        let finalizers = self.finalizer.then(Vec::new);
        let former = &self.view.conditions;
        let conditions = if self.load_balancer { None } else { status::without_ours(former) };
        let is_left = self.finalizer || marked || conditions.is_some();
        let left = Leftover {
            uid,
            version,
            deleting,
            finalizers,
            marked,
            conditions,
            finalizer_owner: None,
        };
        is_left.then_some(left)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::services) enum Kind {
    Claims,
    Services,
    Pools,
    Namespaces,
    ForeignAddresses,
}

pub(in crate::services) const KINDS: [Kind; 5] =
    [Kind::Claims, Kind::Services, Kind::Pools, Kind::Namespaces, Kind::ForeignAddresses];

/// The watch that delivers a foreign address.
pub(super) const fn kind_of_foreign_address(who: &ForeignAddress) -> ForeignKind {
    match who {
        ForeignAddress::Node(_) => ForeignKind::Nodes,
        ForeignAddress::ApiServer(_) => ForeignKind::ApiServers,
        ForeignAddress::External(..) => ForeignKind::ExternalIps,
        ForeignAddress::VirtualIp(_) => ForeignKind::VirtualIps,
        ForeignAddress::ClusterIp(_) => ForeignKind::ClusterIps,
    }
}

/// One change, as watches will deliver it.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Claim(IpAddr, Version, Option<Claim>),
    Service(ObjectKey, Version, Option<Box<ServiceView>>, Option<Leftover>),
    Pool(Box<PoolView>),
    NoPool(PoolName, Version),
    Namespace(String, Version, BTreeMap<String, String>),
    ForeignAddress(ForeignAddress, Version, Option<Vec<IpAddr>>),
}

impl Change {
    pub(super) const fn kind(&self) -> Kind {
        match self {
            Self::Claim(..) => Kind::Claims,
            Self::Service(..) => Kind::Services,
            Self::Pool(_) | Self::NoPool(..) => Kind::Pools,
            Self::Namespace(..) => Kind::Namespaces,
            Self::ForeignAddress(..) => Kind::ForeignAddresses,
        }
    }

    pub(super) fn news(&self) -> Vec<News> {
        vec![match self.clone() {
            Self::Claim(addr, version, Some(claim)) => {
                News::Claims(Watched::Present(addr, version, claim))
            }
            Self::Claim(addr, version, None) => News::Claims(Watched::Gone(addr, version)),
            Self::Service(key, version, service, leftover) => {
                return vec![
                    News::Services(match service {
                        Some(service) => Watched::Present(key.clone(), version, *service),
                        None => Watched::Gone(key.clone(), version),
                    }),
                    News::Leftovers(match leftover {
                        Some(leftover) => Watched::Present(key, version, leftover),
                        None => Watched::Gone(key, version),
                    }),
                ];
            }
            Self::Pool(pool) => {
                News::Pools(SOURCE, Watched::Present(pool.name.clone(), pool.version, pool))
            }
            Self::NoPool(name, version) => News::Pools(SOURCE, Watched::Gone(name, version)),
            Self::Namespace(name, version, labels) => {
                News::Namespaces(Watched::Present(name, version, labels))
            }
            Self::ForeignAddress(who, version, addrs) => {
                let kind = kind_of_foreign_address(&who);
                News::ForeignAddresses(
                    kind,
                    match addrs {
                        Some(addrs) => Watched::Present(who, version, addrs),
                        None => Watched::Gone(who, version),
                    },
                )
            }
        }]
    }
}

/// A holder for which the claim would record an older version than it does now.
fn backwards(claim: &Claim, next: &[HolderEntry]) -> Option<ObjectKey> {
    let older = |one: &&HolderEntry| {
        let mut before = claim.services().iter().filter(|other| other.key == one.key);
        before.any(|other| other.seen > one.seen)
    };
    next.iter().find(older).map(|holder| holder.key.clone())
}

/// The API server: objects, versions, and the history that watches read.
#[derive(Debug, Default)]
pub(in crate::services) struct Cluster {
    version: u64,
    uids: u64,
    pub(in crate::services) claims: BTreeMap<IpAddr, Claim>,
    pub(in crate::services) services: BTreeMap<ObjectKey, Stored>,
    pub(in crate::services) pools: BTreeMap<PoolName, PoolView>,
    /// Where pools publish addresses.
    pub(super) place: Place,
    pub(super) namespaces: BTreeMap<String, (Version, BTreeMap<String, String>)>,
    pub(super) foreign_addresses: BTreeMap<ForeignAddress, (Version, Vec<IpAddr>)>,
    pub(super) history: Vec<Change>,
    /// Writes of operators that took an address from a Service whose user did not give it up, or that made a
    /// claim record less than it did.
    pub(in crate::services) wrongs: Vec<String>,
    /// Every write that succeeded, except those of users.
    pub(in crate::services) writes: Vec<&'static str>,
}

impl Cluster {
    pub(super) fn next(&mut self) -> Version {
        self.version += 1;
        Version(self.version)
    }

    fn uid(&mut self, of: &str) -> Arc<str> {
        self.uids += 1;
        Arc::from(format!("{of}#{}", self.uids))
    }

    pub(in crate::services) fn set_pool(&mut self, name: &str, ranges: &str, excluded: &str) {
        let name = PoolName::new(name);
        let blocks = |text: &str| -> Vec<landfall_ipam::AddrBlock> {
            text.split_whitespace().map(|part| part.parse().unwrap()).collect()
        };
        let pool = Pool::new(name.clone(), blocks(ranges), blocks(excluded));
        self.put_pool(&name, |view| view.pool = Ok(pool));
    }

    pub(in crate::services) fn put_pool(
        &mut self,
        name: &PoolName,
        change: impl FnOnce(&mut PoolView),
    ) {
        let version = self.next();
        let mut view = self.pools.get(name).cloned().unwrap_or_else(|| {
            // A different uid if it existed before.
            let uid = Arc::from(format!("pool-{name}#{}", version.0));
            let mut new = PoolView::empty(name.clone(), SOURCE, Arc::from(name.as_str()), uid);
            new.place = self.place;
            new.status = Some(IPGroupStatus::default());
            new.generation = Some(0);
            new
        });
        change(&mut view);
        view.version = version;
        view.generation = view.generation.map(|generation| generation + 1);
        self.pools.insert(name.clone(), view.clone());
        self.history.push(Change::Pool(Box::new(view)));
    }

    pub(in crate::services) fn delete_pool(&mut self, name: &PoolName) {
        if self.pools.remove(name).is_some() {
            let version = self.next();
            self.history.push(Change::NoPool(name.clone(), version));
        }
    }

    /// Replaces the labels of a namespace, which exists from then on.
    pub(in crate::services) fn label_namespace(&mut self, name: &str, labels: &[(&str, &str)]) {
        let version = self.next();
        let labels: BTreeMap<_, _> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.namespaces.insert(name.to_owned(), (version, labels.clone()));
        self.history.push(Change::Namespace(name.to_owned(), version, labels));
    }

    /// An object outside the ledger has these addresses from now on; without any it is gone.
    pub(in crate::services) fn set_foreign_address(
        &mut self,
        who: &ForeignAddress,
        addrs: &[IpAddr],
    ) {
        let version = self.next();
        let told = if addrs.is_empty() {
            self.foreign_addresses.remove(who);
            None
        } else {
            self.foreign_addresses.insert(who.clone(), (version, addrs.to_vec()));
            Some(addrs.to_vec())
        };
        self.history.push(Change::ForeignAddress(who.clone(), version, told));
    }

    /// The number of changes so far: every write adds to it.
    pub(in crate::services) fn age(&self) -> usize {
        self.history.len()
    }

    /// A pool's status.
    pub(in crate::services) fn pool_status(&self, name: &str) -> IPGroupStatus {
        self.pools[&PoolName::new(name)].status.clone().unwrap()
    }

    /// A user creates a Service, unless it exists.
    pub(in crate::services) fn create_service(&mut self, key: &str) {
        let key = ObjectKey::parse(key).unwrap();
        if self.services.contains_key(&key) {
            return;
        }
        let mut view = fixtures::service(key.as_str());
        view.uid = self.uid(key.as_str());
        view.created = Timestamp::from_second(i64::try_from(self.version).unwrap()).unwrap();
        self.store(Stored { view, load_balancer: true, finalizer: false });
    }

    /// A user changes a Service that exists.
    pub(in crate::services) fn edit_service(
        &mut self,
        key: &str,
        change: impl FnOnce(&mut Stored),
    ) {
        let key = ObjectKey::parse(key).unwrap();
        let Some(mut stored) = self.services.get(&key).cloned() else { return };
        change(&mut stored);
        if !stored.load_balancer {
            if stored.view.place == Place::Status {
                // As the API server does since 1.28.
                stored.view.shows.clear();
            }
            stored.view.class = None;
        }
        self.store(stored);
    }

    pub(in crate::services) fn delete_service(&mut self, key: &str) {
        let key = ObjectKey::parse(key).unwrap();
        let Some(stored) = self.services.get(&key).cloned() else { return };
        if stored.finalizer {
            let view = ServiceView { deleting: true, ..stored.view };
            self.store(Stored { view, ..stored });
        } else {
            self.services.remove(&key);
            let version = self.next();
            self.history.push(Change::Service(key, version, None, None));
        }
    }

    /// A user deletes a Service and creates it from the same manifest, before any operator sees it.
    pub(in crate::services) fn recreate_service(&mut self, key: &str) {
        let Some(old) = self.services.get(&ObjectKey::parse(key).unwrap()).cloned() else {
            return;
        };
        self.delete_service(key);
        if self.services.contains_key(&old.view.key) {
            return; // it is still being deleted
        }
        self.create_service(key);
        self.edit_service(key, |stored| {
            let (uid, created) = (stored.view.uid.clone(), stored.view.created);
            let (shows, conditions, deleting) = (Vec::new(), Vec::new(), false);
            let place = Place::default();
            let view = ServiceView { uid, created, deleting, place, shows, conditions, ..old.view };
            *stored = Stored { view, ..old };
        });
    }

    pub(in crate::services) fn delete_claim(&mut self, addr: IpAddr) {
        if self.claims.remove(&addr).is_some() {
            let version = self.next();
            self.history.push(Change::Claim(addr, version, None));
        }
    }

    fn store(&mut self, mut stored: Stored) {
        let version = self.next();
        stored.view.version = version;
        let key = stored.view.key.clone();
        let seen = stored.load_balancer.then(|| stored.view.clone());
        let leftover = stored.leftover();
        self.history.push(Change::Service(key.clone(), version, seen.map(Box::new), leftover));
        self.services.insert(key, stored);
    }

    fn put_claim(&mut self, mut claim: Claim) -> Claim {
        claim.version = self.next();
        claim.uid = match self.claims.get(&claim.addr) {
            Some(before) => before.uid.clone(),
            None => self.uid("claim"),
        };
        self.claims.insert(claim.addr, claim.clone());
        self.history.push(Change::Claim(claim.addr, claim.version, Some(claim.clone())));
        claim
    }

    /// Writes a claim with this tenure.
    fn set_tenure(&mut self, addr: IpAddr, tenure: Tenure) -> Claim {
        let claim = self.claims.get(&addr).cloned();
        let claim = claim.unwrap_or_else(|| fixtures::claim_of(addr, &[]));
        self.put_claim(Claim { tenure, ..claim })
    }

    /// Writes these holders into the claim on an address.
    pub(in crate::services) fn hold(&mut self, addr: IpAddr, holders: Vec<HolderEntry>) {
        self.set_tenure(addr, Tenure::Held(holders));
    }

    /// Creates a claim without a holder.
    pub(in crate::services) fn hold_by_nobody(&mut self, addr: IpAddr) {
        self.set_tenure(addr, Tenure::Nobody("nobody".to_owned()));
    }

    /// The first report of a pool on whether ledger and Services agree.
    pub(in crate::services) fn said_first(&self, name: &str) -> String {
        let mut told = self.history.iter().filter_map(|change| {
            let Change::Pool(view) = change else { return None };
            let conditions = &view.status.as_ref()?.conditions;
            let said = condition::get(conditions, "Consistent")?;
            (view.name == PoolName::new(name)).then(|| said.message.clone())
        });
        told.next().unwrap_or_default()
    }

    /// An administrator reserves a free address.
    pub(in crate::services) fn reserve(&mut self, addr: IpAddr, reservation: Reservation) {
        if !self.claims.contains_key(&addr) {
            let reserved = Some(reservation);
            let claim = fixtures::claim_of(addr, &[]);
            self.put_claim(Claim { purpose: Use::Reserved, reserved, ..claim });
        }
    }

    pub(super) fn live(&self, key: &ObjectKey) -> Option<ServiceView> {
        self.services
            .get(key)
            .filter(|stored| stored.load_balancer)
            .map(|stored| stored.view.clone())
    }

    fn answer(&self, key: &ObjectKey) -> Answer {
        match self.services.get(key) {
            None => Answer::NoService,
            Some(stored) if stored.load_balancer => Answer::Service(stored.view.clone()),
            Some(stored) => Answer::OtherService(stored.view.version),
        }
    }

    /// The uid of a holder: a claim of the original operator means any Service with the name.
    fn uid_of(&self, holder: &HolderEntry) -> String {
        let named = || self.services.get(&holder.key).map(|stored| stored.view.uid.clone());
        holder.uid.clone().or_else(named).unwrap_or_default().to_string()
    }

    /// The violations that the invariant checker finds.
    pub(in crate::services) fn violations(&self) -> BTreeSet<Violation> {
        let claims: Vec<_> = self
            .claims
            .values()
            .map(|claim| ClaimFact {
                addr: claim.addr,
                holders: claim.services().iter().map(|holder| self.uid_of(holder)).collect(),
                reserved: !matches!(claim.tenure, Tenure::Held(_)) || claim.reserved.is_some(),
            })
            .collect();
        let holders: Vec<_> = self
            .services
            .values()
            .map(|stored| HolderFact {
                id: stored.view.uid.to_string(),
                shows: stored.view.shows.clone(),
                namespace: stored.view.key.namespace().to_owned(),
                terms: stored.view.terms.as_deref().cloned(),
            })
            .collect();
        check(&claims, &holders)
    }

    /// Claims whose holders, on the terms they are recorded with, may not share the address: never, not even
    /// for a moment.
    pub(in crate::services) fn recorded_clashes(&self) -> Vec<IpAddr> {
        let clashes = |claim: &&Claim| {
            let holders = claim.services();
            holders.iter().enumerate().any(|(index, one)| {
                let mut others = holders.iter().skip(index + 1);
                others.any(|other| clash(one.party(), other.party()).is_some())
            })
        };
        self.claims.values().filter(clashes).map(|claim| claim.addr).collect()
    }

    /// Addresses shown without a claim that names the Service: never, not even for a moment,
    /// unless a user did it.
    pub(in crate::services) fn shown_without_claim(&self) -> Vec<Violation> {
        let shown = |violation: &Violation| {
            matches!(violation, Violation::ShownWithoutClaim(..) | Violation::ShownTwice(..))
        };
        self.violations().into_iter().filter(shown).collect()
    }
}
