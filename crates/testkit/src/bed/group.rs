//! A keepalived group on a bed: agents, and the control plane that has their plan. The plan is written by hand;
//! no operator runs.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use landfall_api::keepalived_group::{GroupNode, KeepalivedGroup, KeepalivedGroupSpec};
use landfall_vrrp::{FORMAT, Form, Instance, Node, Plan, Preempt, Transport, Version};

use super::Bed;
use super::agents::{Agents, Place};
use crate::{ControlPlane, Error, Proxy, Result, wait};

/// The name of the group, of its `ConfigMap` and of its Secret.
pub const GROUP: &str = "edge";

/// The account of the agents.
const ACCOUNT: &str = "agent";

/// Exactly what an agent may do.
const RIGHTS: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: agent, namespace: NAMESPACE}
rules:
- {apiGroups: [''], resources: [configmaps, secrets], resourceNames: [edge], verbs: [list, watch]}
- {apiGroups: [redhatcop.redhat.io], resources: [keepalivedgroups/status], resourceNames: [edge], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: agent, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: agent}
subjects: [{kind: ServiceAccount, name: agent, namespace: NAMESPACE}]
";

/// A group of all nodes of a bed.
pub struct Group {
    pub bed: Arc<Bed>,
    pub proxy: Proxy,
    pub client: Client,
    pub agents: Agents,
    namespace: String,
}

impl Group {
    /// Without running agents, in a namespace of its own. The control plane must have our kinds.
    pub async fn new(
        bed: Bed,
        plane: &ControlPlane,
        namespace: &str,
        binary: &Path,
    ) -> Result<Self> {
        Self::on(Arc::new(bed), Place::First, plane, namespace, binary).await
    }

    /// Another group of the same nodes, in a namespace of its own.
    pub async fn beside(
        &self,
        plane: &ControlPlane,
        namespace: &str,
        binary: &Path,
    ) -> Result<Self> {
        Self::on(Arc::clone(&self.bed), Place::Second, plane, namespace, binary).await
    }

    async fn on(
        bed: Arc<Bed>,
        place: Place,
        plane: &ControlPlane,
        namespace: &str,
        binary: &Path,
    ) -> Result<Self> {
        let client = plane.admin_client().await?;
        plane.ensure_namespace(namespace).await?;
        plane.apply_yaml(&RIGHTS.replace("NAMESPACE", namespace)).await?;
        let proxy = bed.proxy(plane).await?;
        let url = proxy.url();
        let kubeconfig = plane.service_account_kubeconfig_via(namespace, ACCOUNT, &url).await?;
        let agents =
            Agents::new(binary, &format!("{namespace}/{GROUP}"), &kubeconfig, plane).at(place);
        let group = Self { bed, proxy, client, agents, namespace: namespace.to_owned() };
        let spec = KeepalivedGroupSpec { interface: "eth0".to_owned(), ..Default::default() };
        let new = KeepalivedGroup::new(GROUP, spec);
        let groups = group.api::<KeepalivedGroup>();
        groups.create(&PostParams::default(), &new).await.map_err(Error::kube("making a group"))?;
        Ok(group)
    }

    /// Starts the agent of a node, with the rights that it has in production.
    pub fn start(&mut self, name: &str) -> Result<()> {
        self.agents.start(self.bed.node(name))
    }

    /// The same with a connection of its own to the API server.
    pub async fn start_apart(&mut self, name: &str, plane: &ControlPlane) -> Result<Proxy> {
        let proxy = self.bed.proxy(plane).await?;
        let url = proxy.url();
        let kubeconfig = plane.service_account_kubeconfig_via(&self.namespace, ACCOUNT, &url);
        self.agents.start_with(self.bed.node(name), &kubeconfig.await?)?;
        Ok(proxy)
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A plan of this group, for all its nodes.
    pub fn plan(&self, generation: i64, instances: Vec<Instance>) -> Plan {
        let node = |node: &super::Node| Node {
            name: node.name().to_owned(),
            addresses: vec![node.ipv4().into(), node.ipv6().into()],
        };
        Plan {
            format: FORMAT,
            generation,
            group: format!("{}/{GROUP}", self.namespace),
            interface: "eth0".to_owned(),
            interface_from: None,
            interfaces: BTreeMap::new(),
            password_from: None,
            global_lines: vec![],
            nodes: self.bed.nodes().iter().map(node).collect(),
            instances,
            leaving: BTreeMap::new(),
            joining: BTreeMap::new(),
            departing: BTreeMap::new(),
        }
    }

    /// Lets the agents have a plan.
    pub async fn write(&self, plan: &Plan) -> Result<()> {
        let text = serde_json::to_string(plan);
        self.write_text(&text.map_err(|error| Error::Manifest(error.to_string()))?).await
    }

    /// Lets the agents have something in the place of a plan.
    pub async fn write_text(&self, text: &str) -> Result<()> {
        let map = ConfigMap {
            metadata: ObjectMeta { name: Some(GROUP.to_owned()), ..ObjectMeta::default() },
            data: Some([("plan.json".to_owned(), text.to_owned())].into()),
            ..ConfigMap::default()
        };
        let params = PatchParams::apply("test").force();
        let maps = self.api::<ConfigMap>();
        let patched = maps.patch(GROUP, &params, &Patch::Apply(&map)).await;
        patched.map(drop).map_err(Error::kube("writing a plan"))
    }

    /// What the agents have reported.
    pub async fn nodes(&self) -> Result<Vec<GroupNode>> {
        let group = self.api::<KeepalivedGroup>().get(GROUP).await;
        let group = group.map_err(Error::kube("reading the group"))?;
        Ok(group.status.unwrap_or_default().nodes)
    }

    /// Waits until these nodes report a generation, and no error; the failure has the ends of their logs.
    pub async fn applied(&self, generation: i64, names: &[&str], deadline: Duration) -> Result<()> {
        let what = format!("generation {generation} on {names:?}");
        let outcome = wait::until(what, deadline, async || {
            let nodes = self.nodes().await.map_err(|error| error.to_string())?;
            let is_done = names.iter().all(|name| {
                nodes.iter().any(|node| {
                    node.node == *name
                        && node.generation == Some(generation)
                        && node.last_error.is_none()
                })
            });
            if is_done { Ok(()) } else { Err(format!("{nodes:?}")) }
        })
        .await;
        outcome.map_err(|error| Error::Command {
            command: "carrying out a plan".to_owned(),
            output: format!("{error}\n{}", self.agents.log_tails(40)),
        })
    }
}

/// An instance with an anchor, adverts of 100 ms and the given addresses.
pub fn slot(number: u8, order: &[u32], addresses: &[IpAddr]) -> Instance {
    Instance {
        name: format!("{GROUP}/{number}"),
        router_id: number,
        generation: 1,
        form: Form {
            version: Version::V3,
            advert_millis: 100,
            transport: Transport::Multicast,
            password: None,
            advertised: vec![Ipv4Addr::new(169, 254, 112, number).into()],
            anchor: true,
        },
        excluded: addresses.to_vec(),
        order: order.to_vec(),
        preempt: Preempt::Never,
        only_on: None,
        lines: vec![],
        change: None,
    }
}
