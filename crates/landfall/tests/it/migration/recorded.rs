//! States recorded from vip-allocator-operator 0.3, steady and killed in every stage of a migration: each is
//! replayed into a cluster, and the operator goes on from there.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use kube::ResourceExt;
use landfall_api::virtualip::State;
use landfall_api::{VirtualIPStatus, keys};
use landfall_testkit::cluster::{Recorder, Snapshot, external, shown};
use landfall_testkit::{Recording, wait};
use serde_json::from_value;

use super::{Old, VALID, versions};
use crate::stage::{Arena, LONG, ip, old_arena};

/// A `VirtualIP` by namespace and name, its Service, and the address that it must have in the end.
type Moves = (&'static str, &'static str, &'static str, &'static str);
/// A `VirtualIP` by namespace and name that waits in a state, and a part of its message.
type Waits = (&'static str, &'static str, State, &'static str);

const OTHER_ADDRESS: &str = "service is already of type LoadBalancer";
const NO_GROUP: &str = "no IPGroup covers 10.30.2.9 (GroupSegmentMapping g2 has 10.30.2.0/28)";
const TAKEN: &str = "the requested ip is not available";

fn recording(name: &str) -> Recording {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vip-allocator");
    let path = folder.join(format!("virtualip-{name}.yaml"));
    Recording::load(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Every address that a Service shows, with the Service.
fn answered(seen: &Snapshot) -> BTreeSet<(String, IpAddr)> {
    let addrs = seen.services.iter().flat_map(|service| {
        let key = format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any());
        let all = shown(service).into_iter().chain(external(service));
        all.map(move |addr| (key.clone(), addr))
    });
    addrs.collect()
}

/// Waits until the operator has answered to an object created after all others.
async fn has_seen_everything(arena: &Arena, round: &str) {
    let old = Old::new(arena, "after").await;
    old.service(round).await;
    old.expose(round, round, None).await;
    old.is(round, State::Valid, VALID).await;
}

async fn taken_over(name: &str, moves: &[Moves], waits: &[Waits]) {
    let arena = old_arena().await;
    let recording = recording(name);
    recording.replay(&arena.client).await.unwrap();
    Old::new(&arena, "after").await.mapping("zz-after", "10.44.0.0/28", &[]).await;
    let before = Snapshot::take(&arena.client).await.unwrap();
    let recorder = Recorder::start(&arena.client).await.unwrap();
    let operator = arena.operator().await;
    operator.wait_ready(LONG).await.unwrap();

    for (namespace, vip, service, addr) in moves {
        Old::new(&arena, namespace).await.is_migrated(vip, service, addr).await;
    }
    for (namespace, vip, state, message) in waits {
        Old::new(&arena, namespace).await.is(vip, *state, message).await;
    }
    has_seen_everything(&arena, "first").await;
    wait::until("the finalizers to go", LONG, async || {
        let now = Snapshot::take(&arena.client).await.map_err(|error| format!("{error:?}"))?;
        let left = now
            .services
            .iter()
            .find(|service| service.finalizers().iter().any(|one| one == keys::FINALIZER_SERVICE));
        left.map_or(Ok(()), |service| Err(service.name_any()))
    })
    .await
    .unwrap();

    // A `VirtualIP` that neither waited for us nor moved is as it was.
    let concerned = |key: &(String, String)| {
        let moves = moves.iter().map(|(namespace, vip, ..)| (*namespace, *vip));
        let mut all = moves.chain(waits.iter().map(|(namespace, vip, ..)| (*namespace, *vip)));
        all.any(|(namespace, vip)| namespace == key.0 && vip == key.1)
    };
    let kind = |kind: &'static str| {
        let items = recording.items().iter();
        items.filter(move |item| item.types.as_ref().is_some_and(|types| types.kind == kind))
    };
    for recorded in kind("VirtualIP") {
        let key = (recorded.namespace().unwrap(), recorded.name_any());
        if concerned(&key) {
            continue;
        }
        let old = Old::new(&arena, &key.0).await;
        let now = old.vips.get(&key.1).await.unwrap();
        let status: VirtualIPStatus = from_value(recorded.data["status"].clone()).unwrap();
        assert_eq!(now.status, Some(status), "{key:?}");
        assert_eq!(now.finalizers(), recorded.finalizers(), "{key:?}");
    }

    // No address was ever lost, and every claim still has a holder.
    let after = Snapshot::take(&arena.client).await.unwrap();
    let gained: BTreeSet<_> = moves
        .iter()
        .map(|(namespace, _, service, addr)| (format!("{namespace}/{service}"), ip(addr)))
        .collect();
    let moved: BTreeSet<_> = gained.iter().map(|(_, addr)| *addr).collect();
    for (key, addr) in answered(&before) {
        let still = answered(&after).contains(&(key.clone(), addr));
        assert!(still || moved.contains(&addr), "{key} lost {addr}");
    }
    assert!(answered(&after).is_superset(&gained), "{:?}", answered(&after));
    // Nor was any claim created again: in between, any Service could have taken the address.
    let claims: BTreeSet<_> = after.claims.iter().map(ResourceExt::uid).collect();
    for claim in &before.claims {
        assert!(claims.contains(&claim.uid()), "the claim on {} is gone", claim.name_any());
    }
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.gaps(), []);
    assert_eq!(history.moved(), []);

    operator.kill().unwrap();
    let before = versions(&arena.client).await;
    let operator = arena.operator().await;
    operator.wait_ready(LONG).await.unwrap();
    has_seen_everything(&arena, "second").await;
    let after = versions(&arena.client).await;
    let changed: Vec<_> = before.iter().filter(|version| !after.contains(version)).collect();
    assert_eq!(changed, Vec::<&String>::new(), "written by the second start");
    drop(operator);
}

