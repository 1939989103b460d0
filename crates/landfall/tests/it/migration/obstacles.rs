//! Migrations of Services that are unsuitable from the start or become so.

use http::Method;
use landfall_api::virtualip::State;
use landfall_testkit::builders::{ServiceBuilder as _, load_balancer, segment};
use landfall_testkit::cluster::{Recorder, external};
use landfall_testkit::proxy::{Action, Record};
use landfall_testkit::wait;
use serde_json::json;

use super::{ALLOW_LOAD_BALANCERS, Old, VALID};
use crate::stage::{LONG, ip, old_arena};

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_can_have_no_address_is_told_and_left_alone() {
    let arena = old_arena().await;
    let old = Old::new(&arena, "vip-unfit").await;
    old.mapping("unfit", "10.46.0.0/29", &[]).await;
    old.tenant.pool(segment("unfit", "10.46.0.0/29", &[])).await;
    let plain = |name: &str| load_balancer(name).of_type("ClusterIP");
    let headless = plain("headless").with_spec(|spec| spec.cluster_ip = Some("None".into()));
    let alias = |name: &str| {
        plain(name).of_type("ExternalName").with_spec(|spec| {
            spec.external_name = Some("db.example.org".into());
        })
    };
    let portless = alias("portless").with_spec(|spec| spec.ports = None);
    for service in [headless, alias("alias"), portless] {
        old.tenant.create(service).await;
    }
    let addrs = [("alias", "10.46.0.1"), ("headless", "10.46.0.2"), ("portless", "10.46.0.3")];
    for (name, addr) in addrs {
        old.expose(name, name, Some(addr)).await;
    }
    let operator = arena.operator().await;
    for name in ["alias", "headless"] {
        old.is(name, State::Valid, VALID).await;
    }
    // The API server has no ClusterIP without ports, and so there is no copy.
    old.is("portless", State::Error, "could not expose the service: ").await;
    old.tenant.tells("portless", "NotExposed", "spec.ports").await;
    let recorder = Recorder::start(&old.tenant.client).await.unwrap();

    for (name, why) in [
        ("alias", "service is of type ExternalName, change service type to proceed"),
        ("headless", "service is headless, recreate it with a cluster IP to proceed"),
    ] {
        let before = old.tenant.get(name).await;
        old.migrate(name).await;
        old.is(name, State::Preparing, why).await;
        old.tenant.tells(name, "MigrationWaits", why).await;
        assert_eq!(
            old.tenant.get(name).await.metadata.resource_version,
            before.metadata.resource_version
        );
    }
    for (name, addr) in &addrs[..2] {
        assert_eq!(external(&old.copy(name).await.unwrap()), [ip(addr)], "{name}");
    }
    // It is no longer in the way, whether changed or created again.
    let spec = json!({"type": "ClusterIP", "externalName": null});
    old.tenant.patch("alias", json!({ "spec": spec })).await;
    old.tenant.delete("headless").await;
    old.is("headless", State::Preparing, "Service \"headless\" not found").await;
    old.tenant.create(plain("headless")).await;
    for (name, addr) in &addrs[..2] {
        old.is_migrated(name, name, addr).await;
    }

    // Its address is still held, until it is deleted.
    assert!(old.tenant.claim("10.46.0.3").await.is_some());
    old.delete("portless").await;
    old.goes("portless").await;
    old.tenant.claim_is_gone("10.46.0.3").await;
    old.tenant.settled().await;
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.gaps(), []);
    assert_eq!(history.problems(), Vec::<String>::new());
    drop(operator);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_goes_in_the_middle_loses_nothing_if_it_comes_back() {
    let arena = old_arena().await;
    let old = Old::new(&arena, "vip-leaves").await;
    old.mapping("leaves", "10.46.1.0/29", &[]).await;
    old.tenant.pool(segment("leaves", "10.46.1.0/29", &[])).await;
    for (name, addr) in [("back", "10.46.1.1"), ("gone", "10.46.1.2")] {
        old.service(name).await;
        old.expose(name, name, Some(addr)).await;
    }
    let operator = arena.operator().await;
    for name in ["back", "gone"] {
        old.is(name, State::Valid, VALID).await;
    }
    let recorder = Recorder::start(&old.tenant.client).await.unwrap();
    old.refuse_load_balancers(&arena).await;
    for name in ["back", "gone"] {
        old.migrate(name).await;
        old.is(name, State::Converting, "could not convert the service: ").await;
        // The claim is the Service's by now.
        old.tenant.delete(name).await;
        old.is(name, State::Converting, &format!("Service \"{name}\" not found")).await;
    }
    assert_eq!(external(&old.copy("back").await.unwrap()), [ip("10.46.1.1")]);
    arena.kubectl(&ALLOW_LOAD_BALANCERS).await;
    old.service("back").await;
    old.is_migrated("back", "back", "10.46.1.1").await;
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.gaps(), []);
    assert_eq!(history.problems(), Vec::<String>::new());

    // There is nothing to finish, and nothing of it is left either.
    old.delete("gone").await;
    old.goes("gone").await;
    old.tenant.claim_is_gone("10.46.1.2").await;
    assert!(old.copy("gone").await.is_none());
    old.tenant.settled().await;
    drop(operator);
}

