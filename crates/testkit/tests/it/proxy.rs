use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, join_all, select};
use futures::{Stream, TryStreamExt};
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use landfall_testkit::control_plane::client_from;
use landfall_testkit::proxy::{Action, Record};
use landfall_testkit::{Proxy, shared};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);
/// How long nothing must happen before we believe that nothing does.
const QUIET: Duration = Duration::from_millis(300);

/// What the operator side of a proxy can reach, and the truth beside it.
struct Stage {
    proxy: Proxy,
    client: Client,
    maps: Api<ConfigMap>,
    truth: Api<ConfigMap>,
}

/// A namespace of its own on the shared control plane, and a `ServiceAccount` that may do
/// everything and reaches it only through the proxy.
async fn stage(namespace: &str) -> Stage {
    let plane = shared().await.unwrap();
    let proxy = Proxy::start(plane).await.unwrap();
    let path =
        plane.service_account_kubeconfig_via(namespace, "operator", &proxy.url()).await.unwrap();
    plane
        .apply_yaml(&format!(
            "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{ name: {namespace} }}
roleRef: {{ apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin }}
subjects: [{{ kind: ServiceAccount, namespace: {namespace}, name: operator }}]
"
        ))
        .await
        .unwrap();
    let client = client_from(&path).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    // The authorizer learns of the binding by a watch of its own.
    landfall_testkit::wait::until("the right to list", DEADLINE, async || {
        maps.list(&ListParams::default()).await
    })
    .await
    .unwrap();
    let truth = Api::namespaced(plane.admin_client().await.unwrap(), namespace);
    Stage { proxy, client, maps, truth }
}

fn map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

async fn create(maps: &Api<ConfigMap>, name: &str) -> kube::Result<ConfigMap> {
    timeout(DEADLINE, maps.create(&PostParams::default(), &map(name))).await.unwrap()
}

async fn next_name(
    events: &mut (impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Unpin),
) -> String {
    loop {
        let event = events.try_next().await.unwrap().expect("a watch goes on");
        // Bookmarks come whenever the API server likes.
        if let WatchEvent::Added(map) = event {
            return map.name_any();
        }
    }
}

fn creates_maps(request: &Record) -> bool {
    request.method == Method::POST && request.is_for("configmaps")
}

async fn names(maps: &Api<ConfigMap>) -> Vec<String> {
    maps.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect()
}

#[tokio::test]
async fn watch_streams_through_and_everything_is_recorded() {
    let Stage { proxy, maps, truth, .. } = stage("proxy-watch").await;
    let mark = proxy.mark();
    let mut events = pin!(maps.watch(&WatchParams::default(), "0").await.unwrap());
    for name in ["one", "two"] {
        create(&truth, name).await.unwrap();
        assert_eq!(timeout(DEADLINE, next_name(&mut events)).await.unwrap(), name);
    }
    let seen = proxy.requests_since(mark);
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].is_watch() && !seen[0].is_write() && seen[0].forwarded);
    assert_eq!(seen[0].path, "/api/v1/namespaces/proxy-watch/configmaps");
    assert_eq!(seen[0].status, Some(StatusCode::OK));
}

#[tokio::test]
async fn lost_reply_leaves_the_deed_done() {
    let Stage { proxy, maps, truth, .. } = stage("proxy-lost").await;
    proxy.once(creates_maps, Action::LoseReply);
    create(&maps, "done").await.unwrap_err();
    assert_eq!(names(&truth).await, ["done"]);
    let again = create(&maps, "done").await.unwrap_err();
    assert!(matches!(&again, kube::Error::Api(s) if s.is_already_exists()), "{again}");
    let statuses: Vec<_> = proxy.work().iter().map(|request| request.status).collect();
    assert_eq!(statuses, [Some(StatusCode::CREATED), Some(StatusCode::CONFLICT)]);
}

#[tokio::test]
async fn rule_answers_in_place_of_the_api_server() {
    let Stage { proxy, maps, truth, .. } = stage("proxy-answer").await;
    proxy.once(creates_maps, Action::Answer(StatusCode::SERVICE_UNAVAILABLE));
    let refused = create(&maps, "refused").await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 503), "{refused}");
    assert!(names(&truth).await.is_empty());
    create(&maps, "passed").await.unwrap();
    let forwarded: Vec<_> = proxy.work().iter().map(|request| request.forwarded).collect();
    assert_eq!(forwarded, [false, true]);
}

#[tokio::test]
async fn rule_holds_a_request_or_its_reply_until_the_thaw() {
    let Stage { proxy, maps, truth, .. } = stage("proxy-hold").await;
    for (name, action, done_meanwhile) in
        [("frozen", Action::Freeze, false), ("held", Action::HoldReply, true)]
    {
        let mark = proxy.mark();
        proxy.once(creates_maps, action);
        let mut creation = pin!(create(&maps, name));
        let arrives = landfall_testkit::wait::until("the request", DEADLINE, async || {
            let done = |request: &Record| request.status == Some(StatusCode::CREATED);
            proxy.requests_since(mark).iter().any(|request| done(request) == done_meanwhile)
        });
        match select(&mut creation, pin!(arrives)).await {
            Either::Left((heard, _)) => panic!("{name}: {heard:?}"),
            Either::Right((arrived, _)) => arrived.unwrap(),
        }
        timeout(QUIET, &mut creation).await.unwrap_err();
        assert_eq!(truth.get_opt(name).await.unwrap().is_some(), done_meanwhile, "{name}");
        proxy.thaw();
        creation.await.unwrap();
    }
}

