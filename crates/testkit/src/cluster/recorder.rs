//! Records every change of Services and claims by watching the API server directly.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{
    DeleteParams, ListParams, ObjectList, ObjectMeta, PostParams, WatchEvent, WatchParams,
};
use kube::{Api, Client, Resource, ResourceExt as _};
use landfall_api::{IP, IPSpec, name};
use tokio::task::JoinSet;

use super::history::{Change, History, Log, Sighting};
use super::{Snapshot, holders, key};
use crate::{Error, Result, wait};

/// A marker ends a recording; nothing else may use its address.
const MARKER_ADDRESS: [u8; 4] = [192, 0, 2, 254];
const MARKER_NAME: &str = "end-of-recording";
const MARKER_DEADLINE: Duration = Duration::from_mins(1);
/// Between two attempts to reach an API server that is down.
const PAUSE: Duration = Duration::from_millis(50);

type Shared = Arc<Mutex<Log>>;

/// Records every change of Services and claims from its start.
///
/// It outlives the API server: the time in which the server could not be asked is a blind spot, of which only
/// the end is known, see [`History`].
pub struct Recorder {
    client: Client,
    before: Snapshot,
    log: Shared,
    tasks: JoinSet<kube::Result<()>>,
}

impl Recorder {
    pub async fn start(client: &Client) -> Result<Self> {
        let (ips, services) = (Api::<IP>::all(client.clone()), Api::<Service>::all(client.clone()));
        let claims = ips.list(&ListParams::default()).await;
        let claims = claims.map_err(Error::kube("listing all IPs"))?;
        let all = services.list(&ListParams::default()).await;
        let all = all.map_err(Error::kube("listing all Services"))?;
        let log = Shared::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(record(ips, versions(&claims), revision(&claims), Arc::clone(&log), claim));
        let read = |object: &Service, there| Some(service(object, there));
        tasks.spawn(record(services, versions(&all), revision(&all), Arc::clone(&log), read));
        let before = Snapshot { claims: claims.items, services: all.items };
        Ok(Self { client: client.clone(), before, log, tasks })
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
            let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            let claim = |change: &Change| matches!(change, Change::Claim(a, _) if *a == addr);
            let service = |change: &Change| {
                matches!(change, Change::Service(key, _) if key.ends_with(MARKER_NAME))
            };
            let both = log.changes().any(claim) && log.changes().any(service);
            if both { Ok(log.clone()) } else { Err(format!("{} changes", log.changes().count())) }
        })
        .await;
        for deleted in [
            ips.delete(&name::of(addr), &DeleteParams::default()).await.map(drop),
            services.delete(MARKER_NAME, &DeleteParams::default()).await.map(drop),
        ] {
            deleted.map_err(Error::kube("deleting what ends a recording"))?;
        }
        Ok(History::new(self.before, seen?))
    }
}

/// A claim as it is, or as it was before its deletion.
fn claim(ip: &IP, there: bool) -> Option<Change> {
    let addr = name::parse(&ip.name_any()).ok()?;
    let named = holders(ip, |_, _| None);
    Some(if there { Change::Claim(addr, named) } else { Change::ClaimGone(addr) })
}

fn service(service: &Service, there: bool) -> Change {
    let key = key(service);
    if there {
        Change::Service(key, Box::new(Sighting::of(service)))
    } else {
        Change::ServiceGone(key)
    }
}

fn revision<K: Clone>(list: &ObjectList<K>) -> u64 {
    number(list.metadata.resource_version.as_deref())
}

/// All kinds are in one etcd, and versions are its revisions.
fn number(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}

fn identity<K: Resource>(object: &K) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// The present objects by name, to find out later which have vanished.
fn versions<K: Resource + Clone>(list: &ObjectList<K>) -> BTreeMap<String, K> {
    list.iter().map(|object| (identity(object), object.clone())).collect()
}

/// Whether to ask again later instead of failing.
fn passes(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return true };
    status.code == 429 || status.code >= 500
}

async fn record<K>(
    api: Api<K>,
    mut known: BTreeMap<String, K>,
    mut from: u64,
    log: Shared,
    read: impl Fn(&K, bool) -> Option<Change>,
) -> kube::Result<()>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let note = |revision, change: Option<Change>| {
        log.lock().unwrap_or_else(PoisonError::into_inner).note(revision, change);
    };
    loop {
        match follow(&api, &mut known, &mut from, &note, &read).await {
            Ok(()) => {}
            Err(kube::Error::Api(status)) if status.code == 410 => {
                let all = match api.list(&ListParams::default()).await {
                    Err(error) if passes(&error) => {
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                    all => all?,
                };
                let end = revision(&all);
                let now = versions(&all);
                for (name, object) in &now {
                    let changed = number(object.resource_version().as_deref());
                    if known
                        .get(name)
                        .is_none_or(|old| old.resource_version() != object.resource_version())
                    {
                        note(changed, read(object, true));
                    }
                }
                for (_, object) in known.iter().filter(|(name, _)| !now.contains_key(*name)) {
                    note(end, read(object, false));
                }
                log.lock().unwrap_or_else(PoisonError::into_inner).was_blind(from, end);
                (known, from) = (now, end);
            }
            Err(error) if passes(&error) => tokio::time::sleep(PAUSE).await,
            Err(error) => return Err(error),
        }
    }
}

/// Follows one watch to its end.
async fn follow<K>(
    api: &Api<K>,
    known: &mut BTreeMap<String, K>,
    from: &mut u64,
    note: &impl Fn(u64, Option<Change>),
    read: &impl Fn(&K, bool) -> Option<Change>,
) -> kube::Result<()>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut events = Box::pin(api.watch(&WatchParams::default(), &from.to_string()).await?);
    while let Some(event) = events.try_next().await? {
        let (object, there) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, true),
            WatchEvent::Deleted(object) => (object, false),
            WatchEvent::Bookmark(mark) => {
                *from = number(Some(&mark.metadata.resource_version));
                continue;
            }
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        };
        *from = number(object.resource_version().as_deref());
        note(*from, read(&object, there));
        if there {
            known.insert(identity(&object), object);
        } else {
            known.remove(&identity(&object));
        }
    }
    Ok(())
}
