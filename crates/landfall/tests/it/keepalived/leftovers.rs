//! Roles for Prometheus: those that keepalived-operator left, and those of our groups.

use super::*;
use crate::stage::{ArenaSlot, WITH_GROUPS, arena_of_groups};

/// A role and a binding as keepalived-operator makes them, without owner and labels.
const LEFT: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: GROUP-prometheus-k8s, namespace: SPACE}
rules:
- apiGroups: ['']
  resources: [endpoints, pods, services]
  verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: GROUP-prometheus-k8s, namespace: SPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: GROUP-prometheus-k8s}
subjects:
- {kind: ServiceAccount, name: prometheus-k8s, namespace: openshift-monitoring}
";

async fn arena() -> Arena {
    static SLOT: ArenaSlot = ArenaSlot::new();
    let arena = arena_of_groups(&SLOT).await;
    for namespace in ["left", "other"] {
        arena.plane().ensure_namespace(namespace).await.unwrap();
        let all = ["delete", KINDS, "--all", "-n", namespace];
        arena.kubectl(&all).await;
    }
    let crd = "crd/podmonitors.monitoring.coreos.com";
    arena.kubectl(&["delete", crd, "--ignore-not-found", "--timeout=60s"]).await;
    arena
}

fn left(namespace: &str, group: &str) -> String {
    LEFT.replace("GROUP", group).replace("SPACE", namespace)
}

