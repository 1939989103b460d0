//! The properties of a whole cluster, at rest and at every moment before.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use landfall_api::{IP, IPSpec, convert, name, words};
use landfall_ipam::{ClaimFact, HolderFact, Party, Terms, check, clash};
use tokio::task::JoinSet;

use crate::wait::{self, TimedOut};
use crate::{Error, Result};

/// On a Service whose addresses are none of the operator's business.
pub const FOREIGN: &str = "testkit.landfall.dev/foreign";

/// A marker ends a recording; nobody else may use its address.
const MARKER_ADDRESS: [u8; 4] = [192, 0, 2, 254];
const MARKER_NAME: &str = "end-of-recording";
const MARKER_DEADLINE: Duration = Duration::from_mins(1);

/// All claims and all Services of a cluster.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub claims: Vec<IP>,
    pub services: Vec<Service>,
}

impl Snapshot {
    pub async fn take(client: &Client) -> Result<Self> {
        let (ips, services) = (Api::<IP>::all(client.clone()), Api::<Service>::all(client.clone()));
        let claims = ips.list(&ListParams::default()).await;
        let claims = claims.map_err(Error::kube("listing all IPs"))?.items;
        let services = services.list(&ListParams::default()).await;
        let services = services.map_err(Error::kube("listing all Services"))?.items;
        Ok(Self { claims, services })
    }

    /// What must not be true in a cluster at rest; empty means that all is well.
    pub fn problems(&self) -> Vec<String> {
        let services: Vec<_> =
            self.services.iter().filter(|service| !is_foreign(service)).collect();
        let identity = |namespace: &str, name: &str| {
            let same = |service: &&&Service| {
                service.namespace().as_deref() == Some(namespace) && service.name_any() == name
            };
            services.iter().find(same).map(|service| identity_of(service))
        };
        let claims: Vec<_> = self
            .claims
            .iter()
            .filter_map(|ip| {
                let holders: Vec<_> =
                    holders(ip, identity).into_iter().map(|named| named.id).collect();
                let reserved = holders.is_empty();
                Some(ClaimFact { addr: name::parse(&ip.name_any()).ok()?, holders, reserved })
            })
            .collect();
        let holders: Vec<_> = services
            .iter()
            .map(|service| HolderFact {
                id: identity_of(service),
                shows: shown(service),
                namespace: service.namespace().unwrap_or_default(),
                terms: terms(service),
            })
            .collect();
        check(&claims, &holders).iter().map(ToString::to_string).collect()
    }

    /// What each Service shows, by `namespace/name`; those that show nothing are left out.
    pub fn shown(&self) -> BTreeMap<String, Vec<IpAddr>> {
        let all = self.services.iter().map(|service| (key(service), shown(service)));
        all.filter(|(_, addrs)| !addrs.is_empty()).collect()
    }
}

/// Waits until ledger and Services agree everywhere; the error tells what does not.
pub async fn settled(client: &Client, deadline: Duration) -> Result<Snapshot, TimedOut> {
    wait::until("ledger and Services to agree", deadline, async || {
        let seen = Snapshot::take(client).await.map_err(|error| format!("{error:?}"))?;
        let problems = seen.problems();
        if problems.is_empty() { Ok(seen) } else { Err(problems.join("; ")) }
    })
    .await
}

/// The addresses in a Service's published place, in order.
pub fn shown(service: &Service) -> Vec<IpAddr> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default();
    ingress.iter().filter_map(|entry| entry.ip.as_deref()?.parse().ok()).collect()
}

/// The addresses in `spec.externalIPs`, where the copies of `VirtualIP`s show theirs.
pub fn external(service: &Service) -> Vec<IpAddr> {
    let listed = service.spec.as_ref().and_then(|spec| spec.external_ips.as_deref());
    listed.unwrap_or_default().iter().filter_map(|text| text.parse().ok()).collect()
}

fn key(service: &Service) -> String {
    format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any())
}

fn identity_of(service: &Service) -> String {
    format!("Service/{}/{}", key(service), service.uid().unwrap_or_default())
}

