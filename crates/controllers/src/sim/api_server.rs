//! The simulated API server: objects, versions, and the history that watches read.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use landfall_api::{
    IPGroupStatus, Use, condition,
    keys::{CONDITION_ALLOCATED, CONDITION_ANNOUNCED},
};
use landfall_ipam::{
    AddrBlock, AddrSet, ClaimFact, HolderFact, Pool, PoolName, Violation, check, clash,
};

use super::{fixtures, history::Change};
use crate::{
    call::Failure,
    cluster::{
        Labels, News, Seen,
        pool::{PoolSource, PoolView},
        service::{self, Balancer, Leftover, Place, ServiceView},
        virtual_ip::{MappingView, VirtualIpView},
    },
    ledger::{self, Claim, HolderEntry, Reservation, Tenure, Then, Write},
    object::{ObjectKey, Version},
    store::Watched,
};

/// The source of all pools of the simulation: one watch is as good as two.
pub(crate) const SOURCE: PoolSource = PoolSource::IpGroups;

/// A Service as the API server has it.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) view: Balancer,
    pub(crate) load_balancer: bool,
    /// Whether a replaced operator left its finalizer on it.
    pub(crate) finalizer: bool,
    /// The whole object, if it was made from a manifest. Then the view is read from it.
    pub(crate) object: Option<Box<Service>>,
}

impl Stored {
    pub(crate) fn new(view: Balancer) -> Self {
        Self { view, load_balancer: true, finalizer: false, object: None }
    }

    /// Its marks, if a planner would remove any.
    pub(crate) fn leftover(&self) -> Option<Leftover> {
        let marked = !self.load_balancer && self.view.place == Place::Annotation;
        let finalizers = self.finalizer.then(Vec::new);
        let mut others = self.view.conditions.clone();
        let mut ours = condition::remove(&mut others, CONDITION_ALLOCATED);
        ours |= condition::remove(&mut others, CONDITION_ANNOUNCED);
        let conditions = (!self.load_balancer && ours).then_some(others);
        let is_left = self.finalizer || marked || conditions.is_some();
        is_left.then_some(Leftover { finalizers, marked, conditions, finalizer_owner: None })
    }
}

/// An object outside the ledger that has addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Foreign {
    Node(String),
    ApiServer(String),
    /// A Service, by its name, that lists them in `spec.externalIPs`.
    External(ObjectKey),
    /// A Service that has them as `ClusterIPs`.
    ClusterIp(ObjectKey),
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
pub(crate) struct ApiServer {
    version: u64,
    uids: u64,
    pub(crate) claims: BTreeMap<IpAddr, Claim>,
    pub(crate) services: BTreeMap<ObjectKey, Stored>,
    pub(crate) pools: BTreeMap<PoolName, PoolView>,
    /// Where pools publish addresses.
    pub(crate) place: Place,
    pub(super) namespaces: BTreeMap<String, (Version, Labels)>,
    pub(super) foreign: BTreeMap<Foreign, (Version, Vec<IpAddr>)>,
    pub(crate) virtual_ips: BTreeMap<ObjectKey, VirtualIpView>,
    pub(super) mappings: BTreeMap<Arc<str>, MappingView>,
    /// The range from which the cluster gives `ClusterIPs`.
    pub(super) service_ranges: AddrSet,
    pub(crate) history: Vec<Change>,
    /// Writes of operators that took an address from a Service whose user did not give it up, or that made a
    /// claim record less than it did.
    pub(crate) wrongs: Vec<String>,
    /// Every write that succeeded, except those of users.
    pub(crate) writes: Vec<&'static str>,
}

impl ApiServer {
    pub(crate) fn next(&mut self) -> Version {
        self.version += 1;
        Version(self.version)
    }

    fn uid(&mut self, of: &str) -> Arc<str> {
        self.uids += 1;
        Arc::from(format!("{of}#{}", self.uids))
    }

    pub(crate) fn set_pool(&mut self, name: &str, ranges: &str, excluded: &str) {
        let name = PoolName::new(name);
        let blocks = |text: &str| -> Vec<landfall_ipam::AddrBlock> {
            text.split_whitespace().map(|part| part.parse().unwrap()).collect()
        };
        let pool = Pool::new(name.clone(), blocks(ranges), blocks(excluded));
        self.put_pool(&name, |view| view.pool = Ok(pool));
    }