async fn roles(arena: &Arena) -> BTreeMap<(String, String), Option<String>> {
    let all = objects(arena, "roles,rolebindings").await.into_iter();
    let ours = all.filter(|((_, key), _)| key.ends_with("-prometheus-k8s"));
    ours.map(|(identity, object)| (identity, object.uid())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_the_original_left_of_groups_that_are_gone_is_removed() {
    let arena = arena().await;
    let group = Group::make(&arena.client, "left/kept", json!({})).await;
    for (namespace, name) in [("left", "kept"), ("left", "gone"), ("other", "gone")] {
        arena.apply(&left(namespace, name)).await;
    }
    // Each differs from a leftover in one thing.
    let role = left("left", "NAME");
    for (name, from, to) in [
        ("more-rights", "[get, list, watch]", "[get, list]"),
        ("more-resources", "pods, services", "pods, services, secrets"),
        ("other-account", "name: prometheus-k8s, namespace", "name: prometheus, namespace"),
        ("other-place", "openshift-monitoring", "monitoring"),
        ("labelled", "namespace: left}", "namespace: left, labels: {app: x}}"),
        ("annotated", "namespace: left}", "namespace: left, annotations: {app: x}}"),
        ("other-name", "NAME-prometheus-k8s,", "NAME-prometheus,"),
    ] {
        let changed = role.replace(from, to).replace("NAME", name);
        // Both objects of the pair, unless the difference is in one of them only.
        for (document, original) in
            changed.split("---").zip(role.replace("NAME", name).split("---"))
        {
            if document != original {
                arena.apply(document).await;
            }
        }
    }
    let uid = group.get().await.uid().unwrap();
    let owner =
        format!("ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: x, uid: {uid}}}]");
    arena
        .apply(
            &left("left", "owned")
                .replace("namespace: left}", &format!("namespace: left, {owner}}}")),
        )
        .await;
    let before = roles(&arena).await;

    let flags = [&["--leader-elect=false"], &WITH_GROUPS[..]].concat();
    let operator = arena.operator_with(&flags).await;
    group.says("Ready", "False", "NoNodes", "").await;
    is_gone(&arena, "rolebinding", "left/gone-prometheus-k8s").await;
    is_gone(&arena, "role", "left/gone-prometheus-k8s").await;
    let mut expected = before;
    expected.retain(|(_, key), _| key != "left/gone-prometheus-k8s");
    assert_eq!(roles(&arena).await, expected);

    // A group that goes while we run, without the kind that its role is for.
    group.delete().await;
    is_gone(&arena, "rolebinding", "left/kept-prometheus-k8s").await;
    is_gone(&arena, "role", "left/kept-prometheus-k8s").await;
    expected.retain(|(_, key), _| key != "left/kept-prometheus-k8s");
    assert_eq!(roles(&arena).await, expected);
    assert!(operator.is_running());
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_monitors_may_come_and_go_while_groups_are_served() {
    let arena = arena().await;
    let tenant = arena.tenant("left").await;
    make_node(&arena.client, "left-1", &json!({}), "198.51.100.11").await;
    arena.apply(&left("left", "edge")).await;
    let before = roles(&arena).await;
    let flags = [&["--leader-elect=false"], &WITH_GROUPS[..]].concat();
    let operator = arena.operator_with(&flags).await;
    let group = Group::make(&arena.client, "left/edge", json!({})).await;
    group.says("Ready", "False", "NoAgents", "").await;
    tenant.create(external("first", "left/edge", &["198.51.100.101"])).await;
    group.serves(&[("left/first", &["198.51.100.101"])]).await;
    assert_eq!(roles(&arena).await, before, "without the kind nothing is made for it");
    assert_eq!(objects(&arena, "roles").await[&key("Role", "edge")].owner_references(), []);

    install_pod_monitors(&arena).await;
    for (kind, uid) in [
        ("Role", &before[&key("Role", "edge")]),
        ("RoleBinding", &before[&key("RoleBinding", "edge")]),
    ] {
        wait::until(format!("{kind} to be the group's"), LONG, async || {
            let all = objects(&arena, kind).await;
            let found = &all[&key(kind, "edge")];
            assert_eq!(&found.uid(), uid, "{kind}");
            match found.owner_references() {
                [owner] if owner.name == "edge" && owner.controller == Some(true) => Ok(()),
                owners => Err(format!("{owners:?}")),
            }
        })
        .await
        .unwrap();
    }
    let second = Group::make(&arena.client, "left/second", json!({ "metricsPort": 9651 })).await;
    second.says("Ready", "False", "NoAgents", "").await;
    let made = wait::until("the pod monitors", LONG, async || {
        let all = objects(&arena, "podmonitors").await;
        if all.len() == 2 { Ok(all) } else { Err(format!("{:?}", all.keys())) }
    });
    for ((_, key), monitor) in made.await.unwrap() {
        let name = key.strip_prefix("left/").unwrap();
        let labels = json!({ "keepalivedGroup": name, "metrics": "keepalived" });
        assert_eq!(json!(monitor.labels()), labels);
        let spec = json!({
            "podMetricsEndpoints": [{ "port": "metrics" }],
            "selector": { "matchLabels": { "keepalivedGroup": name } },
        });
        assert_eq!(monitor.data["spec"], spec);
    }
    wait::until("the roles of the second group", LONG, async || {
        let all = objects(&arena, "roles,rolebindings").await;
        let [left, made] = ["edge", "second"].map(|group| all.get(&key("RoleBinding", group)));
        let (left, made) = (left.unwrap(), made.ok_or("no binding")?);
        assert_eq!(made.data["subjects"], left.data["subjects"]);
        let [left, made] = ["edge", "second"].map(|group| all.get(&key("Role", group)));
        let (left, made) = (left.unwrap(), made.ok_or("no role")?);
        assert_eq!(made.data["rules"], left.data["rules"]);
        Ok::<(), &str>(())
    })
    .await
    .unwrap();

    let crd = "crd/podmonitors.monitoring.coreos.com";
    arena.kubectl(&["delete", crd, "--timeout=60s"]).await;
    tenant.create(external("next", "left/edge", &["198.51.100.102"])).await;
    let both: [(&str, &[&str]); 2] =
        [("left/first", &["198.51.100.101"]), ("left/next", &["198.51.100.102"])];
    group.serves(&both).await;
    assert!(operator.is_running());
    arena.kubectl(&["delete", "node", "left-1"]).await;
}

fn key(kind: &str, group: &str) -> (String, String) {
    (kind.to_owned(), format!("left/{group}-prometheus-k8s"))
}