/// On which terms a Service shares an address now; one that writes nonsense shares with nobody.
fn terms(service: &Service) -> Option<Terms> {
    convert::sharing_terms(&service.metadata, service.spec.as_ref()?).ok().flatten()
}

fn is_foreign(service: &Service) -> bool {
    service.annotations().contains_key(FOREIGN)
}

/// A Service that a claim names, and on which terms it is entered there.
#[derive(Clone, Debug, PartialEq)]
struct Named {
    id: String,
    namespace: String,
    terms: Option<Terms>,
}

impl Named {
    fn party(&self) -> Party<'_> {
        (&self.namespace, self.terms.as_ref())
    }
}

/// The Services a claim names. Nobody else counts: such a claim stands for itself.
///
/// A claim of the original operator has no uid; `find` gives whoever has the name now.
fn holders(ip: &IP, find: impl Fn(&str, &str) -> Option<String>) -> Vec<Named> {
    if ip.spec.holders.is_empty() && !ip.labels().contains_key(words::LABEL_GSM) {
        let owner = ip.annotations().get(words::ANNOTATION_OWNER);
        let owner = owner.and_then(|owner| owner.split_once('/'));
        return owner
            .map(|(namespace, name)| Named {
                id: find(namespace, name)
                    .unwrap_or_else(|| format!("Service/{namespace}/{name}/?")),
                namespace: namespace.to_owned(),
                terms: None,
            })
            .into_iter()
            .collect();
    }
    let services = ip.spec.holders.iter().filter(|holder| holder.kind == "Service");
    services
        .map(|holder| {
            let namespace = holder.namespace.as_deref().unwrap_or_default();
            let uid = holder.uid.as_deref().unwrap_or("?");
            Named {
                id: format!("Service/{namespace}/{}/{uid}", holder.name),
                namespace: namespace.to_owned(),
                terms: convert::holder_terms(holder),
            }
        })
        .collect()
}

/// One change of one object.
#[derive(Clone, Debug)]
enum Change {
    /// A Service by `namespace/name`, its identity, what it shows, and its external addresses.
    Service(String, String, Vec<IpAddr>, Vec<IpAddr>),
    ServiceGone(String),
    /// A claim and the Services it names.
    Claim(IpAddr, Vec<Named>),
    ClaimGone(IpAddr),
}

/// Changes by the revision that made them. All kinds lie in one etcd, so revisions of different
/// kinds compare, and what is true at each of them is what anybody could have seen.
type Changes = Arc<Mutex<BTreeMap<u64, Change>>>;

/// Records every change of Services and claims from its start.
pub struct Recorder {
    client: Client,
    before: Snapshot,
    changes: Changes,
    tasks: JoinSet<kube::Result<()>>,
}

impl Recorder {
    pub async fn start(client: &Client) -> Result<Self> {
        let (ips, services) = (Api::<IP>::all(client.clone()), Api::<Service>::all(client.clone()));
        let claims = ips.list(&ListParams::default()).await;
        let claims = claims.map_err(Error::kube("listing all IPs"))?;
        let all = services.list(&ListParams::default()).await;
        let all = all.map_err(Error::kube("listing all Services"))?;
        let changes = Changes::default();
        let mut tasks = JoinSet::new();
        let claims_from = claims.metadata.resource_version.unwrap_or_default();
        tasks.spawn(record(ips, claims_from, Arc::clone(&changes), |ip: IP, there| {
            let addr = name::parse(&ip.name_any()).ok()?;
            let named = holders(&ip, |_, _| None);
            Some(if there { Change::Claim(addr, named) } else { Change::ClaimGone(addr) })
        }));
        let services_from = all.metadata.resource_version.unwrap_or_default();
        tasks.spawn(record(services, services_from, Arc::clone(&changes), |service, there| {
            let (key, id, shows) = (key(&service), identity_of(&service), shown(&service));
            let gone = Change::ServiceGone(key.clone());
            let external = external(&service);
            Some(if there { Change::Service(key, id, shows, external) } else { gone })
        }));
        let before = Snapshot { claims: claims.items, services: all.items };
        Ok(Self { client: client.clone(), before, changes, tasks })
    }

