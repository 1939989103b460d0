//! Several operators at once, without an election: only the protocol keeps them apart.

use std::collections::BTreeMap;

use futures::{StreamExt as _, stream};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use landfall_api::{keys, name};
use landfall_testkit::builders::{ServiceBuilder as _, load_balancer, pool};
use landfall_testkit::cluster::{Recorder, Snapshot, shown};
use landfall_testkit::random::Random;
use landfall_testkit::{Operator, wait};
use rstest::rstest;
use serde_json::json;

use crate::stage::{Arena, Dialect, LONG, Tenant, arena, describe, ip};

/// The number of users who act at the same time.
const USERS: usize = 12;

pub(crate) async fn start(arena: &Arena, count: usize) -> Vec<Operator> {
    let mut operators = Vec::new();
    for _ in 0..count {
        let operator = arena.operator().await;
        operator.wait_ready(LONG).await.unwrap();
        operators.push(operator);
    }
    operators
}

/// Creates Services as fast as the API server takes them.
pub(crate) async fn burst(tenant: &Tenant, names: impl IntoIterator<Item = String>) {
    stream::iter(names)
        .map(|name| async move { tenant.create(load_balancer(&name)).await })
        .buffer_unordered(USERS)
        .for_each(async |_| ())
        .await;
}

/// Waits until every Service has what it can have, and the cluster is in order.
pub(crate) async fn all_served(tenant: &Tenant) -> Snapshot {
    wait::until("all that can be served to be served", LONG, async || {
        let seen = Snapshot::take(&tenant.client).await.map_err(|error| format!("{error:?}"))?;
        let mut problems = seen.problems();
        let holders: BTreeMap<_, _> =
            seen.claims.iter().map(|ip| (ip.metadata.name.clone(), ip)).collect();
        for service in &seen.services {
            let spec = service.spec.as_ref().unwrap();
            if spec.type_.as_deref() != Some("LoadBalancer") {
                continue;
            }
            let (name, shows) = (service.metadata.name.clone().unwrap(), shown(service));
            match spec.load_balancer_ip.as_deref() {
                None if shows.len() == 1 => {}
                None => problems.push(format!("{name} shows {shows:?}")),
                Some(asked) if shows == [ip(asked)] => {}
                // It may be refused only because another holder really has the address.
                Some(asked) => {
                    let holder = holders.get(&Some(name::of(ip(asked))));
                    let other = holder
                        .is_some_and(|ip| ip.spec.holders.iter().any(|other| other.name != name));
                    if !other {
                        let seen = describe(service);
                        problems.push(format!("{name} asks for {asked}, shows {seen}"));
                    }
                }
            }
        }
        if problems.is_empty() { Ok(seen) } else { Err(problems.join("; ")) }
    })
    .await
    .unwrap()
}

