//! From a Service to an address that a client reaches: the operator decides, agents on real nodes carry it out.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use landfall_api::keepalived_group::KeepalivedGroup;
use landfall_testkit::builders::load_balancer;
use landfall_testkit::{Bed, wait};
use serde_json::json;

use crate::LONG;
use crate::stage::{ALL, GROUP, NAMESPACE, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_a_pool_has_an_address_that_a_client_reaches_and_that_moves_when_its_node_dies()
 {
    let spec = json!({ "interface": "eth0", "nodeSelector": { "edge": "yes" }, "vrrp": {} });
    let Some(stage) = Stage::new(spec).await else { return };
    let sampler = stage.bed.sampler().unwrap();
    let vip = Bed::vip4(1);
    let pool = json!({
        "apiVersion": "paas.org/v1", "kind": "IPGroup", "metadata": { "name": "edge" },
        "spec": {
            "segment": format!("{vip}/32"),
            "announce": { "keepalivedGroup": format!("{NAMESPACE}/{GROUP}") },
        },
    });
    stage.plane.apply_yaml(&pool.to_string()).await.unwrap();
    stage
        .group_says("three nodes that run its plan", |group| {
            group.status.as_ref().is_some_and(|status| status.applied_nodes == Some(3))
        })
        .await;
    let service = load_balancer("web");
    stage.services().create(&PostParams::default(), &service).await.unwrap();

    let first = stage.holder(&vip.to_string(), &ALL).await;
    assert_eq!(sampler.holder(vip, &ALL, LONG).await.unwrap(), first);
    stage.announced("web", "True", &format!("{first} since")).await;
    stage.placed(vip, &first).await;
    let asking = stage.bed.ask(vip).unwrap();
    wait::until("an answer to the client", LONG, async || {
        use landfall_testkit::bed::Protocol::Udp;
        asking.answered_by(Udp).filter(|node| **node == *first).ok_or("no answer")
    })
    .await
    .unwrap();

    let died = stage.bed.node(&first).power_off().unwrap();
    let others = stage.bed.names_without(&first);
    let second = sampler.holder(vip, &others, LONG).await.unwrap();
    assert_eq!(stage.holder(&vip.to_string(), &others).await, second);
    stage.announced("web", "True", &format!("{second} since")).await;
    stage.placed(vip, &second).await;
    sampler.next_sample().await;
    let record = sampler.record();
    let taken = record.taken(vip, &first, died).unwrap();
    assert_eq!(taken.node, second);
    assert!(record.doubled(vip, &others).is_none(), "{:?}", record.holdings(vip));

    stage.services().delete("web", &kube::api::DeleteParams::default()).await.unwrap();
    wait::until("the address to leave", LONG, async || {
        let holds = |name: &&&str| stage.bed.node(name).holds(vip).unwrap();
        let holders: Vec<_> = others.iter().filter(holds).collect();
        if holders.is_empty() { Ok(()) } else { Err(format!("{holders:?}")) }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_transport_moves_nothing_and_doubles_nothing() {
    let spec =
        json!({ "interface": "eth0", "nodeSelector": { "edge": "yes" }, "vrrp": { "slots": 2 } });
    let Some(stage) = Stage::new(spec).await else { return };
    let vip = Bed::vip4(1);
    let sampler = stage.bed.sampler().unwrap();
    let mut service = load_balancer("web");
    service.metadata.annotations = Some(BTreeMap::from([(
        "keepalived-operator.redhat-cop.io/keepalivedgroup".to_owned(),
        format!("{NAMESPACE}/{GROUP}"),
    )]));
    let spec = service.spec.get_or_insert_default();
    (spec.type_, spec.allocate_load_balancer_node_ports) = (Some("ClusterIP".to_owned()), None);
    spec.external_ips = Some(vec![vip.to_string()]);
    stage.services().create(&PostParams::default(), &service).await.unwrap();
    let first = stage.holder(&vip.to_string(), &ALL).await;

    let edit = json!({ "spec": { "unicastEnabled": true } });
    let groups: Api<KeepalivedGroup> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let generation = stage.group().await.status.unwrap().generation.unwrap();
    groups.patch(GROUP, &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    // Mute, holder, others, and all of them free again.
    stage
        .group_says("the end of the change", |group| {
            let status = group.status.clone().unwrap_or_default();
            let applied = status.nodes.iter().all(|node| node.generation == status.generation);
            status.generation >= Some(generation + 4)
                && applied
                && status.nodes.iter().all(|node| node.guard.is_none())
        })
        .await;
    assert_eq!(stage.holder(&vip.to_string(), &ALL).await, first);
    sampler.next_sample().await;
    let record = sampler.record();
    assert_eq!(record.holders(vip), [first.as_str()], "{:?}", record.holdings(vip));
    // The holder gives the address up for the time that it listens for others in the new way, and no other takes it.
    let holdings = record.holdings(vip);
    assert!(holdings.iter().all(|it| it.node == first), "it has moved: {holdings:?}");
    let gap = record.gap(vip, holdings[0].from, &ALL);
    assert!(holdings.len() <= 2 && gap < Duration::from_secs(1), "{gap:?}: {holdings:?}");
    assert!(record.all_doubled(&ALL).is_empty(), "{:?}", record.all_doubled(&ALL));
}

/// The slice of endpoints of the Service `web`, with one endpoint on this node, ready or not.
fn endpoint_on(node: &str, ready: bool) -> EndpointSlice {
    let object = json!({
        "metadata": { "name": "web", "labels": { "kubernetes.io/service-name": "web" } },
        "addressType": "IPv4",
        "endpoints": [{
            "addresses": ["10.244.0.1"], "nodeName": node, "conditions": { "ready": ready },
        }],
        "ports": [],
    });
    serde_json::from_value(object).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_whose_traffic_stays_on_its_node_follows_the_ready_endpoint() {
    let spec = json!({
        "interface": "eth0", "nodeSelector": { "edge": "yes" }, "vrrp": { "slots": 1 },
    });
    let Some(stage) = Stage::new(spec).await else { return };
    let vip = Bed::vip4(1);
    let sampler = stage.bed.sampler().unwrap();
    let pool = json!({
        "apiVersion": "paas.org/v1", "kind": "IPGroup", "metadata": { "name": "edge" },
        "spec": {
            "segment": format!("{vip}/32"),
            "announce": { "keepalivedGroup": format!("{NAMESPACE}/{GROUP}") },
        },
    });
    stage.plane.apply_yaml(&pool.to_string()).await.unwrap();
    let mut service = load_balancer("web");
    service.spec.get_or_insert_default().external_traffic_policy = Some("Local".to_owned());
    stage.services().create(&PostParams::default(), &service).await.unwrap();
    stage.announced("web", "False", "has a ready pod of the Service").await;
    let slices: Api<EndpointSlice> = Api::namespaced(stage.client.clone(), "shop");
    slices.create(&PostParams::default(), &endpoint_on("n2", true)).await.unwrap();
    stage.announced("web", "True", "n2 since").await;
    let params = PatchParams::apply("test").force();
    for node in ["n3", "n1"] {
        let mut slice = serde_json::to_value(endpoint_on(node, true)).unwrap();
        slice["apiVersion"] = json!("discovery.k8s.io/v1");
        slice["kind"] = json!("EndpointSlice");
        slices.patch("web", &params, &Patch::Apply(slice)).await.unwrap();
        stage.announced("web", "True", &format!("{node} since")).await;
        assert_eq!(sampler.holder(vip, &ALL, LONG).await.unwrap(), node);
    }
    sampler.next_sample().await;
    let record = sampler.record();
    assert!(record.all_doubled(&ALL).is_empty(), "{:?}", record.all_doubled(&ALL));
}
