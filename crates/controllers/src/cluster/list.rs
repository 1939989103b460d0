//! Lists every kind once, for callers without an operator.

use std::fmt::Debug;

use kube::{
    Api, Client, Resource,
    api::ListParams,
    core::{DeserializeGuard, DynamicObject},
    runtime::watcher::Event,
};
use landfall_api::keys;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{
    Kind, News,
    lean::LeanService,
    watch::{self, API_SERVER_NAMESPACE, API_SERVER_SLICES, PoolMapPlace},
};
use crate::call::{DEADLINE, Failure, failure};

/// Objects per page, as in the lists of most watches: each page has a deadline, and so many objects are
/// sent well within it.
const PER_PAGE: u32 = 500;

/// Why a cluster could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("listing {kind}")]
    Failed { kind: &'static str, source: Box<kube::Error> },
    #[error("listing {kind}: no answer within {} s", DEADLINE.as_secs())]
    NoAnswer { kind: &'static str },
}

/// Lists these kinds, in the order of the watches: claims and the ranges of `ClusterIPs` before Services.
pub(crate) async fn list_all(
    client: &Client,
    kinds: &[Kind],
    map: &PoolMapPlace,
    mut hear: impl FnMut(News),
) -> Result<(), Error> {
    let any = ListParams::default();
    let mut kinds = kinds.to_vec();
    kinds.sort_by_key(|kind| match kind {
        Kind::Claims | Kind::ServiceRanges => 0,
        Kind::Services => 2,
        Kind::IpGroups
        | Kind::PoolMap
        | Kind::Namespaces
        | Kind::Nodes
        | Kind::ApiServers
        | Kind::VirtualIps
        | Kind::Mappings
        | Kind::KeepalivedGroups
        | Kind::Endpoints
        | Kind::Children(_) => 1,
    });
    for kind in kinds {
        match kind {
            Kind::Claims => {
                let api: Api<DeserializeGuard<_>> = Api::all(client.clone());
                list("ips", api, &any, &mut hear, watch::claim_news).await?;
            }
            Kind::Services => {
                let api: Api<LeanService> = Api::all(client.clone());
                list("services", api, &any, &mut hear, watch::service_news).await?;
            }
            Kind::IpGroups => {
                let api: Api<DeserializeGuard<_>> = Api::all(client.clone());
                list("ipgroups", api, &any, &mut hear, watch::pool_news).await?;
            }
            Kind::PoolMap => {
                let named = any.clone().fields(&format!("metadata.name={}", map.name));
                let api = Api::namespaced(client.clone(), &map.namespace);
                let news = |event| watch::map_news(event, &map.classes);
                list("configmaps", api, &named, &mut hear, news).await?;
            }
            Kind::Namespaces => {
                let api = Api::all(client.clone());
                list("namespaces", api, &any, &mut hear, watch::namespace_news).await?;
            }
            Kind::Nodes => {
                let api = Api::all(client.clone());
                list("nodes", api, &any, &mut hear, watch::node_news).await?;
            }
            Kind::ApiServers => {
                let slices = any.clone().labels(API_SERVER_SLICES);
                let api = Api::namespaced(client.clone(), API_SERVER_NAMESPACE);
                list("endpointslices", api, &slices, &mut hear, watch::slice_news).await?;
            }
            Kind::ServiceRanges => {
                let api = Api::all(client.clone());
                list("servicecidrs", api, &any, &mut hear, watch::range_news).await?;
            }
            Kind::VirtualIps => {
                let api: Api<DeserializeGuard<_>> = Api::all(client.clone());
                list("virtualips", api, &any, &mut hear, watch::virtual_ip_news).await?;
            }
            Kind::Mappings => {
                let api: Api<DeserializeGuard<_>> = Api::all(client.clone());
                list("groupsegmentmappings", api, &any, &mut hear, watch::mapping_news).await?;
            }
            Kind::KeepalivedGroups => {
                let api: Api<DeserializeGuard<_>> = Api::all(client.clone());
                list("keepalivedgroups", api, &any, &mut hear, watch::group_news).await?;
            }
            Kind::Endpoints => {
                let api = Api::all(client.clone());
                list("endpointslices", api, &any, &mut hear, watch::endpoint_news).await?;
            }
            Kind::Children(kind) => {
                let labelled = any.clone().labels(keys::LABEL_KEEPALIVED_GROUP);
                let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource());
                let news = |event| watch::child_news(kind, event);
                list(kind.plural(), api, &labelled, &mut hear, news).await?;
            }
        }
    }
    Ok(())
}

/// Lists one kind. A kind that is not installed has no objects.
async fn list<K>(
    kind: &'static str,
    api: Api<K>,
    params: &ListParams,
    hear: &mut impl FnMut(News),
    translate: impl Fn(Event<K>) -> Vec<News>,
) -> Result<(), Error>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let mut hear = |event| translate(event).into_iter().for_each(&mut *hear);
    hear(Event::Init);
    let mut page = params.clone().limit(PER_PAGE);
    loop {
        let list = match timeout(DEADLINE, api.list(&page)).await {
            Ok(Ok(list)) => list,
            Ok(Err(error)) if failure(&error) == Failure::NotFound => break,
            // The API server has forgotten the state that the pages are of. One page of everything is
            // of one state.
            Ok(Err(error)) if is_expired(&error) && page.continue_token.is_some() => {
                hear(Event::Init);
                page = params.clone();
                continue;
            }
            Ok(Err(error)) => return Err(Error::Failed { kind, source: Box::new(error) }),
            Err(_) => return Err(Error::NoAnswer { kind }),
        };
        list.items.into_iter().map(Event::InitApply).for_each(&mut hear);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => break,
        }
    }
    hear(Event::InitDone);
    Ok(())
}

