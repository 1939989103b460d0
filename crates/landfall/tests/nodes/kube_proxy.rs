//! From a client to an endpoint: a node holds the address of a Service, and kube-proxy on it does the rest.

use k8s_openapi::api::core::v1::Service;
use kube::api::PostParams;
use landfall_testkit::bed::{KubeProxy, Node, Protocol};
use landfall_testkit::builders::{ServiceBuilder as _, load_balancer};
use landfall_testkit::{Bed, wait};
use serde_json::json;

use crate::LONG;
use crate::stage::{ALL, GROUP, NAMESPACE, Stage};

/// kube-proxy talks to the API server by plain HTTP here, over which its client sends no token.
const RIGHTS: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: anybody-is-a-proxy}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:node-proxier}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: system:unauthenticated}]
";

/// Lets a node pass on packets that are for others, as every node of a cluster does.
fn forward(node: &Node) {
    for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        let on = move || std::fs::write(format!("/proc/sys/net/{setting}"), "1");
        node.inside(on).unwrap().unwrap();
    }
}

/// A Service with an address of each family, at port 80 of UDP and TCP.
fn service() -> Service {
    let ports = json!([
        { "name": "udp", "protocol": "UDP", "port": 80, "targetPort": 7077 },
        { "name": "tcp", "protocol": "TCP", "port": 80, "targetPort": 7077 },
    ]);
    load_balancer("web")
        .with_families("RequireDualStack", &["IPv4", "IPv6"])
        .with_spec(|spec| spec.ports = serde_json::from_value(ports).unwrap())
}

/// Makes the server on a node the only endpoint of the Service.
async fn set_endpoint(stage: &Stage, name: &str) {
    let node = stage.bed.node(name);
    let families = [("IPv4", node.ipv4().to_string()), ("IPv6", node.ipv6().to_string())];
    for (family, address) in families {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": format!("web-{}", family.to_lowercase()), "namespace": "shop",
                "labels": { "kubernetes.io/service-name": "web" },
            },
            "addressType": family,
            "endpoints": [{ "addresses": [address], "nodeName": name, "conditions": { "ready": true } }],
            "ports": [
                { "name": "udp", "protocol": "UDP", "port": 7077 },
                { "name": "tcp", "protocol": "TCP", "port": 7077 },
            ],
        });
        stage.plane.apply_yaml(&slice.to_string()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_reaches_an_endpoint_through_the_holder_and_through_the_next_one_when_it_dies() {
    let spec = json!({ "interface": "eth0", "nodeSelector": { "edge": "yes" }, "vrrp": {} });
    let Some(stage) = Stage::new(spec).await else { return };
    stage.plane.apply_yaml(RIGHTS).await.unwrap();
    let mut proxies = Vec::new();
    for node in stage.bed.nodes() {
        forward(node);
        proxies.push(KubeProxy::start(node, &stage.plane, &stage.proxy).await.unwrap());
    }
    let vips = [Bed::vip4(1), Bed::vip6(1)];
    let pool = json!({
        "apiVersion": "paas.org/v1", "kind": "IPGroup", "metadata": { "name": "edge" },
        "spec": {
            "ranges": vips,
            "announce": { "keepalivedGroup": format!("{NAMESPACE}/{GROUP}") },
        },
    });
    stage.plane.apply_yaml(&pool.to_string()).await.unwrap();
    stage.services().create(&PostParams::default(), &service()).await.unwrap();
    let sampler = stage.bed.sampler().unwrap();
    let mut holders = Vec::new();
    for vip in vips {
        holders.push(sampler.holder(vip, &ALL, LONG).await.unwrap());
    }
    // So that an answer tells that the packet went on from the holder.
    let endpoint = ALL.into_iter().find(|name| !holders.contains(&(*name).to_owned())).unwrap();
    set_endpoint(&stage, endpoint).await;
    let asking = vips.map(|vip| stage.bed.ask_at((vip, 80).into()).unwrap());
    let answers = async |since| {
        for asking in &asking {
            for protocol in [Protocol::Udp, Protocol::Tcp] {
                let what = format!("an answer of {endpoint} by {protocol:?}");
                let outcome = wait::until(what, LONG, async || {
                    let runs = asking.questions(protocol).runs(since);
                    let nodes: Vec<_> = runs.iter().map(|run| run.node.to_string()).collect();
                    if nodes == [endpoint] { Ok(()) } else { Err(format!("{nodes:?}")) }
                })
                .await;
                if let Err(error) = outcome {
                    let logs: Vec<_> = proxies.iter().map(|it| it.process().log_tail(20)).collect();
                    panic!("{error}\n{}", logs.join("\n---\n"));
                }
            }
        }
    };
    answers(sampler.record().begin()).await;

    let died = stage.bed.node(&holders[0]).power_off().unwrap();
    let others = stage.bed.names_without(&holders[0]);
    for vip in vips {
        sampler.holder(vip, &others, LONG).await.unwrap();
    }
    sampler.next_sample().await;
    let record = sampler.record();
    answers(record.last()).await;
    assert!(record.since(died).all_doubled(&others).is_empty());
}
