//! Which classes of Services the pools serve, and where the pools are read from.

use kube::ResourceExt as _;
use landfall_testkit::builders::{ServiceBuilder, load_balancer};
use landfall_testkit::wait;
use serde_json::json;

use super::{Map, annotated, deploy, deployed};
use crate::guide::{self, Guide};
use crate::stage::{LONG, arena};

/// A Service's name and its class.
const SERVICES: [(&str, Option<&str>); 4] = [
    ("bare", None),
    ("of-kube-vip", Some("kube-vip.io/kube-vip-class")),
    ("of-example", Some("example.com/vip")),
    ("of-another", Some("example.com/other")),
];

const ADDRESSES: [&str; 2] = ["10.31.0.1", "10.31.0.2"];

#[tokio::test(flavor = "multi_thread")]
async fn a_mode_serves_its_own_services_and_writes_no_other() {
    let arena = arena().await;
    let map = Map::new(&arena.client);
    map.says(&json!({"cidr-global": "10.31.0.0/28"})).await;
    let tenant = arena.tenant("modes").await;
    deploy(&arena).await;
    let guide = Guide::read("from-kube-vip.md").section("Class mode");
    let [class, custom, both] = guide.commands()[..] else { panic!("{:?}", guide.commands()) };
    for (command, served) in [
        (None, &["bare"][..]),
        (Some(class), &["of-kube-vip"]),
        (Some(custom), &["of-example"]),
        (Some(both), &["bare", "of-example"]),
    ] {
        if let Some(command) = command {
            guide::walk(&arena, command).await;
        }
        let operator = deployed(&arena, arena.plane().url()).await;
        // The Services to be served come last: by then the others have been decided.
        let (own, others): (Vec<_>, Vec<_>) =
            SERVICES.into_iter().partition(|(name, _)| served.contains(name));
        let create = async |name: &str, class: Option<&str>| {
            let service = load_balancer(name);
            tenant.create(class.into_iter().fold(service, ServiceBuilder::of_class)).await
        };
        let mut made = Vec::new();
        for (name, class) in others {
            made.push(create(name, class).await);
        }
        for ((name, class), addr) in own.into_iter().zip(ADDRESSES) {
            create(name, class).await;
            annotated(&tenant.services, name, addr).await;
        }
        tenant.settled().await;
        operator.terminate().await.unwrap();
        for before in &made {
            let name = before.name_any();
            let now = tenant.get(&name).await;
            assert_eq!(now.resource_version(), before.resource_version(), "{served:?}: {now:?}");
        }
        let operator = deployed(&arena, arena.plane().url()).await;
        tenant.clear().await;
        for addr in ADDRESSES {
            tenant.claim_is_gone(addr).await;
        }
        operator.terminate().await.unwrap();
    }
    map.goes().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pools_may_be_elsewhere() {
    let arena = arena().await;
    let guide = Guide::read("from-kube-vip.md").section("Pools elsewhere");
    let (here, there) = (Map::new(&arena.client), Map::at(&arena.client, "network", "pools"));
    let tenant = arena.tenant("elsewhere").await;
    arena.tenant("network").await;
    here.says(&json!({"cidr-global": "10.32.0.0/28"})).await;
    deploy(&arena).await;
    for rights in guide.blocks("yaml") {
        arena.apply(rights).await;
    }
    for command in guide.commands() {
        guide::walk(&arena, command).await;
    }
    let operator = deployed(&arena, arena.plane().url()).await;
    operator.wait_ready(LONG).await.unwrap();
    tenant.create(load_balancer("web")).await;
    tenant.says("web", "False", "NoPool", "").await;
    there.says(&json!({"range-global": "10.33.0.5-10.33.0.6"})).await;
    annotated(&tenant.services, "web", "10.33.0.5").await;
    wait::until("the claim to name its pool", LONG, async || {
        let claim = tenant.claim("10.33.0.5").await.ok_or("no claim")?;
        match claim.spec.pool.as_deref() {
            Some("ConfigMap/pools/range-global") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    for map in [here, there] {
        map.goes().await;
    }
    tenant.ends(&[]).await;
    operator.terminate().await.unwrap();
}