fn is_expired(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 410)
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        sync::{Arc, Mutex},
    };

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::{cluster::classes::Classes, store::Watched};

    /// The status code and the body of an answer.
    type Answer = (u16, Value);

    /// A client whose first calls get these answers and whose other calls get none, and the queries of the
    /// calls.
    fn client(answers: impl IntoIterator<Item = Answer>) -> (Client, Arc<Mutex<Vec<String>>>) {
        let answers = Arc::new(Mutex::new(answers.into_iter().collect::<VecDeque<_>>()));
        let queries = Arc::new(Mutex::new(Vec::new()));
        let asked = Arc::clone(&queries);
        let service = tower::service_fn(move |request: Request<Body>| {
            asked.lock().unwrap().push(request.uri().query().unwrap_or_default().to_owned());
            let answer = answers.lock().unwrap().pop_front();
            async move {
                let Some((code, body)) = answer else { return std::future::pending().await };
                let body = Body::from(serde_json::to_vec(&body).unwrap());
                Ok::<_, tower::BoxError>(Response::builder().status(code).body(body).unwrap())
            }
        });
        (Client::new(service, "default"), queries)
    }

    fn page(names: &[&str], token: &str) -> Answer {
        let items = names.iter().map(|name| json!({"metadata": {"name": name}}));
        let body = json!({
            "apiVersion": "v1", "kind": "NamespaceList",
            "metadata": {"resourceVersion": "7", "continue": token},
            "items": items.collect::<Vec<_>>(),
        });
        (200, body)
    }

    fn refusal(code: u16, reason: &str) -> Answer {
        let status = json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure",
            "code": code, "reason": reason, "message": reason,
        });
        (code, status)
    }

    /// What is told of all namespaces, or why nothing is, and the queries.
    async fn namespaces(
        answers: impl IntoIterator<Item = Answer>,
    ) -> (Result<Vec<String>, Error>, Vec<String>) {
        let (client, queries) = client(answers);
        let mut told = Vec::new();
        let hear = |news| {
            let News::Namespaces(watched) = news else { panic!("{news:?}") };
            told.push(match watched {
                Watched::ListBegins => "begins".to_owned(),
                Watched::Present(name, ..) => name,
                Watched::ListEnds => "ends".to_owned(),
                Watched::Gone(..) | Watched::Unserved => panic!("{watched:?}"),
            });
        };
        let map = PoolMapPlace {
            namespace: "kube-system".to_owned(),
            name: "kubevip".to_owned(),
            classes: Classes::default(),
        };
        let listed = list_all(&client, &[Kind::Namespaces], &map, hear).await;
        let queries = queries.lock().unwrap().clone();
        (listed.map(|()| told), queries)
    }

    #[tokio::test]
    async fn a_list_is_read_page_by_page() {
        let answers = [page(&["a", "b"], "more"), page(&["c"], "")];
        let (told, queries) = namespaces(answers).await;
        assert_eq!(told.unwrap(), ["begins", "a", "b", "c", "ends"]);
        assert!(
            queries[0].contains("limit=500") && !queries[0].contains("continue"),
            "{queries:?}"
        );
        assert!(queries[1].contains("limit=500&continue=more"), "{queries:?}");
    }

    #[tokio::test]
    async fn a_list_whose_pages_have_expired_is_read_again_as_a_whole() {
        let answers =
            [page(&["a", "b"], "old"), refusal(410, "Expired"), page(&["a", "b", "c"], "")];
        let (told, queries) = namespaces(answers).await;
        assert_eq!(told.unwrap(), ["begins", "a", "b", "begins", "a", "b", "c", "ends"]);
        assert!(!queries[2].contains("limit") && !queries[2].contains("continue"), "{queries:?}");
    }

    #[tokio::test]
    async fn a_kind_that_is_not_installed_has_no_objects() {
        let (told, _) = namespaces([refusal(404, "NotFound")]).await;
        assert_eq!(told.unwrap(), ["begins", "ends"]);
    }

    #[tokio::test(start_paused = true)]
    async fn each_page_has_a_deadline() {
        for answers in [vec![], vec![page(&["a"], "more")]] {
            let (told, _) = namespaces(answers).await;
            assert_eq!(told.unwrap_err().to_string(), "listing namespaces: no answer within 10 s");
        }
    }

    #[tokio::test]
    async fn a_list_that_is_refused_is_an_error() {
        let (told, queries) = namespaces([refusal(410, "Expired")]).await;
        assert!(matches!(told, Err(Error::Failed { kind: "namespaces", .. })), "{told:?}");
        assert_eq!(queries.len(), 1);
    }
}