#[tokio::test]
async fn stop_lets_through_exactly_as_many_writes_as_asked_for() {
    let Stage { proxy, client, maps, truth } = stage("proxy-stop").await;
    let mut done = 0;
    for allowed in [0, 1, 3] {
        proxy.stop_after(allowed, Record::is_work);
        let names: Vec<_> = (0..8).map(|n| format!("{allowed}-{n}")).collect();
        let outcomes = join_all(names.iter().map(|name| create(&maps, name))).await;
        timeout(DEADLINE, proxy.stopped()).await.unwrap();
        let heard = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert!(heard < allowed.max(1), "the last reply must not arrive: {outcomes:?}");
        done += allowed;
        assert_eq!(self::names(&truth).await.len(), done);

        client.apiserver_version().await.unwrap_err();
        proxy.resume();
        client.apiserver_version().await.unwrap();
    }
}

#[tokio::test]
async fn freeze_keeps_connections_and_lets_nothing_flow() {
    let Stage { proxy, maps, truth, .. } = stage("proxy-freeze").await;
    let mut events = pin!(maps.watch(&WatchParams::default(), "0").await.unwrap());
    create(&truth, "before").await.unwrap();
    assert_eq!(timeout(DEADLINE, next_name(&mut events)).await.unwrap(), "before");
    let mark = proxy.mark();

    proxy.freeze_all();
    create(&truth, "during").await.unwrap();
    let mut event = pin!(next_name(&mut events));
    let mut creation = pin!(create(&maps, "asked"));
    assert!(timeout(QUIET, select(&mut event, &mut creation)).await.is_err(), "frozen");
    assert_eq!(names(&truth).await, ["before", "during"]);

    proxy.thaw();
    assert_eq!(timeout(DEADLINE, event).await.unwrap(), "during");
    creation.await.unwrap();
    assert_eq!(proxy.requests_since(mark).len(), 1, "the watch went on without asking again");
}

#[tokio::test]
async fn a_denied_or_halved_reply_leaves_the_deed_done() {
    let Stage { proxy, maps, truth, .. } = stage("proxy-denied").await;
    proxy.once(creates_maps, Action::Deny(StatusCode::GATEWAY_TIMEOUT));
    let denied = create(&maps, "denied").await.unwrap_err();
    assert!(matches!(&denied, kube::Error::Api(status) if status.code == 504), "{denied}");
    proxy.once(creates_maps, Action::HalveReply);
    let halved = create(&maps, "halved").await.unwrap_err();
    assert!(!matches!(&halved, kube::Error::Api(_)), "{halved}");
    assert_eq!(names(&truth).await, ["denied", "halved"]);
    let harm: Vec<_> = proxy.harm().into_iter().collect();
    let expected = [("done, then answered 504".to_owned(), 1), ("reply cut".to_owned(), 1)];
    assert_eq!(harm, expected);
}

#[tokio::test]
async fn a_watch_is_expired_cut_or_held_back() {
    let Stage { proxy, maps, truth, .. } = stage("proxy-expired").await;
    create(&truth, "one").await.unwrap();
    let watch = async |action| {
        proxy.once(Record::is_watch, action);
        maps.watch(&WatchParams::default(), "0").await.map(Box::pin)
    };
    let refused = watch(Action::Answer(StatusCode::GONE)).await.err().unwrap();
    assert!(matches!(&refused, kube::Error::Api(s) if s.code == 410), "{refused}");
    let mut expired = watch(Action::Expire).await.unwrap();
    let event = timeout(DEADLINE, expired.try_next()).await.unwrap().unwrap();
    assert!(matches!(&event, Some(WatchEvent::Error(status)) if status.code == 410), "{event:?}");
    // The cut may come before the beginning was sent.
    if let Ok(mut halved) = watch(Action::HalveReply).await {
        let cut = timeout(DEADLINE, halved.try_next()).await.unwrap();
        assert!(!matches!(cut, Ok(Some(_))), "half an event is none: {cut:?}");
    }
    assert_eq!(proxy.harm()["reply cut"], 1);

    let hold = Duration::from_secs(2);
    let begin = std::time::Instant::now();
    let mut held = watch(Action::HoldStream(hold)).await.unwrap();
    assert_eq!(timeout(DEADLINE, next_name(&mut held)).await.unwrap(), "one");
    assert!(begin.elapsed() >= hold, "{:?}", begin.elapsed());
    // Late by the same time, not by a time for each: all are on their way at once.
    let names: Vec<_> = (0..8).map(|n| format!("late-{n}")).collect();
    for name in &names {
        create(&truth, name).await.unwrap();
    }
    let begin = std::time::Instant::now();
    for name in &names {
        assert_eq!(timeout(DEADLINE, next_name(&mut held)).await.unwrap(), *name);
    }
    assert!(begin.elapsed() < 6 * hold, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_list_can_be_served_as_it_was() {
    let Stage { proxy, maps, truth, .. } = stage("proxy-stale").await;
    proxy.once(Record::is_list, Action::ReplayList);
    assert!(names(&maps).await.is_empty(), "nothing to replay: the truth");
    create(&truth, "new").await.unwrap();
    assert_eq!(names(&maps).await, ["new"]);
    proxy.once(Record::is_list, Action::ReplayList);
    let stale = maps.list(&ListParams::default()).await.unwrap();
    assert!(stale.items.is_empty(), "as it was remembered");
    let version = stale.metadata.resource_version.unwrap();
    let mut events = pin!(maps.watch(&WatchParams::default(), &version).await.unwrap());
    assert_eq!(timeout(DEADLINE, next_name(&mut events)).await.unwrap(), "new");
    assert_eq!(proxy.harm().into_values().sum::<u64>(), 1, "{:?}", proxy.harm());
}
