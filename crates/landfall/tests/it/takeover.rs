//! Clusters as other programs left them, recorded from the running programs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::{Api, ResourceExt as _};
use landfall_api::{IP, IPGroup, condition, keys, name};
use landfall_testkit::builders::{PoolBuilder as _, load_balancer, original_claim, pool};
use landfall_testkit::cluster::{self, Recorder, Snapshot, shown};
use landfall_testkit::{Operator, Recording, wait};
use rstest::rstest;

use crate::guide::{self, Guide};
use crate::kube_vip::{Map, deploy, deployed};
use crate::stage::{Arena, LONG, allocated, claims_are_refused, ip, unharmed_arena, writes_only};

mod provider;

/// The expected changes of a recorded cluster. Everything else stays as it is.
#[derive(Default)]
struct Fate {
    /// Services that get an address they did not show, or another because they ask for it.
    get: &'static [(&'static str, &'static str)],
    /// Services that wait, and why.
    wait: &'static [(&'static str, &'static str)],
    /// Services whose deletion was stuck.
    go: &'static [&'static str],
    /// Addresses that are free in the end.
    free: &'static [&'static str],
    /// Services that do not concern us.
    foreign: &'static [&'static str],
    /// Addresses that were given twice, which is reported and left so.
    doubled: &'static [&'static str],
}

