//! From a Service to an address that a client reaches: the operator decides, agents on real nodes carry it out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use landfall_api::keepalived_group::KeepalivedGroup;
use landfall_api::keys::CONDITION_ANNOUNCED;
use landfall_api::{IP, condition};
use landfall_testkit::builders::load_balancer;
use landfall_testkit::install::Install;
use landfall_testkit::{Bed, ControlPlane, Operator, Process, Proxy, wait};
use serde_json::{Value, json};

use crate::agent::group::start_agent;
use crate::{LONG, root};

const ALL: [&str; 3] = ["n1", "n2", "n3"];
const NAMESPACE: &str = "net";
const GROUP: &str = "edge";

/// A cluster whose nodes are those of a bed, with an operator and with an agent on every node.
struct Stage {
    bed: Bed,
    // They end before the control plane.
    agents: BTreeMap<String, Arc<Process>>,
    operator: Operator,
    _proxy: Proxy,
    client: Client,
    kubeconfig: PathBuf,
    plane: ControlPlane,
}

impl Stage {
    /// A group with this spec. `None` if there is nothing left to do for the test.
    async fn new(spec: Value) -> Option<Self> {
        let bed = Bed::for_test().await.unwrap()?;
        // The usual range of ClusterIPs has the addresses of beds in it.
        let ranges = "--service-cluster-ip-range=10.96.0.0/16,fd00:96::/108";
        let plane = ControlPlane::builder().apiserver_arg(ranges).start().await.unwrap();
        let deploy = root().join("deploy");
        let install = Install::new(&plane, &deploy).await.unwrap();
        plane.install_crds(&deploy.join("crds")).await.unwrap();
        let rights = std::fs::read_to_string(deploy.join("rbac-keepalived.yaml")).unwrap();
        plane.apply_yaml(&rights).await.unwrap();
        let client = plane.admin_client().await.unwrap();
        for node in bed.nodes() {
            register(&client, node.name(), &[node.ipv4().to_string(), node.ipv6().to_string()])
                .await;
        }
        plane.ensure_namespace(NAMESPACE).await.unwrap();
        plane.ensure_namespace("shop").await.unwrap();
        let group = json!({
            "apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": "KeepalivedGroup",
            "metadata": { "name": GROUP, "namespace": NAMESPACE }, "spec": spec,
        });
        let groups: Api<KeepalivedGroup> = Api::namespaced(client.clone(), NAMESPACE);
        let group = serde_json::from_value(group).unwrap();
        groups.create(&PostParams::default(), &group).await.unwrap();
        let path = install.kubeconfig(&plane, plane.url()).await.unwrap();
        let binary = Path::new(env!("CARGO_BIN_EXE_landfall"));
        let flags = ["--namespace", install.namespace()];
        let operator = Operator::spawn(binary, &path, &flags).await.unwrap();
        operator.wait_ready(LONG).await.unwrap();

        // The account that the operator made for the agents, with the role that it made.
        let proxy = bed.proxy(&plane).await.unwrap();
        let account = format!("{GROUP}-agent");
        let kubeconfig = wait::until("the agents' account", LONG, async || {
            plane.service_account_kubeconfig_via(NAMESPACE, &account, &proxy.url()).await
        })
        .await
        .unwrap();
        let agents = BTreeMap::new();
        let mut stage = Self { bed, agents, operator, _proxy: proxy, client, kubeconfig, plane };
        for name in ALL {
            stage.start(name);
        }
        Some(stage)
    }

    /// Starts the agent of a node, as the group's `DaemonSet` would.
    fn start(&mut self, name: &str) {
        let group = format!("{NAMESPACE}/{GROUP}");
        let agent = start_agent(self.bed.node(name), &group, &self.kubeconfig, &self.plane);
        self.agents.insert(name.to_owned(), agent);
    }

    async fn group(&self) -> KeepalivedGroup {
        Api::namespaced(self.client.clone(), NAMESPACE).get(GROUP).await.unwrap()
    }

    /// Waits until the group says something about itself.
    async fn group_says(&self, what: &str, is_it: impl Fn(&KeepalivedGroup) -> bool) {
        let outcome = wait::until(what, LONG, async || {
            let group = self.group().await;
            if is_it(&group) { Ok(()) } else { Err(format!("{:?}", group.status)) }
        })
        .await;
        if let Err(error) = outcome {
            let agents = self.agents.values().map(|agent| agent.log_tail(30));
            let logs: Vec<_> = agents.chain([self.operator.log_tail(30)]).collect();
            panic!("{error}\n{}", logs.join("\n---\n"));
        }
    }

    /// Waits until the group's status says that a node holds an address, and says which.
    async fn holder(&self, address: &str, among: &[&str]) -> String {
        let found = |group: &KeepalivedGroup| {
            let status = group.status.clone().unwrap_or_default();
            let entry = status.addresses.into_iter().find(|entry| entry.address == address)?;
            entry.node.filter(|node| among.contains(&node.as_str()))
        };
        let what = format!("a holder of {address} among {among:?}");
        self.group_says(&what, |group| found(group).is_some()).await;
        found(&self.group().await).unwrap()
    }

    /// Waits until the condition `landfall.dev/Announced` of a Service has this status and a message with this in
    /// it, and returns the message.
    async fn announced(&self, name: &str, status: &str, part: &str) -> String {
        let what = format!("{name} to be announced: {status}, {part}");
        let outcome = wait::until(what, LONG, async || {
            let service = self.services().get(name).await.unwrap();
            let conditions = service.status.and_then(|status| status.conditions);
            let conditions = conditions.unwrap_or_default();
            let found = condition::get(&conditions, CONDITION_ANNOUNCED);
            let is_it = |found: &&Condition| found.status == status && found.message.contains(part);
            found.filter(is_it).map(|found| found.message.clone()).ok_or(format!("{conditions:?}"))
        });
        outcome.await.unwrap()
    }

    /// Waits until the claim on an address says which node carries it.
    async fn placed(&self, address: IpAddr, node: &str) {
        let claims: Api<IP> = Api::all(self.client.clone());
        wait::until(format!("{address} to be carried by {node}"), LONG, async || {
            let status = claims.get(&landfall_api::name::of(address)).await.unwrap().status;
            let is_there =
                status.as_ref().is_some_and(|status| status.node.as_deref() == Some(node));
            if is_there { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .await
        .unwrap();
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "shop")
    }
}

async fn register(client: &Client, name: &str, addresses: &[String]) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({ "metadata": { "name": name, "labels": { "edge": "yes" } } });
    let node: Node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let listed: Vec<_> = addresses
        .iter()
        .map(|address| json!({ "type": "InternalIP", "address": address }))
        .collect();
    let conditions = json!([{
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
        "lastHeartbeatTime": null, "lastTransitionTime": null,
    }]);
    let status = json!({ "status": { "addresses": listed, "conditions": conditions } });
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

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
    let record = sampler.record();
    let taken = record.taken(vip, &first, died).unwrap();
    assert_eq!(taken.node, second);
    assert_eq!(record.doubled(vip, &others).samples, 0, "{:?}", record.holdings(vip));

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
    let record = sampler.record();
    assert!(record.all_doubled(&ALL).is_empty(), "{:?}", record.all_doubled(&ALL));
}
