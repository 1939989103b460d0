//! Services whose traffic stays on the node that it arrives at, of types that get no port for health checks: the
//! nodes that may hold their addresses are those with a ready endpoint.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use rstest::rstest;

use super::conformance::{Ground, ground, node_name};
use super::*;

/// Lets a Service have a ready endpoint on exactly these nodes.
async fn has_endpoints(ground: &Ground, service: &str, nodes: &[usize]) {
    let tenant = &ground.tenant;
    let slices: Api<EndpointSlice> = Api::namespaced(tenant.client.clone(), &tenant.namespace);
    let name = format!("{service}-test");
    let endpoint = |index: &usize| {
        json!({
            "addresses": [format!("10.0.0.{}", index + 1)],
            "nodeName": node_name(tenant, *index),
            "conditions": { "ready": true },
        })
    };
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": name, "labels": { "kubernetes.io/service-name": service } },
        "endpoints": nodes.iter().map(endpoint).collect::<Vec<_>>(),
    });
    let patch = Patch::Apply(slice);
    slices.patch(&name, &PatchParams::apply("test").force(), &patch).await.unwrap();
}

/// Waits until the only instance may be held on exactly these nodes.
async fn is_held_on(ground: &Ground, nodes: &[NodeIndex]) -> Plan {
    let may_hold = |plan: &Plan| {
        plan.nodes.len() == 2
            && plan.instances.iter().map(|one| one.only_on.as_deref()).eq([Some(nodes)])
    };
    ground.group.plans(nodes, may_hold).await
}

#[rstest]
#[case::node_port("conf-local-port", "NodePort")]
#[case::external_addresses_only("conf-local-ip", "ClusterIP")]
#[tokio::test]
async fn addresses_are_held_where_a_pod_is_ready(#[case] namespace: &str, #[case] kind: &str) {
    let ground = ground(namespace, 2, json!({})).await;
    let (tenant, group) = (&ground.tenant, &ground.group);
    let address = format!("10.254.{}.1", if kind == "NodePort" { 10 } else { 11 });
    let service = external("web", &ground.key, &[&address]).of_type(kind);
    let service = service.with_spec(|spec| spec.external_traffic_policy = Some("Local".to_owned()));
    let service = tenant.create(service).await;
    assert_eq!(service.spec.unwrap().health_check_node_port, None, "there is nothing to ask");
    is_held_on(&ground, &[]).await;
    group.is_carried_out().await;
    tenant.tells("web", "NoHolder", "has a ready pod of the Service").await;
    for (nodes, expected) in [(&[1][..], &[1][..]), (&[0, 1], &[0, 1]), (&[0], &[0]), (&[], &[])] {
        has_endpoints(&ground, "web", nodes).await;
        let plan = is_held_on(&ground, expected).await;
        assert_eq!(served(&plan), as_served(&[(&tenant.key("web"), &[&address])]));
        // No program asks the Service how it is.
        assert!(!group.file().await.contains("script"));
    }
    has_endpoints(&ground, "web", &[1]).await;
    is_held_on(&ground, &[1]).await;
    group.is_carried_out().await;
    let said = wait::until("it to be announced from its node", LONG, async || {
        let conditions = tenant.get("web").await.status.and_then(|status| status.conditions);
        let conditions = conditions.unwrap_or_default();
        let said = condition::get(&conditions, "landfall.dev/Announced").cloned();
        said.filter(|said| said.status == "True").ok_or_else(|| format!("{conditions:?}"))
    });
    let said = said.await.unwrap();
    assert!(said.message.starts_with(&format!("{} since", node_name(tenant, 1))), "{said:?}");
}
