//! Waits until an operator has nothing left to do, and checks what it wrote until then.

use http::Method;
use landfall_testkit::proxy::Record;
use landfall_testkit::{Operator, Proxy, wait};

use super::LONG;

/// Waits until an operator behind a proxy has nothing left to do, and checks that it wrote nothing else.
pub(crate) async fn writes_only(operator: Operator, proxy: &Proxy, kinds: &[&str]) {
    operator.wait_ready(LONG).await.unwrap();
    quiet(proxy).await;
    let writes: Vec<_> = proxy
        .requests()
        .into_iter()
        .filter(|request| request.is_write() && !kinds.iter().any(|kind| request.is_for(kind)))
        .map(|request| format!("{} {}", request.method, request.path))
        .collect();
    assert_eq!(writes, Vec::<String>::new());
    operator.terminate().await.unwrap();
}

/// How often the lease is renewed, every second, before an operator counts as idle.
const RENEWALS: usize = 8;

fn renews_the_lease(request: &Record) -> bool {
    request.is_for("leases") && request.method == Method::PUT
}

/// Waits until the lease was renewed several times without any other request in between.
pub(crate) async fn quiet(proxy: &Proxy) {
    quiet_since(proxy, 0).await;
}

/// The same, counting only requests after a mark.
pub(crate) async fn quiet_since(proxy: &Proxy, mark: usize) {
    wait::until("nothing but renewed leases", LONG, async || {
        let all = proxy.requests_since(mark);
        let after = all.iter().rposition(|request| !renews_the_lease(request));
        let since = all.len() - after.map_or(0, |at| at + 1);
        let last = after.map(|at| format!("{} {}", all[at].method, all[at].path));
        if since >= RENEWALS { Ok(()) } else { Err(format!("{since} renewals since {last:?}")) }
    })
    .await
    .unwrap();
}