    /// Ends the recording after everything that has happened until now.
    pub async fn finish(mut self) -> Result<History> {
        let ips: Api<IP> = Api::all(self.client.clone());
        let services: Api<Service> = Api::namespaced(self.client.clone(), "default");
        let post = PostParams::default();
        let addr = IpAddr::from(MARKER_ADDRESS);
        let marker = ips.create(&post, &IP::new(&name::of(addr), IPSpec::default())).await;
        marker.map_err(Error::kube("creating the IP that ends a recording"))?;
        let marker = Service {
            metadata: ObjectMeta { name: Some(MARKER_NAME.into()), ..ObjectMeta::default() },
            spec: Some(ServiceSpec {
                ports: Some(vec![ServicePort { port: 80, ..ServicePort::default() }]),
                ..ServiceSpec::default()
            }),
            status: None,
        };
        let marker = services.create(&post, &marker).await;
        marker.map_err(Error::kube("creating the Service that ends a recording"))?;
        let seen = wait::until("the end of the recording", MARKER_DEADLINE, async || {
            let failed = self.tasks.try_join_next();
            if failed.is_some() {
                return Err(format!("a watch ended: {failed:?}"));
            }
            let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
            let claim = |change: &Change| matches!(change, Change::Claim(a, _) if *a == addr);
            let service = |change: &Change| {
                matches!(change, Change::Service(key, ..) if key.ends_with(MARKER_NAME))
            };
            let both = changes.values().any(claim) && changes.values().any(service);
            if both { Ok(changes.clone()) } else { Err(format!("{} changes", changes.len())) }
        })
        .await;
        for deleted in [
            ips.delete(&name::of(addr), &DeleteParams::default()).await.map(drop),
            services.delete(MARKER_NAME, &DeleteParams::default()).await.map(drop),
        ] {
            deleted.map_err(Error::kube("deleting what ends a recording"))?;
        }
        Ok(History { before: self.before, changes: seen? })
    }
}

async fn record<K>(
    api: Api<K>,
    mut from: String,
    changes: Changes,
    read: impl Fn(K, bool) -> Option<Change>,
) -> kube::Result<()>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    loop {
        let mut events = Box::pin(api.watch(&WatchParams::default(), &from).await?);
        while let Some(event) = events.try_next().await? {
            let (object, there) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, true),
                WatchEvent::Deleted(object) => (object, false),
                WatchEvent::Bookmark(mark) => {
                    from = mark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            };
            from = object.resource_version().unwrap_or_default();
            let revision = from.parse().unwrap_or_default();
            if let Some(change) = read(object, there) {
                changes.lock().unwrap_or_else(PoisonError::into_inner).insert(revision, change);
            }
        }
    }
}

/// Everything that happened to Services and claims, in order.
#[derive(Debug)]
pub struct History {
    before: Snapshot,
    changes: BTreeMap<u64, Change>,
}

impl History {
    /// Every moment at which a Service showed an address whose claim did not name it, or at which a
    /// claim named two that do not agree to share. Nothing excuses such a moment, however short.
    pub fn problems(&self) -> Vec<String> {
        let mut services: BTreeMap<&str, (&str, &[IpAddr])> = BTreeMap::new();
        let mut claims: BTreeMap<IpAddr, Vec<Named>> = BTreeMap::new();
        let before: Vec<_> = self
            .before
            .services
            .iter()
            .map(|service| (key(service), identity_of(service), shown(service)))
            .collect();
        for (key, id, shows) in &before {
            services.insert(key, (id, shows));
        }
        for ip in &self.before.claims {
            if let Ok(addr) = name::parse(&ip.name_any()) {
                claims.insert(addr, holders(ip, |_, _| None));
            }
        }
        let mut problems = Vec::new();
        for (revision, change) in &self.changes {
            let touched: BTreeSet<IpAddr> = match change {
                Change::Service(key, id, shows, _) => {
                    services.insert(key, (id, shows));
                    shows.iter().copied().collect()
                }
                Change::ServiceGone(key) => {
                    services.remove(key.as_str());
                    BTreeSet::new()
                }
                Change::Claim(addr, named) => {
                    claims.insert(*addr, named.clone());
                    BTreeSet::from([*addr])
                }
                Change::ClaimGone(addr) => {
                    claims.remove(addr);
                    BTreeSet::from([*addr])
                }
            };
            for addr in touched {
                let showing: Vec<_> = services
                    .values()
                    .filter(|(_, shows)| shows.contains(&addr))
                    .map(|(id, _)| *id)
                    .collect();
                let named = claims.get(&addr).map(Vec::as_slice).unwrap_or_default();
                for (index, one) in named.iter().enumerate() {
                    for other in named.iter().skip(index + 1) {
                        if let Some(clash) = clash(one.party(), other.party()) {
                            let (one, other) = (&one.id, &other.id);
                            problems.push(format!("at {revision} {addr}: {one}, {other}: {clash}"));
                        }
                    }
                }
                for id in showing.iter().filter(|id| !named.iter().any(|named| named.id == **id)) {
                    problems.push(format!("at {revision} {id} shows {addr} of {named:?}"));
                }
            }
        }
        problems
    }

