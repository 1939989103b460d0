//! Watches when each Service of a namespace gets its address, and whether it ever changes.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use http::Request;
use kube::Client;
use kube::core::WatchEvent;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::error::{Error, Result};
use super::raw::Call;

/// Where an allocator shows the address of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddressIn {
    Status,
    Annotation(String),
}

impl FromStr for AddressIn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "status" => Ok(Self::Status),
            Some(("annotation", key)) if !key.is_empty() => Ok(Self::Annotation(key.to_owned())),
            _ => Err("expected `status` or `annotation:KEY`".to_owned()),
        }
    }
}

impl fmt::Display for AddressIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status => f.write_str("status"),
            Self::Annotation(key) => write!(f, "annotation:{key}"),
        }
    }
}

/// The fields of a Service that are needed; reading less costs the machine less.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Seen {
    pub(super) metadata: Meta,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) creation_timestamp: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    load_balancer: LoadBalancer,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct LoadBalancer {
    #[serde(default)]
    ingress: Vec<Ingress>,
}

#[derive(Clone, Debug, Deserialize)]
struct Ingress {
    ip: Option<String>,
}

#[derive(Debug, Deserialize)]
struct List {
    metadata: ListMeta,
    items: Vec<Seen>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
}

impl Seen {
    pub(super) fn address(&self, place: &AddressIn) -> Option<&str> {
        match place {
            AddressIn::Status => self.status.load_balancer.ingress.first()?.ip.as_deref(),
            AddressIn::Annotation(key) => self.metadata.annotations.get(key).map(String::as_str),
        }
        .filter(|address| !address.is_empty())
    }
}

pub(super) fn services_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/services")
}

/// The Services of a namespace as they are now.
pub(super) async fn list(client: &Client, namespace: &str) -> Result<Vec<Seen>> {
    Ok(Call::get(services_path(namespace)).ask::<List>(client).await?.items)
}

/// What is known of one Service.
#[derive(Clone, Debug)]
pub(super) struct Track {
    uid: String,
    pub(super) created: String,
    pub(super) address: Option<String>,
    /// When it first had an address.
    pub(super) first: Option<Instant>,
}

/// What is known of all Services.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) services: BTreeMap<String, Track>,
    pub(super) with_address: usize,
    /// How often a Service that had an address then had another, or none.
    pub(super) changed: usize,
}

impl Known {
    fn is(&mut self, seen: &Seen, place: &AddressIn) {
        let address = seen.address(place).map(str::to_owned);
        let old = self.services.remove(&seen.metadata.name);
        let old = old.filter(|old| {
            let same = old.uid == seen.metadata.uid;
            if !same && old.address.is_some() {
                self.with_address -= 1;
            }
            same
        });
        let (before, first) = old.map(|old| (old.address, old.first)).unwrap_or_default();
        if before.is_some() && before != address {
            self.changed += 1;
        }
        match (&before, &address) {
            (None, Some(_)) => self.with_address += 1,
            (Some(_), None) => self.with_address -= 1,
            _ => {}
        }
        let first = first.or_else(|| address.is_some().then(Instant::now));
        let track = Track {
            uid: seen.metadata.uid.clone(),
            created: seen.metadata.creation_timestamp.clone(),
            address,
            first,
        };
        self.services.insert(seen.metadata.name.clone(), track);
    }

    fn is_gone(&mut self, name: &str) {
        if self.services.remove(name).is_some_and(|old| old.address.is_some()) {
            self.with_address -= 1;
        }
    }

    pub(super) fn has_address(&self, name: &str) -> bool {
        self.services.get(name).is_some_and(|track| track.address.is_some())
    }

    /// Some of the waiters, for a message.
    pub(super) fn without_address(&self) -> String {
        let waiting: Vec<_> = self
            .services
            .iter()
            .filter(|(_, track)| track.address.is_none())
            .map(|(name, _)| name.as_str())
            .collect();
        let some = waiting.iter().take(5).copied().collect::<Vec<_>>().join(", ");
        format!("{} of {} Services have no address ({some}, …)", waiting.len(), self.services.len())
    }
}

/// A running watch, ended on drop.
pub(super) struct Watch {
    known: watch::Receiver<Known>,
    told: AtomicUsize,
    _task: JoinSet<Infallible>,
}

impl Watch {
    pub(super) fn start(client: Client, namespace: &str, place: AddressIn) -> Self {
        let (sender, known) = watch::channel(Known::default());
        let mut task = JoinSet::new();
        let namespace = namespace.to_owned();
        task.spawn(async move {
            loop {
                // A watch that ended is begun again with a list; only time is lost.
                drop(follow(&client, &namespace, &place, &sender).await);
                sleep(Duration::from_millis(10)).await;
            }
        });
        Self { known, told: AtomicUsize::new(0), _task: task }
    }

