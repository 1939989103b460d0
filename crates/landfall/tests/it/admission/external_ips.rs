//! `deploy/admission-external-ips.yaml`: which users may list addresses of pools in `spec.externalIPs`.

use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use landfall_api::IPGroup;
use landfall_testkit::builders::{PoolBuilder as _, ServiceBuilder as _, load_balancer, pool};
use landfall_testkit::wait;
use serde_json::json;

use super::{Guarded, Result, guarded};
use crate::stage::LONG;

/// Users whom RBAC lets write Services, one of them with the verb for one pool.
const RIGHTS: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: test-edit, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects:
- {kind: ServiceAccount, namespace: shop, name: tenant}
- {kind: User, apiGroup: rbac.authorization.k8s.io, name: gateway}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-use-one-pool}
rules:
- {apiGroups: [paas.org], resources: [ipgroups], resourceNames: [listed], verbs: [use-external-ips]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-use-one-pool}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-use-one-pool}
subjects:
- {kind: User, apiGroup: rbac.authorization.k8s.io, name: gateway}
";

/// A Service of another type that lists these addresses.
pub(super) fn listing<'a>(name: &str, addrs: impl IntoIterator<Item = &'a str>) -> Service {
    let addrs = addrs.into_iter().map(str::to_owned).collect();
    load_balancer(name).of_type("ClusterIP").with_spec(|spec| spec.external_ips = Some(addrs))
}

/// A dry run: the API server judges a new Service and does nothing.
pub(super) async fn rehearse(client: &Client, service: &Service) -> kube::Result<()> {
    let services: Api<Service> = Api::namespaced(client.clone(), "shop");
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    services.create(&dry, service).await.map(drop)
}

/// The policy's message, which must contain this fragment.
fn refused(outcome: kube::Result<()>, fragment: &str) -> Result<()> {
    match outcome {
        Err(kube::Error::Api(status))
            if status.code == 403
                && status.message.contains("ValidatingAdmissionPolicy 'landfall-external-ips'")
                && status.message.contains(fragment) =>
        {
            Ok(())
        }
        other => Err(format!("not refused with {fragment:?}: {other:?}").into()),
    }
}

