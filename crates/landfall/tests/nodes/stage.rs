//! A cluster whose nodes are those of a bed, with an operator and with an agent on every node.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use landfall_api::keepalived_group::KeepalivedGroup;
use landfall_api::keys::CONDITION_ANNOUNCED;
use landfall_api::{IP, condition, name};
use landfall_testkit::install::Install;
use landfall_testkit::{Bed, ControlPlane, Operator, Process, Proxy, wait};
use serde_json::{Value, json};

use crate::agent::group::{ready, start_agent};
use crate::{LONG, root};

pub(crate) const ALL: [&str; 3] = ["n1", "n2", "n3"];
pub(crate) const NAMESPACE: &str = "net";
pub(crate) const GROUP: &str = "edge";

pub(crate) struct Stage {
    pub(crate) bed: Bed,
    // They end before the control plane.
    agents: BTreeMap<String, Arc<Process>>,
    operator: Operator,
    pub(crate) proxy: Proxy,
    pub(crate) client: Client,
    kubeconfig: PathBuf,
    pub(crate) plane: ControlPlane,
}

impl Stage {
    /// A group with this spec. `None` if there is nothing left to do for the test.
    pub(crate) async fn new(spec: Value) -> Option<Self> {
        let mut stage = Self::without_agents(spec, async |_, _, _| {}).await?;
        for name in ALL {
            stage.start(name);
        }
        Some(stage)
    }

    /// The same without agents, and with what is there before the operator.
    pub(crate) async fn without_agents(
        spec: Value,
        prepare: impl AsyncFnOnce(&Bed, &ControlPlane, &KeepalivedGroup),
    ) -> Option<Self> {
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
        let group = groups.create(&PostParams::default(), &group).await.unwrap();
        prepare(&bed, &plane, &group).await;
        let path = install.kubeconfig(&plane, plane.url()).await.unwrap();
        let binary = Path::new(env!("CARGO_BIN_EXE_landfall"));
        let flags = ["--namespace", install.namespace()];
        let operator = Operator::spawn(binary, &path, &flags).await.unwrap();
        operator.wait_ready(LONG).await.unwrap();

        let proxy = bed.proxy(&plane).await.unwrap();
        let kubeconfig = agent_kubeconfig(&plane, &proxy).await;
        let agents = BTreeMap::new();
        Some(Self { bed, agents, operator, proxy, client, kubeconfig, plane })
    }

    /// Starts the agent of a node, as the group's `DaemonSet` would.
    pub(crate) fn start(&mut self, name: &str) {
        let kubeconfig = self.kubeconfig.clone();
        self.start_with(name, &kubeconfig);
    }

    /// The same with a connection of its own to the API server.
    pub(crate) async fn start_apart(&mut self, name: &str) -> Proxy {
        let proxy = self.bed.proxy(&self.plane).await.unwrap();
        let kubeconfig = agent_kubeconfig(&self.plane, &proxy).await;
        self.start_with(name, &kubeconfig);
        proxy
    }

    fn start_with(&mut self, name: &str, kubeconfig: &Path) {
        let group = format!("{NAMESPACE}/{GROUP}");
        let agent = start_agent(self.bed.node(name), &group, kubeconfig, &self.plane);
        self.agents.insert(name.to_owned(), agent);
    }

    /// Waits until every instance of a node holds or has heard a holder.
    pub(crate) async fn ready(&self, name: &str) {
        ready(self.bed.node(name), &self.agents[name]).await;
    }

    pub(crate) async fn group(&self) -> KeepalivedGroup {
        Api::namespaced(self.client.clone(), NAMESPACE).get(GROUP).await.unwrap()
    }

    /// Waits until the group says something about itself.
    pub(crate) async fn group_says(&self, what: &str, is_it: impl Fn(&KeepalivedGroup) -> bool) {
        let outcome = wait::until(what, LONG, async || {
            let group = self.group().await;
            if is_it(&group) { Ok(()) } else { Err(format!("{:?}", group.status)) }
        })
        .await;
        if let Err(error) = outcome {
            panic!("{error}\n{}", self.logs());
        }
    }

    /// The ends of all logs.
    pub(crate) fn logs(&self) -> String {
        let agents = self.agents.values().map(|agent| agent.log_tail(30));
        let logs: Vec<_> = agents.chain([self.operator.log_tail(30)]).collect();
        logs.join("\n---\n")
    }

    /// Waits until the group's status says that a node holds an address, and says which.
    pub(crate) async fn holder(&self, address: &str, among: &[&str]) -> String {
        let found = |group: &KeepalivedGroup| {
            let status = group.status.clone().unwrap_or_default();
            let entry = status.addresses.into_iter().find(|entry| entry.address == address)?;
            entry.node.filter(|node| among.contains(&node.as_str()))
        };
        let what = format!("a holder of {address} among {among:?}");
        self.group_says(&what, |group| found(group).is_some()).await;
        found(&self.group().await).unwrap()
    }

    /// Waits until the condition `landfall.dev/Announced` of a Service has this status, and a message with this in
    /// it.
    pub(crate) async fn announced(&self, name: &str, status: &str, part: &str) {
        let what = format!("{name} to be announced: {status}, {part}");
        wait::until(what, LONG, async || {
            let service = self.services().get(name).await.unwrap();
            let conditions = service.status.and_then(|status| status.conditions);
            let conditions = conditions.unwrap_or_default();
            let found = condition::get(&conditions, CONDITION_ANNOUNCED);
            let is_it = |found: &Condition| found.status == status && found.message.contains(part);
            if found.is_some_and(is_it) { Ok(()) } else { Err(format!("{conditions:?}")) }
        })
        .await
        .unwrap();
    }

    /// Waits until the claim on an address says which node carries it.
    pub(crate) async fn placed(&self, address: IpAddr, node: &str) {
        let claims: Api<IP> = Api::all(self.client.clone());
        wait::until(format!("{address} to be carried by {node}"), LONG, async || {
            let status = claims.get(&name::of(address)).await.unwrap().status;
            let found = status.as_ref().and_then(|status| status.node.as_deref());
            if found == Some(node) { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .await
        .unwrap();
    }

    pub(crate) fn services(&self) -> Api<Service> {
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

/// For the account that the operator made for the agents, with the role that it made.
async fn agent_kubeconfig(plane: &ControlPlane, proxy: &Proxy) -> PathBuf {
    let account = format!("{GROUP}-agent");
    wait::until("the agents' account", LONG, async || {
        plane.service_account_kubeconfig_via(NAMESPACE, &account, &proxy.url()).await
    })
    .await
    .unwrap()
}