fn recording(file: &str) -> Recording {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(file);
    Recording::load(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn key(object: &DynamicObject) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// The recorded Services of type `LoadBalancer` that are not being deleted, and what they show.
fn recorded(recording: &Recording) -> BTreeMap<String, Vec<String>> {
    let living = recording.items().iter().filter(|object| {
        object.data["spec"]["type"] == "LoadBalancer"
            && object.metadata.deletion_timestamp.is_none()
    });
    living.map(|object| (key(object), words_shown(&as_service(object)))).collect()
}

fn as_service(object: &DynamicObject) -> Service {
    serde_json::from_value(serde_json::to_value(object).unwrap()).unwrap()
}

/// The addresses a Service shows, as written: in the annotation that kube-vip reads, if it has one, else in
/// its status.
fn words_shown(service: &Service) -> Vec<String> {
    let annotation = service.annotations().get(keys::ANNOTATION_KUBE_VIP_ADDRESSES);
    if let Some(text) = annotation.filter(|text| !text.is_empty()) {
        return text.split(',').map(str::to_owned).collect();
    }
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default();
    ingress.iter().filter_map(|entry| entry.ip.clone()).collect()
}

/// The addresses each Service shows now, by `namespace/name`, as written.
fn shown_now(snapshot: &Snapshot) -> BTreeMap<String, Vec<String>> {
    let services = snapshot.services.iter();
    services.map(|service| (cluster::key(service), words_shown(service))).collect()
}

/// Every expectation that is not met.
fn unmet(fate: &Fate, before: &BTreeMap<String, Vec<String>>, now: &Snapshot) -> Vec<String> {
    let doubled = |problem: &String| fate.doubled.iter().any(|addr| problem.contains(addr));
    let mut unmet: Vec<_> = now.problems().into_iter().filter(|it| !doubled(it)).collect();
    let shown = shown_now(now);
    let showing = |key: &str| shown.get(key).cloned().unwrap_or_default();
    for (key, addrs) in before.iter().filter(|(key, _)| !fate.foreign.contains(&key.as_str())) {
        let gets = fate.get.iter().find(|(who, _)| who == key).map(|(_, addr)| vec![*addr]);
        let waits = fate.wait.iter().any(|(who, _)| who == key);
        let right = match gets {
            Some(addrs) => showing(key) == addrs,
            None if addrs.is_empty() && !waits => !showing(key).is_empty(),
            None => showing(key) == *addrs,
        };
        if !right {
            unmet.push(format!("{key} shows {:?}", showing(key)));
        }
    }
    for (who, reason) in fate.wait {
        let service = now.services.iter().find(|service| {
            who.split_once('/') == Some((&*service.namespace().unwrap(), &*service.name_any()))
        });
        let said = service.and_then(allocated).map(|said| (&*said.status, &*said.reason));
        if said != Some(("False", *reason)) {
            unmet.push(format!("{who} says {said:?}"));
        }
    }
    unmet.extend(fate.go.iter().filter(|key| shown.contains_key(**key)).map(|key| (*key).into()));
    let claimed: BTreeSet<_> = now.claims.iter().map(kube::ResourceExt::name_any).collect();
    let taken = fate.free.iter().map(|addr| name::of(ip(addr)));
    unmet.extend(taken.filter(|addr| claimed.contains(addr)));
    let held = now.services.iter().filter(|service| {
        let left = [keys::FINALIZER_SERVICE, keys::FINALIZER_CLOUD_PROVIDER];
        service.finalizers().iter().any(|finalizer| left.contains(&&**finalizer))
    });
    unmet.extend(held.map(|service| format!("{} has the finalizer", service.name_any())));
    unmet
}

/// Waits until no pool reports a finding any more.
async fn consistent(arena: &Arena) {
    let pools: Api<IPGroup> = Api::all(arena.client.clone());
    wait::until("every pool to be consistent", LONG, async || {
        let all = pools.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let wrong = all.items.into_iter().find_map(|pool| {
            let conditions = pool.status.unwrap_or_default().conditions;
            let said = condition::get(&conditions, keys::CONDITION_CONSISTENT)?;
            (said.status != "True").then(|| said.message.clone())
        });
        wrong.map_or(Ok(()), Err)
    })
    .await
    .unwrap();
}

/// Replays a recording, starts the operator, and checks that only necessary changes are made.
async fn taken_over(arena: &Arena, recording: &Recording, fate: &Fate) {
    taken_over_by(arena, recording, fate, async || arena.operator().await).await;
    arena.a_start_writes_nothing().await;
}

/// The same with another way to start the operator.
async fn taken_over_by(
    arena: &Arena,
    recording: &Recording,
    fate: &Fate,
    start: impl AsyncFnOnce() -> Operator,
) {
    recording.replay(&arena.client).await.unwrap();
    let before = recorded(recording);
    let recorder = Recorder::start(&arena.client).await.unwrap();
    let operator = start().await;
    wait::until("the cluster to be taken over", LONG, async || {
        let now = Snapshot::take(&arena.client).await.map_err(|error| format!("{error:?}"))?;
        let unmet = unmet(fate, &before, &now);
        if unmet.is_empty() { Ok(()) } else { Err(unmet.join("; ")) }
    })
    .await
    .unwrap();
    consistent(arena).await;
    let moved = recorder.finish().await.unwrap().moved();
    let asked = |key: &str| fate.get.iter().any(|(who, _)| *who == key);
    let unasked: Vec<_> = moved.iter().filter(|(key, ..)| !asked(key)).collect();
    assert!(unasked.is_empty(), "{unasked:?}");
    operator.terminate().await.unwrap();
}

/// Each address that is shown has a claim, which names all Services that show it.
fn is_in_the_ledger(snapshot: &Snapshot) {
    for service in &snapshot.services {
        for addr in shown(service).into_iter().filter(|addr| !addr.is_unspecified()) {
            let holders = claim_of(snapshot, &name::of(addr)).map(|claim| &claim.spec.holders);
            let uid = service.uid();
            let named = holders.is_some_and(|all| all.iter().any(|holder| holder.uid == uid));
            assert!(named, "{} {addr}: {holders:?}", service.name_any());
        }
    }
}

#[rstest]
#[case::steady("steady", Fate {
    wait: &[
        ("web/req-taken", "TakenBy"),
        ("shop/req-excluded", "Excluded"),
        ("web/req-outside", "OutsideEveryPool"),
    ],
    free: &["10.21.0.2"],
    ..Fate::default()
})]
#[case::edited_by_hand("odd-after-edits", Fate {
    wait: &[
        ("web/moved-to-taken", "OutsideEveryPool"),
        ("web/req-taken", "OutsideEveryPool"),
        ("shop/req-excluded", "OutsideEveryPool"),
        ("web/req-outside", "OutsideEveryPool"),
    ],
    go: &["web/to-clusterip"],
    free: &["10.21.0.2", "10.21.0.3", "10.21.0.5"],
    ..Fate::default()
})]
#[case::killed_after_the_claim("killed-ip-without-status", Fate {
    get: &[("web/b06", "10.21.0.13"), ("shop/b17", "10.21.0.57"), ("web/b10", "10.21.0.50")],
    wait: &[("web/b24", "OutsideEveryPool")],
    ..Fate::default()
})]
#[case::killed_and_started_again("killed-then-restarted", Fate {
    wait: &[("web/b24", "OutsideEveryPool")],
    free: &["10.21.0.13"],
    ..Fate::default()
})]
#[case::killed_after_the_status("killed-status-without-finalizer", Fate {
    get: &[("shop/b03", "10.21.0.43")],
    wait: &[("web/b24", "OutsideEveryPool")],
    ..Fate::default()
})]
#[case::killed_while_releasing("killed-released-ip-finalizer-left", Fate {
    wait: &[("web/b24", "OutsideEveryPool")],
    go: &["shop/b09", "shop/b11", "web/b10"],
    free: &["10.21.0.3", "10.21.0.16", "10.21.0.50"],
    ..Fate::default()
})]
#[case::killed_while_addresses_changed("killed-status-without-ip", Fate {
    get: &[
        ("shop/b05", "10.21.0.25"),
        ("shop/b07", "10.21.0.27"),
        ("shop/b09", "10.21.0.29"),
        ("shop/b11", "10.21.0.31"),
        ("shop/b13", "10.21.0.33"),
    ],
    wait: &[
        ("shop/b01", "TakenBy"),
        ("web/b02", "TakenBy"),
        ("web/b04", "TakenBy"),
        ("web/b06", "TakenBy"),
        ("web/b08", "TakenBy"),
        ("web/b12", "TakenBy"),
        ("web/b24", "OutsideEveryPool"),
    ],
    free: &["10.21.0.11", "10.20.0.2", "10.21.0.19"],
    ..Fate::default()
})]
#[tokio::test(flavor = "multi_thread")]
async fn objects_of_the_vip_allocator_are_taken_over(#[case] file: &str, #[case] fate: Fate) {
    let arena = unharmed_arena().await;
    taken_over(&arena, &recording(&format!("vip-allocator/{file}.yaml")), &fate).await;
}