/// Creates pools, and waits until the policy knows the last of them.
pub(super) async fn pools(
    guarded: &Guarded,
    tenant: &Client,
    all: &[IPGroup],
    probe: &str,
) -> Result<()> {
    let pools: Api<IPGroup> = Api::all(guarded.masters().await?);
    for pool in all {
        let params = PatchParams::apply("test").force();
        pools.patch(&pool.name_any(), &params, &Patch::Apply(pool)).await?;
    }
    let service = listing("probe", [probe]);
    wait::until("the policy to know the pools", LONG, async || {
        refused(rehearse(tenant, &service).await, probe).map_err(|error| error.to_string())
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn only_those_with_the_verb_list_addresses_of_pools() {
    let guarded = guarded().await.unwrap();
    guarded.plane.ensure_namespace("shop").await.unwrap();
    guarded.plane.apply_yaml(RIGHTS).await.unwrap();
    let tenant = guarded.tenant().await.unwrap();
    let segment = pool("segment", &["10.31.9.0/30"]).with(|spec| {
        spec.segment = Some("10.31.0.0/28".into());
        spec.excluded_ips = Some(vec!["10.31.0.1".into()]);
    });
    let ranges = [
        "10.31.1.5-10.31.2.9",
        "10.31.3.7",
        "fd00:31::f-fd00:31::1:0",
        "FD00:31:1::/64",
        "::5-::7",
    ];
    let listed = pool("listed", &ranges);
    pools(&guarded, &tenant, &[segment, listed], "10.31.3.7").await.unwrap();
    let gateway = guarded.user("gateway", &[]).await.unwrap();
    wait::until("the right to use one pool", LONG, async || {
        rehearse(&gateway, &listing("probe", ["10.31.3.7"])).await
    })
    .await
    .unwrap();

    for addr in [
        "10.30.255.255",
        "10.31.0.16",
        "10.31.1.4",
        "10.31.2.10",
        "10.31.3.6",
        "10.31.3.70",
        "10.31.8.255",
        "10.31.9.4",
        "110.31.0.1",
        "fd00:31::e",
        "fd00:31::1:1",
        "fd00:31:2::",
        "fd00:31::2:0:0",
        "::4",
        "::8",
        "1::6",
        "fd00::31:0:1",
        "203.0.113.1",
    ] {
        let outcome = rehearse(&tenant, &listing("web", [addr])).await;
        assert!(outcome.is_ok(), "{addr}: {outcome:?}");
    }
    for (addr, pool) in [
        ("10.31.0.0", "segment"),
        ("10.31.0.1", "segment"),
        ("10.31.0.15", "segment"),
        ("10.31.9.3", "segment"),
        ("10.31.1.5", "listed"),
        ("10.31.1.200", "listed"),
        ("10.31.2.9", "listed"),
        ("10.31.3.7", "listed"),
        ("fd00:31::f", "listed"),
        ("fd00:31::10", "listed"),
        ("fd00:31::ffff", "listed"),
        ("fd00:31::1:0", "listed"),
        ("fd00:31:1:0:ffff::", "listed"),
        ("::6", "listed"),
    ] {
        // An allowed address beside it helps as little as another spelling does.
        for addrs in [vec![addr], vec!["203.0.113.1", addr], vec![addr, "203.0.113.1"]] {
            let outcome = rehearse(&tenant, &listing("web", addrs)).await;
            let words = format!(
                "user \"system:serviceaccount:shop:tenant\" may not list {addr} in \
                 spec.externalIPs: IPGroup {pool} gives such addresses"
            );
            refused(outcome, &words).unwrap();
        }
        let outcome = rehearse(&gateway, &listing("web", [addr])).await;
        match pool {
            "listed" => outcome.unwrap(),
            _ => refused(outcome, "may not list").unwrap(),
        }
        rehearse(&guarded.masters().await.unwrap(), &listing("web", [addr])).await.unwrap();
    }
    for (spelling, addr) in
        [("FD00:31:0::F", "fd00:31::f"), ("fd00:31:0:0:0:0:0:10", "fd00:31::10")]
    {
        let outcome = rehearse(&tenant, &listing("web", [spelling])).await;
        refused(outcome, &format!("may not list {addr} ")).unwrap();
    }
}

#[tokio::test]
async fn an_address_that_the_policy_cannot_read_is_refused_and_addresses_listed_before_stay() {
    let guarded = guarded().await.unwrap();
    guarded.plane.ensure_namespace("shop").await.unwrap();
    guarded.plane.apply_yaml(RIGHTS).await.unwrap();
    let tenant = guarded.tenant().await.unwrap();
    let services: Api<Service> = Api::namespaced(guarded.masters().await.unwrap(), "shop");
    // An administrator listed it, or it was listed before the pool existed.
    let there = listing("there", ["10.31.20.1", "203.0.113.7"]);
    services.create(&PostParams::default(), &there).await.unwrap();
    pools(&guarded, &tenant, &[pool("later", &["10.31.20.0/24"])], "10.31.20.9").await.unwrap();

    for spelling in ["010.31.20.1", "::ffff:10.31.20.1"] {
        let outcome = rehearse(&tenant, &listing("odd", [spelling])).await;
        refused(outcome, &format!("may not list {spelling} in spec.externalIPs: it is not"))
            .unwrap();
    }
    let theirs: Api<Service> = Api::namespaced(tenant.clone(), "shop");
    let patch = async |patch: serde_json::Value| {
        let outcome = theirs.patch("there", &PatchParams::default(), &Patch::Merge(patch)).await;
        outcome.map(drop)
    };
    patch(json!({"metadata": {"labels": {"team": "a"}}})).await.unwrap();
    patch(json!({"spec": {"externalIPs": ["203.0.113.8", "10.31.20.1"]}})).await.unwrap();
    let more = json!({"spec": {"externalIPs": ["203.0.113.8", "10.31.20.1", "10.31.20.2"]}});
    refused(patch(more).await, "may not list 10.31.20.2 in").unwrap();
    patch(json!({"spec": {"externalIPs": null}})).await.unwrap();
    let again = json!({"spec": {"externalIPs": ["10.31.20.1"]}});
    refused(patch(again).await, "may not list 10.31.20.1 in").unwrap();
    services.delete("there", &kube::api::DeleteParams::default()).await.unwrap();

    // The operator shows the addresses of VirtualIPs this way.
    let operator = guarded.operator().await.unwrap();
    guarded.plane.apply_yaml(&super::deployed("rbac-migration.yaml").unwrap()).await.unwrap();
    wait::until("the operator to make Services", LONG, async || {
        rehearse(&operator, &listing("copy", ["10.31.20.3"])).await
    })
    .await
    .unwrap();
}

/// CEL has a budget. The largest pool and the longest list that are judged stay within it; anything larger is
/// refused, and never accepted.
#[tokio::test]
async fn the_largest_pool_is_compared_with_the_longest_list() {
    let guarded = guarded().await.unwrap();
    guarded.plane.ensure_namespace("shop").await.unwrap();
    guarded.plane.apply_yaml(RIGHTS).await.unwrap();
    let tenant = guarded.tenant().await.unwrap();
    let ranges: Vec<_> = (0..1024)
        .map(|n| format!("fd00:32:0:0:1:2:{n:x}:1000-fd00:32:0:0:1:2:{n:x}:1fff"))
        .collect();
    let ranges: Vec<_> = ranges.iter().map(String::as_str).collect();
    let last = "fd00:32::1:2:3ff:1fff";
    pools(&guarded, &tenant, &[pool("largest", &ranges)], last).await.unwrap();
    let outside: Vec<_> = (0..16).map(|n| format!("fd00:32::1:2:{n:x}:2000")).collect();
    let outside: Vec<_> = outside.iter().map(String::as_str).collect();
    rehearse(&tenant, &listing("many", outside.iter().copied())).await.unwrap();
    let one_inside = outside[1..].iter().copied().chain([last]);
    let outcome = rehearse(&tenant, &listing("many", one_inside)).await;
    refused(outcome, &format!("may not list {last} in")).unwrap();
    let one_more = outside.iter().copied().chain(["203.0.113.1"]);
    refused(rehearse(&tenant, &listing("many", one_more)).await, "at most 16 addresses").unwrap();
    let crowd: Vec<_> = (0..20_000).map(|n| format!("198.{}.{}.1", n / 250, n % 250)).collect();
    let outcome = rehearse(&tenant, &listing("crowd", crowd.iter().map(String::as_str))).await;
    refused(outcome, "").unwrap();
    let all: Api<IPGroup> = Api::all(guarded.masters().await.unwrap());
    all.delete("largest", &kube::api::DeleteParams::default()).await.unwrap();
}