    /// Reads what is known; the watch waits meanwhile.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.known.borrow())
    }

    /// Changes since the last call.
    pub(super) fn new_changes(&self) -> usize {
        let changed = self.known.borrow().changed;
        changed - self.told.swap(changed, Ordering::Relaxed)
    }

    /// Waits until `done` accepts what is known.
    pub(super) async fn until(
        &self,
        what: impl Into<String>,
        deadline: Duration,
        done: impl FnMut(&Known) -> bool,
    ) -> Result<()> {
        let mut known = self.known.clone();
        match timeout(deadline, known.wait_for(done)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(Error::WatchEnded),
            Err(_) => Err(Error::Never {
                what: what.into(),
                seconds: deadline.as_secs(),
                missing: self.known.borrow().without_address(),
            }),
        }
    }
}

async fn follow(
    client: &Client,
    namespace: &str,
    place: &AddressIn,
    sender: &watch::Sender<Known>,
) -> Result<()> {
    let path = services_path(namespace);
    let list: List = Call::get(path.clone()).ask(client).await?;
    sender.send_modify(|known| {
        let names: BTreeSet<_> = list.items.iter().map(|seen| seen.metadata.name.clone()).collect();
        let gone: Vec<_> =
            known.services.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in gone {
            known.is_gone(&name);
        }
        for seen in &list.items {
            known.is(seen, place);
        }
    });
    let version = list.metadata.resource_version;
    let request = Call::get(format!("{path}?watch=true&resourceVersion={version}")).request()?;
    let mut events = Box::pin(events::<Seen>(client, request, &path).await?);
    while let Some(event) = events.next().await {
        match event.map_err(Error::kube(path.clone()))? {
            WatchEvent::Added(seen) | WatchEvent::Modified(seen) => {
                sender.send_modify(|known| known.is(&seen, place));
            }
            WatchEvent::Deleted(seen) => {
                sender.send_modify(|known| known.is_gone(&seen.metadata.name));
            }
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(_) => break,
        }
    }
    Ok(())
}

/// A watch whose stream names the type it yields, which `impl TryStream` alone does not.
async fn events<T: Clone + DeserializeOwned>(
    client: &Client,
    request: Request<Vec<u8>>,
    path: &str,
) -> Result<impl Stream<Item = kube::Result<WatchEvent<T>>> + use<T>> {
    let events = client.request_events::<T>(request).await.map_err(Error::kube(path))?;
    Ok(events)
}

/// When the first object of a kind appears that matches a selector.
pub(super) async fn first_event(client: Client, path: String) -> Result<Instant> {
    #[derive(Clone, Debug, Deserialize)]
    struct Anything {}
    let request = Call::get(path.clone()).request()?;
    let mut events = Box::pin(events::<Anything>(&client, request, &path).await?);
    match events.next().await {
        Some(event) => event.map(|_| Instant::now()).map_err(Error::kube(path)),
        None => Err(Error::WatchEnded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(name: &str, uid: &str, address: Option<&str>) -> Seen {
        let ingress: Vec<_> =
            address.map(|ip| serde_json::json!({ "ip": ip })).into_iter().collect();
        serde_json::from_value(serde_json::json!({
            "metadata": {
                "name": name, "uid": uid, "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": { "example.com/ip": "10.0.0.9" },
            },
            "status": { "loadBalancer": { "ingress": ingress } },
        }))
        .unwrap()
    }

    #[test]
    fn only_another_address_of_the_same_service_is_a_change() {
        let mut known = Known::default();
        let place = AddressIn::Status;
        known.is(&seen("a", "1", None), &place);
        known.is(&seen("a", "1", Some("10.0.0.1")), &place);
        known.is(&seen("a", "1", Some("10.0.0.1")), &place);
        assert_eq!((known.with_address, known.changed), (1, 0));
        known.is(&seen("a", "2", None), &place);
        known.is(&seen("a", "2", Some("10.0.0.2")), &place);
        assert_eq!((known.with_address, known.changed), (1, 0), "made again");
        known.is(&seen("a", "2", Some("10.0.0.3")), &place);
        assert_eq!((known.with_address, known.changed), (1, 1), "another");
        known.is(&seen("a", "2", None), &place);
        assert_eq!((known.with_address, known.changed), (0, 2), "lost");
        known.is_gone("a");
        assert_eq!((known.with_address, known.changed), (0, 2), "deleted");
    }

    #[test]
    fn the_address_is_found_where_the_allocator_puts_it() {
        for (place, expected) in [
            ("status", Some("10.0.0.1")),
            ("annotation:example.com/ip", Some("10.0.0.9")),
            ("annotation:example.com/other", None),
        ] {
            let parsed: AddressIn = place.parse().unwrap();
            assert_eq!(parsed.to_string(), place);
            assert_eq!(seen("a", "1", Some("10.0.0.1")).address(&parsed), expected, "{place}");
        }
        for wrong in ["", "annotation:", "label:x"] {
            assert!(wrong.parse::<AddressIn>().is_err(), "{wrong}");
        }
    }
}
