use std::net::IpAddr;

use super::*;

fn served(rig: &Rig) -> Vec<IpAddr> {
    let plan = rig.plan();
    plan.instances.iter().flat_map(|one| one.served().collect::<Vec<_>>()).collect()
}

#[test]
fn a_group_alone_gets_its_objects_and_says_that_it_serves() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    rig.settle();
    let kinds: BTreeSet<_> =
        rig.objects.keys().map(|(kind, key)| format!("{kind} {key}")).collect();
    let expected = [
        "configmaps infra/edge",
        "daemonsets infra/edge",
        "keepalivedgroups infra/edge",
        "podmonitors infra/edge",
        "rolebindings infra/edge-agent",
        "rolebindings infra/edge-prometheus-k8s",
        "roles infra/edge-agent",
        "roles infra/edge-prometheus-k8s",
        "serviceaccounts infra/edge-agent",
    ];
    assert_eq!(kinds, expected.map(str::to_owned).into());
    assert_eq!(rig.instances(), Vec::<String>::new());
    assert_eq!(rig.file(), "global_defs {\n    router_id edge\n}\n");
    let ready = rig.condition("Ready");
    assert_eq!((ready.0.as_str(), ready.1.as_str()), ("True", "Serving"));
    assert_eq!(rig.condition("ReconcileSuccess").0, "True");
    assert_eq!(rig.condition("ReconcileError").0, "False");
    assert_eq!(rig.status(GROUP)["appliedNodes"], 3);
}

#[test]
fn a_router_id_is_in_the_status_before_the_plan_names_it_and_nothing_is_written_twice() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    rig.settle();
    rig.forget_calls();
    rig.balancer("web", &["192.0.2.100"]);
    rig.settle();
    assert_eq!(rig.instances(), ["shop/web 1: 192.0.2.100"]);
    assert_eq!(rig.status(GROUP)["routerIDs"], json!({ "shop/web": 1 }));
    assert_eq!(rig.calls[..2], ["group_status infra/edge", "align configmaps infra/edge"]);
    let plan = rig.plan();
    let holder = plan.node(plan.instances[0].order[0]).unwrap().name.clone();
    let address = &rig.status(GROUP)["addresses"][0];
    assert_eq!(address["address"], "192.0.2.100");
    assert_eq!(address["service"], "shop/web");
    assert_eq!(address["node"], holder.as_str());
    rig.forget_calls();
    let now = rig.now();
    rig.planner.reconsider_all(rig.shared.lend(now));
    rig.settle();
    assert_eq!(rig.calls, ["find_leftovers infra"]);
}

#[test]
fn a_service_without_an_address_has_a_router_id_and_no_instance() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    rig.balancer("waiting", &[]);
    rig.settle();
    assert_eq!(rig.status(GROUP)["routerIDs"], json!({ "shop/waiting": 1 }));
    assert_eq!(rig.instances(), Vec::<String>::new());
    rig.shows("waiting", &["192.0.2.100"]);
    rig.settle();
    assert_eq!(rig.instances(), ["shop/waiting 1: 192.0.2.100"]);
}

#[test]
fn an_address_that_comes_later_is_held_and_not_advertised() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    rig.balancer("web", &["192.0.2.100"]);
    rig.settle();
    let before = rig.plan().instances[0].clone();
    rig.shows("web", &["192.0.2.90", "192.0.2.100", "2001:db8::1"]);
    rig.settle();
    let after = rig.plan().instances[0].clone();
    assert_eq!(after.form, before.form);
    assert_eq!(rig.instances(), ["shop/web 1: 192.0.2.100 192.0.2.90 2001:db8::1"]);
    assert!(after.generation > before.generation);
}

#[test]
fn slots_carry_any_number_of_services_and_their_adverts_never_change() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": { "slots": 2 } }));
    rig.settle();
    let forms = |rig: &Rig| -> Vec<_> {
        rig.plan().instances.iter().map(|one| (one.router_id, one.form.clone())).collect()
    };
    let before = forms(&rig);
    assert_eq!(before.len(), 2);
    assert!(before.iter().all(|(_, form)| form.anchor && form.advert_millis == 100));
    for last in 10..40 {
        rig.balancer(&format!("web-{last}"), &[&format!("198.51.100.{last}")]);
    }
    rig.forget_calls();
    rig.settle();
    assert_eq!(forms(&rig), before);
    assert_eq!(served(&rig).len(), 30);
    assert_eq!(rig.status(GROUP)["addresses"].as_array().unwrap().len(), 30);
    let plans = rig.calls.iter().filter(|call| call.contains("configmaps")).count();
    assert_eq!(plans, 1, "a burst is one plan: {:?}", rig.calls);
}

