//! Waiters are served as soon as an address is there, and disturbed objects are repaired.

use http::Method;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use kube::api::PostParams;
use landfall_testkit::builders::{PoolBuilder as _, ServiceBuilder as _, load_balancer, pool};
use landfall_testkit::cluster::shown;
use landfall_testkit::proxy::{Action, Record};
use landfall_testkit::wait;
use rstest::rstest;
use serde_json::json;

use crate::stage::{LONG, Tenant, arena, ip, tenant};

/// Creates a Service that is younger than another one: ages count in whole seconds.
async fn create_younger(tenant: &Tenant, name: &str, than: &Service) -> Service {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    wait::until("the next second", LONG, async || {
        let probe = tenant.services.create(&dry, &load_balancer("probe")).await;
        let probe = probe.map_err(|error| error.to_string())?;
        (probe.creation_timestamp() > than.creation_timestamp())
            .then_some(())
            .ok_or_else(|| format!("still {:?}", probe.creation_timestamp()))
    })
    .await
    .unwrap();
    tenant.create(load_balancer(name)).await
}

#[tokio::test]
async fn a_freed_address_goes_to_the_oldest_and_a_wider_pool_serves_all() {
    let tenant = tenant("wake-oldest").await;
    // Named first among those of other tests: an event that is sent once names eight.
    let own = pool("wake-oldest", &["10.4.1.0/31"]).only_for("wake-oldest").with_priority(1);
    tenant.pool(own).await;
    for name in ["has0", "has1"] {
        tenant.create(load_balancer(name)).await;
        tenant.shows_something(name).await;
    }
    // Names are opposite to ages, so that an order by name would show.
    let oldest = tenant.create(load_balancer("z-oldest")).await;
    tenant.says("z-oldest", "False", "Exhausted", "").await;
    let middle = create_younger(&tenant, "m-middle", &oldest).await;
    tenant.says("m-middle", "False", "Exhausted", "").await;
    create_younger(&tenant, "a-youngest", &middle).await;
    tenant.says("a-youngest", "False", "Exhausted", "").await;
    tenant.tells("a-youngest", "Exhausted", "wake-oldest").await;

    tenant.delete("has0").await;
    tenant.shows("z-oldest", &["10.4.1.0"]).await;
    // The same by a change of type.
    tenant
        .patch(
            "has1",
            json!({"spec": {"type": "ClusterIP", "allocateLoadBalancerNodePorts": null}}),
        )
        .await;
    tenant.shows("m-middle", &["10.4.1.1"]).await;
    tenant.says("a-youngest", "False", "Exhausted", "").await;
    tenant.create(load_balancer("more")).await;
    tenant.says("more", "False", "Exhausted", "").await;
    tenant.settled().await;

    tenant.edit_pool("wake-oldest", json!({"ranges": ["10.4.1.0/30"]})).await;
    tenant.shows("a-youngest", &["10.4.1.2"]).await;
    tenant.shows("more", &["10.4.1.3"]).await;
    tenant.tells("more", "Allocated", "10.4.1.3").await;
    tenant.ends(&["wake-oldest"]).await;
}

