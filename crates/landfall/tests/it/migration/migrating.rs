use landfall_api::virtualip::State;
use landfall_testkit::builders::{original_claim, segment};
use landfall_testkit::cluster::{Recorder, shown};
use landfall_testkit::wait;
use serde_json::json;

use super::{ALLOW_LOAD_BALANCERS, MIGRATED, Old, VALID, versions};
use crate::stage::{LONG, ip, old_arena};

#[tokio::test(flavor = "multi_thread")]
async fn a_service_takes_over_without_a_gap_and_a_restart_writes_nothing() {
    let arena = old_arena().await;
    let old = Old::new(&arena, "vip-move").await;
    old.mapping("move", "10.41.0.0/29", &["10.41.0.0"]).await;
    for (name, addr) in [("any", None), ("asked", Some("10.41.0.4"))] {
        old.service(name).await;
        old.expose(&format!("{name}-vip"), name, addr).await;
    }
    let operator = arena.operator().await;
    for name in ["any-vip", "asked-vip"] {
        old.is(name, State::Valid, VALID).await;
    }
    old.tenant.pool(segment("move", "10.41.0.0/29", &["10.41.0.0"])).await;
    let recorder = Recorder::start(&old.tenant.client).await.unwrap();
    for name in ["any-vip", "asked-vip"] {
        old.migrate(name).await;
    }
    old.is_migrated("any-vip", "any", "10.41.0.1").await;
    old.is_migrated("asked-vip", "asked", "10.41.0.4").await;
    old.tenant.tells("any-vip", "Migrated", MIGRATED).await;
    let asks = async |name: &str| old.tenant.get(name).await.spec.unwrap().load_balancer_ip;
    assert_eq!(asks("any").await, None);
    assert_eq!(asks("asked").await.as_deref(), Some("10.41.0.4"));
    for addr in ["10.41.0.1", "10.41.0.4"] {
        let claim = old.tenant.claim(addr).await.unwrap();
        assert_eq!(claim.spec.reserved_for, None, "{addr}");
        assert_eq!(claim.spec.pool.as_deref(), Some("IPGroup/move"), "{addr}");
        assert_eq!(claim.metadata.labels.unwrap()["ipgroup"], "move", "{addr}");
    }
    old.tenant.settled().await;
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.gaps(), []);
    assert_eq!(history.problems(), Vec::<String>::new());

    operator.kill().unwrap();
    let before = versions(&old.tenant.client).await;
    let operator = arena.operator().await;
    operator.wait_ready(LONG).await.unwrap();
    // The operator's answer to a new object comes after everything about the old ones.
    old.service("probe").await;
    old.expose("probe", "probe", None).await;
    old.is("probe", State::Valid, VALID).await;
    let after = versions(&old.tenant.client).await;
    let changed: Vec<_> = before.iter().filter(|version| !after.contains(version)).collect();
    assert_eq!(changed, Vec::<&String>::new());

    // A migrated `VirtualIP` may be deleted, and the Service keeps its address.
    for name in ["any-vip", "asked-vip"] {
        old.delete(name).await;
        old.goes(name).await;
    }
    assert_eq!(shown(&old.tenant.get("any").await), [ip("10.41.0.1")]);
    old.tenant.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_any_obstacle_the_copy_stays_until_it_is_gone() {
    let arena = old_arena().await;
    let old = Old::new(&arena, "vip-fail").await;
    old.mapping("fail", "10.41.1.0/28", &["10.41.1.0"]).await;
    let names = ["no-group", "no-service", "taken", "refused", "no-copy"];
    for (name, addr) in
        names.iter().zip(["10.41.1.9", "10.41.1.1", "10.41.1.2", "10.41.1.3", "10.41.1.4"])
    {
        old.service(name).await;
        old.expose(name, name, Some(addr)).await;
    }
    let operator = arena.operator().await;
    for name in names {
        old.is(name, State::Valid, VALID).await;
    }
    old.tenant.pool(segment("fail", "10.41.1.0/29", &["10.41.1.0"])).await;
    let recorder = Recorder::start(&old.tenant.client).await.unwrap();

    // No IPGroup covers the address.
    old.migrate("no-group").await;
    let why = "no IPGroup covers 10.41.1.9 (GroupSegmentMapping fail has 10.41.1.0/28)";
    old.is("no-group", State::Reassociating, why).await;
    old.tenant.tells("no-group", "MigrationWaits", why).await;
    assert!(old.copy("no-group").await.is_some());
    old.tenant.pool(segment("fail-upper", "10.41.1.8/29", &[])).await;
    old.is_migrated("no-group", "no-group", "10.41.1.9").await;

    // The Service is missing.
    old.tenant.delete("no-service").await;
    old.is("no-service", State::Error, "not found").await;
    old.migrate("no-service").await;
    old.is("no-service", State::Preparing, "Service \"no-service\" not found").await;
    assert!(old.copy("no-service").await.is_some());
    old.service("no-service").await;
    old.is_migrated("no-service", "no-service", "10.41.1.1").await;

    // Another Service has the claim.
    operator.kill().unwrap();
    old.tenant.delete_claim("10.41.1.2").await;
    let foreign = original_claim(ip("10.41.1.2"), "fail", "vip-fail/nobody");
    old.tenant.make_claim(&foreign).await;
    // It shows the address, so that the claim does not count as left over.
    let thief = landfall_testkit::builders::load_balancer("nobody");
    old.tenant.create(thief).await;
    old.tenant.set_ingress("nobody", json!([{"ip": "10.41.1.2"}])).await;
    let operator = arena.operator().await;
    old.migrate("taken").await;
    old.is("taken", State::Reassociating, "10.41.1.2 is held by Service vip-fail/nobody").await;
    assert!(old.copy("taken").await.is_some());

    // The API server refuses the type.
    old.refuse_load_balancers(&arena).await;
    old.migrate("refused").await;
    let why = "could not convert the service: ";
    old.is("refused", State::Converting, why).await;
    old.tenant.tells("refused", "MigrationWaits", "this cluster has no load balancers").await;
    assert!(old.copy("refused").await.is_some());
    arena.kubectl(&ALLOW_LOAD_BALANCERS).await;
    old.is_migrated("refused", "refused", "10.41.1.3").await;

    let history = recorder.finish().await.unwrap();
    assert_eq!(history.gaps(), []);

    // The copy was removed by hand while no operator ran.
    operator.kill().unwrap();
    old.tenant.delete("no-copy-keepalived-clone").await;
    old.migrate("no-copy").await;
    let operator = arena.operator().await;
    old.is_migrated("no-copy", "no-copy", "10.41.1.4").await;
    drop(operator);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_for_one_service_the_second_keeps_its_copy() {
    let arena = old_arena().await;
    let old = Old::new(&arena, "vip-two").await;
    old.mapping("two", "10.41.2.0/29", &[]).await;
    old.tenant.pool(segment("two", "10.41.2.0/29", &[])).await;
    old.service("cart").await;
    for name in ["cart", "cart-second"] {
        old.expose(name, "cart", None).await;
    }
    let operator = arena.operator().await;
    for name in ["cart", "cart-second"] {
        old.is(name, State::Valid, VALID).await;
    }
    let second = old.vips.get("cart-second").await.unwrap().status.unwrap().ip.unwrap();
    let first = old.vips.get("cart").await.unwrap().status.unwrap().ip.unwrap();
    for name in ["cart-second", "cart"] {
        old.migrate(name).await;
    }
    // Whichever the operator saw first, one of them has to wait for good.
    wait::until("one to be migrated", LONG, async || {
        let done = old.tenant.get("cart").await;
        !shown(&done).is_empty()
    })
    .await
    .unwrap();
    let shows = shown(&old.tenant.get("cart").await);
    let (winner, loser, addr) = if shows == [ip(&first)] {
        ("cart", "cart-second", second)
    } else {
        ("cart-second", "cart", first)
    };
    old.is(winner, State::Migrated, MIGRATED).await;
    old.is(loser, State::Preparing, "service is already of type LoadBalancer").await;
    assert_eq!(landfall_testkit::cluster::external(&old.copy(loser).await.unwrap()), [ip(&addr)]);

    // It may be deleted like any other.
    old.delete(loser).await;
    old.goes(loser).await;
    old.tenant.claim_is_gone(&addr).await;
    assert_eq!(shown(&old.tenant.get("cart").await), shows);
    drop(operator);
}
