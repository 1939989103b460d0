//! When an operator dies after any single write, the next one completes the work.
//!
//! Scenarios, and one driver that runs each of them once undisturbed and then once for every write
//! it consists of, with the operator dead after that write and another in its place.

use std::collections::BTreeMap;
use std::net::IpAddr;

use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use landfall_api::{IPGroup, keys};
use landfall_testkit::builders::{
    PoolBuilder as _, ServiceBuilder as _, load_balancer, original_claim, pool,
};
use landfall_testkit::cluster::{Recorder, shown};
use landfall_testkit::proxy::Record;
use landfall_testkit::{Operator, Proxy, wait};
use rstest::rstest;
use serde_json::json;

use crate::stage::{Arena, Dialect, LONG, Tenant, allocated, arena, ip};

type Filter = fn(&Record) -> bool;

/// The last number of a pool's first address. Not 0, which the `ConfigMap`'s pools never give.
const FIRST: u8 = 8;

/// Writes that give or take addresses.
fn of_the_ledger(request: &Record) -> bool {
    request.is_work() && !request.is_for("ipgroups")
}

/// Writes that only tell how full a pool is.
fn of_pool_status(request: &Record) -> bool {
    request.is_work() && request.is_for("ipgroups")
}

/// Acts in a cluster with one pool, `10.5.N.8/29` in round N, and their expected outcome. Addresses are
/// counted from its first.
struct Scenario {
    name: &'static str,
    /// The settings of the pool.
    pool: fn(IPGroup) -> IPGroup,
    /// Creates the objects that exist before any operator runs.
    prepare: for<'a> fn(&'a Round<'_>) -> LocalBoxFuture<'a, ()>,
    /// The acts of users; each waits for its outcome before the next.
    act: for<'a> fn(&'a mut Round<'_>) -> LocalBoxFuture<'a, ()>,
    /// The addresses that Services show in the end.
    shown: &'static [(&'static str, u8)],
    /// Services whose address changed, from and to: as they asked, and no others.
    moved: &'static [(&'static str, u8, u8)],
    /// The least number of ledger writes, so that the scenario cannot become harmless unnoticed.
    writes: usize,
}

const ALLOCATE_AND_RELEASE: Scenario = Scenario {
    name: "allocate and release",
    pool: |pool| pool,
    prepare: |round| {
        Box::pin(async {
            for name in ["a", "b"] {
                round.create(load_balancer(name)).await;
            }
            round.create(load_balancer("c").asking(&round.addr(5))).await;
        })
    },
    act: |round| Box::pin(allocate_and_release(round)),
    shown: &[("c", 5)],
    moved: &[],
    writes: 8,
};

const CHANGE_A_REQUEST: Scenario = Scenario {
    name: "change a request",
    pool: |pool| pool,
    prepare: |round| {
        Box::pin(async {
            round.create(load_balancer("c").asking(&round.addr(5))).await;
        })
    },
    act: |round| Box::pin(change_a_request(round)),
    shown: &[("d", 6)],
    moved: &[("c", 5, 6)],
    writes: 8,
};

const SHARE: Scenario = Scenario {
    name: "share",
    pool: |pool| pool,
    prepare: |round| {
        Box::pin(async {
            round.create(load_balancer("e").sharing("k", &[80])).await;
        })
    },
    act: |round| Box::pin(share(round)),
    shown: &[("f", 1)],
    moved: &[("f", 0, 1)],
    writes: 8,
};

const RETAIN: Scenario = Scenario {
    name: "retain",
    pool: |pool| pool.with(|spec| spec.retain_for = Some("1h".into())),
    prepare: |round| {
        Box::pin(async {
            for name in ["a", "b"] {
                round.create(load_balancer(name)).await;
            }
        })
    },
    act: |round| Box::pin(retain(round)),
    shown: &[("a", 0), ("b", 1)],
    moved: &[],
    writes: 9,
};