    pub(crate) fn put_pool(&mut self, name: &PoolName, change: impl FnOnce(&mut PoolView)) {
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

    pub(crate) fn delete_pool(&mut self, name: &PoolName) {
        if self.pools.remove(name).is_some() {
            let version = self.next();
            self.history.push(Change::NoPool(name.clone(), version));
        }
    }

    /// Replaces the labels of a namespace, which exists from then on.
    pub(crate) fn label_namespace(&mut self, name: &str, labels: &[(&str, &str)]) {
        let version = self.next();
        let labels: BTreeMap<_, _> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.namespaces.insert(name.to_owned(), (version, labels.clone()));
        self.history.push(Change::Namespace(name.to_owned(), version, labels));
    }

    /// An object outside the ledger has these addresses from now on.
    pub(crate) fn set_foreign(&mut self, who: &Foreign, addrs: &[IpAddr]) {
        let version = self.next();
        self.foreign.insert(who.clone(), (version, addrs.to_vec()));
        match who {
            Foreign::Node(name) => {
                self.history.push(Change::Node(name.clone(), version, addrs.to_vec()));
            }
            Foreign::ApiServer(name) => {
                self.history.push(Change::ApiServer(name.clone(), version, addrs.to_vec()));
            }
            Foreign::External(key) | Foreign::ClusterIp(key) => match self.services.get(key) {
                Some(stored) => self.store(stored.clone()),
                None => self.tell_service(key, version),
            },
        }
    }

    /// The number of changes so far: every write adds to it.
    pub(crate) fn age(&self) -> usize {
        self.history.len()
    }

    /// A pool's status.
    pub(crate) fn pool_status(&self, name: &str) -> IPGroupStatus {
        self.pools[&PoolName::new(name)].status.clone().unwrap()
    }

    /// A user creates a Service, unless it exists.
    pub(crate) fn create_service(&mut self, key: &str) {
        let key = ObjectKey::parse(key).unwrap();
        if self.services.contains_key(&key) {
            return;
        }
        let mut view = fixtures::service(key.as_str());
        view.uid = self.uid(key.as_str());
        view.created = Timestamp::from_second(i64::try_from(self.version).unwrap()).unwrap();
        self.store(Stored::new(view));
    }

    /// A user changes a Service that exists.
    pub(crate) fn edit_service(&mut self, key: &str, change: impl FnOnce(&mut Stored)) {
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

    pub(crate) fn delete_service(&mut self, key: &str) {
        let key = ObjectKey::parse(key).unwrap();
        let Some(stored) = self.services.get(&key).cloned() else { return };
        if stored.finalizer {
            let view = Balancer { deleting: true, ..stored.view };
            self.store(Stored { view, ..stored });
        } else {
            self.services.remove(&key);
            let version = self.next();
            self.tell_service(&key, version);
        }
    }

    /// A user deletes a Service and creates it from the same manifest, before any operator sees it.
    pub(crate) fn recreate_service(&mut self, key: &str) {
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
            let view = Balancer { uid, created, deleting, place, shows, conditions, ..old.view };
            *stored = Stored { view, ..old };
        });
    }

    pub(crate) fn delete_claim(&mut self, addr: IpAddr) {
        if self.claims.remove(&addr).is_some() {
            let version = self.next();
            self.history.push(Change::Claim(addr, version, None));
        }
    }

    /// A Service has a new version.
    pub(crate) fn store(&mut self, mut stored: Stored) {
        let version = self.next();
        stored.view.version = version;
        if let Some(object) = &mut stored.object {
            object.metadata.resource_version = Some(version.to_string());
        }
        let key = stored.view.key.clone();
        self.services.insert(key.clone(), stored);
        self.tell_service(&key, version);
    }

    fn tell_service(&mut self, key: &ObjectKey, version: Version) {
        let view = self.service_view(key).map(|view| ServiceView { version, ..view });
        self.history.push(Change::Service(key.clone(), version, view.map(Box::new)));
    }

    /// A Service as a watch shows it, also one of which there are only addresses here.
    pub(crate) fn service_view(&self, key: &ObjectKey) -> Option<ServiceView> {
        let stored = self.services.get(key);
        if let Some(object) = stored.and_then(|stored| stored.object.as_ref()) {
            return Some(service::read(object));
        }
        let addrs = |who| self.foreign.get(&who).cloned().unwrap_or_default();
        let (listed, external) = addrs(Foreign::External(key.clone()));
        let (given, cluster_ips) = addrs(Foreign::ClusterIp(key.clone()));
        let view = match stored {
            None => ServiceView {
                key: key.clone(),
                uid: Arc::from(format!("uid-of-{key}")),
                version: listed.max(given),
                deleting: false,
                balancer: None,
                leftover: None,
                local_traffic: false,
                announceable: None,
                external,
                cluster_ips,
            },
            Some(stored) => ServiceView {
                key: key.clone(),
                uid: stored.view.uid.clone(),
                version: stored.view.version,
                deleting: stored.view.deleting,
                balancer: stored.load_balancer.then(|| Box::new(stored.view.clone())),
                leftover: stored.leftover().map(Box::new),
                local_traffic: false,
                announceable: None,
                external,
                cluster_ips,
            },
        };
        (stored.is_some() || !view.is_empty()).then_some(view)
    }

