//! Foreign addresses are never given.

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use landfall_testkit::builders::{PoolBuilder as _, ServiceBuilder as _, load_balancer, pool};
use serde_json::json;

use crate::stage::{arena, tenant};

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
    // A Service that waits for such an address gets it when it becomes free.
    let none = json!({"spec": {"externalIPs": null}});
    tenant.patch("external", none).await;
    tenant.shows("asks-external", &["10.13.1.2"]).await;
    tenant.ends(&["outsiders"]).await;
    nodes.delete("outsider", &DeleteParams::default()).await.unwrap();
    slices.delete("outsider", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn cluster_ips_and_the_ranges_they_come_from_are_never_given() {
    // An arena: Services of other tests would get ClusterIPs from the range as well.
    let arena = arena().await;
    let tenant = arena.tenant("cluster-ips").await;
    let ranges: Api<ServiceCIDR> = Api::all(tenant.client.clone());
    let range = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.13.2.0/29"]}});
    let range = serde_json::from_value(range).unwrap();
    ranges.create(&PostParams::default(), &range).await.unwrap();
    let inside = tenant.create(load_balancer("inside").of_type("ClusterIP")).await;
    let cluster_ip = inside.spec.unwrap().cluster_ip.unwrap();
    let operator = arena.operator().await;

    let listed = ["10.13.2.0/28", &cluster_ip];
    tenant.pool(pool("cluster-ips", &listed).only_for("cluster-ips")).await;
    tenant.pool_says("cluster-ips", "True", "from which the cluster gives ClusterIPs").await;
    tenant.pool_counts("cluster-ips", "8", "0", "8").await;
    tenant.create(load_balancer("any")).await;
    tenant.shows("any", &["10.13.2.8"]).await;
    for (name, addr) in [("asks-range", "10.13.2.1"), ("asks-service", &cluster_ip)] {
        tenant.create(load_balancer(name).asking(addr)).await;
        let why = format!("{addr} is an address that the cluster gives as ClusterIP");
        tenant.says(name, "False", "Excluded", &why).await;
    }
    // A range that is deleted while the operator runs is no obstacle any more.
    ranges.delete("more", &DeleteParams::default()).await.unwrap();
    tenant.shows("asks-range", &["10.13.2.1"]).await;
    tenant.ends(&["cluster-ips"]).await;
    drop(operator);
}