const TAKE_OVER: Scenario = Scenario {
    name: "take over",
    pool: |pool| pool,
    prepare: |round| Box::pin(left_by_the_original(round)),
    act: |round| Box::pin(take_over(round)),
    shown: &[("held", 1), ("shown", 2), ("half", 3)],
    moved: &[],
    writes: 8,
};

const TAKE_OVER_FROM_THE_PROVIDER: Scenario = Scenario {
    name: "take over from kube-vip's provider",
    pool: |pool| pool,
    prepare: |round| Box::pin(left_by_the_provider(round)),
    act: |round| Box::pin(take_over_from_the_provider(round)),
    shown: &[("given", 1), ("asked", 2), ("half", 3), ("waits", 0)],
    moved: &[],
    writes: 13,
};

/// One in order, one that its user annotated, one that asked and was not annotated yet, one that was seen and
/// not served, one that changed its type and was not cleaned up, and one whose deletion is stuck. All have
/// the finalizer.
async fn left_by_the_provider(round: &Round<'_>) {
    let finalizers = json!({"metadata": {"finalizers": [keys::FINALIZER_CLOUD_PROVIDER]}});
    let given = |last: u8| {
        let addr = round.addr(last);
        json!({
            "metadata": {
                "labels": {"implementation": "kube-vip"},
                "annotations": {keys::ANNOTATION_KUBE_VIP_ADDRESSES: addr},
            },
            "spec": {"loadBalancerIP": addr},
        })
    };
    let asked = json!({
        "metadata": {"annotations": {keys::ANNOTATION_KUBE_VIP_ADDRESSES: round.addr(2)}},
    });
    let half = json!({"spec": {"loadBalancerIP": round.addr(3)}});
    let plain = json!({"spec": {"type": "ClusterIP", "allocateLoadBalancerNodePorts": null}});
    for (name, written) in [
        ("given", vec![given(1)]),
        ("asked", vec![asked]),
        ("half", vec![half]),
        ("waits", vec![]),
        ("plain", vec![given(4), plain]),
        ("going", vec![given(5)]),
    ] {
        round.create(load_balancer(name)).await;
        for patch in [vec![finalizers.clone()], written].concat() {
            round.tenant.patch(name, patch).await;
        }
    }
    round.tenant.delete("going").await;
}

async fn take_over_from_the_provider(round: &mut Round<'_>) {
    round.shows("half", 3).await;
    round.shows("waits", 0).await;
    round.finalizers_go().await;
    for last in [1, 2] {
        let addr = round.addr(last);
        round
            .reaches("the ledger to be complete", async |tenant| {
                tenant.claim(&addr).await.map(drop).ok_or_else(|| "no claim".to_owned())
            })
            .await;
    }
    round
        .reaches("nothing to be left on what is no LoadBalancer", async |tenant| {
            let plain = tenant.get("plain").await;
            if shown(&plain).is_empty() { Ok(()) } else { Err(format!("{plain:?}")) }
        })
        .await;
}

/// One in order, one without a claim, one whose claim was not shown yet, one that changed its type and was
/// not released, and one whose deletion is stuck. All but one have the finalizer.
async fn left_by_the_original(round: &Round<'_>) {
    let tenant = &round.tenant;
    let finalizers = json!({"metadata": {"finalizers": [keys::FINALIZER_SERVICE]}});
    for name in ["held", "shown", "half", "plain", "going"] {
        let kind = if name == "plain" { "ClusterIP" } else { "LoadBalancer" };
        round.create(load_balancer(name).of_type(kind)).await;
        if name != "half" {
            tenant.patch(name, finalizers.clone()).await;
        }
    }
    for (name, last) in [("held", 1), ("shown", 2), ("going", 5)] {
        tenant.set_ingress(name, json!([{"ip": round.addr(last)}])).await;
    }
    for (name, last) in [("held", 1), ("half", 3), ("plain", 4)] {
        let group = format!("stop-{}", round.number);
        let claim = original_claim(ip(&round.addr(last)), &group, &tenant.key(name));
        tenant.make_claim(&claim).await;
    }
    tenant.delete("going").await;
}

