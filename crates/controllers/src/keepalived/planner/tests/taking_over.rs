//! What the replaced operator left goes on as it is.

use landfall_vrrp::Transport;

use super::*;

const FILE: &str = "global_defs {
    router_id edge
}
vrrp_instance shop/web {
    interface eth0

    virtual_router_id 77

    virtual_ipaddress {

      192.0.2.101

      192.0.2.100

    }
    unicast_peer {
      192.0.2.1
      192.0.2.2
      192.0.2.3
    }
    authentication {
      auth_type PASS
      auth_pass s3cr3tpw
    }
}
";

/// A group whose pods of the replaced operator are still running on all nodes.
fn left() -> Rig {
    let mut rig = Rig::new();
    rig.secrets.insert("infra/vrrp".to_owned(), "u/7".to_owned());
    let password = json!({ "secretRef": { "name": "vrrp" } });
    rig.group(&json!({ "unicastEnabled": true, "passwordAuth": password }));
    let ids = json!({ "status": { "routerIDs": { "shop/web": 77 } } });
    rig.patch("keepalivedgroups", GROUP, &ids);
    let owner = json!([{
        "apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": "KeepalivedGroup", "name": "edge",
        "uid": "keepalivedgroups/infra/edge", "controller": true, "blockOwnerDeletion": true,
    }]);
    let metadata = json!({
        "name": "edge", "namespace": "infra", "labels": { "keepalivedGroup": "edge" },
        "ownerReferences": owner,
    });
    let data = json!({ "keepalived.conf": FILE });
    rig.store("configmaps", json!({ "metadata": metadata, "data": data }));
    let containers = json!([{ "name": "keepalived" }, { "name": "config-reloader" }]);
    let template = json!({ "spec": { "containers": containers, "shareProcessNamespace": true } });
    let metadata = json!({ "name": "edge", "namespace": "infra", "ownerReferences": owner });
    rig.store("daemonsets", json!({ "metadata": metadata, "spec": { "template": template } }));
    rig.balancer("web", &["192.0.2.100", "192.0.2.101"]);
    rig
}

#[test]
fn router_ids_adverts_and_the_file_of_running_pods_stay() {
    let mut rig = left();
    rig.silent.extend(["n1", "n2", "n3"].map(str::to_owned));
    rig.settle();
    assert_eq!(rig.status(GROUP)["routerIDs"], json!({ "shop/web": 77 }));
    let instance = rig.plan().instances[0].clone();
    let advertised: Vec<_> = instance.form.advertised.iter().map(ToString::to_string).collect();
    assert_eq!(advertised, ["192.0.2.101", "192.0.2.100"]);
    assert_eq!((instance.form.password.as_deref(), instance.excluded.len()), (Some("u/7"), 0));
    assert_eq!(instance.change, None);
    assert_eq!(rig.file(), FILE, "pods that read it have no reason to reload");
    let set = &rig.objects[&("daemonsets", GROUP.to_owned())];
    assert_eq!(set["metadata"]["uid"], "daemonsets/infra/edge");
    assert_eq!(set["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 1);
    // An address that comes while they run is in their file.
    rig.balancer("late", &["192.0.2.110"]);
    rig.settle();
    let file = rig.file();
    assert!(file.contains("192.0.2.110") && file.contains("s3cr3tpw"), "{file}");
}

#[test]
fn the_password_leaves_the_file_with_the_last_pod_of_the_replaced_operator() {
    let mut rig = left();
    rig.settle();
    assert_eq!(rig.status(GROUP)["appliedNodes"], 3);
    assert!(!rig.file().contains("s3cr3tpw"), "{}", rig.file());
}

#[test]
fn a_form_that_differs_from_the_spec_changes_only_when_every_node_has_an_agent() {
    let mut rig = left();
    rig.edit(&json!({ "unicastEnabled": false }));
    rig.silent.insert("n2".to_owned());
    rig.settle();
    let instance = rig.plan().instances[0].clone();
    assert_eq!((instance.form.transport, instance.change), (Transport::Unicast, None));
    rig.silent.clear();
    rig.settle();
    assert_eq!(rig.plan().instances[0].form.transport, Transport::Multicast);
}
