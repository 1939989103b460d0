//! The nodes of a bed as the nodes of a cluster.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use landfall_api::KeepalivedGroup;
use serde_json::{Map, Value, json};

use super::{Agents, Bed};
use crate::install::Install;
use crate::{ControlPlane, Error, Operator, Proxy, Result};

/// The flag of an API server whose `ClusterIP`s are none of a bed's addresses.
pub const SERVICE_RANGES: &str = "--service-cluster-ip-range=10.96.0.0/16,fd00:96::/108";

/// The namespace of the group of a [`Cluster`], and its name.
const GROUP: (&str, &str) = ("net", "edge");
/// The label of nodes, by which the group selects them.
const LABEL: (&str, &str) = ("edge", "yes");
const READY_DEADLINE: Duration = Duration::from_secs(90);

/// A cluster with the nodes of a bed, an operator, a keepalived group `net/edge` of all nodes and their agents.
pub struct Cluster {
    pub bed: Bed,
    pub client: Client,
    // They end before the control plane.
    pub agents: Agents,
    pub operator: Operator,
    pub proxy: Proxy,
    pub plane: ControlPlane,
}

impl Cluster {
    /// `spec` is that of the group, to which the selector of nodes is added; `deploy` is the folder of manifests.
    pub async fn new(bed: Bed, deploy: &Path, binary: &Path, spec: Value) -> Result<Self> {
        let mut cluster =
            Self::without_agents(bed, deploy, binary, spec, async |_, _, _| {}).await?;
        let Self { bed, agents, .. } = &mut cluster;
        bed.nodes().iter().try_for_each(|node| agents.start(node))?;
        Ok(cluster)
    }

    /// The same without running agents, and with what is there before the operator.
    pub async fn without_agents(
        bed: Bed,
        deploy: &Path,
        binary: &Path,
        mut spec: Value,
        prepare: impl AsyncFnOnce(&Bed, &ControlPlane, &KeepalivedGroup),
    ) -> Result<Self> {
        let plane = ControlPlane::builder().apiserver_arg(SERVICE_RANGES).start().await?;
        let install = Install::new(&plane, deploy).await?;
        plane.install_crds(&deploy.join("crds")).await?;
        let rights = deploy.join("rbac-keepalived.yaml");
        plane.kubectl(&["apply", "--server-side", "-f", &rights.to_string_lossy()]).await?;
        let client = plane.admin_client().await?;
        bed.register(&client, LABEL).await?;
        let (namespace, name) = GROUP;
        plane.ensure_namespace(namespace).await?;
        spec["nodeSelector"] = json!({ LABEL.0: LABEL.1 });
        let group = json!({
            "apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": "KeepalivedGroup",
            "metadata": { "name": name, "namespace": namespace }, "spec": spec,
        });
        plane.apply_yaml(&group.to_string()).await?;
        let groups: Api<KeepalivedGroup> = Api::namespaced(client.clone(), namespace);
        let group = groups.get(name).await.map_err(Error::kube("reading the group"))?;
        prepare(&bed, &plane, &group).await;
        let kubeconfig = install.kubeconfig(&plane, plane.url()).await?;
        let flags = ["--namespace", install.namespace()];
        let operator = Operator::spawn(binary, &kubeconfig, &flags).await?;
        operator.wait_ready(READY_DEADLINE).await?;
        let proxy = bed.proxy(&plane).await?;
        let agents = Agents::of_group(binary, GROUP, &plane, &proxy).await?;
        Ok(Self { bed, client, agents, operator, proxy, plane })
    }

    /// Starts the agent of a node, as the group's `DaemonSet` would.
    pub fn start(&mut self, name: &str) -> Result<()> {
        self.agents.start(self.bed.node(name))
    }

    /// The same with a connection of its own to the API server.
    pub async fn start_apart(&mut self, name: &str) -> Result<Proxy> {
        let proxy = self.bed.proxy(&self.plane).await?;
        let kubeconfig = Agents::kubeconfig(GROUP, &self.plane, &proxy).await?;
        self.agents.start_with(self.bed.node(name), &kubeconfig)?;
        Ok(proxy)
    }

    /// The groups of its namespace.
    pub fn groups(&self) -> Api<KeepalivedGroup> {
        Api::namespaced(self.client.clone(), GROUP.0)
    }

    pub async fn group(&self) -> Result<KeepalivedGroup> {
        self.groups().get(GROUP.1).await.map_err(Error::kube("reading the group"))
    }
}

impl Bed {
    /// Makes a Node object for each node, with its addresses and this label, that is Ready for good: there is no
    /// kubelet.
    pub async fn register(&self, client: &Client, (label, value): (&str, &str)) -> Result<()> {
        let api: Api<Node> = Api::all(client.clone());
        for node in self.nodes() {
            let failed = || Error::kube(format!("registering node {}", node.name()));
            let labels = Map::from_iter([(label.to_owned(), Value::from(value))]);
            let object = json!({ "metadata": { "name": node.name(), "labels": labels } });
            let object = serde_json::from_value(object);
            let object: Node = object.map_err(|error| Error::Manifest(error.to_string()))?;
            api.create(&PostParams::default(), &object).await.map_err(failed())?;
            let addresses = [node.ipv4().to_string(), node.ipv6().to_string()];
            let addresses =
                addresses.map(|address| json!({ "type": "InternalIP", "address": address }));
            let ready = json!({
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                "lastHeartbeatTime": null, "lastTransitionTime": null,
            });
            let status = json!({ "status": { "addresses": addresses, "conditions": [ready] } });
            let patch = Patch::Merge(status);
            let params = PatchParams::default();
            api.patch_status(node.name(), &params, &patch).await.map_err(failed())?;
        }
        Ok(())
    }
}