async fn take_over(round: &mut Round<'_>) {
    round.shows("half", 3).await;
    round.claim_is_gone(4).await;
    round.finalizers_go().await;
    let shown = round.addr(2);
    round
        .reaches("the ledger to be complete", async |tenant| {
            tenant.claim(&shown).await.map(drop).ok_or_else(|| "no claim".to_owned())
        })
        .await;
}

/// One is deleted, one changes its type.
async fn allocate_and_release(round: &mut Round<'_>) {
    round.shows("a", 0).await;
    round.shows("b", 1).await;
    round.shows("c", 5).await;
    round.tenant.delete("a").await;
    round.claim_is_gone(0).await;
    let plain = json!({"spec": {"type": "ClusterIP", "allocateLoadBalancerNodePorts": null}});
    round.tenant.patch("b", plain).await;
    round.claim_is_gone(1).await;
}

/// One moves, another is refused the address it moved to, and served when it is deleted.
async fn change_a_request(round: &mut Round<'_>) {
    round.shows("c", 5).await;
    round.tenant.ask("c", &*round.addr(6)).await;
    round.shows("c", 6).await;
    round.claim_is_gone(5).await;
    round.create(load_balancer("d").asking(&round.addr(6))).await;
    round.refused("d", "TakenBy").await;
    round.tenant.delete("c").await;
    round.shows("d", 6).await;
}

/// Two share an address, one of them takes the other's port, the other is deleted.
async fn share(round: &mut Round<'_>) {
    round.shows("e", 0).await;
    round.create(load_balancer("f").sharing("k", &[443])).await;
    round.shows("f", 0).await;
    round.tenant.patch("f", json!({"spec": {"ports": [{"name": "p80", "port": 80}]}})).await;
    round.shows("f", 1).await;
    round.tenant.delete("e").await;
    round.claim_is_gone(0).await;
}

/// One comes back after its address was retained, one at once; another Service gets neither.
async fn retain(round: &mut Round<'_>) {
    round.shows("a", 0).await;
    round.shows("b", 1).await;
    round.tenant.delete("a").await;
    round.claim_waits(0).await;
    round.tenant.delete("b").await;
    round.create(load_balancer("b")).await;
    round.shows("b", 1).await;
    round.create(load_balancer("stranger").asking(&round.addr(0))).await;
    round.refused("stranger", "Reserved").await;
    round.create(load_balancer("a")).await;
    round.shows("a", 0).await;
}

/// One run of a scenario, with a second operator once the first one's traffic has ended.
struct Round<'a> {
    arena: &'a Arena,
    dialect: Dialect,
    tenant: Tenant,
    number: usize,
    proxy: Proxy,
    operators: Vec<Operator>,
    stopped: bool,
}