#[tokio::test]
async fn a_request_waits_for_its_address_and_is_served_when_it_is_freed() {
    let tenant = tenant("wake-request").await;
    tenant.pool(pool("wake-request", &["10.4.2.0/29"]).only_for("wake-request")).await;
    tenant.create(load_balancer("first").asking("10.4.2.3")).await;
    tenant.shows("first", &["10.4.2.3"]).await;
    tenant.create(load_balancer("second").asking("10.4.2.3")).await;
    tenant.says("second", "False", "TakenBy", "wake-request/first").await;
    // A waiter that has another address meanwhile.
    tenant.create(load_balancer("third").asking("10.4.2.4")).await;
    tenant.shows("third", &["10.4.2.4"]).await;
    tenant.ask("third", "10.4.2.3").await;
    tenant.says("third", "False", "TakenBy", "keeps 10.4.2.4").await;

    // Freed by a move, not by a deletion.
    tenant.ask("first", "10.4.2.6").await;
    tenant.shows("first", &["10.4.2.6"]).await;
    tenant.shows("second", &["10.4.2.3"]).await;
    tenant.delete("second").await;
    tenant.shows("third", &["10.4.2.3"]).await;
    tenant.claim_is_gone("10.4.2.4").await;

    // Two that want each other's address keep what they have: neither is freed.
    tenant.ask("first", "10.4.2.3").await;
    tenant.ask("third", "10.4.2.6").await;
    tenant.says("first", "False", "TakenBy", "keeps 10.4.2.6").await;
    tenant.says("third", "False", "TakenBy", "keeps 10.4.2.3").await;
    // Until one gives way.
    tenant.ask("first", "10.4.2.7").await;
    tenant.shows("third", &["10.4.2.6"]).await;
    tenant.shows("first", &["10.4.2.7"]).await;
    tenant.claim_is_gone("10.4.2.3").await;
    tenant.ends(&["wake-request"]).await;
}

#[tokio::test]
async fn a_status_that_another_program_changed_comes_back_as_it_was() {
    let tenant = tenant("wake-status").await;
    tenant.pool(pool("wake-status", &["10.4.3.0/29"]).only_for("wake-status")).await;
    for name in ["web", "other"] {
        tenant.create(load_balancer(name)).await;
        tenant.shows_something(name).await;
    }
    let has = shown(&tenant.get("web").await)[0].to_string();
    let others = shown(&tenant.get("other").await)[0].to_string();
    for (case, ingress) in [
        ("wiped", json!([])),
        ("an address outside every pool", json!([{"ip": "203.0.113.9"}])),
        ("a free address of the pool", json!([{"ip": "10.4.3.5"}])),
        ("another Service's address", json!([{"ip": others}])),
        ("a host name", json!([{"hostname": "web.example.com"}])),
        ("a host name beside it", json!([{"ip": has}, {"hostname": "web.example.com"}])),
    ] {
        tenant.set_ingress("web", ingress).await;
        wait::until(format!("the address to come back after: {case}"), LONG, async || {
            let web = tenant.services.get("web").await.map_err(|error| error.to_string())?;
            let ingress = &web.status.as_ref().unwrap().load_balancer;
            let right = shown(&web) == [ip(&has)]
                && ingress.as_ref().unwrap().ingress.as_ref().unwrap().len() == 1;
            if right { Ok(()) } else { Err(format!("{ingress:?}")) }
        })
        .await
        .unwrap();
        tenant.settled().await;
        assert!(tenant.claim("10.4.3.5").await.is_none(), "{case}");
        assert_eq!(shown(&tenant.get("other").await), [ip(&others)], "{case}");
    }
    tenant.says("web", "True", "Allocated", &has).await;
    // A second address was published by another program and may be in use: it stays, and no other gets it.
    tenant.set_ingress("web", json!([{"ip": has}, {"ip": "10.4.3.6"}])).await;
    tenant.has_claim("10.4.3.6").await;
    tenant.settled().await;
    assert_eq!(shown(&tenant.get("web").await), [ip(&has), ip("10.4.3.6")]);
    tenant.ends(&["wake-status"]).await;
}

#[tokio::test]
async fn a_claim_deleted_by_hand_is_made_again_while_the_address_is_shown() {
    let tenant = tenant("wake-claim").await;
    tenant.pool(pool("wake-claim", &["10.4.4.0/30"]).only_for("wake-claim")).await;
    tenant.create(load_balancer("web")).await;
    let web = tenant.shows("web", &["10.4.4.0"]).await;
    let old = tenant.claim("10.4.4.0").await.unwrap();
    tenant.delete_claim("10.4.4.0").await;
    let new =
        wait::until("the claim to be made again", LONG, async || tenant.claim("10.4.4.0").await)
            .await
            .unwrap();
    assert_ne!(new.uid(), old.uid());
    assert_eq!(new.spec.holders[0].uid, web.uid());
    tenant.create(load_balancer("next")).await;
    tenant.shows("next", &["10.4.4.1"]).await;
    assert_eq!(shown(&tenant.get("web").await), [ip("10.4.4.0")]);
    tenant.ends(&["wake-claim"]).await;
}

