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

/// What the names of the agent's account, role and binding end with.
pub(super) const AGENT_SUFFIX: &str = "-agent";
/// What the names of the role and binding for Prometheus end with.
pub(super) const PROMETHEUS_SUFFIX: &str = "-prometheus-k8s";

/// The objects of a group, except the plan. `monitored` says that there can be a `PodMonitor`.
pub(super) fn around(
    group: &GroupView,
    settings: &GroupSettings,
    pods: &Pods,
    monitored: bool,
) -> Vec<Child> {
    let child = |kind, name: &str, content| child(group, kind, name, &content);
    let name = group.key.name();
    let agent = format!("{name}{AGENT_SUFFIX}");
    let mut all = vec![
        child(ChildKind::ServiceAccount, &agent, json!({ "automountServiceAccountToken": false })),
        child(
            ChildKind::Role,
            &agent,
            json!({ "rules": rules(group, settings.password.as_ref()) }),
        ),
        child(ChildKind::RoleBinding, &agent, binding(&agent, &agent, group.key.namespace())),
        child(ChildKind::DaemonSet, name, json!({ "spec": daemon_set(group, settings, pods) })),
    ];
    if !monitored {
        return all;
    }
    let selector = json!({ "matchLabels": labels(group) });
    let spec = json!({ "podMetricsEndpoints": [{ "port": "metrics" }], "selector": selector });
    let mut monitor = child(ChildKind::PodMonitor, name, json!({ "spec": spec }));
    monitor.object["metadata"]["labels"]["metrics"] = json!("keepalived");
    all.push(monitor);
    let prometheus = prometheus_name(name);
    all.push(child(ChildKind::Role, &prometheus, json!({ "rules": prometheus_rules() })));
    all.push(child(ChildKind::RoleBinding, &prometheus, prometheus_binding(name)));
    all
}

/// The name of the role and the binding by which Prometheus finds the pods of a group.
pub(super) fn prometheus_name(group: &str) -> String {
    format!("{group}{PROMETHEUS_SUFFIX}")
}

/// What Prometheus may do where the pods of a group are, to find them.
pub(super) fn prometheus_rules() -> Value {
    json!([{
        "apiGroups": [""],
        "resources": ["endpoints", "pods", "services"],
        "verbs": ["get", "list", "watch"],
    }])
}

/// The binding for Prometheus, whose account is that of `OpenShift`'s. Elsewhere it gives nothing to anybody.
pub(super) fn prometheus_binding(group: &str) -> Value {
    binding(&prometheus_name(group), "prometheus-k8s", "openshift-monitoring")
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

/// The change that makes an object what it should be, unless it is. What the API server or others added does not
/// count, except where an entry of their own would mean something.
pub(super) fn difference(found: &ChildView, wanted: &Child) -> Option<Value> {
    let mut change = wanted.object.clone();
    if wanted.kind == ChildKind::DaemonSet {
        let template = "/spec/template";
        let any = |_: &str| true;
        drop_others(&mut change, &found.object, &format!("{template}/spec/nodeSelector"), any);
        // Asked for by `kubectl rollout restart`.
        let settings = |key: &str| !key.starts_with("kubectl.kubernetes.io/");
        let place = format!("{template}/metadata/annotations");
        drop_others(&mut change, &found.object, &place, settings);
    }
    (!contains(&found.object, &change)).then_some(change)
}

/// Lets a change remove the entries of a map that it does not set, as far as `may_go`.
fn drop_others(change: &mut Value, found: &Value, place: &str, may_go: impl Fn(&str) -> bool) {
    let found = found.pointer(place).and_then(Value::as_object);
    let Some(wanted) = change.pointer_mut(place) else { return };
    for key in found.into_iter().flat_map(Map::keys).filter(|key| may_go(key)) {
        if wanted.get(key).is_none() {
            wanted[key.as_str()] = Value::Null;
        }
    }
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

/// Gives an account the role of a name.
fn binding(role: &str, account: &str, namespace: &str) -> Value {
    json!({
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": namespace }],
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
    let mut security = restricted(&json!(["NET_ADMIN", "NET_BROADCAST", "NET_RAW"]));
    // Where SELinux is enforced, no other type may use a folder of the node. Elsewhere it means nothing.
    security["seLinuxOptions"] = json!({ "type": "spc_t" });
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
        "resources": { "requests": { "cpu": "50m", "memory": "32Mi" }, "limits": null },
        "volumeMounts": mounts,
        "securityContext": security,
        // The keeper itself is asked: the pages are the worker's, and another program may have their port, neither of
        // which is a reason to take addresses from the node.
        "livenessProbe": {
            "exec": { "command": [path, "agent-probe", format!("--run-dir={RUN_DIR}")] },
            "periodSeconds": 10,
            "timeoutSeconds": 10,
            "failureThreshold": 3,
        },
        "readinessProbe": {
            "httpGet": { "path": "/readyz", "port": port },
            "periodSeconds": 5,
            "failureThreshold": 1,
        },
    });
    let spec = json!({
        "serviceAccountName": format!("{name}{AGENT_SUFFIX}"),
        "automountServiceAccountToken": true,
        "enableServiceLinks": false,
        "hostNetwork": true,
        "hostPID": false,
        "hostIPC": false,
        "shareProcessNamespace": false,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [{ "operator": "Exists" }],
        "nodeSelector": settings.node_selector,
        "priorityClassName": settings.priority_class,
        "initContainers": init,
        "containers": [container],
        "volumes": volumes,
    });
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

#[cfg(test)]
mod tests;
