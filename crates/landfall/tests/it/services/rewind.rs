//! etcd is restored from a snapshot while the operator runs.

use http::StatusCode;
use landfall_testkit::builders::{ServiceBuilder as _, load_balancer, pool};
use landfall_testkit::proxy::Action;
use landfall_testkit::{Operator, wait};
use rstest::rstest;

use super::many::{all_served, burst};
use crate::stage::{LONG, arena};

async fn readiness(operator: &Operator) -> StatusCode {
    operator.get("/readyz").await.unwrap().0
}

/// How often the operator noticed a restore.
async fn rewinds(operator: &Operator) -> u64 {
    let text = operator.metrics().await.unwrap();
    let line = text.lines().find(|line| line.starts_with("landfall_history_rewinds_total "));
    line.unwrap().rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_etcd_is_noticed_and_everything_begins_afresh(
    #[values("--leader-elect=true", "--leader-elect=false")] election: &str,
) {
    let arena = arena().await;
    let tenant = arena.tenant("rewind").await;
    tenant.pool(pool("rewind", &["10.10.14.0/24"])).await;
    let proxy = arena.proxy().await;
    let operator = arena.operator_via_with(&proxy, &[election]).await;
    burst(&tenant, (0..5).map(|n| format!("kept{n}"))).await;
    let kept = all_served(&tenant).await.shown();
    arena.plane().save_etcd().unwrap();

    // The restore will undo all of this.
    tenant.delete("kept4").await;
    burst(&tenant, (0..20).map(|n| format!("lost{n:02}"))).await;
    all_served(&tenant).await;
    tenant.create(load_balancer("waits").asking("10.99.0.1")).await;
    tenant.says("waits", "False", "OutsideEveryPool", "").await;
    assert_eq!(rewinds(&operator).await, 0);

    // Lists of Services are held back from now on, so that the fresh start can be observed.
    proxy.add_rule(|request| {
        (request.is_list() && request.is_for("services")).then_some(Action::Freeze)
    });
    arena.plane().restore_etcd().await.unwrap();
    wait::until("an operator that is not ready", LONG, async || {
        let status = readiness(&operator).await;
        let log = operator.log_tail(10);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            Ok(())
        } else {
            Err(format!("{status}, {log}"))
        }
    })
    .await
    .unwrap();
    proxy.clear_rules();
    proxy.thaw();
    operator.wait_ready(LONG).await.unwrap();
    assert_eq!(rewinds(&operator).await, 1);
    assert!(operator.log_tail(1000).contains("the cluster's history went back"));

    burst(&tenant, (0..5).map(|n| format!("new{n}"))).await;
    let mut seen = all_served(&tenant).await.shown();
    seen.retain(|key, _| kept.contains_key(key));
    assert_eq!(seen, kept, "no Service is moved");
    let seen = tenant.settled().await;
    assert_eq!(seen.claims.len(), 10, "nothing is claimed for what does not exist");
    assert!(operator.is_running());
}