#[rstest]
#[case::metallb("metallb", &["172.20.0.1-172.20.0.20", "172.20.8.0/30", "fd00:20::1-fd00:20::20"], Fate {
    wait: &[("shop/pending-outside", "OutsideEveryPool"), ("shop/pending-taken", "TakenBy")],
    foreign: &["shop/other-class"],
    ..Fate::default()
})]
#[case::cilium("cilium-lb-ipam", &["172.22.0.0/28", "172.22.8.10-172.22.8.11", "fd00:22::1-fd00:22::20"], Fate {
    wait: &[
        ("shop/pending-disabled", "OutsideEveryPool"),
        ("shop/pending-outside", "OutsideEveryPool"),
    ],
    foreign: &["web/class-bgp", "web/class-other"],
    ..Fate::default()
})]
#[case::purelb("purelb", &["172.24.0.10-172.24.0.20", "172.24.8.1-172.24.8.2", "fd00:24::10-fd00:24::20"], Fate {
    wait: &[
        ("shop/pending-full", "PoolUnknown"),
        ("shop/pending-nogroup", "PoolUnknown"),
        ("shop/pending-outside", "OutsideEveryPool"),
    ],
    foreign: &["web/class-other"],
    ..Fate::default()
})]
#[tokio::test(flavor = "multi_thread")]
async fn objects_of_another_allocator_are_taken_over(
    #[case] program: &str,
    #[case] ranges: &[&str],
    #[case] fate: Fate,
) {
    let arena = unharmed_arena().await;
    let tenant = arena.tenant("default").await;
    tenant.pool(pool("taken-over", ranges)).await;
    // Services of a class get theirs from a pool of that class.
    tenant.pool(pool("of-purelb", ranges).for_class("purelb.io/purelbv2")).await;
    let recording = recording(&format!("{program}/steady.yaml")).only(&["Namespace", "Service"]);
    taken_over(&arena, &recording, &fate).await;
    is_in_the_ledger(&Snapshot::take(&arena.client).await.unwrap());
}