impl Round<'_> {
    async fn create(&self, service: Service) {
        self.tenant.create(service).await;
    }

    fn addr(&self, count: u8) -> String {
        format!("10.5.{}.{}", self.number, FIRST + count)
    }

    /// Waits for the outcome of a step, whichever operator brings it about.
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

    async fn claim_waits(&mut self, last: u8) {
        let addr = self.addr(last);
        self.reaches(&format!("the claim on {addr} to wait"), async |tenant| {
            let claim = tenant.claim(&addr).await.ok_or("it is gone")?;
            let waits = claim.spec.holders.is_empty() && claim.spec.reserved_for.is_some();
            if waits { Ok(()) } else { Err(format!("{:?}", claim.spec)) }
        })
        .await;
    }

    async fn finalizers_go(&mut self) {
        self.reaches("the finalizers to go", async |tenant| {
            let all = tenant.services.list(&ListParams::default()).await;
            let all = all.map_err(|error| error.to_string())?;
            let left = all.iter().find(|service| !service.finalizers().is_empty());
            left.map_or(Ok(()), |service| Err(service.name_any()))
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

/// The outcome of a round, without the round's own network and namespace.
#[derive(Debug, PartialEq)]
struct Outcome {
    shown: BTreeMap<String, Vec<u8>>,
    moved: Vec<(String, Vec<u8>, Vec<u8>)>,
}

fn counted(addrs: &[IpAddr]) -> Vec<u8> {
    addrs
        .iter()
        .map(|addr| match addr {
            IpAddr::V4(addr) => addr.octets()[3] - FIRST,
            IpAddr::V6(_) => panic!("{addr}"),
        })
        .collect()
}

impl Scenario {
    /// Runs it; returns the outcome and whether the stop happened.
    async fn run(
        &self,
        arena: &Arena,
        dialect: Dialect,
        number: usize,
        stop: Option<(usize, Filter)>,
    ) -> (Outcome, bool) {
        let namespace = format!("stop-{number}");
        let tenant = arena.tenant(&namespace).await;
        let proxy = arena.proxy().await;
        if let Some((count, filter)) = stop {
            proxy.stop_after(count, filter);
        }
        let block = format!("10.5.{number}.{FIRST}/29");
        match dialect {
            Dialect::Groups => {
                let pool = pool(&namespace, &[&block]).only_for(&namespace);
                tenant.pool((self.pool)(pool)).await;
            }
            Dialect::KubeVip => tenant.addresses(dialect, &[&block]).await,
        }
        let operators = vec![];
        let mut round = Round { arena, dialect, tenant, number, proxy, operators, stopped: false };
        (self.prepare)(&round).await;
        let recorder = Recorder::start(&arena.client).await.unwrap();
        round.operators.push(arena.operator_via(&round.proxy).await);
        (self.act)(&mut round).await;
        round.pool_counts().await;
        if !round.stopped && round.proxy.is_stopped() {
            round.crash().await;
            round.operators[1].wait_ready(LONG).await.unwrap();
        }

        let snapshot = round.tenant.settled().await;
        let history = recorder.finish().await.unwrap();
        let context = format!("{}, round {number}, {stop:?}", self.name);
        assert_eq!(history.problems(), Vec::<String>::new(), "{context}");
        assert_eq!(history.unasked(), [], "{context}");
        let mine = |key: &str| key.strip_prefix(&format!("{namespace}/")).map(str::to_owned);
        let shown = snapshot.shown();
        let shown = shown.iter().filter_map(|(key, addrs)| Some((mine(key)?, counted(addrs))));
        let moved = history.moved();
        let moved = moved
            .iter()
            .filter_map(|(key, old, new)| Some((mine(key)?, counted(old), counted(new))));
        let outcome = Outcome { shown: shown.collect(), moved: moved.collect() };
        let stopped = round.stopped;
        round.clear().await;
        (outcome, stopped)
    }

    fn expected(&self) -> Outcome {
        let shown = self.shown.iter().map(|(name, addr)| ((*name).to_owned(), vec![*addr]));
        let moved = self.moved.iter();
        let moved = moved.map(|(name, from, to)| ((*name).to_owned(), vec![*from], vec![*to]));
        Outcome { shown: shown.collect(), moved: moved.collect() }
    }
}

impl Round<'_> {
    /// Waits until the pool's status agrees with the ledger.
    async fn pool_counts(&mut self) {
        if self.dialect == Dialect::KubeVip {
            return;
        }
        let name = format!("stop-{}", self.number);
        let network = format!("10.5.{}.", self.number);
        self.reaches("the pool's numbers", async |tenant| {
            let pool = tenant.pools.get(&name).await.map_err(|error| error.to_string())?;
            let claims = tenant.claims.list(&ListParams::default()).await;
            let claims = claims.map_err(|error| error.to_string())?;
            let taken = claims.iter().filter_map(|claim| claim.metadata.name.as_deref());
            let taken = taken.filter(|name| name.starts_with(&network)).count();
            let status = pool.status.unwrap_or_default();
            let seen = (status.capacity.as_deref(), status.used.as_deref());
            if seen == (Some("8"), Some(&*taken.to_string())) {
                Ok(())
            } else {
                Err(format!("{seen:?}, {taken} taken"))
            }
        })
        .await;
    }

    /// Removes everything the round made, so that the next begins with nothing.
    async fn clear(&mut self) {
        for service in self.tenant.services.list(&ListParams::default()).await.unwrap() {
            self.tenant.delete(&service.metadata.name.unwrap()).await;
        }
        for last in 0..8 {
            let addr = self.addr(last);
            self.reaches(&format!("the claim on {addr} to have no holder"), async |tenant| {
                // Claims of the original operator name their owner only in an annotation.
                let held = tenant.claim(&addr).await.filter(|it| {
                    let owned = it.annotations().contains_key(keys::ANNOTATION_OWNER);
                    owned || !it.spec.holders.is_empty()
                });
                held.map_or(Ok(()), |claim| Err(format!("{:?}", claim.spec)))
            })
            .await;
            // A claim retained for a Service that will not come back.
            if self.tenant.claim(&addr).await.is_some() {
                self.tenant.claims.delete(&addr, &DeleteParams::default()).await.unwrap();
            }
        }
        if self.dialect == Dialect::Groups {
            self.tenant.delete_pool(&format!("stop-{}", self.number)).await;
        }
    }
}

/// Runs a scenario undisturbed, and then with the operator dead after each of its writes.
async fn survives_every_crash(scenario: &Scenario, dialect: Dialect) {
    let arena = arena().await;
    let mut numbers = 0..;
    let mut run = async |stop| scenario.run(&arena, dialect, numbers.next().unwrap(), stop).await;
    let expected = scenario.expected();
    assert_eq!(run(None).await.0, expected, "{}, undisturbed", scenario.name);
    let ledger = (of_the_ledger as Filter, scenario.writes);
    // A `ConfigMap` has no status.
    let status = (dialect == Dialect::Groups).then_some((of_pool_status as Filter, 1));
    for (filter, at_least) in [ledger].into_iter().chain(status) {
        let mut count = 0;
        loop {
            let (outcome, stopped) = run(Some((count, filter))).await;
            assert_eq!(outcome, expected, "{}, after {count} writes", scenario.name);
            if !stopped {
                break;
            }
            count += 1;
        }
        let name = scenario.name;
        assert!(count >= at_least, "only {count} writes: is {name:?} what it was?");
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_any_write_of_giving_and_taking_is_repaired(
    #[values(Dialect::Groups, Dialect::KubeVip)] dialect: Dialect,
) {
    survives_every_crash(&ALLOCATE_AND_RELEASE, dialect).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_any_write_of_a_changed_request_is_repaired(
    #[values(Dialect::Groups, Dialect::KubeVip)] dialect: Dialect,
) {
    survives_every_crash(&CHANGE_A_REQUEST, dialect).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_any_write_of_sharing_is_repaired(
    #[values(Dialect::Groups, Dialect::KubeVip)] dialect: Dialect,
) {
    survives_every_crash(&SHARE, dialect).await;
}

#[rstest]
#[case(&TAKE_OVER, Dialect::Groups)]
#[case(&TAKE_OVER_FROM_THE_PROVIDER, Dialect::KubeVip)]
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_any_write_of_a_take_over_is_repaired(
    #[case] scenario: &Scenario,
    #[case] dialect: Dialect,
) {
    survives_every_crash(scenario, dialect).await;
}

/// Pools of the `ConfigMap` retain nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_any_write_of_retaining_is_repaired() {
    survives_every_crash(&RETAIN, Dialect::Groups).await;
}
