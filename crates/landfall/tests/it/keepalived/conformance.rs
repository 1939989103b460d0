//! What keepalived-operator promises to those who use it, and what it should have kept: one operator looks after
//! groups in many namespaces, and each test has nodes of its own.

use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use landfall_vrrp::Transport;

use super::*;
use crate::stage::Tenant;
use crate::stage::tenant_of_groups;

/// The prefix of the annotations.
const PREFIX: &str = "keepalived-operator.redhat-cop.io";

/// A namespace with nodes that have a label of its name, and a group of these nodes.
pub(super) struct Ground {
    pub(super) tenant: Tenant,
    pub(super) group: Group,
    pub(super) key: String,
}

pub(super) async fn ground(name: &str, nodes: usize, spec: Value) -> Ground {
    let (tenant, _) = tenant_of_groups(name).await;
    for index in 0..nodes {
        add_node(&tenant, index).await;
    }
    let key = format!("{name}/edge");
    let group = second_group(&tenant, "edge", spec).await;
    Ground { tenant, group, key }
}

async fn second_group(tenant: &Tenant, name: &str, mut spec: Value) -> Group {
    if spec["nodeSelector"].is_null() {
        spec["nodeSelector"] = json!({ "example.com/ground": tenant.namespace });
    }
    Group::make(&tenant.client, &tenant.key(name), spec).await
}

/// The address of a node. Those of different namespaces may be the same.
fn address_of(index: usize) -> String {
    format!("10.250.0.{}", index + 1)
}

async fn add_node(tenant: &Tenant, index: usize) {
    let name = node_name(tenant, index);
    let labels = json!({ "example.com/ground": tenant.namespace });
    make_node(&tenant.client, &name, &labels, &address_of(index)).await;
}

pub(super) fn node_name(tenant: &Tenant, index: usize) -> String {
    format!("{}-{index}", tenant.namespace)
}

/// The marks on a Service that asks for this group.
fn asking(name: &str, group: &str) -> Service {
    load_balancer(name).annotated(GROUP_OF, group)
}

async fn annotate(tenant: &Tenant, name: &str, annotations: Value) {
    tenant.patch(name, json!({ "metadata": { "annotations": annotations } })).await;
}

/// The objects of a kind in a namespace.
async fn list(tenant: &Tenant, kind: &str, version: &str) -> Vec<DynamicObject> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = kube::core::GroupVersionKind::gvk(group, version, kind);
    let resource = kube::core::ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> =
        Api::namespaced_with(tenant.client.clone(), &tenant.namespace, &resource);
    api.list(&ListParams::default()).await.unwrap().items
}

