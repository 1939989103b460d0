//! Addresses that somebody outside the ledger has are never given.

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use landfall_testkit::builders::{PoolBuilder as _, ServiceBuilder as _, load_balancer, pool};
use serde_json::json;

use crate::stage::tenant;

#[tokio::test]
async fn addresses_of_nodes_of_the_api_server_and_of_external_ips_are_never_given() {
    let tenant = tenant("outsiders").await;
    let nodes: Api<Node> = Api::all(tenant.client.clone());
    let slices: Api<EndpointSlice> = Api::namespaced(tenant.client.clone(), "default");
    let node = json!({"metadata": {"name": "outsider"}});
    let node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let addresses = json!([
        {"type": "Hostname", "address": "outsider"},
        {"type": "InternalIP", "address": "10.13.1.0"},
    ]);
    let status = json!({"status": {"addresses": addresses}});
    nodes.patch_status("outsider", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let slice = json!({
        "metadata": {
            "name": "outsider",
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.13.1.1"]}],
    });
    let slice = serde_json::from_value(slice).unwrap();
    slices.create(&PostParams::default(), &slice).await.unwrap();
    let mut external: Service = load_balancer("external").of_type("ClusterIP");
    external.spec.get_or_insert_default().external_ips = Some(vec!["10.13.1.2".to_owned()]);
    tenant.create(external).await;

    tenant.pool(pool("outsiders", &["10.13.1.0/29"]).only_for("outsiders")).await;
    tenant.pool_counts("outsiders", "8", "3", "5").await;
    for (name, addr, holder) in [
        ("asks-node", "10.13.1.0", "Node outsider"),
        ("asks-server", "10.13.1.1", "the API server"),
        ("asks-external", "10.13.1.2", "Service outsiders/external, which has it in spec.external"),
    ] {
        tenant.create(load_balancer(name).asking(addr)).await;
        tenant.says(name, "False", "TakenBy", &format!("{addr} is taken by {holder}")).await;
    }
    tenant.create(load_balancer("any")).await;
    tenant.shows("any", &["10.13.1.3"]).await;
    // Whoever waits for such an address gets it when it is given up.
    let none = json!({"spec": {"externalIPs": null}});
    tenant.patch("external", none).await;
    tenant.shows("asks-external", &["10.13.1.2"]).await;
    tenant.ends(&["outsiders"]).await;
    nodes.delete("outsider", &DeleteParams::default()).await.unwrap();
    slices.delete("outsider", &DeleteParams::default()).await.unwrap();
}