#[tokio::test]
async fn a_service_recreated_under_the_same_name_is_another_one() {
    let tenant = tenant("wake-again").await;
    tenant.pool(pool("wake-again", &["10.4.5.0/30"]).only_for("wake-again")).await;
    for _ in 0..5 {
        let made = tenant.create(load_balancer("web")).await;
        let addr = tenant.shows_something("web").await.to_string();
        let claim = tenant.claim(&addr).await.unwrap();
        assert_eq!(claim.spec.holders[0].uid, made.uid());
        tenant.delete("web").await;
    }
    // No wait in between: the claim of the previous Service may still be there.
    tenant.create(load_balancer("web").asking("10.4.5.2")).await;
    tenant.shows("web", &["10.4.5.2"]).await;
    tenant.delete("web").await;
    tenant.create(load_balancer("web").asking("10.4.5.2")).await;
    tenant.shows("web", &["10.4.5.2"]).await;
    tenant.ends(&["wake-again"]).await;
}

/// How an address becomes free for the waiters.
#[derive(Clone, Copy, Debug)]
enum More {
    /// A Service gives up an address.
    Freed,
    /// The pool gets another.
    Added,
}

/// The oldest may be busy at that very moment: its condition is being written.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_free_address_waits_for_the_oldest_while_its_condition_is_being_written(
    #[values(More::Freed, More::Added)] more: More,
) {
    let arena = arena().await;
    let tenant = arena.tenant("wake-busy").await;
    tenant.pool(pool("wake-busy", &["10.4.6.0/32"])).await;
    let proxy = arena.proxy().await;
    let operator = arena.operator_via(&proxy).await;
    tenant.create(load_balancer("has")).await;
    tenant.shows("has", &["10.4.6.0"]).await;
    let oldest = tenant.create(load_balancer("z-oldest")).await;
    create_younger(&tenant, "a-youngest", &oldest).await;
    for name in ["z-oldest", "a-youngest"] {
        tenant.says(name, "False", "Exhausted", "").await;
    }

    // Another pool changes the conditions of both; one of the writes is slow.
    proxy.once(
        |request| request.is_write() && request.path.ends_with("/services/z-oldest/status"),
        Action::HoldReply,
    );
    let draining = pool("wake-drain", &["10.4.6.8/30"]).with(|spec| spec.drain = Some(true));
    tenant.pool(draining).await;
    for name in ["z-oldest", "a-youngest"] {
        tenant.says(name, "False", "Exhausted", "IPGroup/wake-drain: it is draining").await;
    }
    let mark = proxy.mark();
    let there_is = match more {
        More::Freed => {
            tenant.delete("has").await;
            let done = |request: &Record| {
                request.is_for("ips")
                    && request.method == Method::DELETE
                    && request.status.is_some()
            };
            let released = async || proxy.requests_since(mark).iter().any(done);
            wait::until("the release", LONG, released).await.unwrap();
            "10.4.6.0"
        }
        More::Added => {
            tenant.edit_pool("wake-busy", json!({"ranges": ["10.4.6.0/31"]})).await;
            tenant.pool_says("wake-busy", "True", "").await;
            "10.4.6.1"
        }
    };
    // Nor does a newly created Service get ahead of it.
    tenant.create(load_balancer("newcomer")).await;
    tenant.says("newcomer", "False", "Exhausted", "").await;
    proxy.thaw();
    tenant.shows("z-oldest", &[there_is]).await;
    tenant.says("a-youngest", "False", "Exhausted", "").await;
    tenant.settled().await;
    drop(operator);
}