    /// Every revision at which an address that somebody answered for, by ingress or external
    /// address, was left without anybody.
    pub fn gaps(&self) -> Vec<(u64, IpAddr)> {
        let mut answers: BTreeMap<String, BTreeSet<IpAddr>> = self
            .before
            .services
            .iter()
            .map(|service| (key(service), shown(service).into_iter().chain(external(service))))
            .map(|(key, addrs)| (key, addrs.collect()))
            .collect();
        let mut gaps = Vec::new();
        for (revision, change) in &self.changes {
            let old = match change {
                Change::Service(key, _, shows, external) => {
                    let addrs = shows.iter().chain(external).copied().collect();
                    answers.insert(key.clone(), addrs)
                }
                Change::ServiceGone(key) => answers.remove(key),
                Change::Claim(..) | Change::ClaimGone(_) => None,
            };
            let left = |addr: &IpAddr| !answers.values().any(|addrs| addrs.contains(addr));
            let lost = old.into_iter().flatten().filter(left);
            gaps.extend(lost.map(|addr| (*revision, addr)));
        }
        gaps
    }

    /// What a Service showed, one entry per change of it, oldest first.
    pub fn shown_by(&self, wanted: &str) -> Vec<Vec<IpAddr>> {
        let mut all: Vec<Vec<IpAddr>> = Vec::new();
        for change in self.changes.values() {
            if let Change::Service(key, _, shows, _) = change
                && key == wanted
                && all.last() != Some(shows)
            {
                all.push(shows.clone());
            }
        }
        all
    }

