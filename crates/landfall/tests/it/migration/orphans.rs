//! Claims of `VirtualIP`s that are gone.

use landfall_api::virtualip::State;
use landfall_testkit::builders::virtual_ip_claim;
use serde_json::json;

use super::{Old, VALID};
use crate::stage::{LONG, ip, old_arena};

/// No `VirtualIP` is left, or not even the kind.
#[tokio::test(flavor = "multi_thread")]
async fn orphaned_claims_are_released_though_nothing_else_is_left() {
    let arena = old_arena().await;
    let old = Old::new(&arena, "vip-orphan").await;
    let claim = virtual_ip_claim(ip("10.47.0.1"), "orphan", "vip-orphan/gone");
    for round in ["with the kind", "without it"] {
        if round == "without it" {
            arena.remove_kind("virtualips.paas.org").await;
            arena.remove_kind("groupsegmentmappings.paas.org").await;
        }
        old.tenant.make_claim(&claim).await;
        let operator = arena.operator().await;
        operator.wait_ready(LONG).await.unwrap();
        old.tenant.claim_is_gone("10.47.0.1").await;
        // The operator is idle by now, and has to wake up.
        old.tenant.make_claim(&claim).await;
        old.tenant.claim_is_gone("10.47.0.1").await;
        operator.kill().unwrap();
    }
    old.tenant.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_virtual_ip_that_was_never_seen_is_waited_for_and_one_that_left_is_not() {
    let arena = old_arena().await;
    let old = Old::new(&arena, "vip-grace").await;
    old.mapping("grace", "10.47.1.0/29", &[]).await;
    for name in ["left", "restored"] {
        old.service(name).await;
    }
    for (addr, name) in [("10.47.1.5", "restored"), ("10.47.1.6", "never")] {
        let claim = virtual_ip_claim(ip(addr), "grace", &old.tenant.key(name));
        old.tenant.make_claim(&claim).await;
    }
    old.expose("left", "left", None).await;
    let operator = arena.operator_with(&["--leader-elect=false", "--orphan-grace=1h"]).await;
    old.is("left", State::Valid, VALID).await;
    // A hurried user removes the finalizers that would have let the operator clean up. It is stopped
    // meanwhile, so that it does not put them back.
    operator.stop_signal().unwrap();
    old.patch("left", json!({"metadata": {"finalizers": null}})).await;
    old.delete("left").await;
    old.goes("left").await;
    operator.cont_signal().unwrap();

    // Restored from a backup after its claim: it gets the address that it had.
    old.expose("restored", "restored", None).await;
    let status = old.is("restored", State::Valid, VALID).await;
    assert_eq!(status.ip.as_deref(), Some("10.47.1.5"));
    // By now the operator knows that the other is gone, and will not create its copy again.
    old.tenant.delete("left-keepalived-clone").await;
    old.tenant.claim_is_gone("10.47.1.0").await;
    assert!(old.tenant.claim("10.47.1.6").await.is_some());
    // Without the grace it is an orphan.
    operator.kill().unwrap();
    let operator = arena.operator().await;
    old.tenant.claim_is_gone("10.47.1.6").await;
    old.tenant.settled().await;
    drop(operator);
}
