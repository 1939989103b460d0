//! The objects that are generated for a group: the plan, the pods that carry it out, and their rights.
//!
//! Names, labels and the selector are those of the operator that Landfall replaces, so that a take-over updates
//! its objects in place.

use landfall_api::{GroupSettings, keepalived_group::PasswordSource, keys};
use serde_json::{Map, Value, json};

use crate::{
    cluster::keepalived::{ChildKind, ChildView, GroupView},
    object::ObjectKey,
};

/// The key of the plan in the `ConfigMap`.
pub(super) const PLAN: &str = "plan.json";
/// The key of the file that all nodes could use, as the replaced operator wrote it.
pub(super) const FILE: &str = "keepalived.conf";

/// The folder of a node on which the last plan is kept.
const RUN_DIRS: &str = "/var/lib/landfall";
/// The folder in the pod.
const RUN_DIR: &str = "/run/landfall";
const GROUP_API: &str = "redhatcop.redhat.io/v1alpha1";

/// An object that a group should have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Child {
    pub kind: ChildKind,
    pub key: ObjectKey,
    /// Its labels, its owner and its content, without name and namespace.
    pub object: Value,
}

/// How the pods of groups are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pods {
    /// The image with landfall and keepalived in it.
    pub image: String,
}

/// The objects of a group, except the plan.
pub(super) fn around(group: &GroupView, settings: &GroupSettings, pods: &Pods) -> Vec<Child> {
    let child = |kind, name: &str, content| child(group, kind, name, &content);
    let name = group.key.name();
    let agent = agent_name(group);
    let mut all = vec![
        child(ChildKind::ServiceAccount, &agent, json!({ "automountServiceAccountToken": false })),
        child(
            ChildKind::Role,
            &agent,
            json!({ "rules": rules(group, settings.password.as_ref()) }),
        ),
        child(ChildKind::RoleBinding, &agent, binding(group)),
        child(ChildKind::DaemonSet, name, json!({ "spec": daemon_set(group, settings, pods) })),
    ];
    let selector = json!({ "matchLabels": labels(group) });
    let spec = json!({ "podMetricsEndpoints": [{ "port": "metrics" }], "selector": selector });
    let mut monitor = child(ChildKind::PodMonitor, name, json!({ "spec": spec }));
    monitor.object["metadata"]["labels"]["metrics"] = json!("keepalived");
    all.push(monitor);
    all
}

/// The object with the plan.
pub(super) fn plan(group: &GroupView, plan: &str, file: &str) -> Child {
    child(
        group,
        ChildKind::ConfigMap,
        group.key.name(),
        &json!({ "data": { PLAN: plan, FILE: file } }),
    )
}

/// Whether an object has everything that it should have. What the API server or others added does not count.
pub(super) fn is_as_it_should(found: &ChildView, wanted: &Child) -> bool {
    contains(&found.object, &wanted.object)
}

/// Whether every field of `wanted` is in `found` with its value; lists must be of the same length.
fn contains(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| {
            found.get(key).map_or_else(|| is_nothing(wanted), |found| contains(found, wanted))
        }),
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(a, b)| contains(a, b))
        }
        (found, wanted) => found == wanted,
    }
}

/// Whether the API server leaves a field with this value out.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(entries) => entries.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::String(_) => false,
    }
}

fn child(group: &GroupView, kind: ChildKind, name: &str, content: &Value) -> Child {
    let mut object = content.as_object().cloned().unwrap_or_else(Map::new);
    let owner = json!({
        "apiVersion": GROUP_API,
        "kind": "KeepalivedGroup",
        "name": group.key.name(),
        "uid": &*group.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    });
    let metadata = json!({ "labels": labels(group), "ownerReferences": [owner] });
    object.insert("metadata".to_owned(), metadata);
    Child { kind, key: ObjectKey::new(group.key.namespace(), name), object: Value::Object(object) }
}

fn labels(group: &GroupView) -> Value {
    json!({ keys::LABEL_KEEPALIVED_GROUP: group.key.name() })
}

/// The name of the agent's account, role and binding.
fn agent_name(group: &GroupView) -> String {
    format!("{}-agent", group.key.name())
}