    /// Services whose address changed, though nobody asked for that: `namespace/name`, before,
    /// after. An address that was withdrawn and given back unchanged is no change.
    pub fn moved(&self) -> Vec<(String, Vec<IpAddr>, Vec<IpAddr>)> {
        let mut last: BTreeMap<String, (String, Vec<IpAddr>)> = self
            .before
            .services
            .iter()
            .map(|service| (key(service), (identity_of(service), shown(service))))
            .collect();
        let mut moved = Vec::new();
        for change in self.changes.values() {
            let Change::Service(key, id, shows, _) = change else { continue };
            if shows.is_empty() {
                continue;
            }
            let old = last.insert(key.clone(), (id.clone(), shows.clone()));
            if let Some((old_id, old)) = old
                && old_id == *id
                && !old.is_empty()
                && old != *shows
            {
                moved.push((key.clone(), old, shows.clone()));
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, ServiceStatus};
    use landfall_api::Holder;

    use super::*;
    use crate::builders::{bare_claim, load_balancer, original_claim};

    fn service(name: &str, uid: &str, shows: &[&str]) -> Service {
        let mut service = load_balancer(name);
        service.metadata.namespace = Some("shop".into());
        service.metadata.uid = Some(uid.into());
        let entry = |addr: &&str| LoadBalancerIngress {
            ip: Some((*addr).into()),
            ..LoadBalancerIngress::default()
        };
        let balancer = LoadBalancerStatus { ingress: Some(shows.iter().map(entry).collect()) };
        service.status =
            Some(ServiceStatus { load_balancer: Some(balancer), ..ServiceStatus::default() });
        service
    }

    fn claim(addr: &str, name: &str, uid: &str) -> IP {
        let mut ip = bare_claim(addr.parse().unwrap());
        ip.spec.holders = vec![Holder {
            kind: "Service".into(),
            namespace: Some("shop".into()),
            name: name.into(),
            uid: Some(uid.into()),
            ..Holder::default()
        }];
        ip
    }

    #[test]
    fn a_snapshot_knows_whose_a_claim_is() {
        let (a, b) = ("10.0.0.1", "10.0.0.2");
        let original = original_claim(a.parse().unwrap(), "dmz", "shop/web");
        let bare = bare_claim(a.parse().unwrap());
        let web = service("web", "1", &[a]);
        for (case, claims, services, problems) in [
            ("in order", vec![claim(a, "web", "1")], vec![web.clone()], 0),
            ("another of that name", vec![claim(a, "web", "0")], vec![web.clone()], 2),
            ("by the original", vec![original.clone()], vec![web.clone()], 0),
            ("by the original, gone", vec![original], vec![], 1),
            ("a reservation", vec![bare.clone()], vec![], 0),
            ("a reservation, shown", vec![bare], vec![web.clone()], 1),
            ("left over", vec![claim(a, "web", "1"), claim(b, "web", "1")], vec![web.clone()], 1),
            ("doubled", vec![claim(a, "web", "1")], vec![web, service("db", "2", &[a])], 2),
        ] {
            let found = Snapshot { claims, services }.problems();
            assert_eq!(found.len(), problems, "{case}: {found:?}");
        }
    }

    #[test]
    fn a_history_remembers_what_was_wrong_for_a_moment() {
        let addr: IpAddr = "10.0.0.1".parse().unwrap();
        let next: IpAddr = "10.0.0.2".parse().unwrap();
        let id = |name: &str| format!("Service/shop/{name}/1");
        let shows = |name: &str, addrs: &[IpAddr]| {
            Change::Service(format!("shop/{name}"), id(name), addrs.to_vec(), Vec::new())
        };
        let named = |name: &str, port: Option<&str>| Named {
            id: id(name),
            namespace: "shop".into(),
            terms: port.map(|port| Terms {
                key: Some("k".into()),
                ports: vec![port.into()],
                ..Terms::default()
            }),
        };
        let held = |addr, name: &str| Change::Claim(addr, vec![named(name, None)]);
        let shared = |one: &str, other: &str| {
            Change::Claim(addr, vec![named("web", Some(one)), named("db", Some(other))])
        };
        for (case, changes, problems, moved) in [
            ("in order", vec![held(addr, "web"), shows("web", &[addr])], 0, 0),
            ("shown before it was taken", vec![shows("web", &[addr]), held(addr, "web")], 1, 0),
            (
                "released while shown",
                vec![held(addr, "web"), shows("web", &[addr]), Change::ClaimGone(addr)],
                1,
                0,
            ),
            (
                "doubled for a moment",
                vec![held(addr, "web"), shows("web", &[addr]), shows("db", &[addr])],
                1,
                0,
            ),
            (
                "shared",
                vec![shared("TCP/80", "TCP/443"), shows("web", &[addr]), shows("db", &[addr])],
                0,
                0,
            ),
            ("one port for two", vec![shared("TCP/80", "TCP/80")], 1, 0),
            (
                "moved",
                vec![
                    held(addr, "web"),
                    shows("web", &[addr]),
                    held(next, "web"),
                    shows("web", &[]),
                    shows("web", &[next]),
                ],
                0,
                1,
            ),
            (
                "deleted first, then released",
                vec![
                    held(addr, "web"),
                    shows("web", &[addr]),
                    Change::ServiceGone("shop/web".into()),
                    Change::ClaimGone(addr),
                ],
                0,
                0,
            ),
        ] {
            let history = History {
                before: Snapshot { claims: vec![], services: vec![] },
                changes: (1..).zip(changes).collect(),
            };
            let found = history.problems();
            assert_eq!(found.len(), problems, "{case}: {found:?}");
            assert_eq!(history.moved().len(), moved, "{case}");
        }
    }
}
