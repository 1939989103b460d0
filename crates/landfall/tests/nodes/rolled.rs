//! The pods of keepalived-operator are replaced by ours, node after node.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use landfall_api::keepalived_group::KeepalivedGroup;
use landfall_testkit::bed::Keepalived;
use landfall_testkit::builders::{ServiceBuilder as _, load_balancer};
use landfall_testkit::{Bed, ControlPlane};
use serde_json::json;

use crate::LONG;
use crate::stage::{ALL, GROUP, NAMESPACE, Stage};

const ANNOTATION: &str = "keepalived-operator.redhat-cop.io";
const PASSWORD: &str = "s3cr3tpw";
/// While one of two nodes that are due together has not heard the other.
const ADVERT: Duration = Duration::from_secs(1);

/// An instance as keepalived-operator numbers and writes it.
struct Old {
    name: String,
    router_id: u8,
    addresses: Vec<IpAddr>,
    /// The node that is preferred, if the addresses of the Service are spread.
    preferred: Option<&'static str>,
}

fn instances() -> Vec<Old> {
    let old = |name: &str, router_id, addresses: &[u16], preferred| Old {
        name: name.to_owned(),
        router_id,
        addresses: addresses.iter().map(|number| Bed::vip4(*number)).collect(),
        preferred,
    };
    let spread = |number: u16| format!("shop/spread/{}", Bed::vip4(number));
    vec![
        old("shop/web", 1, &[1], None),
        old("shop/multi", 2, &[3, 2], None),
        old(&spread(4), 9, &[4], Some("n1")),
        old(&spread(5), 4, &[5], Some("n2")),
    ]
}

/// The file that keepalived-operator would have for all nodes.
fn file(bed: &Bed, is_full: bool) -> String {
    let mut text = format!("global_defs {{\n    router_id {GROUP}\n\n}}\n\n\n");
    for old in instances() {
        writeln!(text, "vrrp_instance {} {{", old.name).unwrap();
        for (keyword, mine, others) in [("state", "MASTER", "BACKUP"), ("priority", "200", "100")] {
            if let Some(node) = old.preferred {
                writeln!(text, "    @{node} {keyword} {mine}\n    @^{node} {keyword} {others}")
                    .unwrap();
            }
        }
        let id = old.router_id;
        writeln!(text, "    interface eth0\n    \n    virtual_router_id {id}  \n    ").unwrap();
        text.push_str("    virtual_ipaddress {\n");
        for address in &old.addresses {
            writeln!(text, "      \n      {address}\n      ").unwrap();
        }
        text.push_str("    }\n");
        if is_full {
            text.push_str("    unicast_peer {\n      \n");
            for node in bed.nodes() {
                writeln!(text, "      {}", node.ipv4()).unwrap();
            }
            let auth = format!("      auth_type PASS\n      auth_pass {PASSWORD}\n");
            writeln!(text, "    }}\n    authentication {{\n{auth}    }}\n").unwrap();
        }
        text.push_str("\n    \n}\n\n\n");
    }
    text
}

/// What keepalived-operator left in the cluster: the group's status, the file on which its pods run, and the Services
/// that asked for all that.
async fn leave(plane: &ControlPlane, group: &KeepalivedGroup, text: &str) {
    let owner = json!({
        "apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": "KeepalivedGroup", "name": GROUP,
        "uid": group.uid().unwrap(), "controller": true, "blockOwnerDeletion": true,
    });
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": GROUP, "namespace": NAMESPACE, "labels": { "keepalivedGroup": GROUP },
            "ownerReferences": [owner],
        },
        "data": { "keepalived.conf": text },
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "vrrp", "namespace": NAMESPACE },
        "stringData": { "password": PASSWORD },
    });
    for object in [map, secret] {
        plane.apply_yaml(&object.to_string()).await.unwrap();
    }
    let client = plane.admin_client().await.unwrap();
    let services: Api<Service> = Api::namespaced(client.clone(), "shop");
    for (name, numbers) in [("web", &[1][..]), ("multi", &[2, 3]), ("spread", &[4, 5])] {
        let external = numbers.iter().map(|number| Bed::vip4(*number).to_string()).collect();
        let mut service = load_balancer(name)
            .of_type("ClusterIP")
            .annotated(&format!("{ANNOTATION}/keepalivedgroup"), &format!("{NAMESPACE}/{GROUP}"))
            .with_spec(|spec| spec.external_ips = Some(external));
        if name == "spread" {
            service = service.annotated(&format!("{ANNOTATION}/spreadvips"), "true");
        }
        services.create(&PostParams::default(), &service).await.unwrap();
    }
    let ids: BTreeMap<_, _> =
        instances().into_iter().map(|old| (old.name, old.router_id)).collect();
    let groups: Api<KeepalivedGroup> = Api::namespaced(client, NAMESPACE);
    let status = Patch::Merge(json!({ "status": { "routerIDs": ids } }));
    groups.patch_status(GROUP, &PatchParams::default(), &status).await.unwrap();
}

async fn pods_are_replaced(is_full: bool) {
    let mut spec = json!({ "interface": "eth0", "nodeSelector": { "edge": "yes" } });
    if is_full {
        spec["unicastEnabled"] = json!(true);
        spec["passwordAuth"] = json!({ "secretRef": { "name": "vrrp" } });
    }
    let left = async |bed: &Bed, plane: &ControlPlane, group: &KeepalivedGroup| {
        leave(plane, group, &file(bed, is_full)).await;
    };
    let Some(mut stage) = Stage::without_agents(spec, left).await else { return };
    let sampler = stage.bed.sampler().unwrap();
    let mut pods = Vec::new();
    for name in ALL {
        let text = file(&stage.bed, is_full);
        let pod = Keepalived::start(stage.bed.node(name), "original", &text);
        pods.push((name, pod.await.unwrap()));
    }
    let all: Vec<_> = instances().into_iter().flat_map(|old| old.addresses).collect();
    for address in &all {
        sampler.holder(*address, &ALL, LONG).await.unwrap();
    }
    for (name, pod) in pods {
        pod.terminate().await.unwrap();
        stage.start(name);
        stage
            .group_says(&format!("{name} to run the plan"), |group| {
                let status = group.status.clone().unwrap_or_default();
                let node = status.nodes.iter().find(|node| node.node == name);
                node.is_some_and(|node| {
                    node.generation == status.generation && node.last_error.is_none()
                })
            })
            .await;
        stage.ready(name).await;
        for address in &all {
            sampler.holder(*address, &ALL, LONG).await.unwrap();
        }
    }
    sampler.next_sample().await;
    let record = sampler.record();
    for address in &all {
        let doubled = record.doubled(*address, &ALL);
        let what = format!("{address}: {doubled:?} {:?}", record.holdings(*address));
        assert!(doubled.total <= ADVERT * 3 / 2, "{what}");
    }
    let ids: BTreeMap<_, _> =
        instances().into_iter().map(|old| (old.name, i64::from(old.router_id))).collect();
    assert_eq!(stage.group().await.status.unwrap().router_ids, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_speak_by_multicast_are_replaced_and_no_address_is_held_twice() {
    pods_are_replaced(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_speak_by_unicast_with_a_password_are_replaced_and_no_address_is_held_twice() {
    pods_are_replaced(true).await;
}