/// What the agents of a group may do: read its plan and its password, and report.
fn rules(group: &GroupView, password: Option<&PasswordSource>) -> Value {
    let name = group.key.name();
    let mut rules = vec![
        json!({
            "apiGroups": [""],
            "resources": ["configmaps"],
            "verbs": ["get", "list", "watch"],
            "resourceNames": [name],
        }),
        json!({
            "apiGroups": ["redhatcop.redhat.io"],
            "resources": ["keepalivedgroups/status"],
            "verbs": ["patch"],
            "resourceNames": [name],
        }),
    ];
    if let Some(password) = password {
        rules.push(json!({
            "apiGroups": [""],
            "resources": ["secrets"],
            "verbs": ["get", "list", "watch"],
            "resourceNames": [password.secret],
        }));
    }
    json!(rules)
}

fn binding(group: &GroupView) -> Value {
    let name = agent_name(group);
    json!({
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{
            "kind": "ServiceAccount",
            "name": name,
            "namespace": group.key.namespace(),
        }],
    })
}

fn daemon_set(group: &GroupView, settings: &GroupSettings, pods: &Pods) -> Value {
    let name = group.key.name();
    let port = settings.metrics_port;
    let env = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    // An image of the user's own has keepalived, and gets landfall from ours.
    let (own, path) = match &settings.image {
        Some(image) => (image, "/landfall/landfall"),
        None => (&pods.image, "/usr/local/bin/landfall"),
    };
    let mut mounts = vec![
        json!({ "name": "run", "mountPath": RUN_DIR }),
        json!({ "name": "tmp", "mountPath": "/tmp" }),
    ];
    let mut volumes = vec![
        json!({
            "name": "run",
            "hostPath": {
                "path": format!("{RUN_DIRS}/{}", group.key),
                "type": "DirectoryOrCreate",
            },
        }),
        json!({ "name": "tmp", "emptyDir": { "medium": "Memory" } }),
    ];
    let mut init = Vec::new();
    if settings.image.is_some() {
        mounts.push(json!({ "name": "landfall", "mountPath": "/landfall", "readOnly": true }));
        volumes.push(json!({ "name": "landfall", "emptyDir": {} }));
        init.push(json!({
            "name": "config-setup",
            "image": pods.image,
            "command": ["cp", "/usr/local/bin/landfall", "/landfall/landfall"],
            "volumeMounts": [{ "name": "landfall", "mountPath": "/landfall" }],
            "securityContext": restricted(&json!([])),
        }));
    }
    let container = json!({
        "name": "keepalived",
        "image": own,
        "command": [path, "agent"],
        "args": [
            format!("--group={}", group.key),
            "--node=$(NODE_NAME)",
            format!("--run-dir={RUN_DIR}"),
            format!("--metrics-addr=[::]:{port}"),
        ],
        "env": [env("NODE_NAME", "spec.nodeName"), env("POD_NAME", "metadata.name")],
        "ports": [{ "name": "metrics", "containerPort": port, "protocol": "TCP" }],
        // No limit of CPU: its quota would hold adverts back until other nodes take over.
        "resources": { "requests": { "cpu": "50m", "memory": "32Mi" } },
        "volumeMounts": mounts,
        "securityContext": restricted(&json!(["NET_ADMIN", "NET_BROADCAST", "NET_RAW"])),
        "livenessProbe": probe("/healthz", port, 3),
        "readinessProbe": probe("/readyz", port, 1),
    });
    let mut spec = json!({
        "serviceAccountName": agent_name(group),
        "automountServiceAccountToken": true,
        "enableServiceLinks": false,
        "hostNetwork": true,
        "shareProcessNamespace": false,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [{ "operator": "Exists" }],
        "nodeSelector": settings.node_selector,
        "initContainers": init,
        "containers": [container],
        "volumes": volumes,
    });
    if let Some(class) = &settings.priority_class {
        spec["priorityClassName"] = json!(class);
    }
    json!({
        "selector": { "matchLabels": labels(group) },
        "minReadySeconds": 5,
        "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1 } },
        "template": {
            "metadata": {
                "labels": { keys::LABEL_KEEPALIVED_GROUP: name },
                "annotations": settings.pod_annotations,
            },
            "spec": spec,
        },
    })
}

/// A security context with nothing but these capabilities.
fn restricted(capabilities: &Value) -> Value {
    json!({
        "privileged": false,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "runAsUser": 0,
        "capabilities": { "drop": ["ALL"], "add": capabilities },
        "seccompProfile": { "type": "RuntimeDefault" },
    })
}

fn probe(path: &str, port: u16, failures: u8) -> Value {
    json!({
        "httpGet": { "path": path, "port": port },
        "periodSeconds": 5,
        "failureThreshold": failures,
    })
}
