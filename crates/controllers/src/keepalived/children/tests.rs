use kube::core::DeserializeGuard;
use landfall_api::KeepalivedGroup;
use serde_json::{Value, from_value, json};

use super::*;
use crate::cluster::keepalived;

/// The `spec` of the pods of a group with this `spec`.
fn pods(spec: &Value) -> Value {
    let object = json!({
        "apiVersion": GROUP_API,
        "kind": "KeepalivedGroup",
        "metadata": { "name": "edge", "namespace": "net", "uid": "u1" },
        "spec": spec,
    });
    let group: KeepalivedGroup = from_value(object).unwrap();
    let group = keepalived::read(DeserializeGuard(Ok(group)));
    let settings = group.settings.as_ref().unwrap();
    let ours = Pods { image: "landfall-agent:1".to_owned() };
    let all = around(&group, settings, &ours, false);
    let set = all.into_iter().find(|child| child.kind == ChildKind::DaemonSet).unwrap();
    set.object["spec"].clone()
}

#[test]
fn the_pods_are_exactly_these() {
    let set = pods(&json!({ "interface": "eth0" }));
    assert_eq!(set["minReadySeconds"], 5);
    assert_eq!(
        set["updateStrategy"],
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1 } })
    );
    let pod = &set["template"]["spec"];
    for (field, expected) in [
        ("serviceAccountName", json!("edge-agent")),
        ("hostNetwork", json!(true)),
        ("hostPID", json!(false)),
        ("hostIPC", json!(false)),
        ("shareProcessNamespace", json!(false)),
        ("terminationGracePeriodSeconds", json!(30)),
        ("tolerations", json!([{ "operator": "Exists" }])),
        ("initContainers", json!([])),
        (
            "volumes",
            json!([
                {
                    "name": "run",
                    "hostPath": { "path": "/var/lib/landfall/net/edge", "type": "DirectoryOrCreate" },
                },
                { "name": "tmp", "emptyDir": { "medium": "Memory" } },
            ]),
        ),
    ] {
        assert_eq!(pod[field], expected, "{field}");
    }
    let from = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let expected = json!({
        "name": "keepalived",
        "image": "landfall-agent:1",
        "command": ["/usr/local/bin/landfall", "agent"],
        "args": [
            "--group=net/edge",
            "--node=$(NODE_NAME)",
            "--run-dir=/run/landfall",
            "--metrics-addr=[::]:9650",
        ],
        "env": [from("NODE_NAME", "spec.nodeName"), from("POD_NAME", "metadata.name")],
        "ports": [{ "name": "metrics", "containerPort": 9650, "protocol": "TCP" }],
        // A request for the CPU, and no limit.
        "resources": { "requests": { "cpu": "50m", "memory": "32Mi" }, "limits": null },
        "volumeMounts": [
            { "name": "run", "mountPath": "/run/landfall" },
            { "name": "tmp", "mountPath": "/tmp" },
        ],
        "securityContext": {
            "privileged": false,
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "runAsUser": 0,
            "capabilities": { "drop": ["ALL"], "add": ["NET_ADMIN", "NET_BROADCAST", "NET_RAW"] },
            "seccompProfile": { "type": "RuntimeDefault" },
            "seLinuxOptions": { "type": "spc_t" },
        },
        "livenessProbe": {
            "exec": {
                "command": ["/usr/local/bin/landfall", "agent-probe", "--run-dir=/run/landfall"],
            },
            "periodSeconds": 10,
            "timeoutSeconds": 10,
            "failureThreshold": 3,
        },
        "readinessProbe": {
            "httpGet": { "path": "/readyz", "port": 9650 },
            "periodSeconds": 5,
            "failureThreshold": 1,
        },
    });
    assert_eq!(pod["containers"], json!([expected]));
}

#[test]
fn an_image_of_the_users_own_gets_landfall_from_ours() {
    let spec =
        json!({ "interface": "eth0", "image": "example.com/keepalived:2", "metricsPort": 9651 });
    let set = pods(&spec);
    let pod = &set["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "example.com/keepalived:2");
    assert_eq!(container["command"], json!(["/landfall/landfall", "agent"]));
    let probe = json!(["/landfall/landfall", "agent-probe", "--run-dir=/run/landfall"]);
    assert_eq!(container["livenessProbe"]["exec"]["command"], probe);
    assert_eq!(container["args"][3], "--metrics-addr=[::]:9651");
    assert_eq!(container["readinessProbe"]["httpGet"]["port"], 9651);
    let mount = json!({ "name": "landfall", "mountPath": "/landfall", "readOnly": true });
    assert_eq!(container["volumeMounts"][2], mount);
    let copy = json!({
        "name": "config-setup",
        "image": "landfall-agent:1",
        "command": ["cp", "/usr/local/bin/landfall", "/landfall/landfall"],
        "volumeMounts": [{ "name": "landfall", "mountPath": "/landfall" }],
        "securityContext": {
            "privileged": false,
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "runAsUser": 0,
            "capabilities": { "drop": ["ALL"], "add": [] },
            "seccompProfile": { "type": "RuntimeDefault" },
        },
    });
    assert_eq!(pod["initContainers"], json!([copy]));
}