fn claim_of<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a IP> {
    snapshot.claims.iter().find(|claim| claim.name_any() == name)
}

/// The webhook outlives its operator and refuses every write of a claim, for all users.
#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_that_was_left_behind_is_named_and_work_goes_on_without_it() {
    let arena = unharmed_arena().await;
    let tenant = arena.tenant("left-webhook").await;
    tenant.pool(pool("left-webhook", &["10.22.0.0/28"])).await;
    for service in ["before", "waits-1", "waits-2"] {
        tenant.create(load_balancer(service)).await;
    }
    tenant.set_ingress("before", serde_json::json!([{"ip": "10.22.0.7"}])).await;
    let webhook = recording("vip-allocator/admission-left-behind.yaml");
    webhook.replay(&arena.client).await.unwrap();
    claims_are_refused(&arena.client).await;
    let operator = arena.operator().await;
    let command = "kubectl delete validatingwebhookconfiguration \
                   vip-allocator-operator-validating-webhook-configuration";
    for service in ["before", "waits-1", "waits-2"] {
        tenant.says(service, "False", "LedgerRefused", command).await;
    }
    tenant.tells("waits-1", "LedgerRefused", command).await;
    tenant.pool_says("left-webhook", "False", command).await;
    assert_eq!(shown(&tenant.get("before").await), [ip("10.22.0.7")]);

    let webhooks: Api<k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration> =
        Api::all(arena.client.clone());
    webhooks.delete(keys::WEBHOOK_LEFT_CONFIGURATION, &DeleteParams::default()).await.unwrap();
    for service in ["waits-1", "waits-2"] {
        tenant.shows_something(service).await;
    }
    tenant.says("before", "True", "Allocated", "10.22.0.7").await;
    tenant.pool_says("left-webhook", "True", "gives addresses").await;
    tenant.settled().await;
    drop(operator);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_leads_from_the_old_operator_to_ours() {
    let arena = unharmed_arena().await;
    let recording = recording("vip-allocator/steady.yaml");
    recording.replay(&arena.client).await.unwrap();
    self::recording("vip-allocator/admission-left-behind.yaml")
        .replay(&arena.client)
        .await
        .unwrap();
    let before = recorded(&recording);
    let recorder = Recorder::start(&arena.client).await.unwrap();
    let mut operator = None;
    let mut seen = Vec::new();
    let guide = Guide::read("take-over.md");
    for line in guide.commands() {
        // A recording has no Deployments.
        if line.contains(" scale deployment ") {
            continue;
        }
        if line.starts_with("landfall operator") {
            let flags: Vec<_> = line.split_whitespace().skip(2).collect();
            let flags = [&["--leader-elect=false"][..], &flags].concat();
            let started = arena.operator_with(&flags).await;
            wait::until("the report", LONG, async || {
                let told = started.metrics().await.map_err(|error| error.to_string())?;
                let found = "landfall_repair_open{kind=\"FinalizerLeft\"} 6";
                if told.contains(found) { Ok(()) } else { Err(told) }
            })
            .await
            .unwrap();
            tells_of_pools(&arena, "FinalizerLeft").await;
            operator = Some(started);
        } else if line == "kubectl get ips" {
            // "Start it again without the flag."
            drop(operator.take());
            operator = Some(arena.operator().await);
            consistent_and_without_finalizers(&arena).await;
            seen.push(guide::walk(&arena, line).await);
        } else {
            seen.push(guide::walk(&arena, line).await);
        }
    }
    let all = seen.join("\n");
    for word in ["10.21.0.9", "10.20.0.5", "small", "large"] {
        assert!(all.contains(word), "{word}: {all}");
    }
    let now = shown_now(&Snapshot::take(&arena.client).await.unwrap());
    for (key, addrs) in before.iter().filter(|(_, addrs)| !addrs.is_empty()) {
        assert_eq!(now.get(key), Some(addrs), "{key}");
    }
    assert_eq!(recorder.finish().await.unwrap().moved(), []);
    drop(operator);
}