/// One change that a user makes, whatever has changed meanwhile.
#[derive(Debug)]
enum Act {
    Delete,
    CreateAgain(Option<String>),
    Ask(Option<String>),
    Type(&'static str),
    /// Shares on this port, or not at all.
    Share(Option<usize>),
}

async fn act(tenant: &Tenant, name: &str, act: Act) {
    let done = match act {
        Act::Delete => tenant.services.delete(name, &DeleteParams::default()).await.map(drop),
        Act::CreateAgain(asked) => {
            drop(tenant.services.delete(name, &DeleteParams::default()).await);
            let service = load_balancer(name);
            let service = match asked {
                Some(asked) => service.asking(&asked),
                None => service,
            };
            tenant.services.create(&PostParams::default(), &service).await.map(drop)
        }
        Act::Ask(asked) => {
            let patch = Patch::Merge(json!({"spec": {"loadBalancerIP": asked}}));
            tenant.services.patch(name, &PatchParams::default(), &patch).await.map(drop)
        }
        Act::Type(kind) => {
            let patch = json!({"spec": {"type": kind, "allocateLoadBalancerNodePorts": null}});
            let patch = Patch::Merge(patch);
            tenant.services.patch(name, &PatchParams::default(), &patch).await.map(drop)
        }
        Act::Share(port) => {
            let key = port.map(|_| "shared");
            let ports = [json!({"port": port.unwrap_or(80)})];
            let patch = json!({
                "metadata": {"annotations": {keys::ANNOTATION_SHARING_KEY: key}},
                "spec": {"ports": ports},
            });
            tenant
                .services
                .patch(name, &PatchParams::default(), &Patch::Merge(patch))
                .await
                .map(drop)
        }
    };
    match done {
        Ok(()) => {}
        // Two users at one Service.
        Err(kube::Error::Api(status)) if [404, 409, 422].contains(&status.code) => {}
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Seeded changes of many Services by many users.
pub(crate) async fn churn(
    tenant: &Tenant,
    names: &[String],
    network: &str,
    acts: usize,
    seed: u64,
) {
    let mut random = Random::new(seed);
    let mut plan = Vec::new();
    for _ in 0..acts {
        let name = names[random.below(names.len())].clone();
        let asked = Some(format!("{network}.{}", random.below(250)));
        let asked = asked.filter(|_| random.below(2) == 0);
        plan.push((
            name,
            match random.below(13) {
                0 => Act::Delete,
                1..4 => Act::CreateAgain(asked),
                4..8 => Act::Ask(asked),
                8 => Act::Type("ClusterIP"),
                9..12 => Act::Share(Some(80 + random.below(4)).filter(|port| *port > 80)),
                _ => Act::Type("LoadBalancer"),
            },
        ));
    }
    stream::iter(plan)
        .map(|(name, what)| async move { act(tenant, &name, what).await })
        .buffer_unordered(USERS)
        .for_each(async |()| ())
        .await;
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("s{n:03}")).collect()
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn two_operators_at_once_double_nothing_and_leak_nothing(
    #[values(Dialect::Groups, Dialect::KubeVip)] dialect: Dialect,
) {
    let arena = arena().await;
    let tenant = arena.tenant("many-two").await;
    tenant.addresses(dialect, &["10.6.0.0/24"]).await;
    let recorder = Recorder::start(&tenant.client).await.unwrap();
    let operators = start(&arena, 2).await;
    let names = names(160);
    burst(&tenant, names.clone()).await;
    // Administrators act as well: each operator learns of it at another time.
    let edits = async {
        for n in 0..20 {
            let (low, high) =
                (format!("10.6.0.{n}-10.6.0.{}", 60 + n), format!("10.6.0.{}-10.6.0.254", 90 + n));
            tenant.addresses(dialect, &[&low, &high]).await;
            if dialect == Dialect::Groups {
                tenant
                    .edit_pool("many-two", json!({"drain": n % 5 == 4, "excludedIPs": [low]}))
                    .await;
            }
            tenant.pool(pool("many-more", &["10.6.0.100-10.6.1.40"])).await;
            tenant.delete_pool("many-more").await;
        }
        if dialect == Dialect::Groups {
            tenant.edit_pool("many-two", json!({"drain": false, "excludedIPs": []})).await;
        }
        tenant.addresses(dialect, &["10.6.0.0/24"]).await;
    };
    tokio::join!(edits, churn(&tenant, &names, "10.6.0", 400, 1));
    all_served(&tenant).await;
    // And from rest: both operators then do everything at the same time.
    churn(&tenant, &names, "10.6.0", 200, 2).await;
    all_served(&tenant).await;
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.problems(), Vec::<String>::new());
    assert!(operators.iter().all(Operator::is_running));
}

#[tokio::test(flavor = "multi_thread")]
async fn three_operators_give_the_last_address_of_overlapping_pools_and_none_twice() {
    let arena = arena().await;
    let tenant = arena.tenant("many-three").await;
    // 60 addresses for 60 Services; 20 of them in both pools.
    tenant.pool(pool("many-a", &["10.6.4.0-10.6.4.39"])).await;
    tenant.pool(pool("many-b", &["10.6.4.20-10.6.4.59"])).await;
    let recorder = Recorder::start(&tenant.client).await.unwrap();
    let operators = start(&arena, 3).await;
    let names = names(60);
    burst(&tenant, names.clone()).await;
    let seen = all_served(&tenant).await;
    assert_eq!(seen.shown().len(), 60);
    // Each address counts where it was given.
    let claims = tenant.claims.list(&ListParams::default()).await.unwrap().items;
    for name in ["many-a", "many-b"] {
        let giver = format!("IPGroup/{name}");
        let given = claims.iter().filter(|claim| claim.spec.pool.as_ref() == Some(&giver)).count();
        tenant.pool_counts(name, "40", &given.to_string(), "0").await;
    }

    // Each Service that is deleted makes room for exactly one waiter.
    burst(&tenant, (0..20).map(|n| format!("late{n}"))).await;
    for name in names.iter().take(20) {
        tenant.delete(name).await;
    }
    let seen = all_served(&tenant).await;
    assert_eq!(seen.shown().len(), 60);
    let history = recorder.finish().await.unwrap();
    assert_eq!(history.problems(), Vec::<String>::new());
    assert_eq!(history.moved(), []);
    drop(operators);
}
