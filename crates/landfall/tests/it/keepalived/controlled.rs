//! Groups in a cluster that collects what belongs to deleted objects, and whose `DaemonSet`s make pods.

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use landfall_testkit::Recording;

use super::recorded::recording;
use super::*;
use crate::stage::{WITH_GROUPS, arena_with_controllers};

const ALL: &str = "configmaps,serviceaccounts,daemonsets,roles,rolebindings,podmonitors";

/// The recorded objects of these kinds. `DaemonSet`s have no status: their controller writes one.
fn recorded(kinds: &[&str]) -> Recording {
    let mut items = json!(recording("04-steady").only(kinds).items());
    for item in items.as_array_mut().unwrap() {
        if item["kind"] == "DaemonSet" {
            item.as_object_mut().unwrap().remove("status");
        }
    }
    Recording::load(&json!({ "items": items }).to_string()).unwrap()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
    let mut ready = conditions.unwrap_or_default().iter().filter(|one| one.type_ == "Ready");
    pod.metadata.deletion_timestamp.is_none() && ready.any(|one| one.status == "True")
}

fn group_of(pod: &Pod) -> &str {
    &pod.labels()["keepalivedGroup"]
}

fn images(pod: &Pod) -> Vec<&str> {
    let spec = pod.spec.as_ref().unwrap();
    let all = spec.init_containers.iter().flatten().chain(&spec.containers);
    all.filter_map(|container| container.image.as_deref()).collect()
}

#[expect(clippy::disallowed_methods, reason = "heartbeats of nodes are compared with the clock")]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

/// Does what scheduler and kubelets do for the pods of a namespace; returns the pods as they were before. Pods that
/// are ready count as ready for long: a change of `minReadySeconds` applies to those of the original as well.
async fn run_pods(client: &Client, namespace: &str) -> Vec<Pod> {
    let nodes: Api<Node> = Api::all(client.clone());
    for node in nodes.list_metadata(&ListParams::default()).await.unwrap() {
        // Pods on nodes without heartbeats count as not ready.
        let beat = json!([{ "type": "Ready", "status": "True", "lastHeartbeatTime": now() }]);
        let beat = Patch::Strategic(json!({ "status": { "conditions": beat } }));
        nodes.patch_status(&node.name_any(), &PatchParams::default(), &beat).await.unwrap();
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let before = pods.list(&ListParams::default()).await.unwrap().items;
    for pod in &before {
        let (name, spec) = (pod.name_any(), pod.spec.as_ref().unwrap());
        if pod.metadata.deletion_timestamp.is_some() {
            pods.delete(&name, &DeleteParams::default().grace_period(0)).await.ok();
        } else if spec.node_name.is_none() {
            let affinity = json!(spec.affinity);
            let terms =
                "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
            let node = affinity.pointer(&format!("{terms}/0/matchFields/0/values/0")).unwrap();
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
                "target": { "apiVersion": "v1", "kind": "Node", "name": node },
            });
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
            let request = http::Request::post(path).header("content-type", "application/json");
            let request = request.body(binding.to_string().into_bytes()).unwrap();
            client.request::<Value>(request).await.unwrap();
        } else if !is_ready(pod) {
            let status = json!({ "status": {
                "phase": "Running",
                "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": SINCE }],
            } });
            pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await.ok();
        }
    }
    before
}

/// Runs the pods of both recorded groups until they are as they should be, and never lets more than `down` of a
/// group's three pods be unavailable.
async fn pods_become(client: &Client, what: &str, down: usize, test: impl Fn(&Pod) -> bool) {
    wait::until(what, LONG, async || {
        let pods = run_pods(client, "edge-vips").await;
        for group in ["keepalivedgroup-plain", "keepalivedgroup-full"] {
            let ready = pods.iter().filter(|pod| group_of(pod) == group && is_ready(pod)).count();
            assert!(ready + down >= 3, "{ready} pods of {group} are ready");
        }
        let done = pods.iter().filter(|pod| is_ready(pod) && test(pod)).count();
        if done == 6 && pods.len() == 6 { Ok(()) } else { Err(format!("{done} of {}", pods.len())) }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_replaced_one_by_one_and_go_with_their_group() {
    let arena = arena_with_controllers().await;
    install_pod_monitors(&arena).await;
    let kinds =
        ["Node", "Namespace", "Secret", "KeepalivedGroup", "Service", "ConfigMap", "DaemonSet"];
    recorded(&kinds).replay(&arena.client).await.unwrap();
    let client = &arena.client;
    let ours = |pod: &Pod| images(pod).contains(&"example.com/landfall:test");
    pods_become(client, "the original's pods", 3, |pod| !ours(pod)).await;
    let sets = objects(&arena, "daemonsets").await;

    let flags = [&["--leader-elect=false"], &WITH_GROUPS[..]].concat();
    let operator = arena.operator_with(&flags).await;
    pods_become(client, "pods of ours", 1, ours).await;
    for (identity, set) in objects(&arena, "daemonsets").await {
        assert_eq!(set.uid(), sets[&identity].uid(), "{identity:?}");
    }
    let [plain, full] = ["keepalivedgroup-plain", "keepalivedgroup-full"]
        .map(|name| Group::of(client, &format!("edge-vips/{name}")));
    for group in [&plain, &full] {
        group.is_carried_out().await;
        group.says("ReconcileSuccess", "True", "LastReconcileCycleSucceded", "").await;
    }

    // Pods are gone with their group, and so is everything else that was made for it.
    let ours = |objects: Objects, group: &Group| -> BTreeMap<(String, String), Option<String>> {
        let label = |object: &DynamicObject| object.labels().get("keepalivedGroup").cloned();
        let all = objects.into_iter();
        let ours = all.filter(|(_, object)| label(object).as_ref() == Some(&group.name));
        ours.map(|(identity, object)| (identity, object.uid())).collect()
    };
    let before = ours(objects(&arena, ALL).await, &full);
    assert_eq!(before.len(), 8, "{before:?}");
    plain.delete().await;
    wait::until("everything of the deleted group to go", LONG, async || {
        let pods = run_pods(client, "edge-vips").await;
        let left = ours(objects(&arena, ALL).await, &plain);
        let running = pods.iter().filter(|pod| group_of(pod) == plain.name).count();
        if left.is_empty() && running == 0 { Ok(()) } else { Err(format!("{running}, {left:?}")) }
    })
    .await
    .unwrap();
    assert_eq!(ours(objects(&arena, ALL).await, &full), before);
    full.is_carried_out().await;
    full.says("Ready", "True", "Serving", "").await;
    arena.tenant("shop").await.tells("web", "GroupUnknown", "keepalivedgroup-plain").await;
    assert!(operator.is_running());
}