    /// What a call shows of a Service.
    pub(crate) fn seen_service(&self, key: &ObjectKey) -> Option<Seen> {
        self.service_view(key).map(|view| Seen::Service(Box::new(view)))
    }

    /// Sets the ranges from which the cluster gives `ClusterIPs`.
    pub(crate) fn set_service_ranges(&mut self, ranges: &str) -> News {
        let blocks = ranges.split_whitespace();
        let ranges: AddrSet =
            blocks.map(|part| part.parse::<AddrBlock>().unwrap().range()).collect();
        self.service_ranges = ranges.clone();
        let version = self.next();
        News::ServiceRanges(Watched::Present("kubernetes".to_owned(), version, ranges))
    }

    /// Creates or replaces a `VirtualIP`.
    pub(crate) fn put_virtual_ip(&mut self, mut view: VirtualIpView) -> VirtualIpView {
        view.version = self.next();
        let (key, version) = (view.key.clone(), view.version);
        self.history.push(Change::VirtualIp(key.clone(), version, Some(Box::new(view.clone()))));
        self.virtual_ips.insert(key, view.clone());
        view
    }

    pub(crate) fn delete_virtual_ip(&mut self, key: &ObjectKey) {
        if self.virtual_ips.remove(key).is_some() {
            let version = self.next();
            self.history.push(Change::VirtualIp(key.clone(), version, None));
        }
    }

    pub(crate) fn put_mapping(&mut self, mut view: MappingView) {
        view.version = self.next();
        self.history.push(Change::Mapping(Box::new(view.clone())));
        self.mappings.insert(view.name.clone(), view);
    }

    /// Creates or replaces a Service by its manifest.
    pub(crate) fn put_object(&mut self, mut object: Service) {
        let key = ObjectKey::of(&object.metadata);
        object.metadata.uid.get_or_insert_with(|| format!("uid-of-{key}"));
        let balancer = service::balancer(&object);
        let load_balancer = balancer.is_some();
        let view = balancer.unwrap_or_else(|| fixtures::service(key.as_str()));
        let object = Some(Box::new(object));
        self.store(Stored { view, load_balancer, finalizer: false, object });
    }

    /// The whole Service, if it was made from a manifest.
    pub(crate) fn object(&self, key: &ObjectKey) -> Option<&Service> {
        self.services.get(key)?.object.as_deref()
    }

