//! The guide quotes the messages of the policies word for word.

use kube::Api;
use kube::api::{DeleteParams, PostParams};
use landfall_api::{HolderKind, IP, text};
use landfall_ipam::Refusal;
use landfall_testkit::builders::pool;
use landfall_testkit::control_plane::client_from;
use landfall_testkit::wait;

use super::external_ips::{listing, pools, rehearse};
use super::{claim, guarded};
use crate::guide::Guide;
use crate::stage::LONG;

/// Users whom RBAC lets write claims and Services.
const RIGHTS: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-quotes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-write-ips}
subjects:
- {kind: ServiceAccount, namespace: network, name: landfall}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: test-quotes, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects:
- {kind: User, apiGroup: rbac.authorization.k8s.io, name: alice}
";

/// The API server's message of refusal; empty if it did not refuse.
fn message<T>(outcome: kube::Result<T>) -> String {
    match outcome {
        Err(kube::Error::Api(status)) => status.message.clone(),
        Ok(_) | Err(_) => String::new(),
    }
}

/// The text in one line, without line breaks.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn the_guide_quotes_refusals_word_by_word() {
    let guarded = guarded().await.unwrap();
    guarded.plane.ensure_namespace("shop").await.unwrap();
    guarded.plane.apply_yaml(RIGHTS).await.unwrap();
    let guide = Guide::read("protect-the-ledger.md");
    let quotes: Vec<_> = guide.blocks("text").map(flat).collect();
    let [deletion, ledger, external] = &quotes[..] else { panic!("{quotes:?}") };

    let operators: Api<IP> = Api::all(guarded.operator().await.unwrap());
    operators.create(&PostParams::default(), &claim("192.0.2.10")).await.unwrap();
    let admin = guarded.user("kubernetes-admin", &["system:masters"]).await.unwrap();
    let outcome = Api::<IP>::all(admin).delete("192.0.2.10", &DeleteParams::default()).await;
    let printed = format!(
        "$ kubectl delete ip 192.0.2.10 Error from server (Forbidden): {}",
        message(outcome.map(drop))
    );
    assert_eq!(*deletion, printed);
    operators.delete("192.0.2.10", &DeleteParams::default()).await.unwrap();

    let elsewhere = guarded.plane.service_account_kubeconfig("network", "landfall").await.unwrap();
    let elsewhere: Api<IP> = Api::all(client_from(&elsewhere).await.unwrap());
    let written = wait::until("the policy's words", LONG, async || {
        let outcome = elsewhere.create(&PostParams::default(), &claim("192.0.2.10")).await;
        let words = message(outcome);
        // Until its rights are known, RBAC refuses before the policy does.
        if words.contains("ValidatingAdmissionPolicy") { Ok(words) } else { Err(words) }
    })
    .await
    .unwrap();
    let refusal = Refusal::LedgerRefused(written);
    let printed = format!("{}: {}", refusal.reason(), text::refusal(HolderKind::Service, &refusal));
    assert!(printed.starts_with(ledger), "{ledger:?}, {printed:?}");

    let alice = guarded.user("alice", &[]).await.unwrap();
    pools(&guarded, &alice, &[pool("public", &["192.0.2.0/24"])], "192.0.2.99").await.unwrap();
    let printed = message(rehearse(&alice, &listing("web", ["192.0.2.10"])).await);
    assert_eq!(*external, printed);
    let all: Api<landfall_api::IPGroup> = Api::all(guarded.masters().await.unwrap());
    all.delete("public", &DeleteParams::default()).await.unwrap();
}
