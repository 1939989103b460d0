//! The pods of a group and their rights.

use super::*;

/// The pod template of a group.
fn template(rig: &Rig, group: &str) -> Value {
    rig.objects[&("daemonsets", group.to_owned())]["spec"]["template"].clone()
}

/// That of the container which works on the node and has a folder of it.
fn working() -> Value {
    let mut allowed = restricted(&["NET_ADMIN", "NET_BROADCAST", "NET_RAW"]);
    allowed["seLinuxOptions"] = json!({ "type": "spc_t" });
    allowed
}

fn restricted(capabilities: &[&str]) -> Value {
    json!({
        "privileged": false,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "runAsUser": 0,
        "capabilities": { "drop": ["ALL"], "add": capabilities },
        "seccompProfile": { "type": "RuntimeDefault" },
    })
}

#[test]
fn the_container_has_three_capabilities_and_nothing_else_that_a_restricted_one_lacks() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    rig.settle();
    let pod = template(&rig, GROUP)["spec"].clone();
    let [container] = &pod["containers"].as_array().unwrap()[..] else { panic!("{pod}") };
    assert_eq!(container["securityContext"], working());
    // No limit of CPU: a quota would hold adverts back.
    let requests = json!({ "requests": { "cpu": "50m", "memory": "32Mi" } });
    assert_eq!(container["resources"], requests);
    assert_eq!(container["image"], IMAGE);
    assert!(pod["securityContext"].is_null(), "{pod}");
    for shared in ["hostPID", "hostIPC", "shareProcessNamespace"] {
        assert_eq!(pod[shared], false, "{shared}");
    }
    assert_eq!((&pod["hostNetwork"], &pod["initContainers"]), (&json!(true), &json!([])));
    let volumes: Vec<_> = pod["volumes"].as_array().unwrap().iter().collect();
    let folder = json!({ "path": "/var/lib/landfall/infra/edge", "type": "DirectoryOrCreate" });
    let memory = json!({ "medium": "Memory" });
    assert_eq!(
        volumes,
        [
            &json!({ "name": "run", "hostPath": folder }),
            &json!({ "name": "tmp", "emptyDir": memory }),
        ]
    );
}

#[test]
fn an_image_of_the_users_own_gets_no_right_more_and_what_prepares_it_none_at_all() {
    let mut rig = Rig::new();
    rig.group(&json!({ "image": "example.com/keepalived:2.3" }));
    rig.settle();
    let pod = template(&rig, GROUP)["spec"].clone();
    let [init] = &pod["initContainers"].as_array().unwrap()[..] else { panic!("{pod}") };
    assert_eq!((&init["name"], &init["image"]), (&json!("config-setup"), &json!(IMAGE)));
    assert_eq!(init["securityContext"], restricted(&[]));
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "example.com/keepalived:2.3");
    assert_eq!(container["securityContext"], working());
    let read_only = container["volumeMounts"].as_array().unwrap().iter();
    let mut read_only = read_only.filter(|mount| mount["readOnly"] == true);
    assert_eq!(read_only.next().unwrap()["mountPath"], "/landfall");
}

#[test]
fn another_port_for_metrics_is_that_of_the_agent_its_probes_and_its_monitor() {
    let mut rig = Rig::new();
    rig.group(&json!({ "metricsPort": 9651 }));
    rig.settle();
    let container = template(&rig, GROUP)["spec"]["containers"][0].clone();
    let ports = json!([{ "name": "metrics", "containerPort": 9651, "protocol": "TCP" }]);
    assert_eq!(container["ports"], ports);
    let args = container["args"].as_array().unwrap();
    assert!(args.contains(&json!("--metrics-addr=[::]:9651")), "{args:?}");
    assert_eq!(container["readinessProbe"]["httpGet"]["port"], 9651);
    // The monitor names the port and not its number.
    let monitor = rig.objects[&("podmonitors", GROUP.to_owned())]["spec"].clone();
    let selector = json!({ "matchLabels": { "keepalivedGroup": "edge" } });
    let endpoints = json!([{ "port": "metrics" }]);
    assert_eq!(monitor, json!({ "podMetricsEndpoints": endpoints, "selector": selector }));
    assert!(!container.to_string().contains("9650"), "{container}");
}

#[test]
fn a_group_whose_name_is_a_number_works_like_any_other() {
    let mut rig = Rig::new();
    rig.group_named("123", &json!({ "vrrp": { "slots": 1 } }));
    rig.balancer("web", &["192.0.2.50"]);
    rig.annotate("web", &json!({ "keepalivedgroup": "infra/123" }));
    rig.settle();
    let plan = rig.plan_of("infra/123").unwrap();
    assert_eq!((plan.group.as_str(), plan.instances[0].name.as_str()), ("infra/123", "123/0"));
    assert!(rig.announced("web").starts_with("true Announced"), "{}", rig.announced("web"));
    // A label or a name that became a number would be refused by the API server.
    for ((kind, key), object) in rig.objects.iter().filter(|((_, key), _)| key.contains("123")) {
        let metadata = &object["metadata"];
        let label = &metadata["labels"]["keepalivedGroup"];
        assert!(*kind == "keepalivedgroups" || label == "123", "{kind} {key}: {label}");
        assert!(metadata["name"].as_str().unwrap().starts_with("123"), "{kind} {key}");
    }
    let template = template(&rig, "infra/123");
    assert_eq!(template["metadata"]["labels"], json!({ "keepalivedGroup": "123" }));
    assert_eq!(template["spec"]["serviceAccountName"], "123-agent");
}

#[test]
fn an_agent_may_read_one_map_and_one_secret_and_report_on_one_group() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    rig.settle();
    let rules = |rig: &Rig| rig.objects[&("roles", "infra/edge-agent".to_owned())]["rules"].clone();
    let read = |resource: &str, name: &str| {
        json!({
            "apiGroups": [""], "resources": [resource], "verbs": ["get", "list", "watch"],
            "resourceNames": [name],
        })
    };
    let report = json!({
        "apiGroups": ["redhatcop.redhat.io"], "resources": ["keepalivedgroups/status"], "verbs": ["patch"],
        "resourceNames": ["edge"],
    });
    assert_eq!(rules(&rig), json!([read("configmaps", "edge"), report]));
    rig.secrets.insert("infra/vrrp".to_owned(), "u/7".to_owned());
    rig.edit(&json!({ "passwordAuth": { "secretRef": { "name": "vrrp" } } }));
    rig.settle();
    let with_secret = json!([read("configmaps", "edge"), report, read("secrets", "vrrp")]);
    assert_eq!(rules(&rig), with_secret);
    // Another Secret takes the place of the first one.
    rig.secrets.insert("infra/other".to_owned(), "v/7".to_owned());
    rig.edit(&json!({ "passwordAuth": { "secretRef": { "name": "other" } } }));
    rig.settle();
    let with_other = json!([read("configmaps", "edge"), report, read("secrets", "other")]);
    assert_eq!(rules(&rig), with_other);
    rig.edit(&json!({ "passwordAuth": null }));
    rig.settle();
    assert_eq!(rules(&rig), json!([read("configmaps", "edge"), report]));
}