    pub(crate) fn put_claim(&mut self, mut claim: Claim) -> Claim {
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
    pub(crate) fn hold(&mut self, addr: IpAddr, holders: Vec<HolderEntry>) {
        self.set_tenure(addr, Tenure::Held(holders));
    }

    /// Creates a claim without a holder.
    pub(crate) fn hold_without_holder(&mut self, addr: IpAddr) {
        self.set_tenure(addr, Tenure::WithoutHolder("nobody".to_owned()));
    }

    /// The first report of a pool on whether ledger and Services agree.
    pub(crate) fn said_first(&self, name: &str) -> String {
        let mut told = self.history.iter().filter_map(|change| {
            let Change::Pool(view) = change else { return None };
            let conditions = &view.status.as_ref()?.conditions;
            let said = condition::get(conditions, "Consistent")?;
            (view.name == PoolName::new(name)).then(|| said.message.clone())
        });
        told.next().unwrap_or_default()
    }

    /// An administrator reserves a free address.
    pub(crate) fn reserve(&mut self, addr: IpAddr, reservation: Reservation) {
        if !self.claims.contains_key(&addr) {
            let reserved = Some(reservation);
            let claim = fixtures::claim_of(addr, &[]);
            self.put_claim(Claim { purpose: Some(Use::Reserved), reserved, ..claim });
        }
    }

    pub(crate) fn live(&self, key: &ObjectKey) -> Option<Balancer> {
        self.services
            .get(key)
            .filter(|stored| stored.load_balancer)
            .map(|stored| stored.view.clone())
    }

    /// Carries out a call about a claim.
    pub(crate) fn write(&mut self, write: &Write) -> Result<ledger::Answer, Failure> {
        let addr = write.addr();
        let known = self.claims.get(&addr);
        match write {
            Write::Take { .. } if known.is_some() => Err(Failure::Exists),
            Write::Take { claim } => {
                self.writes.push("take");
                Ok(ledger::Answer::Claim(self.put_claim(claim.clone())))
            }
            Write::Touch { claim } => {
                let before = known.ok_or(Failure::NotFound)?;
                if before.version != claim.version {
                    return Err(Failure::Conflict);
                }
                let back = backwards(before, claim.services());
                self.wrongs.extend(back.map(|key: ObjectKey| format!("{key} seen backwards")));
                self.writes.push("touch");
                Ok(ledger::Answer::Claim(self.put_claim(claim.clone())))
            }
            Write::Expire { uid, version, .. } => {
                let claim = known.ok_or(Failure::NotFound)?;
                if claim.version != *version || claim.uid != *uid {
                    return Err(Failure::Conflict);
                }
                self.writes.push("expire");
                self.delete_claim(addr);
                Ok(ledger::Answer::Released { by: None })
            }
            Write::Place { version, node, .. } => {
                let claim = known.ok_or(Failure::NotFound)?;
                if claim.version != *version {
                    return Err(Failure::Conflict);
                }
                let placed = Claim { node: node.clone(), ..claim.clone() };
                self.writes.push("place");
                Ok(ledger::Answer::Claim(self.put_claim(placed)))
            }
            Write::Read { .. } => {
                Ok(known.cloned().map_or(ledger::Answer::NoClaim, ledger::Answer::Claim))
            }
        }
    }

    /// The second half of a release, after a live read of the holder allowed it.
    pub(crate) fn release(
        &mut self,
        known: &Claim,
        holder: &HolderEntry,
        then: &Then,
        gone: bool,
    ) -> Result<ledger::Answer, Failure> {
        let addr = known.addr;
        let claim = self.claims.get(&addr).ok_or(Failure::NotFound)?;
        if claim.version != known.version || claim.uid != known.uid {
            return Err(Failure::Conflict);
        }
        let then = match then {
            Then::RetainIfGone(_) if !gone => &Then::Free,
            Then::Free | Then::Reserve(_) | Then::RetainIfGone(_) => then,
        };
        let Some(left) = then.leaves(known, holder) else {
            self.writes.push("release");
            self.delete_claim(addr);
            return Ok(ledger::Answer::Released { by: None });
        };
        self.writes.push(if left.services().is_empty() { "release" } else { "leave" });
        Ok(ledger::Answer::Claim(self.put_claim(left)))
    }

    /// Writes a pool's status at exactly this version.
    pub(crate) fn write_pool_status(
        &mut self,
        pool: &PoolName,
        version: Version,
        status: IPGroupStatus,
    ) -> Result<PoolView, Failure> {
        let next = Version(self.version + 1);
        match self.pools.get_mut(pool) {
            Some(view) if view.version == version => {
                (view.status, view.version) = (Some(status), next);
                let view = view.clone();
                self.version += 1;
                self.history.push(Change::Pool(Box::new(view.clone())));
                Ok(view)
            }
            Some(_) => Err(Failure::Conflict),
            None => Err(Failure::NotFound),
        }
    }

    /// The Service, if it still has that uid and version.
    pub(crate) fn service_at(
        &self,
        key: &ObjectKey,
        uid: &str,
        version: Version,
    ) -> Result<Stored, Failure> {
        let stored = self.services.get(key).cloned().ok_or(Failure::NotFound)?;
        let same = stored.view.version == version && *stored.view.uid == *uid;
        if same { Ok(stored) } else { Err(Failure::Conflict) }
    }

    /// The uid of a holder: a claim of the original operator means any Service with the name.
    fn uid_of(&self, holder: &HolderEntry) -> String {
        let named = || self.services.get(&holder.key).map(|stored| stored.view.uid.clone());
        holder.uid.clone().or_else(named).unwrap_or_default().to_string()
    }

    /// The violations that the invariant checker finds.
    pub(crate) fn violations(&self) -> BTreeSet<Violation> {
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
    pub(crate) fn recorded_clashes(&self) -> Vec<IpAddr> {
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
    pub(crate) fn shown_without_claim(&self) -> Vec<Violation> {
        let shown = |violation: &Violation| {
            matches!(violation, Violation::ShownWithoutClaim(..) | Violation::ShownTwice(..))
        };
        self.violations().into_iter().filter(shown).collect()
    }
}
