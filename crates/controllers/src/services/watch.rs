//! Watches: each turns its kind's objects into news for the planner, and nothing else.

use std::{fmt::Debug, future::Future};

use futures::{StreamExt as _, TryStream, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::{
    Api, Client,
    core::{DeserializeGuard, PartialObjectMeta},
    runtime::{
        WatchStreamExt as _, watcher,
        watcher::{Config, Event},
    },
};
use landfall_api::{IP, IPGroup, name};
use landfall_ipam::PoolName;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::{
    observe,
    plan::{News, Watched},
};
use crate::readiness::Listed;

/// Watches claims.
pub(super) fn claims(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> {
    let api: Api<DeserializeGuard<IP>> = Api::all(client);
    feed("ips", watcher(api, Config::default()), news, listed, |event| {
        let addr = |ip: &DeserializeGuard<IP>| match &ip.0 {
            Ok(ip) => name::parse(ip.metadata.name.as_deref()?).ok(),
            Err(invalid) => name::parse(invalid.metadata.name.as_deref()?).ok(),
        };
        let version = |ip: &DeserializeGuard<IP>| match &ip.0 {
            Ok(ip) => observe::version(&ip.metadata),
            Err(invalid) => observe::version(&invalid.metadata),
        };
        Some(News::Claims(match event {
            Event::Init => Watched::ListBegins,
            Event::InitDone => Watched::ListEnds,
            Event::Apply(ip) | Event::InitApply(ip) => {
                let claim = observe::claim(&ip)?;
                Watched::Is(claim.addr, claim.version, claim)
            }
            Event::Delete(ip) => Watched::IsNot(addr(&ip)?, version(&ip)),
        }))
    })
}

/// Watches Services; those that are not of type `LoadBalancer` count as absent.
pub(super) fn services(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> {
    let api: Api<Service> = Api::all(client);
    feed("services", watcher(api, Config::default()), news, listed, |event| {
        Some(News::Services(match event {
            Event::Init => Watched::ListBegins,
            Event::InitDone => Watched::ListEnds,
            Event::Apply(object) | Event::InitApply(object) => match observe::service(&object) {
                Some(view) => Watched::Is(view.key.clone(), view.version, view),
                None => gone(&object),
            },
            Event::Delete(object) => gone(&object),
        }))
    })
}

fn gone<V>(object: &Service) -> Watched<super::view::ServiceKey, V> {
    Watched::IsNot(observe::service_key(&object.metadata), observe::version(&object.metadata))
}

/// Watches pools.
pub(super) fn pools(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> {
    let api: Api<DeserializeGuard<IPGroup>> = Api::all(client);
    feed("ipgroups", watcher(api, Config::default()), news, listed, |event| {
        let is = |group| {
            let view = observe::pool(&group);
            (view.name.clone(), view.version, view)
        };
        Some(News::Pools(match event {
            Event::Init => Watched::ListBegins,
            Event::InitDone => Watched::ListEnds,
            Event::Apply(group) | Event::InitApply(group) => {
                let (name, version, view): (PoolName, _, _) = is(group);
                Watched::Is(name, version, Box::new(view))
            }
            Event::Delete(group) => {
                let (name, version, _) = is(group);
                Watched::IsNot(name, version)
            }
        }))
    })
}

/// Watches the labels of namespaces, and nothing else of them.
pub(super) fn namespaces(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
) -> impl Future<Output = ()> {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(client);
    feed("namespaces", watcher(api, Config::default()), news, listed, |event| {
        let key = |meta: &PartialObjectMeta<Namespace>| {
            (meta.metadata.name.clone().unwrap_or_default(), observe::version(&meta.metadata))
        };
        Some(News::Namespaces(match event {
            Event::Init => Watched::ListBegins,
            Event::InitDone => Watched::ListEnds,
            Event::Apply(meta) | Event::InitApply(meta) => {
                let (name, version) = key(&meta);
                Watched::Is(name, version, meta.metadata.labels.unwrap_or_default())
            }
            Event::Delete(meta) => {
                let (name, version) = key(&meta);
                Watched::IsNot(name, version)
            }
        }))
    })
}

/// Passes on what a watch tells, for ever; ends only when nobody listens any more.
async fn feed<K, S>(
    kind: &'static str,
    stream: S,
    news: mpsc::Sender<News>,
    listed: Listed,
    translate: impl Fn(Event<K>) -> Option<News>,
) where
    S: TryStream<Ok = Event<K>, Error = watcher::Error> + Send,
    K: Debug,
{
    let mut stream = Box::pin(stream.into_stream().default_backoff());
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => {
                let done = matches!(event, Event::InitDone);
                if let Some(item) = translate(event)
                    && news.send(item).await.is_err()
                {
                    return;
                }
                if done {
                    debug!(kind, "listed");
                    listed.done();
                }
            }
            Err(error) => {
                warn!(kind, error = &error as &dyn std::error::Error, "watch failed; it goes on");
            }
        }
    }
}
