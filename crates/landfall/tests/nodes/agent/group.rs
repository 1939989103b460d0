//! A group of three nodes with an agent each, and the control plane that has their plan.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use landfall_api::keepalived_group::{GroupNode, KeepalivedGroup, KeepalivedGroupSpec};
use landfall_testkit::bed::{Node as BedNode, Program, Running};
use landfall_testkit::{Bed, ControlPlane, Process, Proxy, shared, wait};
use landfall_vrrp::{FORMAT, Form, Instance, Node, Plan, Preempt, Transport, Version};
use tokio::sync::OnceCell;

use crate::{LONG, root};

/// The name of the group, of its `ConfigMap` and of its Secret.
pub(super) const NAME: &str = "edge";

pub(super) struct Group {
    pub(super) bed: Bed,
    pub(super) proxy: Proxy,
    pub(super) client: Client,
    plane: &'static ControlPlane,
    namespace: String,
    kubeconfig: PathBuf,
    agents: BTreeMap<String, Arc<Process>>,
}

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

impl Group {
    /// Without agents. `None` if there is nothing left to do for the test.
    pub(super) async fn new(namespace: &str) -> Option<Self> {
        static KINDS: OnceCell<()> = OnceCell::const_new();
        let bed = Bed::for_test().await.unwrap()?;
        let plane = shared().await.unwrap();
        let crds = root().join("deploy/crds");
        KINDS.get_or_init(async || plane.install_crds(&crds).await.unwrap()).await;
        let client = plane.admin_client().await.unwrap();
        plane.ensure_namespace(namespace).await.unwrap();
        plane.apply_yaml(&RIGHTS.replace("NAMESPACE", namespace)).await.unwrap();
        let proxy = bed.proxy(plane).await.unwrap();
        let url = proxy.url();
        let kubeconfig =
            plane.service_account_kubeconfig_via(namespace, "agent", &url).await.unwrap();
        let spec = KeepalivedGroupSpec { interface: "eth0".to_owned(), ..Default::default() };
        let groups: Api<KeepalivedGroup> = Api::namespaced(client.clone(), namespace);
        groups.create(&PostParams::default(), &KeepalivedGroup::new(NAME, spec)).await.unwrap();
        let namespace = namespace.to_owned();
        let agents = BTreeMap::new();
        Some(Self { bed, proxy, client, plane, namespace, kubeconfig, agents })
    }

    /// With an agent on every node.
    pub(super) async fn with_agents(namespace: &str) -> Option<Self> {
        let mut group = Self::new(namespace).await?;
        for name in ["n1", "n2", "n3"] {
            group.start(name);
        }
        Some(group)
    }

    /// Starts the agent of a node, with the rights that it has in production.
    pub(super) fn start(&mut self, name: &str) {
        let kubeconfig = self.kubeconfig.clone();
        self.start_with(name, &kubeconfig);
    }

    /// The same with a connection of its own to the API server.
    pub(super) async fn start_apart(&mut self, name: &str) -> Proxy {
        let proxy = self.bed.proxy(self.plane).await.unwrap();
        let url = proxy.url();
        let kubeconfig = self.plane.service_account_kubeconfig_via(&self.namespace, "agent", &url);
        self.start_with(name, &kubeconfig.await.unwrap());
        proxy
    }

    fn start_with(&mut self, name: &str, kubeconfig: &Path) {
        let group = format!("{}/{NAME}", self.namespace);
        let agent = start_agent(self.bed.node(name), &group, kubeconfig, self.plane);
        self.agents.insert(name.to_owned(), agent);
    }

    pub(super) fn agent(&self, name: &str) -> &Process {
        &self.agents[name]
    }

    fn run_dir(&self, name: &str) -> PathBuf {
        self.bed.node(name).dir().join("run")
    }

    /// The processes of a node's keepalived, its parent process first.
    pub(super) fn keepalived(&self, name: &str) -> Vec<Running> {
        Running::of("keepalived", &self.run_dir(name).join("keepalived.conf")).unwrap()
    }

    /// A node's worker, unless it is just being started.
    pub(super) fn worker(&self, name: &str) -> Option<Running> {
        let all = Running::of("landfall", &self.run_dir(name)).unwrap();
        all.into_iter().find(|it| it.words[1] == "agent-worker")
    }

    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A plan of this group, for all its nodes.
    pub(super) fn plan(&self, generation: i64, instances: Vec<Instance>) -> Plan {
        let node = |node: &BedNode| Node {
            name: node.name().to_owned(),
            addresses: vec![node.ipv4().into(), node.ipv6().into()],
        };
        Plan {
            format: FORMAT,
            generation,
            group: format!("{}/{NAME}", self.namespace),
            interface: "eth0".to_owned(),
            interface_from: None,
            interfaces: BTreeMap::new(),
            password_from: None,
            global_lines: vec![],
            nodes: self.bed.nodes().iter().map(node).collect(),
            instances,
            leaving: BTreeMap::new(),
        }
    }

    /// Lets the agents have a plan.
    pub(super) async fn write(&self, plan: &Plan) {
        self.write_text(&serde_json::to_string(plan).unwrap()).await;
    }

