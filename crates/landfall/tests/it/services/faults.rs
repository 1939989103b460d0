//! A network and an API server that refuse calls, lose answers and misreport outcomes.

use std::time::Duration;

use http::{Method, StatusCode};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use landfall_testkit::builders::{ServiceBuilder as _, load_balancer, pool};
use landfall_testkit::cluster::{Recorder, Snapshot};
use landfall_testkit::proxy::faults::{Plan, Rates};
use landfall_testkit::proxy::{Action, Record};
use landfall_testkit::{Operator, wait};
use rstest::rstest;

use super::many::{all_served, burst, churn};
use crate::stage::{Dialect, LONG, arena, claims_are_refused};

/// 409, 429, 500, 504, 410, an expired watch, one held back, a cut, a lost, a denied, a late reply
/// and a list from the past.
const KINDS_OF_HARM: usize = 12;

fn takes(request: &Record) -> bool {
    request.is_for("ips") && request.method == Method::POST
}

fn touches(request: &Record) -> bool {
    request.is_for("ips") && request.method == Method::PATCH
}

fn publishes(request: &Record) -> bool {
    request.is_for("services") && request.method == Method::PATCH
}

fn releases(request: &Record) -> bool {
    request.is_for("ips") && request.method == Method::DELETE
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_ledger_is_told_in_the_api_servers_words_and_tried_again() {
    let arena = arena().await;
    let tenant = arena.tenant("fault-rbac").await;
    let roles: Api<ClusterRole> = Api::all(tenant.client.clone());
    let whole = roles.get("landfall-operator").await.unwrap();
    let mut less = whole.clone();
    for rule in less.rules.iter_mut().flatten() {
        if rule.resources.as_ref().is_some_and(|all| all.iter().any(|one| one == "ips")) {
            rule.verbs.retain(|verb| verb != "create");
        }
    }
    assert_ne!(less.rules, whole.rules);
    let less = roles.replace("landfall-operator", &PostParams::default(), &less).await.unwrap();

    claims_are_refused(&arena.operators_client().await).await;
    tenant.pool(pool("fault-rbac", &["10.10.1.0/29"])).await;
    let operator = arena.operator().await;
    tenant.create(load_balancer("web")).await;
    let words = "cannot create resource \"ips\" in API group \"paas.org\" at the cluster scope";
    tenant.says("web", "False", "LedgerRefused", words).await;
    tenant.tells("web", "LedgerRefused", "the claim cannot be written").await;
    assert!(Snapshot::take(&tenant.client).await.unwrap().claims.is_empty());

    let mut granted = less;
    granted.rules = whole.rules;
    roles.replace("landfall-operator", &PostParams::default(), &granted).await.unwrap();
    tenant.shows("web", &["10.10.1.0"]).await;
    tenant.says("web", "True", "Allocated", "").await;
    tenant.settled().await;
    drop(operator);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_never_costs_a_second_address(
    #[values(Dialect::Groups, Dialect::KubeVip)] dialect: Dialect,
) {
    let arena = arena().await;
    let tenant = arena.tenant("fault-lost").await;
    tenant.addresses(dialect, &["10.10.2.1-10.10.2.250"]).await;
    let recorder = Recorder::start(&tenant.client).await.unwrap();
    let proxy = arena.proxy().await;
    let operator = arena.operator_via(&proxy).await;
    operator.wait_ready(LONG).await.unwrap();

    let mut next = 1;
    let mut has = vec![];
    for (case, filter) in [("create", takes as fn(&Record) -> bool), ("publish", publishes)] {
        for times in 1..4 {
            let name = format!("{case}{times}");
            for _ in 0..times {
                proxy.once(filter, Action::LoseReply);
            }
            let mark = proxy.mark();
            tenant.create(load_balancer(&name)).await;
            tenant.shows(&name, &[&format!("10.10.2.{next}")]).await;
            has.push((name, next));
            next += 1;
            let made = proxy.requests_since(mark);
            let made = made.iter().filter(|r| takes(r) && r.status == Some(StatusCode::CREATED));
            assert_eq!(made.count(), 1, "{case}");
            proxy.clear_rules();
        }
    }
    // A request changes while replies are lost; the old address is released although it seemed not.
    proxy.once(takes, Action::LoseReply);
    proxy.once(publishes, Action::LoseReply);
    proxy.once(releases, Action::LoseReply);
    tenant.ask("create1", "10.10.2.200").await;
    tenant.shows("create1", &["10.10.2.200"]).await;
    tenant.claim_is_gone("10.10.2.1").await;
    // A deletion whose reply is lost does not make it release an address that another Service has by then.
    proxy.once(releases, Action::LoseReply);
    tenant.delete("create2").await;
    tenant.claim_is_gone("10.10.2.2").await;
    tenant.create(load_balancer("after").asking("10.10.2.2")).await;
    tenant.shows("after", &["10.10.2.2"]).await;
    // A claim retained for a Service is touched before its address is published again.
    proxy.once(touches, Action::LoseReply);
    tenant.wipe(dialect, "create3").await;
    tenant.shows("create3", &["10.10.2.3"]).await;
    all_served(&tenant).await;
    let seen = Snapshot::take(&tenant.client).await.unwrap();
    assert_eq!(seen.claims.len(), 6);
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.problems(), Vec::<String>::new());
    assert_eq!(history.moved().len(), 1, "only what was asked for: {:?}", history.moved());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_comes_too_late_is_not_believed() {
    let arena = arena().await;
    let tenant = arena.tenant("fault-late").await;
    tenant.pool(pool("fault-late", &["10.10.3.0/29"])).await;
    let proxy = arena.proxy().await;
    let operator = arena.operator_via(&proxy).await;
    operator.wait_ready(LONG).await.unwrap();
    // Done, and answered too late: past the deadline of the call.
    proxy.once(takes, Action::HoldReply);
    tenant.create(load_balancer("done")).await;
    tenant.shows("done", &["10.10.3.0"]).await;
    // Not done until long after the operator gave up on it, when the address is another's.
    proxy.once(takes, Action::Freeze);
    tenant.create(load_balancer("frozen").asking("10.10.3.1")).await;
    tenant.shows("frozen", &["10.10.3.1"]).await;
    tenant.delete("frozen").await;
    tenant.claim_is_gone("10.10.3.1").await;
    tenant.create(load_balancer("other").asking("10.10.3.1")).await;
    tenant.shows("other", &["10.10.3.1"]).await;
    proxy.thaw();
    all_served(&tenant).await;
    drop(operator);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn errors_on_any_write_are_got_over(
    #[values(Dialect::Groups, Dialect::KubeVip)] dialect: Dialect,
) {
    let arena = arena().await;
    let tenant = arena.tenant("fault-errors").await;
    tenant.addresses(dialect, &["10.10.4.0/24"]).await;
    let recorder = Recorder::start(&tenant.client).await.unwrap();
    let proxy = arena.proxy().await;
    // A third of all writes, and some of the live reads that find out their outcome.
    proxy.suffer(Plan::new(11, Rates { refused: 4, lost: 12, unreadable: 8, ..Rates::default() }));
    let operator = arena.operator_via(&proxy).await;
    let names: Vec<_> = (0..60).map(|n| format!("s{n:02}")).collect();
    burst(&tenant, names.clone()).await;
    churn(&tenant, &names, "10.10.4", 100, 3).await;
    all_served(&tenant).await;
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.problems(), Vec::<String>::new());
    assert!(operator.is_running());
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn broken_watches_miss_nothing(
    #[values(Dialect::Groups, Dialect::KubeVip)] dialect: Dialect,
) {
    let arena = arena().await;
    let tenant = arena.tenant("fault-watches").await;
    tenant.addresses(dialect, &["10.10.5.0/24"]).await;
    let recorder = Recorder::start(&tenant.client).await.unwrap();
    let proxy = arena.proxy().await;
    let operator = arena.operator_via(&proxy).await;
    operator.wait_ready(LONG).await.unwrap();
    let names: Vec<_> = (0..60).map(|n| format!("s{n:02}")).collect();
    burst(&tenant, names.clone()).await;
    for seed in 0..6 {
        proxy.cut_connections();
        churn(&tenant, &names, "10.10.5", 40, seed).await;
    }
    all_served(&tenant).await;

    // Nothing gets through while much is deleted and created again.
    proxy.freeze_all();
    churn(&tenant, &names, "10.10.5", 60, 99).await;
    proxy.cut_connections();
    proxy.thaw();
    all_served(&tenant).await;
    wait::until("an operator that still works", LONG, async || operator.is_running())
        .await
        .unwrap();
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.problems(), Vec::<String>::new());
}

/// Everything that a network can do at once: late and reordered watches, cut answers, refusals,
/// denials of what was done, expired versions, lists from the past.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_network_doubles_nothing_and_loses_nothing(
    #[values(Dialect::Groups, Dialect::KubeVip)] dialect: Dialect,
) {
    let arena = arena().await;
    let tenant = arena.tenant("fault-network").await;
    tenant.addresses(dialect, &["10.10.8.0/24"]).await;
    let recorder = Recorder::start(&tenant.client).await.unwrap();
    let proxy = arena.proxy().await;
    proxy.suffer(Plan::new(5, Rates::BAD));
    let operator = arena.operator_via(&proxy).await;
    let names: Vec<_> = (0..60).map(|n| format!("s{n:02}")).collect();
    burst(&tenant, names.clone()).await;
    for seed in 0..6 {
        // Watches begin again, and with them the lists; that is where old lists come in.
        proxy.cut_connections();
        churn(&tenant, &names, "10.10.8", 40, seed).await;
    }
    wait::until("every kind of fault", LONG, async || {
        let harm = proxy.harm();
        if harm.len() >= KINDS_OF_HARM {
            return Ok(());
        }
        proxy.cut_connections();
        churn(&tenant, &names, "10.10.8", 20, harm.len() as u64).await;
        Err(format!("{harm:?}"))
    })
    .await
    .unwrap();
    proxy.clear_rules();
    proxy.cut_connections();
    all_served(&tenant).await;
    wait::until("an operator at rest", LONG, async || proxy.idle() > Duration::from_secs(2))
        .await
        .unwrap();
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.problems(), Vec::<String>::new());
    assert!(operator.is_running());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_the_api_server_is_got_over() {
    let arena = arena().await;
    let tenant = arena.tenant("fault-apiserver").await;
    tenant.pool(pool("fault-apiserver", &["10.10.6.0/24"])).await;
    let operators = [arena.operator().await, arena.operator().await];
    for round in 0..2 {
        burst(&tenant, (0..30).map(|n| format!("r{round}-{n:02}"))).await;
        arena.crash_apiserver().await;
        let seen = all_served(&tenant).await;
        assert_eq!(seen.shown().len(), 30 * (round + 1));
    }
    assert!(operators.iter().all(Operator::is_running));
}

/// Section 14 of the specification: the original's webhook outlives it and refuses every write.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_refuses_claims_is_named_and_got_over_once_it_is_gone() {
    let arena = arena().await;
    let tenant = arena.tenant("fault-webhook").await;
    tenant.pool(pool("fault-webhook", &["10.10.7.0/29"])).await;
    let operator = arena.operator().await;
    tenant.create(load_balancer("before")).await;
    tenant.shows("before", &["10.10.7.0"]).await;
    arena.apply(WEBHOOK).await;
    claims_are_refused(&tenant.client).await;

    tenant.create(load_balancer("web")).await;
    tenant.says("web", "False", "LedgerRefused", "failed calling webhook \"vip.kb.io\"").await;
    tenant.tells("web", "LedgerRefused", "vip.kb.io").await;
    tenant.delete("before").await;
    // Others do not suffer: everything that needs no claim is still done.
    tenant.create(load_balancer("garbage").asking("here")).await;
    tenant.says("garbage", "False", "Unparseable", "").await;

    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(tenant.client.clone());
    webhooks.delete("vip-allocator-operator", &DeleteParams::default()).await.unwrap();
    tenant.shows_something("web").await;
    tenant.claim_is_gone("10.10.7.0").await;
    tenant.settled().await;
    drop(operator);
}

const WEBHOOK: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: { name: vip-allocator-operator }
webhooks:
- name: vip.kb.io
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: { url: 'https://127.0.0.1:1/validate-paas-org-v1-ip' }
  rules:
  - { apiGroups: [paas.org], apiVersions: [v1], resources: [ips], operations: [CREATE, UPDATE, DELETE] }
";

/// All claims go with their kind. Addresses on Services are not touched, and are claimed again.
#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_itself_is_gone_and_comes_back() {
    let arena = arena().await;
    let tenant = arena.tenant("fault-kind").await;
    tenant.pool(pool("fault-kind", &["10.10.9.0/28"])).await;
    let operator = arena.operator().await;
    burst(&tenant, (0..5).map(|n| format!("s{n}"))).await;
    let before = all_served(&tenant).await.shown();
    arena.remove_kind("ips.paas.org").await;
    tenant.create(load_balancer("waits")).await;
    tenant.says("waits", "False", "LedgerRefused", "apply deploy/crds").await;
    arena.install_kind("ips.paas.org").await;
    tenant.shows_something("waits").await;
    let mut after = tenant.settled().await.shown();
    after.remove("fault-kind/waits");
    assert_eq!(after, before);
    drop(operator);
}
