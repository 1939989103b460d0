use landfall_api::virtualip::State;
use landfall_testkit::builders::segment;
use landfall_testkit::cluster::Recorder;

use super::{Old, VALID};
use crate::stage::old_arena;

/// More writes than a migration needs.
const MOST: usize = 30;

/// The operator dies after its first write, its second, and so on, and another one goes on.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_dies_at_any_write_is_gone_on_from_without_a_gap() {
    let arena = old_arena().await;
    let old = Old::new(&arena, "vip-crash").await;
    old.mapping("crash", "10.42.0.0/24", &[]).await;
    old.tenant.pool(segment("crash", "10.42.0.0/24", &[])).await;
    let mut done = false;
    for writes in 1..=MOST {
        let name = format!("w{writes:02}");
        old.service(&name).await;
        old.expose(&name, &name, None).await;
        let operator = arena.operator().await;
        let status = old.is(&name, State::Valid, VALID).await;
        operator.kill().unwrap();
        let recorder = Recorder::start(&old.tenant.client).await.unwrap();
        old.migrate(&name).await;
        let proxy = arena.proxy().await;
        proxy.stop_after(writes, |request| request.is_write() && !request.is_for("events"));
        let operator = arena.operator_via(&proxy).await;
        tokio::select! {
            () = proxy.stopped() => {}
            _ = old.is(&name, State::Migrated, "") => done = true,
        }
        operator.kill().unwrap();
        drop(operator);
        let operator = arena.operator().await;
        old.is_migrated(&name, &name, &status.ip.unwrap()).await;
        old.tenant.settled().await;
        let history = recorder.finish().await.unwrap();
        assert_eq!(history.gaps(), [], "after {writes} writes");
        assert_eq!(history.problems(), Vec::<String>::new(), "after {writes} writes");
        assert_eq!(history.moved(), [], "after {writes} writes");
        drop(operator);
        if done {
            return;
        }
    }
    panic!("{MOST} writes were not enough");
}