    pub(super) async fn write_text(&self, text: &str) {
        let map = ConfigMap {
            metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
            data: Some([("plan.json".to_owned(), text.to_owned())].into()),
            ..ConfigMap::default()
        };
        let params = PatchParams::apply("test").force();
        self.api::<ConfigMap>().patch(NAME, &params, &Patch::Apply(&map)).await.unwrap();
    }

    /// What the agents have reported.
    pub(super) async fn nodes(&self) -> Vec<GroupNode> {
        let group = self.api::<KeepalivedGroup>().get(NAME).await.unwrap();
        group.status.unwrap_or_default().nodes
    }

    pub(super) async fn reported(&self, name: &str) -> Option<GroupNode> {
        self.nodes().await.into_iter().find(|node| node.node == name)
    }

    /// Waits until these nodes report a generation, and no error.
    pub(super) async fn applied(&self, generation: i64, names: &[&str]) {
        let what = format!("generation {generation} on {names:?}");
        let outcome = wait::until(what, LONG, async || {
            let nodes = self.nodes().await;
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
        if let Err(error) = outcome {
            let logs: Vec<_> = names
                .iter()
                .filter_map(|name| Some(self.agents.get(*name)?.log_tail(40)))
                .collect();
            panic!("{error}\n{}", logs.join("\n---\n"));
        }
    }

    /// Waits until a node reports something about itself.
    pub(super) async fn says(&self, name: &str, what: &str, is_it: impl Fn(&GroupNode) -> bool) {
        wait::until(format!("{what} from {name}"), LONG, async || {
            let node = self.reported(name).await;
            if node.as_ref().is_some_and(&is_it) { Ok(()) } else { Err(format!("{node:?}")) }
        })
        .await
        .unwrap();
    }

    /// Waits until every instance of a node holds or has heard a holder.
    pub(super) async fn ready(&self, name: &str) {
        ready(self.bed.node(name), self.agent(name)).await;
    }

    /// A page that the agent of a node serves, and its status.
    pub(super) fn page(&self, name: &str, path: &str) -> (u16, String) {
        page(self.bed.node(name), path)
    }

    /// The sum of a metric over its labels.
    pub(super) fn metric(&self, name: &str, metric: &str) -> u64 {
        let (_, page) = self.page(name, "/metrics");
        let samples = page.lines().filter(|line| {
            line.strip_prefix(metric).is_some_and(|rest| rest.starts_with([' ', '{']))
        });
        let values = samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        values.sum()
    }

    /// Waits until exactly one of the nodes holds an address.
    pub(super) async fn holder(&self, address: IpAddr, names: &[&str]) -> String {
        wait::until(format!("one holder of {address} among {names:?}"), LONG, async || {
            let holds = |name: &&&str| self.bed.node(name).holds(address).unwrap();
            let holders: Vec<_> = names.iter().filter(holds).collect();
            match holders[..] {
                [one] => Ok((*one).to_owned()),
                _ => Err(format!("{holders:?}")),
            }
        })
        .await
        .unwrap()
    }
}

/// An instance with an anchor, adverts of 100 ms and the given addresses.
pub(super) fn slot(number: u8, order: &[u32], addresses: &[IpAddr]) -> Instance {
    let anchor: IpAddr = format!("169.254.112.{number}").parse().unwrap();
    Instance {
        name: format!("{NAME}/{number}"),
        router_id: number,
        generation: 1,
        form: Form {
            version: Version::V3,
            advert_millis: 100,
            transport: Transport::Multicast,
            password: None,
            advertised: vec![anchor],
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

/// Starts the agent of a node, with the rights that it has in production.
pub(crate) fn start_agent(
    node: &BedNode,
    group: &str,
    kubeconfig: &Path,
    plane: &ControlPlane,
) -> Arc<Process> {
    let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_landfall")));
    command
        .args(["agent", "--group", group, "--node", node.name()])
        .args(["--metrics-addr", "127.0.0.1:9650"])
        .arg("--run-dir")
        .arg(node.dir().join("run"))
        .arg("--kubeconfig")
        .arg(kubeconfig);
    let program = Program::new(command).sees(plane.dir()).confined();
    node.run(program, "agent.log").unwrap()
}

/// Waits until every instance of a node holds or has heard a holder.
pub(crate) async fn ready(node: &BedNode, agent: &Process) {
    let outcome = wait::until(format!("{} is ready", node.name()), LONG, async || {
        let (status, body) = page(node, "/readyz");
        if status == 200 { Ok(()) } else { Err(body) }
    })
    .await;
    if let Err(error) = outcome {
        panic!("{error}\n{}", agent.log_tail(60));
    }
}

/// A page that the agent of a node serves, and its status.
fn page(node: &BedNode, path: &str) -> (u16, String) {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--write-out", "\n%{http_code}"]);
    curl.arg(format!("http://127.0.0.1:9650{path}"));
    let output = node.output(curl).unwrap_or_default();
    let (body, status) = output.trim_end().rsplit_once('\n').unwrap_or_default();
    (status.parse().unwrap_or_default(), body.to_owned())
}
