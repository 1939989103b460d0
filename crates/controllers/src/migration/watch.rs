//! Watches: each turns the objects of its kind into news for the planner.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, Client, Resource, ResourceExt as _,
    core::DeserializeGuard,
    runtime::watcher::{Config, Event},
};
use landfall_api::{GroupSegmentMapping, IP, IPGroup, VirtualIP, name};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{self, error::SendError};

use super::{observe, planner::News};
use crate::{
    kinds::{self, Served},
    ledger::object as claim,
    object::{ObjectKey, Version},
    readiness::Listed,
    store::Watched,
    watch::feed,
};

/// Watches `VirtualIPs` while their kind is served: their claims can outlive it.
pub(super) async fn virtual_ips(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
    served: Served,
) {
    let api: Api<DeserializeGuard<VirtualIP>> = Api::all(client);
    let watching = || async {
        let read = |object: DeserializeGuard<VirtualIP>| {
            let gone = (ObjectKey::of(object.meta()), Version::of(object.meta()));
            // One that cannot be read counts as absent.
            match observe::virtual_ip(object) {
                Some(view) => Watched::Present(view.key.clone(), view.version, view),
                None => Watched::Gone(gone.0, gone.1),
            }
        };
        let watch = (api.clone(), Config::default());
        let (news, listed) = (news.clone(), listed.clone());
        kind("virtualips", watch, news, listed, News::VirtualIps, read).await;
    };
    let none = || async {
        news.send(News::NoVirtualIps).await?;
        listed.done();
        Ok::<(), SendError<News>>(())
    };
    kinds::whenever_served(served, watching, none).await;
}

/// Watches mappings while their kind is served: without it there are none.
pub(super) async fn mappings(
    client: Client,
    news: mpsc::Sender<News>,
    listed: Listed,
    served: Served,
) {
    let api: Api<DeserializeGuard<GroupSegmentMapping>> = Api::all(client);
    let watching = || async {
        let read = |object: DeserializeGuard<GroupSegmentMapping>| {
            let view = observe::mapping(&object);
            Watched::Present(view.name.clone(), view.version, view)
        };
        let watch = (api.clone(), Config::default());
        let (news, listed) = (news.clone(), listed.clone());
        kind("groupsegmentmappings", watch, news, listed, News::Mappings, read).await;
    };
    let none = || async {
        for item in [Watched::ListBegins, Watched::ListEnds] {
            news.send(News::Mappings(item)).await?;
        }
        listed.done();
        Ok::<(), SendError<News>>(())
    };
    kinds::whenever_served(served, watching, none).await;
}

pub(super) async fn groups(client: Client, news: mpsc::Sender<News>, listed: Listed) {
    let api: Api<DeserializeGuard<IPGroup>> = Api::all(client);
    let read = |object: DeserializeGuard<IPGroup>| {
        let view = observe::pool(&object);
        Watched::Present(view.name.clone(), view.version, Box::new(view))
    };
    kind("ipgroups", (api, Config::default()), news, listed, News::Groups, read).await;
}

pub(super) async fn claims(client: Client, news: mpsc::Sender<News>, listed: Listed) {
    let api: Api<DeserializeGuard<IP>> = Api::all(client);
    feed("ips", (api, Config::default()), news, listed, |event| {
        let watched = match event {
            Event::Init => Some(Watched::ListBegins),
            Event::InitDone => Some(Watched::ListEnds),
            Event::Apply(ip) | Event::InitApply(ip) => {
                claim::read(&ip).map(|claim| Watched::Present(claim.addr, claim.version, claim))
            }
            Event::Delete(ip) => {
                let version = Version::of(ip.meta());
                name::parse(&ip.name_any()).ok().map(|addr| Watched::Gone(addr, version))
            }
        };
        watched.map(News::Claims).into_iter().collect()
    })
    .await;
}

pub(super) async fn services(client: Client, news: mpsc::Sender<News>, listed: Listed) {
    let read = |object: Service| {
        let key: ObjectKey = ObjectKey::of(&object.metadata);
        Watched::Present(key, Version::of(&object.metadata), Box::new(observe::service(object)))
    };
    let watch = (Api::<Service>::all(client), Config::default());
    kind("services", watch, news, listed, News::Services, read).await;
}

/// A watch whose objects all count.
async fn kind<K, Id, View>(
    name: &'static str,
    watch: (Api<K>, Config),
    news: mpsc::Sender<News>,
    listed: Listed,
    wrap: impl Fn(Watched<Id, View>) -> News,
    read: impl Fn(K) -> Watched<Id, View>,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    feed(name, watch, news, listed, |event| {
        vec![wrap(match event {
            Event::Init => Watched::ListBegins,
            Event::InitDone => Watched::ListEnds,
            Event::Apply(object) | Event::InitApply(object) => read(object),
            Event::Delete(object) => match read(object) {
                Watched::Present(id, version, _) | Watched::Gone(id, version) => {
                    Watched::Gone(id, version)
                }
                other @ (Watched::ListBegins | Watched::ListEnds) => other,
            },
        })]
    })
    .await;
}
