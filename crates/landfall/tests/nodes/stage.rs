//! A cluster whose nodes are those of a bed, with an operator and with an agent on every node.

use std::net::IpAddr;
use std::ops::Deref;
use std::path::Path;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use landfall_api::keepalived_group::KeepalivedGroup;
use landfall_api::keys::CONDITION_ANNOUNCED;
use landfall_api::{IP, condition, name};
use landfall_testkit::bed::Cluster;
use landfall_testkit::{Bed, ControlPlane, Proxy, wait};
use serde_json::Value;

use crate::{LONG, root};

pub(crate) const ALL: [&str; 3] = ["n1", "n2", "n3"];
pub(crate) const NAMESPACE: &str = "net";
pub(crate) const GROUP: &str = "edge";

pub(crate) struct Stage(Cluster);

impl Deref for Stage {
    type Target = Cluster;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
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
        let binary = Path::new(env!("CARGO_BIN_EXE_landfall"));
        let deploy = root().join("deploy");
        let prepare = async |bed: &Bed, plane: &ControlPlane, group: &KeepalivedGroup| {
            plane.ensure_namespace("shop").await.unwrap();
            prepare(bed, plane, group).await;
        };
        Some(Self(Cluster::without_agents(bed, &deploy, binary, spec, prepare).await.unwrap()))
    }

    /// Starts the agent of a node, as the group's `DaemonSet` would.
    pub(crate) fn start(&mut self, name: &str) {
        self.0.start(name).unwrap();
    }

    /// The same with a connection of its own to the API server.
    pub(crate) async fn start_apart(&mut self, name: &str) -> Proxy {
        self.0.start_apart(name).await.unwrap()
    }

    /// Waits until every instance of a node holds or has heard a holder.
    pub(crate) async fn ready(&self, name: &str) {
        if let Err(error) = self.agents.place().ready(self.bed.node(name), LONG).await {
            panic!("{error}\n{}", self.logs());
        }
    }

    pub(crate) async fn group(&self) -> KeepalivedGroup {
        self.0.group().await.unwrap()
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
        [self.agents.log_tails(30), self.operator.log_tail(30)].join("\n---\n")
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
