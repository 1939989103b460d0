//! The election on a real API server.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use landfall::client::Cluster;
use landfall::elector::{Candidate, Elector, KubeLeases, LEASE_NAME, Timing};
use landfall::permissions;
use landfall_controllers::leadership::{Leadership, leadership};
use landfall_testkit::{ControlPlane, Operator, Proxy, shared, wait};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const LONG: Duration = Duration::from_secs(30);

/// An account with exactly the rights that the runtime declares.
async fn kubeconfig(
    plane: &ControlPlane,
    namespace: &str,
    url: &str,
) -> Result<std::path::PathBuf> {
    let path = plane.service_account_kubeconfig_via(namespace, "landfall", url).await?;
    let rules: Vec<_> = permissions::NAMESPACED
        .iter()
        .map(|rule| {
            json!({
                "apiGroups": rule.groups, "resources": rule.resources,
                "verbs": rule.verbs, "resourceNames": rule.names,
            })
        })
        .collect();
    let group = "rbac.authorization.k8s.io";
    let metadata = json!({"name": "landfall", "namespace": namespace});
    for object in [
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "Role",
            "metadata": metadata, "rules": rules,
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "landfall"},
            "subjects": [{"kind": "ServiceAccount", "name": "landfall", "namespace": namespace}],
        }),
    ] {
        plane.apply_yaml(&object.to_string()).await?;
    }
    Ok(path)
}

/// One elector of this process; ends with `tasks`.
async fn elector(
    tasks: &mut JoinSet<()>,
    kubeconfig: &Path,
    namespace: &str,
    name: &str,
) -> Result<(Leadership, CancellationToken)> {
    let client = Cluster::load(Some(kubeconfig)).await?.client()?;
    // Short, but with room between deadline and lease for a machine that is busy with other tests.
    let timing = Timing::new(5, Duration::from_secs(3), Duration::from_millis(300));
    let candidate = Candidate::new(name.into(), timing.ok_or("an unsound timing")?);
    let (setter, leadership) = leadership();
    let leases = KubeLeases::new(client, namespace, LEASE_NAME);
    let stop = CancellationToken::new();
    tasks.spawn(Elector::new(leases, candidate, setter, wall).run(stop.clone()));
    Ok((leadership, stop))
}

#[expect(clippy::disallowed_methods, reason = "the lease tells people when it was taken")]
fn wall() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

async fn spec(plane: &ControlPlane, namespace: &str) -> Result<LeaseSpec> {
    let leases: Api<Lease> = Api::namespaced(plane.admin_client().await?, namespace);
    Ok(leases.get(LEASE_NAME).await?.spec.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_connection_never_makes_two_leaders() {
    let plane = shared().await.unwrap();
    let proxy = Proxy::start(plane).await.unwrap();
    let namespace = "election-frozen";
    let through = kubeconfig(plane, namespace, &proxy.url()).await.unwrap();
    let direct = kubeconfig(plane, namespace, plane.url()).await.unwrap();
    let mut tasks = JoinSet::new();
    let (old, _) = elector(&mut tasks, &through, namespace, "old").await.unwrap();
    wait::until("the first to lead", LONG, async || old.is_leader()).await.unwrap();
    let (new, stop_new) = elector(&mut tasks, &direct, namespace, "new").await.unwrap();

    proxy.freeze_all();
    // `new` first: if it leads after the handover, the other must have stood down already.
    let never_two = |context: &str| {
        let (first, second) = (new.is_leader(), old.is_leader());
        assert!(!(first && second), "two leaders {context}");
        (first, second)
    };
    wait::until("the second to take over", LONG, async || never_two("while frozen").0)
        .await
        .unwrap();

    proxy.thaw();
    let mut renewals = BTreeSet::new();
    wait::until("some renewals after the thaw", LONG, async || {
        never_two("after the thaw");
        let seen = spec(plane, namespace).await.unwrap();
        assert_eq!(seen.holder_identity.as_deref(), Some("new"), "the new one goes on");
        renewals.extend(seen.renew_time.map(|time| time.0));
        renewals.len() > 6
    })
    .await
    .unwrap();
    assert_eq!(spec(plane, namespace).await.unwrap().lease_transitions, Some(1));

    // And back, at once, because the lease is released.
    stop_new.cancel();
    wait::until("the first to lead again", LONG, async || {
        // Now the other one gives way first.
        let (first, second) = (old.is_leader(), new.is_leader());
        assert!(!(first && second), "two leaders at the end");
        first
    })
    .await
    .unwrap();
    assert_eq!(spec(plane, namespace).await.unwrap().lease_transitions, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_operator_hands_over_and_a_stopped_one_does_not_lead_on() {
    let plane = shared().await.unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    plane.install_crds(&root.join("deploy/crds")).await.unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_landfall"));
    // No namespace anywhere, as from an admin's shell: the operator creates its own.
    let start = async || {
        let operator = Operator::spawn(binary, plane.admin_kubeconfig(), &[]).await.unwrap();
        operator.wait_ready(LONG).await.unwrap();
        operator
    };
    let leads = async |operator: &Operator| {
        operator.metrics().await.map(|text| text.contains("\nlandfall_leader 1\n"))
    };
    let first = start().await;
    wait::until("the first to lead", LONG, async || leads(&first).await.unwrap()).await.unwrap();
    let second = start().await;
    assert!(!leads(&second).await.unwrap(), "a standby is ready, but does not lead");

    let holder = async || spec(plane, "landfall-system").await.unwrap().holder_identity;
    let before = holder().await;
    assert_eq!(first.terminate().await.unwrap().code(), Some(0), "{}", first.log_tail(20));
    assert_ne!(holder().await, before, "given back, not left to expire");
    wait::until("the second to lead", LONG, async || leads(&second).await.unwrap()).await.unwrap();

    let third = start().await;
    second.stop_signal().unwrap();
    wait::until("the third to lead", LONG, async || leads(&third).await.unwrap()).await.unwrap();
    second.cont_signal().unwrap();
    assert!(!leads(&second).await.unwrap(), "it woke up past its lease");
    assert!(leads(&third).await.unwrap());

    assert_eq!(third.terminate().await.unwrap().code(), Some(0), "{}", third.log_tail(20));
    assert_eq!(second.terminate().await.unwrap().code(), Some(0), "{}", second.log_tail(20));
    let seen = spec(plane, "landfall-system").await.unwrap();
    assert_eq!(seen.holder_identity.as_deref(), Some(""), "it has no holder any more");
}
