//! A group of three nodes with an agent each, and the control plane that has their plan.

use std::net::IpAddr;
use std::ops::Deref;
use std::path::Path;

use landfall_api::keepalived_group::GroupNode;
use landfall_testkit::bed::{Running, group};
use landfall_testkit::{Bed, Process, Proxy, shared, wait};
use landfall_vrrp::Plan;
use tokio::sync::OnceCell;

pub(super) use landfall_testkit::bed::group::{GROUP as NAME, slot};

use crate::{LONG, root};

const BINARY: &str = env!("CARGO_BIN_EXE_landfall");

pub(super) struct Group(group::Group);

impl Deref for Group {
    type Target = group::Group;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Group {
    /// Without agents. `None` if there is nothing left to do for the test.
    pub(super) async fn new(namespace: &str) -> Option<Self> {
        static KINDS: OnceCell<()> = OnceCell::const_new();
        let bed = Bed::for_test().await.unwrap()?;
        let plane = shared().await.unwrap();
        let crds = root().join("deploy/crds");
        KINDS.get_or_init(async || plane.install_crds(&crds).await.unwrap()).await;
        let binary = Path::new(BINARY);
        Some(Self(group::Group::new(bed, plane, namespace, binary).await.unwrap()))
    }

    /// With an agent on every node.
    pub(super) async fn with_agents(namespace: &str) -> Option<Self> {
        let mut group = Self::new(namespace).await?;
        group.start_all();
        Some(group)
    }

    /// Another group of the same nodes, with an agent on every node.
    pub(super) async fn beside(&self, namespace: &str) -> Self {
        let (plane, binary) = (shared().await.unwrap(), Path::new(BINARY));
        let mut group = Self(self.0.beside(plane, namespace, binary).await.unwrap());
        group.start_all();
        group
    }

    fn start_all(&mut self) {
        for name in ["n1", "n2", "n3"] {
            self.start(name);
        }
    }

    /// Starts the agent of a node, with the rights that it has in production.
    pub(super) fn start(&mut self, name: &str) {
        self.0.start(name).unwrap();
    }

    /// The same with a connection of its own to the API server.
    pub(super) async fn start_apart(&mut self, name: &str) -> Proxy {
        self.0.start_apart(name, shared().await.unwrap()).await.unwrap()
    }

    pub(super) fn agent(&self, name: &str) -> &Process {
        self.agents.get(name).unwrap()
    }

    /// The processes of a node's keepalived, its parent process first.
    pub(super) fn keepalived(&self, name: &str) -> Vec<Running> {
        self.agents.place().processes(self.bed.node(name)).unwrap().0
    }

    /// A node's worker, unless it is just being started.
    pub(super) fn worker(&self, name: &str) -> Option<Running> {
        let (_, all) = self.agents.place().processes(self.bed.node(name)).unwrap();
        all.into_iter().find(|it| it.words[1] == "agent-worker")
    }

    /// Lets the agents have a plan.
    pub(super) async fn write(&self, plan: &Plan) {
        self.0.write(plan).await.unwrap();
    }

    pub(super) async fn write_text(&self, text: &str) {
        self.0.write_text(text).await.unwrap();
    }

    /// What the agents have reported.
    pub(super) async fn nodes(&self) -> Vec<GroupNode> {
        self.0.nodes().await.unwrap()
    }

    pub(super) async fn reported(&self, name: &str) -> Option<GroupNode> {
        self.nodes().await.into_iter().find(|node| node.node == name)
    }

    /// Waits until these nodes report a generation, and no error.
    pub(super) async fn applied(&self, generation: i64, names: &[&str]) {
        self.0.applied(generation, names, LONG).await.unwrap();
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
        if let Err(error) = self.agents.place().ready(self.bed.node(name), LONG).await {
            panic!("{error}\n{}", self.agent(name).log_tail(60));
        }
    }

    /// A page that the agent of a node serves, and its status.
    pub(super) fn page(&self, name: &str, path: &str) -> (u16, String) {
        self.agents.place().page(self.bed.node(name), path)
    }

    /// The sum of a metric over its labels.
    pub(super) fn metric(&self, name: &str, metric: &str) -> u64 {
        self.agents.place().metric(self.bed.node(name), metric).unwrap()
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