/// Waits until the `DaemonSet` of the group is as it should be.
async fn has_pods(ground: &Ground, what: &str, test: impl Fn(&Value) -> bool) -> Value {
    wait::until(format!("the pods of {} to have {what}", ground.key), LONG, async || {
        let all = list(&ground.tenant, "DaemonSet", "apps/v1").await;
        let found = all.into_iter().find(|set| set.name_any() == "edge").ok_or("none")?;
        if test(&found.data["spec"]) {
            Ok(found.data["spec"].clone())
        } else {
            Err(found.data["spec"].to_string())
        }
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_group_alone_has_its_objects_and_a_file_without_instances() {
    let ground = ground("conf-alone", 1, json!({})).await;
    let group = &ground.group;
    group.says("ReconcileSuccess", "True", "LastReconcileCycleSucceded", "").await;
    group.says("ReconcileError", "False", "LastReconcileCycleSucceded", "").await;
    assert_eq!(group.file().await, "global_defs {\n    router_id edge\n}\n");
    assert_eq!(group.plan().await.unwrap().instances, []);
    let pods = has_pods(&ground, "a template", |_| true).await;
    assert_eq!(pods["selector"], json!({ "matchLabels": { "keepalivedGroup": "edge" } }));
    let container = &pods["template"]["spec"]["containers"][0];
    assert_eq!(
        container["ports"][0],
        json!({ "name": "metrics", "containerPort": 9650, "protocol": "TCP" })
    );
    assert!(container["resources"]["limits"].is_null(), "a quota would hold adverts back");
    assert!(!container["livenessProbe"].is_null() && !container["readinessProbe"].is_null());
    let security = &container["securityContext"];
    assert_eq!(
        security["capabilities"],
        json!({
            "add": ["NET_ADMIN", "NET_BROADCAST", "NET_RAW"], "drop": ["ALL"],
        })
    );
    assert_eq!(
        (&security["privileged"], &security["readOnlyRootFilesystem"]),
        (&json!(false), &json!(true))
    );
    let account = &pods["template"]["spec"]["serviceAccountName"];
    assert_eq!(account, "edge-agent");
    assert_eq!(list(&ground.tenant, "Role", "rbac.authorization.k8s.io/v1").await.len(), 1);
}

#[tokio::test]
async fn services_are_served_by_type_annotation_and_address() {
    let ground = ground("conf-serve", 2, json!({})).await;
    let (tenant, group, key) = (&ground.tenant, &ground.group, &ground.key);
    // Not annotated, or without any address that could be announced.
    tenant.create(load_balancer("not-annotated")).await;
    tenant.set_ingress("not-annotated", json!([{ "ip": "192.168.131.199" }])).await;
    tenant.create(external("no-address", key, &[])).await;
    tenant.create(external("svc4", key, &["192.168.131.130"])).await;
    group.has(&[("conf-serve/svc4", 1)]).await;
    group.serves(&[("conf-serve/svc4", &["192.168.131.130"])]).await;
    let file = group.file().await;
    assert!(file.contains("vrrp_instance conf-serve/svc4 {"), "{file}");
    assert!(file.contains("interface ens3\n") && file.contains("virtual_router_id 1\n"), "{file}");

    // A router ID comes before the address.
    tenant.create(asking("svc3", key)).await;
    group.has(&[("conf-serve/svc3", 2), ("conf-serve/svc4", 1)]).await;
    group.serves(&[("conf-serve/svc4", &["192.168.131.130"])]).await;
    tenant.set_ingress("svc3", json!([{ "ip": "192.168.131.131" }])).await;
    let plan = group
        .serves(&[
            ("conf-serve/svc3", &["192.168.131.131"]),
            ("conf-serve/svc4", &["192.168.131.130"]),
        ])
        .await;
    assert_eq!(plan.instances.iter().map(|one| one.router_id).collect::<Vec<_>>(), [2, 1]);

    // Addresses of both sorts count, each once.
    let both = asking("both", key).with_spec(|spec| {
        spec.external_ips = Some(vec!["192.168.131.132".to_owned(), "192.168.131.133".to_owned()]);
    });
    tenant.create(both).await;
    tenant.set_ingress("both", json!([{ "ip": "192.168.131.132" }])).await;
    let plan = group
        .plans("both", |plan| served(plan).get("conf-serve/both").map(BTreeSet::len) == Some(2))
        .await;
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(text.matches("192.168.131.132").count(), 1, "{text}");
    let generation = plan.generation;
    annotate(tenant, "both", json!({ "example.com/touched": "1" })).await;
    tenant.create(external("last", key, &["192.168.131.134"])).await;
    let after = group.plans("the last", |plan| served(plan).contains_key("conf-serve/last")).await;
    let of = |plan: &Plan| plan.instances.iter().find(|one| one.name == "conf-serve/both").cloned();
    assert_eq!(
        of(&after).map(|one| (one.form, one.excluded)),
        of(&plan).map(|one| (one.form, one.excluded))
    );
    assert_eq!(after.generation, generation + 1, "the touched Service is no reason for a plan");

    // The example of the original's documentation.
    annotate(
        tenant,
        "svc3",
        json!({ (format!("{PREFIX}/verbatimconfig")): "{ \"track_src_ip\": \"\" }" }),
    )
    .await;
    group
        .plans("its line", |plan| plan.instances.iter().any(|one| one.lines == ["track_src_ip"]))
        .await;
    group.is_carried_out().await;
    wait::until("the line in the file", LONG, async || {
        let file = group.file().await;
        if file.contains("    track_src_ip\n") { Ok(()) } else { Err(file) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn router_ids_are_the_lowest_free_ones_and_never_forbidden_ones() {
    let ground = ground("conf-ids", 1, json!({ "blacklistRouterIDs": [1, 2] })).await;
    let (tenant, group, key) = (&ground.tenant, &ground.group, &ground.key);
    for (name, address) in [("a", "10.251.0.1"), ("b", "10.251.0.2"), ("c", "10.251.0.3")] {
        tenant.create(external(name, key, &[address])).await;
        group.plans(name, |plan| served(plan).contains_key(&tenant.key(name))).await;
    }
    group.has(&[("conf-ids/a", 3), ("conf-ids/b", 4), ("conf-ids/c", 5)]).await;
    tenant.delete("b").await;
    group.has(&[("conf-ids/a", 3), ("conf-ids/c", 5)]).await;
    tenant.create(external("d", key, &["10.251.0.4"])).await;
    group.has(&[("conf-ids/a", 3), ("conf-ids/c", 5), ("conf-ids/d", 4)]).await;
    // One that is forbidden later moves, and nothing else does.
    group.edit(json!({ "blacklistRouterIDs": [1, 2, 3] })).await;
    group.has(&[("conf-ids/a", 6), ("conf-ids/c", 5), ("conf-ids/d", 4)]).await;
    // Groups with a node in common do not share IDs.
    let other = second_group(tenant, "other", json!({ "metricsPort": 9651 })).await;
    let other_key = tenant.key("other");
    tenant.create(external("e", &other_key, &["10.251.0.5"])).await;
    tenant.create(external("f", &other_key, &["10.251.0.6"])).await;
    other.has(&[("conf-ids/e", 1), ("conf-ids/f", 2)]).await;
    group.edit(json!({ "blacklistRouterIDs": [] })).await;
    tenant.create(external("g", key, &["10.251.0.7"])).await;
    group.has(&[("conf-ids/a", 6), ("conf-ids/c", 5), ("conf-ids/d", 4), ("conf-ids/g", 3)]).await;

    // The annotation moves to another group, and goes.
    annotate(tenant, "a", json!({ (GROUP_OF): other_key })).await;
    group.plans("no a", |plan| !served(plan).contains_key("conf-ids/a")).await;
    group.has(&[("conf-ids/c", 5), ("conf-ids/d", 4), ("conf-ids/g", 3)]).await;
    // The nodes of the old group hold it until they say otherwise.
    group.is_carried_out().await;
    other.plans("a", |plan| served(plan).contains_key("conf-ids/a")).await;
    annotate(tenant, "a", json!({ (GROUP_OF): null })).await;
    other.plans("no a", |plan| !served(plan).contains_key("conf-ids/a")).await;
    other.has(&[("conf-ids/e", 1), ("conf-ids/f", 2)]).await;
}

#[tokio::test]
async fn without_a_router_id_a_service_waits_and_all_others_are_served() {
    let ground = ground("conf-full", 1, json!({})).await;
    let (tenant, group, key) = (&ground.tenant, &ground.group, &ground.key);
    let addresses: Vec<_> = (1..=255).map(|last| format!("10.252.0.{last}")).collect();
    let all: Vec<_> = addresses.iter().map(String::as_str).collect();
    let spread = (format!("{PREFIX}/spreadvips"), "true");
    tenant.create(external("all", key, &all).annotated(&spread.0, spread.1)).await;
    group.plans("255 instances", |plan| plan.instances.len() == 255).await;
    let ids = group.get().await.status.unwrap().router_ids;
    let distinct: BTreeSet<_> = ids.values().collect();
    assert_eq!((distinct.len(), *distinct.first().unwrap()), (255, &1));
    group.is_carried_out().await;
    group.says("Degraded", "False", "AsExpected", "").await;
    tenant.create(external("late", key, &["10.252.1.1"])).await;
    group.says("Degraded", "True", "RouterIDsExhausted", "conf-full/late").await;
    group.says("ReconcileError", "True", "LastReconcileCycleFailed", "conf-full/late").await;
    tenant.tells("late", "NotApplied", "no router ID left").await;
    // The others go on receiving changes, and a free ID ends the wait.
    group.edit(json!({ "interface": "ens9" })).await;
    let plan = group.plans("ens9", |plan| plan.interface == "ens9").await;
    assert_eq!(plan.instances.len(), 255);
    tenant.patch("all", json!({ "spec": { "externalIPs": all[1..] } })).await;
    let gone = format!("conf-full/all/{}", all[0]);
    let id = ids[&gone];
    let plan =
        group.plans("the late one", |plan| served(plan).contains_key("conf-full/late")).await;
    assert!(!served(&plan).contains_key(&gone));
    let after = group.get().await.status.unwrap().router_ids;
    assert_eq!(after["conf-full/late"], id);
    assert!(ids.iter().filter(|(name, _)| **name != gone).all(|(name, id)| after[name] == *id));
    group.says("ReconcileError", "False", "LastReconcileCycleSucceded", "").await;
}

#[tokio::test]
async fn each_address_of_a_spread_service_prefers_another_node_for_good() {
    let ground = ground("conf-spread", 3, json!({})).await;
    let (tenant, group, key) = (&ground.tenant, &ground.group, &ground.key);
    let spread = format!("{PREFIX}/spreadvips");
    let three = ["10.253.0.1", "10.253.0.2", "10.253.0.3"];
    tenant.create(external("three", key, &three).annotated(&spread, "true")).await;
    tenant
        .create(external("capital", key, &["10.253.1.1", "10.253.1.2"]).annotated(&spread, "True"))
        .await;
    let names =
        ["three/10.253.0.1", "three/10.253.0.2", "three/10.253.0.3"].map(|name| tenant.key(name));
    let plan = group
        .serves(&[
            (&names[0], &["10.253.0.1"]),
            (&names[1], &["10.253.0.2"]),
            (&names[2], &["10.253.0.3"]),
            ("conf-spread/capital", &["10.253.1.1", "10.253.1.2"]),
        ])
        .await;
    let owners = |plan: &Plan, service: &str| -> BTreeMap<String, NodeIndex> {
        let prefix = format!("{service}/");
        let of = plan.instances.iter().filter(|one| one.name.starts_with(&prefix));
        of.map(|one| (one.name.clone(), one.order[0])).collect()
    };
    let before = owners(&plan, "conf-spread/three");
    assert_eq!(before.values().collect::<BTreeSet<_>>().len(), 3, "{before:?}");
    // Nothing that happens to others moves them.
    tenant.create(external("more", key, &["10.253.2.1"])).await;
    let plan = group.plans("more", |plan| served(plan).contains_key("conf-spread/more")).await;
    assert_eq!(owners(&plan, "conf-spread/three"), before);
    // Five addresses on two nodes are three and two.
    let five: Vec<_> = (1..=5).map(|last| format!("10.253.3.{last}")).collect();
    let five: Vec<_> = five.iter().map(String::as_str).collect();
    tenant.create(external("five", key, &five).annotated(&spread, "true")).await;
    let nodes: Api<Node> = Api::all(tenant.client.clone());
    nodes.delete(&node_name(tenant, 2), &DeleteParams::default()).await.unwrap();
    let is_dealt =
        |plan: &Plan| plan.nodes.len() == 2 && owners(plan, "conf-spread/five").len() == 5;
    let plan = group.plans("five on two nodes", is_dealt).await;
    let mut counts: BTreeMap<NodeIndex, usize> = BTreeMap::new();
    for owner in owners(&plan, "conf-spread/five").into_values() {
        *counts.entry(owner).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 3]);
}

#[tokio::test]
async fn a_spread_service_without_nodes_never_has_router_id_zero() {
    let ground = ground("conf-nobody", 0, json!({})).await;
    let spread = format!("{PREFIX}/spreadvips");
    let service = external("web", &ground.key, &["10.254.0.1"]).annotated(&spread, "true");
    ground.tenant.create(service).await;
    ground.group.has(&[("conf-nobody/web/10.254.0.1", 1)]).await;
    ground.group.says("Ready", "False", "NoNodes", "nodeSelector").await;
    let plan = ground.group.serves(&[("conf-nobody/web/10.254.0.1", &["10.254.0.1"])]).await;
    assert_eq!(plan.instances[0].router_id, 1);
    let file = ground.group.file().await;
    assert!(!file.contains("virtual_router_id 0") && !file.contains("unicast_peer"), "{file}");
    // Once there is a node it goes on by itself.
    add_node(&ground.tenant, 0).await;
    ground.group.says("Ready", "False", "NoAgents", "DaemonSet conf-nobody/edge").await;
    ground.group.is_carried_out().await;
    ground.group.says("Ready", "True", "Serving", "announced from 1 node").await;
}

#[tokio::test]
async fn a_missing_secret_stops_its_group_and_is_noticed_without_other_events() {
    let password = json!({ "secretRef": { "name": "vrrp" } });
    let ground = ground("conf-secret", 1, json!({ "passwordAuth": password })).await;
    let (tenant, group) = (&ground.tenant, &ground.group);
    tenant.create(external("web", &ground.key, &["10.254.1.1"])).await;
    group.says("Ready", "False", "PasswordMissing", "").await;
    group.says("ReconcileError", "True", "LastReconcileCycleFailed", "Secret").await;
    assert!(group.plan().await.is_none());
    assert_eq!(list(tenant, "DaemonSet", "apps/v1").await.len(), 0);
    let secrets: Api<Secret> = Api::namespaced(tenant.client.clone(), &tenant.namespace);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "vrrp" },
        "stringData": { "password": "correct1" },
    });
    let secret = serde_json::from_value(secret).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let plan = group.serves(&[("conf-secret/web", &["10.254.1.1"])]).await;
    let from = plan.password_from.clone().unwrap();
    assert_eq!((from.secret.as_str(), from.key.as_str()), ("vrrp", "password"));
    assert!(plan.instances[0].form.password.is_some());
    group.says("ReconcileError", "False", "LastReconcileCycleSucceded", "").await;
    for map in list(tenant, "ConfigMap", "v1").await {
        assert!(!map.data.to_string().contains("correct1"));
    }
    // The operator does not read Secrets. That the key is missing is known to the agents.
    group.is_carried_out().await;
    let mut reports = reports(&plan);
    reports[0]["lastError"] = json!("Secret conf-secret/vrrp has no key password");
    let patch = Patch::Merge(json!({ "status": { "nodes": reports } }));
    group.groups.patch_status("edge", &PatchParams::default(), &patch).await.unwrap();
    group.says("ReconcileError", "True", "LastReconcileCycleFailed", "has no key password").await;
    assert_eq!(group.plan().await, Some(plan));
}

#[tokio::test]
async fn unicast_has_every_node_and_never_none() {
    let ground = ground("conf-unicast", 2, json!({ "unicastEnabled": true })).await;
    let (tenant, group) = (&ground.tenant, &ground.group);
    tenant.create(external("web", &ground.key, &["10.254.2.1"])).await;
    let peers = |plan: &Plan| -> Vec<String> {
        plan.nodes.iter().flat_map(|node| &node.addresses).map(ToString::to_string).collect()
    };
    group.plans("both nodes", |plan| peers(plan) == [address_of(0), address_of(1)]).await;
    let plan = group.is_carried_out().await;
    assert_eq!(plan.instances[0].form.transport, Transport::Unicast);
    add_node(tenant, 2).await;
    group.plans("the third", |plan| peers(plan).len() == 3).await;
    let plan = group.is_carried_out().await;
    assert_eq!(plan.instances[0].form.transport, Transport::Unicast);
    let nodes: Api<Node> = Api::all(tenant.client.clone());
    for index in [0, 2] {
        nodes.delete(&node_name(tenant, index), &DeleteParams::default()).await.unwrap();
    }
    group.plans("one node", |plan| peers(plan) == [address_of(1)]).await;
    // keepalived takes an empty list of peers for multicast, and so does the plan.
    let is_multicast = |plan: &Plan| plan.instances[0].form.transport == Transport::Multicast;
    group.is_carried_out_with("multicast", is_multicast).await;
    assert!(!group.file().await.contains("unicast_peer"));
}

#[tokio::test]
async fn a_device_may_be_found_by_a_route_and_names_do_not_matter() {
    let spec = json!({ "interfaceFromIP": "10.250.0.254", "interface": "ens3" });
    let ground = ground("conf-interface", 1, spec).await;
    let group = &ground.group;
    ground.tenant.create(external("interface-x", &ground.key, &["10.254.3.1"])).await;
    let plan = group.serves(&[("conf-interface/interface-x", &["10.254.3.1"])]).await;
    assert_eq!(plan.interface_from, Some("10.250.0.254".parse().unwrap()));
    let file = group.file().await;
    assert!(
        file.contains("vrrp_instance conf-interface/interface-x {\n    interface ens3\n"),
        "{file}"
    );
    group.edit(json!({ "interfaces": { "conf-interface-0": "bond0" } })).await;
    group
        .plans("a device of its own", |plan| {
            plan.interfaces.get("conf-interface-0").map(String::as_str) == Some("bond0")
        })
        .await;
}

#[tokio::test]
async fn texts_that_look_like_other_things_stay_texts_and_go_with_their_field() {
    let spec = json!({
        "nodeSelector": { "vips": "true" },
        "daemonsetPodAnnotations": { "example.com/inject": "false", "example.com/number": "1" },
        "daemonsetPodPriorityClassName": "system-node-critical",
    });
    let ground = ground("conf-texts", 0, spec).await;
    let pods = has_pods(&ground, "a template", |_| true).await;
    let template = &pods["template"];
    assert_eq!(template["spec"]["nodeSelector"], json!({ "vips": "true" }));
    let annotations = json!({ "example.com/inject": "false", "example.com/number": "1" });
    assert_eq!(template["metadata"]["annotations"], annotations);
    assert_eq!(template["spec"]["priorityClassName"], "system-node-critical");
    // A restart that somebody asked for is none of the group's business.
    let restart = json!({ "kubectl.kubernetes.io/restartedAt": "now" });
    let patch = json!({ "spec": { "template": { "metadata": { "annotations": restart } } } });
    edit(&ground, "DaemonSet", "apps/v1", "edge", patch).await;
    ground
        .group
        .edit(json!({
            "nodeSelector": { "vips": null, "other": "1" },
            "daemonsetPodAnnotations": { "example.com/inject": null },
            "daemonsetPodPriorityClassName": null,
        }))
        .await;
    let changed = |pods: &Value| pods["template"]["spec"]["nodeSelector"]["other"] == "1";
    let pods = has_pods(&ground, "another selector", changed).await;
    let template = &pods["template"];
    assert_eq!(template["spec"]["nodeSelector"], json!({ "other": "1" }));
    let annotations =
        json!({ "example.com/number": "1", "kubectl.kubernetes.io/restartedAt": "now" });
    assert_eq!(template["metadata"]["annotations"], annotations);
    assert!(template["spec"]["priorityClassName"].is_null(), "{template}");
    // So are lines of the group.
    ground
        .group
        .edit(
            json!({ "verbatimConfig": { "vrrp_iptables": "my-keepalived", "notify": "/bin/sh" } }),
        )
        .await;
    ground.group.says("Degraded", "True", "PartlyRead", "notify").await;
    wait::until("the line in the file", LONG, async || {
        let file = ground.group.file().await;
        let expected = "global_defs {\n    router_id edge\n    vrrp_iptables my-keepalived\n}\n";
        if file == expected { Ok(()) } else { Err(file) }
    })
    .await
    .unwrap();
}

async fn edit(ground: &Ground, kind: &str, version: &str, name: &str, patch: Value) {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = kube::core::GroupVersionKind::gvk(group, version, kind);
    let resource = kube::core::ApiResource::from_gvk(&kind);
    let tenant = &ground.tenant;
    let api: Api<DynamicObject> =
        Api::namespaced_with(tenant.client.clone(), &tenant.namespace, &resource);
    if patch.is_null() {
        api.delete(name, &DeleteParams::default()).await.unwrap();
    } else {
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

/// What a group's object is, without what changes with every write.
fn essence(object: &DynamicObject) -> Value {
    let mut data = object.data.clone();
    data.as_object_mut().unwrap().remove("status");
    json!([data, object.labels(), object.owner_references()])
}

#[tokio::test]
async fn what_is_edited_by_hand_is_restored() {
    let ground = ground("conf-edited", 2, json!({})).await;
    let tenant = &ground.tenant;
    tenant.create(external("web", &ground.key, &["10.254.4.1"])).await;
    ground.group.is_carried_out().await;
    has_pods(&ground, "a template", |_| true).await;
    let rbac = "rbac.authorization.k8s.io/v1";
    let other = json!([{ "name": "keepalived", "image": "example.com/other" }]);
    for (kind, version, name, patch) in [
        ("ConfigMap", "v1", "edge", json!({ "data": { "plan.json": "{}" } })),
        ("ConfigMap", "v1", "edge", json!({ "data": { "keepalived.conf": null } })),
        ("ConfigMap", "v1", "edge", json!({ "metadata": { "labels": null } })),
        ("ConfigMap", "v1", "edge", json!({ "metadata": { "ownerReferences": null } })),
        ("ConfigMap", "v1", "edge", Value::Null),
        (
            "DaemonSet",
            "apps/v1",
            "edge",
            json!({ "spec": { "template": { "spec": { "containers": other } } } }),
        ),
        (
            "DaemonSet",
            "apps/v1",
            "edge",
            json!({ "spec": { "template": { "spec": { "hostPID": true } } } }),
        ),
        (
            "DaemonSet",
            "apps/v1",
            "edge",
            json!({ "spec": { "updateStrategy": { "rollingUpdate": { "maxUnavailable": 3 } } } }),
        ),
        ("DaemonSet", "apps/v1", "edge", json!({ "metadata": { "labels": null } })),
        ("DaemonSet", "apps/v1", "edge", Value::Null),
        ("Role", rbac, "edge-agent", json!({ "rules": [] })),
        ("RoleBinding", rbac, "edge-agent", json!({ "subjects": [] })),
        ("ServiceAccount", "v1", "edge-agent", Value::Null),
    ] {
        let found =
            async || list(tenant, kind, version).await.into_iter().find(|it| it.name_any() == name);
        let before = found().await.unwrap();
        edit(&ground, kind, version, name, patch.clone()).await;
        wait::until(format!("{kind} to be restored after {patch}"), LONG, async || {
            let now = found().await.ok_or("it is gone")?;
            let same = match kind {
                // A plan that was deleted comes back as a later one.
                "ConfigMap" => {
                    now.labels() == before.labels()
                        && now.owner_references() == before.owner_references()
                        && now.data["data"]["keepalived.conf"]
                            == before.data["data"]["keepalived.conf"]
                        && now.data["data"]["plan.json"]
                            .as_str()
                            .is_some_and(|text| text.contains("10.254.4.1"))
                }
                _ => essence(&now) == essence(&before),
            };
            if same { Ok(()) } else { Err(format!("{} {:?}", essence(&now), now.labels())) }
        })
        .await
        .unwrap();
    }
    ground.group.serves(&[("conf-edited/web", &["10.254.4.1"])]).await;
    ground.group.says("ReconcileSuccess", "True", "LastReconcileCycleSucceded", "").await;
}

#[tokio::test]
async fn an_object_of_others_with_a_groups_name_is_left_alone_and_named() {
    let (tenant, _) = tenant_of_groups("conf-foreign").await;
    let maps: Api<ConfigMap> = Api::namespaced(tenant.client.clone(), &tenant.namespace);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "edge" }, "data": { "mine": "1" },
    });
    let map: ConfigMap = serde_json::from_value(map).unwrap();
    let map = maps.create(&PostParams::default(), &map).await.unwrap();
    let ground = ground("conf-foreign", 1, json!({})).await;
    ground
        .group
        .says("Degraded", "True", "WriteRefused", "configmaps conf-foreign/edge exists")
        .await;
    assert_eq!(maps.get("edge").await.unwrap(), map);
    maps.delete("edge", &DeleteParams::default()).await.unwrap();
    ground.group.says("Degraded", "False", "AsExpected", "").await;
    ground.group.is_carried_out().await;
    ground.group.says("Ready", "True", "Serving", "").await;
}