/// Waits for an event about a pool; events of objects without a namespace are in `default`.
async fn tells_of_pools(arena: &Arena, reason: &str) {
    let events: Api<Event> = Api::namespaced(arena.client.clone(), "default");
    wait::until(format!("an event {reason} about a pool"), LONG, async || {
        let all = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let about = |event: &Event| event.regarding.as_ref().and_then(|it| it.kind.clone());
        let there = all.iter().any(|event| {
            event.reason.as_deref() == Some(reason) && about(event).as_deref() == Some("IPGroup")
        });
        if there { Ok(()) } else { Err(format!("{} events", all.items.len())) }
    })
    .await
    .unwrap();
}

async fn consistent_and_without_finalizers(arena: &Arena) {
    wait::until("the finalizers to go", LONG, async || {
        let now = Snapshot::take(&arena.client).await.map_err(|error| format!("{error:?}"))?;
        let left = now.services.iter().find(|service| !service.finalizers().is_empty());
        left.map_or(Ok(()), |service| Err(service.name_any()))
    })
    .await
    .unwrap();
    consistent(arena).await;
}

/// A restore may bring back claims before Services.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_waits_for_its_service_as_long_as_it_was_told_to() {
    let arena = unharmed_arena().await;
    let tenant = arena.tenant("restored").await;
    tenant.pool(pool("restored", &["10.22.1.0/28"])).await;
    for (addr, name) in [("10.22.1.7", "comes"), ("10.22.1.8", "never")] {
        let claim = original_claim(ip(addr), "restored", &tenant.key(name));
        tenant.make_claim(&claim).await;
    }
    let operator = arena.operator_with(&["--leader-elect=false", "--orphan-grace=10m"]).await;
    // Reported, and not released.
    wait::until("the pool to say so", LONG, async || {
        let pool = tenant.pools.get("restored").await.map_err(|error| error.to_string())?;
        let conditions = pool.status.unwrap_or_default().conditions;
        let said = condition::get(&conditions, keys::CONDITION_CONSISTENT);
        let said = said.map(|said| (said.reason.clone(), said.message.clone()));
        match said {
            Some((reason, message)) if reason == "HolderGone" && message.contains("never") => {
                Ok(())
            }
            said => Err(format!("{said:?}")),
        }
    })
    .await
    .unwrap();
    tenant.create(load_balancer("comes")).await;
    tenant.shows("comes", &["10.22.1.7"]).await;
    assert!(tenant.claim("10.22.1.8").await.is_some());
    operator.terminate().await.unwrap();
    let operator = arena.operator_with(&["--leader-elect=false", "--orphan-grace=1s"]).await;
    tenant.claim_is_gone("10.22.1.8").await;
    wait::until("it to be counted", LONG, async || {
        let told = operator.metrics().await.map_err(|error| error.to_string())?;
        if told.contains("landfall_claims_collected_total 1") { Ok(()) } else { Err(told) }
    })
    .await
    .unwrap();
    tenant.settled().await;
}
