//! An operator that dies after any single write leaves nothing that the next one does not mend.

use std::collections::BTreeMap;
use std::net::IpAddr;

use landfall_testkit::builders::{PoolBuilder as _, ServiceBuilder as _, load_balancer, pool};
use landfall_testkit::cluster::{Recorder, shown};
use landfall_testkit::proxy::Record;
use landfall_testkit::{Operator, Proxy, wait};
use serde_json::json;

use crate::stage::{Arena, LONG, Tenant, allocated, arena, ip};

type Filter = fn(&Record) -> bool;

/// Writes that give or take addresses.
fn of_the_ledger(request: &Record) -> bool {
    request.is_work() && !request.is_for("ipgroups")
}

/// Writes that only tell how full a pool is.
fn of_pool_status(request: &Record) -> bool {
    request.is_work() && request.is_for("ipgroups")
}

/// One run of the scenario, with a second operator once the first one's traffic has ended.
struct Round<'a> {
    arena: &'a Arena,
    tenant: Tenant,
    number: usize,
    proxy: Proxy,
    operators: Vec<Operator>,
    stopped: bool,
}

impl Round<'_> {
    fn addr(&self, last: u8) -> String {
        format!("10.5.{}.{last}", self.number)
    }

    /// Waits for what a step leads to, whichever operator does it.
    async fn reaches(
        &mut self,
        what: &str,
        mut look: impl AsyncFnMut(&Tenant) -> Result<(), String>,
    ) {
        let what = format!("{what} in round {}", self.number);
        let crash = wait::until(&*what, LONG, async || {
            if !self.stopped && self.proxy.is_stopped() {
                return Ok(true);
            }
            look(&self.tenant).await.map(|()| false)
        })
        .await
        .unwrap();
        if crash {
            self.crash().await;
            wait::until(&*what, LONG, async || look(&self.tenant).await).await.unwrap();
        }
    }

    async fn crash(&mut self) {
        self.stopped = true;
        self.operators[0].kill().unwrap();
        self.operators.push(self.arena.operator().await);
    }

    async fn shows(&mut self, name: &str, last: u8) {
        let addr = self.addr(last);
        self.reaches(&format!("{name} to show {addr}"), async |tenant| {
            let service = tenant.services.get(name).await.map_err(|error| error.to_string())?;
            let seen = shown(&service);
            if seen == [ip(&addr)] { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await;
    }

    async fn claim_is_gone(&mut self, last: u8) {
        let addr = self.addr(last);
        self.reaches(&format!("the claim on {addr} to go"), async |tenant| {
            tenant.claim(&addr).await.map_or(Ok(()), |claim| Err(format!("{:?}", claim.spec)))
        })
        .await;
    }

    async fn refused(&mut self, name: &str, reason: &str) {
        self.reaches(&format!("{name} to be refused"), async |tenant| {
            let service = tenant.services.get(name).await.map_err(|error| error.to_string())?;
            match allocated(&service) {
                Some(condition) if condition.reason == reason => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
}

/// What a round came to, with the round's own network and namespace taken out.
#[derive(Debug, PartialEq)]
struct Outcome {
    shown: BTreeMap<String, Vec<u8>>,
    moved: Vec<(String, Vec<u8>, Vec<u8>)>,
}

fn last_octets(addrs: &[IpAddr]) -> Vec<u8> {
    addrs
        .iter()
        .map(|addr| match addr {
            IpAddr::V4(addr) => addr.octets()[3],
            IpAddr::V6(_) => panic!("{addr}"),
        })
        .collect()
}

/// Runs the scenario; says what it came to and whether the stop struck.
async fn round(arena: &Arena, number: usize, stop: Option<(usize, Filter)>) -> (Outcome, bool) {
    let namespace = format!("stop-{number}");
    let tenant = arena.tenant(&namespace).await;
    let proxy = arena.proxy().await;
    if let Some((count, filter)) = stop {
        proxy.stop_after(count, filter);
    }
    let block = format!("10.5.{number}.0/29");
    tenant.pool(pool(&namespace, &[&block]).only_for(&namespace)).await;
    let recorder = Recorder::start(&arena.client).await.unwrap();
    let mut round =
        Round { arena, tenant: tenant.clone(), number, proxy, operators: vec![], stopped: false };
    for name in ["a", "b"] {
        tenant.create(load_balancer(name)).await;
    }
    tenant.create(load_balancer("c").asking(&round.addr(5))).await;
    round.operators.push(arena.operator_via(&round.proxy).await);

    round.shows("a", 0).await;
    round.shows("b", 1).await;
    round.shows("c", 5).await;
    // A request changes.
    tenant.ask("c", &*round.addr(6)).await;
    round.shows("c", 6).await;
    round.claim_is_gone(5).await;
    // One is refused.
    tenant.create(load_balancer("d").asking(&round.addr(6))).await;
    round.refused("d", "TakenBy").await;
    // One is deleted, one changes its type.
    tenant.delete("a").await;
    round.claim_is_gone(0).await;
    tenant
        .patch("b", json!({"spec": {"type": "ClusterIP", "allocateLoadBalancerNodePorts": null}}))
        .await;
    round.claim_is_gone(1).await;
    // The refused one is served.
    tenant.delete("c").await;
    round.shows("d", 6).await;
    // Two share an address, one of them takes the other's port, the other goes.
    tenant.create(load_balancer("e").sharing("k", &[80])).await;
    round.shows("e", 0).await;
    tenant.create(load_balancer("f").sharing("k", &[443])).await;
    round.shows("f", 0).await;
    tenant.patch("f", json!({"spec": {"ports": [{"name": "p80", "port": 80}]}})).await;
    round.shows("f", 1).await;
    tenant.delete("e").await;
    round.claim_is_gone(0).await;
    round
        .reaches("the pool's numbers", async |tenant| {
            let pool = tenant.pools.get(&namespace).await.map_err(|error| error.to_string())?;
            let status = pool.status.unwrap_or_default();
            let seen = (status.capacity.as_deref(), status.used.as_deref(), status.free.as_deref());
            if seen == (Some("8"), Some("2"), Some("6")) {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        })
        .await;
    if !round.stopped && round.proxy.is_stopped() {
        round.crash().await;
        round.operators[1].wait_ready(LONG).await.unwrap();
    }

    let snapshot = tenant.settled().await;
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.problems(), Vec::<String>::new(), "round {number}, {stop:?}");
    let mine = |key: &str| key.strip_prefix(&format!("{namespace}/")).map(str::to_owned);
    let shown = snapshot.shown();
    let shown = shown.iter().filter_map(|(key, addrs)| Some((mine(key)?, last_octets(addrs))));
    let moved = history.moved();
    let moved = moved
        .iter()
        .filter_map(|(key, old, new)| Some((mine(key)?, last_octets(old), last_octets(new))));
    let outcome = Outcome { shown: shown.collect(), moved: moved.collect() };
    let stopped = round.stopped;
    for name in ["b", "d", "f"] {
        tenant.delete(name).await;
    }
    round.claim_is_gone(6).await;
    round.claim_is_gone(1).await;
    tenant.delete_pool(&namespace).await;
    (outcome, stopped)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_any_single_write_is_mended_without_a_change_of_address() {
    let arena = arena().await;
    let (undisturbed, _) = round(&arena, 0, None).await;
    let shown = [("d".to_owned(), vec![6]), ("f".to_owned(), vec![1])];
    assert_eq!(undisturbed.shown, BTreeMap::from(shown));
    let moved = [("c".to_owned(), vec![5], vec![6]), ("f".to_owned(), vec![0], vec![1])];
    assert_eq!(undisturbed.moved, moved, "as asked");
    let mut number = 1;
    for (filter, at_least) in [(of_the_ledger as Filter, 23), (of_pool_status, 2)] {
        let mut count = 0;
        loop {
            let (outcome, stopped) = round(&arena, number, Some((count, filter))).await;
            assert_eq!(outcome, undisturbed, "stopped after {count} writes");
            number += 1;
            if !stopped {
                break;
            }
            count += 1;
        }
        assert!(count >= at_least, "only {count} writes: is the scenario what it was?");
    }
}