#[tokio::test(flavor = "multi_thread")]
async fn valid_and_error() {
    taken_over("valid-and-error", &[], &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn migrated_and_falsely_migrated() {
    let waits = [
        ("web", "lb", State::Preparing, OTHER_ADDRESS),
        ("web", "nogroup", State::Reassociating, NO_GROUP),
        ("shop", "pay", State::Error, TAKEN),
    ];
    taken_over("migrated-and-false-migrated", &[], &waits).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_preparing() {
    let waits = [
        ("shop", "cart-second", State::Preparing, OTHER_ADDRESS),
        ("web", "lb", State::Preparing, OTHER_ADDRESS),
        ("web", "nogroup", State::Reassociating, NO_GROUP),
        ("shop", "pay", State::Error, TAKEN),
    ];
    taken_over("killed-in-preparing-for-migration", &[], &waits).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_reassociating() {
    let waits = [
        ("shop", "cart-second", State::Preparing, OTHER_ADDRESS),
        ("web", "nogroup", State::Reassociating, NO_GROUP),
        ("shop", "pay", State::Error, TAKEN),
    ];
    let moves = [("web", "back", "back", "10.30.1.1")];
    taken_over("killed-in-reassociating-ip-object", &moves, &waits).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_cleaning_up() {
    let moves = [("shop", "app-00-vip", "app-00", "10.30.1.1")];
    taken_over("killed-in-cleaning-up", &moves, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_cleaning_up_when_the_copy_was_gone() {
    let moves = [("shop", "app-00-vip", "app-00", "10.30.1.1")];
    taken_over("killed-in-cleaning-up-clone-gone", &moves, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_converting() {
    let moves = [("shop", "app-08-vip", "app-08", "10.30.1.6")];
    taken_over("killed-in-converting-service", &moves, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_assigning() {
    let waits =
        [("web", "nogroup", State::Reassociating, NO_GROUP), ("shop", "pay", State::Error, TAKEN)];
    let moves = [("shop", "cart", "cart", "10.30.2.2")];
    taken_over("killed-in-assigning-original-ip", &moves, &waits).await;
}

/// A false `Migrated` is reported as such, and finished when the missing pool is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_falsely_migrated_virtual_ip_is_finished_when_its_pool_comes() {
    let arena = old_arena().await;
    recording("migrated-and-false-migrated").replay(&arena.client).await.unwrap();
    let operator = arena.operator().await;
    let old = Old::new(&arena, "web").await;
    old.is("nogroup", State::Reassociating, NO_GROUP).await;
    old.tenant.pool(landfall_testkit::builders::segment("g2-rest", "10.30.2.8/29", &[])).await;
    old.is_migrated("nogroup", "nogroup", "10.30.2.9").await;
    // It asked for its address by name, and so does the Service now.
    let asked = old.tenant.get("nogroup").await.spec.unwrap().load_balancer_ip;
    assert_eq!(asked.as_deref(), Some("10.30.2.9"));
    old.delete("nogroup").await;
    old.goes("nogroup").await;
    assert_eq!(shown(&old.tenant.get("nogroup").await), [ip("10.30.2.9")]);
    wait::until("the operator", LONG, async || operator.is_running()).await.unwrap();
}