/// The Service already shows the address, and the copy is about to be deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_goes_at_the_very_end_is_migrated_when_it_comes_back() {
    let arena = old_arena().await;
    let old = Old::new(&arena, "vip-last").await;
    old.mapping("last", "10.46.2.0/29", &[]).await;
    old.tenant.pool(segment("last", "10.46.2.0/29", &[])).await;
    old.service("web").await;
    old.expose("web", "web", Some("10.46.2.1")).await;
    let proxy = arena.proxy().await;
    let operator = arena.operator_via(&proxy).await;
    old.is("web", State::Valid, VALID).await;
    let drops_copy = |request: &Record| {
        request.method == Method::DELETE && request.path.ends_with("-keepalived-clone")
    };
    // Every time: a call that is not answered is given up and made again.
    proxy.add_rule(move |request| drops_copy(request).then_some(Action::Freeze));
    old.migrate("web").await;
    wait::until("the copy to be dropped", LONG, async || proxy.requests().iter().any(drops_copy))
        .await
        .unwrap();
    old.tenant.shows("web", &["10.46.2.1"]).await;
    old.tenant.delete("web").await;
    // The watch that delivers this Service has delivered the deletion before.
    old.service("after").await;
    old.expose("after", "after", Some("10.46.2.2")).await;
    old.is("after", State::Valid, VALID).await;
    proxy.clear_rules();
    proxy.thaw();
    old.is("web", State::CleaningUp, "Service \"web\" not found").await;
    old.service("web").await;
    old.is_migrated("web", "web", "10.46.2.1").await;
    old.tenant.settled().await;
    drop(operator);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_has_or_asks_for_that_very_address_counts_as_converted() {
    let arena = old_arena().await;
    let old = Old::new(&arena, "vip-already").await;
    old.mapping("already", "10.46.3.0/29", &[]).await;
    old.tenant.pool(segment("already", "10.46.3.0/29", &[])).await;
    let addrs = [("asks", "10.46.3.1"), ("shows", "10.46.3.2")];
    for (name, addr) in addrs {
        old.service(name).await;
        old.expose(name, name, Some(addr)).await;
    }
    let operator = arena.operator().await;
    for (name, _) in addrs {
        old.is(name, State::Valid, VALID).await;
    }
    let recorder = Recorder::start(&old.tenant.client).await.unwrap();
    let spec = json!({"type": "LoadBalancer", "loadBalancerIP": "10.46.3.1"});
    old.tenant.patch("asks", json!({ "spec": spec })).await;
    old.tenant.says("asks", "False", "TakenBy", "VirtualIP vip-already/asks").await;
    operator.kill().unwrap();
    old.tenant.patch("shows", json!({"spec": {"type": "LoadBalancer"}})).await;
    old.tenant.set_ingress("shows", json!([{"ip": "10.46.3.2"}])).await;
    for (name, _) in addrs {
        old.migrate(name).await;
    }
    let operator = arena.operator().await;
    for (name, addr) in addrs {
        old.is_migrated(name, name, addr).await;
    }
    old.tenant.settled().await;
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.gaps(), []);
    assert_eq!(history.moved(), []);
    drop(operator);
}