#[test]
fn a_node_that_joins_or_is_declared_dead_changes_priorities_and_nothing_else() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    rig.balancer("web", &["192.0.2.100"]);
    rig.settle();
    let before = rig.plan();
    rig.node("n4", &json!({ "edge": "yes" }), "192.0.2.4");
    rig.node("other", &json!({}), "192.0.2.5");
    rig.settle();
    let after = rig.plan();
    assert_eq!(after.nodes.len(), 4);
    for (old, new) in before.instances.iter().zip(&after.instances) {
        let kept = |one: &Instance| (one.form.clone(), one.excluded.clone(), one.router_id);
        assert_eq!(kept(old), kept(new));
        let others: Vec<_> = new.order.iter().filter(|index| **index != 3).copied().collect();
        assert_eq!(others, old.order);
        assert_eq!(old.generation, new.generation, "no node has to prove its addresses again");
    }
    let taint = json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]);
    let object = json!({
        "metadata": { "name": "n4", "labels": { "edge": "yes" } }, "spec": { "taints": taint },
    });
    let view = Box::new(node::read(from_value(object).unwrap()));
    let version = Version(rig.next_version());
    rig.hear(News::Nodes(Watched::Present("n4".to_owned(), version, view)));
    rig.settle();
    assert_eq!(rig.plan().nodes, before.nodes);
}

#[test]
fn a_pool_announces_the_services_that_it_serves() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    let spec = json!({ "segment": "192.0.2.128/25", "announce": { "keepalivedGroup": GROUP } });
    rig.store("ipgroups", json!({ "metadata": { "name": "dmz", "generation": 1 }, "spec": spec }));
    rig.balancer("web", &["192.0.2.130"]);
    rig.patch("services", "shop/web", &json!({ "metadata": { "annotations": null } }));
    rig.settle();
    assert_eq!(served(&rig), Vec::<IpAddr>::new(), "no claim names it yet");
    rig.claim("192.0.2.130", "LoadBalancer", "Service", "web");
    rig.settle();
    assert_eq!(served(&rig), ["192.0.2.130".parse::<IpAddr>().unwrap()]);
    let edit = json!({ "metadata": { "generation": 2 }, "spec": { "announce": null } });
    rig.patch("ipgroups", "dmz", &edit);
    rig.settle();
    assert_eq!(served(&rig), Vec::<IpAddr>::new());
}

#[test]
fn what_is_edited_by_hand_is_restored_and_what_others_made_is_left_alone() {
    let mut rig = Rig::new();
    let owner = json!([{ "apiVersion": "v1", "kind": "Other", "name": "x", "uid": "other" }]);
    let metadata = json!({
        "name": "edge-agent", "namespace": "infra", "labels": { "keepalivedGroup": "edge" },
        "ownerReferences": owner,
    });
    rig.store("roles", json!({ "metadata": metadata, "rules": [] }));
    rig.group(&json!({}));
    rig.balancer("web", &["192.0.2.100"]);
    rig.settle();
    let before = rig.objects.clone();
    assert_eq!(before[&("roles", "infra/edge-agent".to_owned())]["rules"], json!([]));
    let degraded = rig.condition("Degraded");
    assert!(degraded.2.contains("roles infra/edge-agent"), "{degraded:?}");
    for (kind, edit) in [
        ("daemonsets", json!({ "spec": { "template": { "spec": { "hostNetwork": false } } } })),
        ("configmaps", json!({ "data": { "plan.json": "{}" } })),
        ("configmaps", json!({ "data": { "keepalived.conf": "" } })),
        ("podmonitors", json!({ "metadata": { "labels": { "metrics": "no" } } })),
    ] {
        rig.patch(kind, GROUP, &edit);
        rig.settle();
        let key = (kind, GROUP.to_owned());
        for part in ["spec", "data"] {
            assert_eq!(rig.objects[&key][part], before[&key][part], "{kind}");
        }
        let labels = |object: &Value| object["metadata"]["labels"].clone();
        assert_eq!(labels(&rig.objects[&key]), labels(&before[&key]), "{kind}");
    }
    let generation = rig.plan().generation;
    rig.remove("configmaps", GROUP);
    rig.settle();
    assert!(rig.plan().generation >= generation);
    assert_eq!(rig.instances(), ["shop/web 1: 192.0.2.100"]);
}

#[test]
fn a_group_that_cannot_be_used_says_why_and_keeps_its_plan() {
    let mut rig = Rig::new();
    rig.group(&json!({}));
    rig.balancer("web", &["192.0.2.100"]);
    rig.settle();
    let before = rig.plan();
    rig.edit(&json!({ "interface": "{" }));
    rig.settle();
    let ready = rig.condition("Ready");
    assert_eq!((ready.0.as_str(), ready.1.as_str()), ("False", "Invalid"));
    assert!(ready.2.contains("interface"), "{}", ready.2);
    assert_eq!(rig.plan(), before);
    rig.edit(&json!({ "interface": "eth1" }));
    rig.settle();
    assert_eq!(rig.condition("Ready").0, "True");
    assert_eq!(rig.plan().interface, "eth1");
}

#[test]
fn a_missing_secret_stops_its_group_until_it_is_there() {
    let mut rig = Rig::new();
    rig.group(&json!({ "passwordAuth": { "secretRef": { "name": "vrrp" } } }));
    rig.balancer("web", &["192.0.2.100"]);
    rig.settle();
    assert_eq!(rig.condition("Ready").1, "PasswordMissing");
    assert_eq!(rig.condition("ReconcileError").0, "True");
    assert!(rig.plan_of(GROUP).is_none());
    rig.secrets.insert("infra/vrrp".to_owned(), "u/7".to_owned());
    rig.uptime += MISSING_SECRET_INTERVAL;
    rig.settle();
    assert_eq!(rig.condition("Ready").0, "True");
    assert_eq!(rig.plan().instances[0].form.password.as_deref(), Some("u/7"));
    assert_eq!(rig.condition("ReconcileError").0, "False");
}
