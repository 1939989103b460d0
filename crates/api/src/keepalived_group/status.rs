//! The state of a group: what the operator decided, and what the agent of each node reports.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of a group. `nodes` is written by the agents, each its own entry; the rest by the operator.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeepalivedGroupStatus {
    /// The router ID of each VRRP instance, by the name of the instance. It is written before the ID
    /// is used, and an instance keeps its ID for as long as it exists.
    #[serde(rename = "routerIDs", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub router_ids: BTreeMap<String, i64>,

    /// `Ready` says whether the group can announce, and what is wrong with it if not. `Degraded` is
    /// `True` while part of it does not work as it should, and names the part. `ReconcileSuccess` and
    /// `ReconcileError` are those of keepalived-operator; one of the two is `True`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(length(max = 32))]
    pub conditions: Vec<Condition>,

    /// The generation of the plan that the agents are to carry out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,

    /// How many nodes run the current `generation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_nodes: Option<i64>,

    /// The addresses of the group, each with its Service and the node that holds it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    pub addresses: Vec<AnnouncedAddress>,

    /// The nodes of the group, as their agents report them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["node".into()]))]
    #[schemars(length(max = 5000))]
    pub nodes: Vec<GroupNode>,
}

impl KeepalivedGroupStatus {
    /// How many addresses a group's status lists.
    pub const MOST_ADDRESSES: usize = 4096;
}

/// An address of the group.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AnnouncedAddress {
    /// The address.
    #[schemars(length(max = 45))]
    pub address: String,

    /// The Service that has it, as `namespace/name`.
    #[schemars(length(max = 317))]
    pub service: String,

    /// The VRRP instance that carries it.
    #[schemars(length(max = 512))]
    pub instance: String,

    /// The router ID of the instance.
    #[schemars(range(min = 1, max = 255))]
    pub vrid: i32,

    /// The node that holds the address. Left out while none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node: Option<String>,

    /// Since when that node holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// A node of the group, written by the agent that runs there.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupNode {
    /// Name of the node.
    #[schemars(length(min = 1, max = 253))]
    pub node: String,

    /// The generation of the plan that keepalived runs there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,

    /// The version of keepalived there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub keepalived_version: Option<String>,

    /// The device on which it holds addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 15))]
    pub device: Option<String>,

    /// The VRRP instances that the node holds, and those that are out of service there. All others of
    /// the generation wait as backup, and are left out to keep the list short.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub instances: Vec<InstanceReport>,

    /// The step that the agent has reached in a change that all nodes make together. Left out while
    /// there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardReport>,

    /// Why the agent's last attempt failed. Left out when it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub last_error: Option<String>,
}

impl GroupNode {
    /// Longest `lastError`, in characters.
    pub const LONGEST_ERROR: usize = 1024;
    /// How many instances a node reports.
    pub const MOST_INSTANCES: usize = 1024;

    /// The state of an instance of the generation that the node runs.
    pub fn state_of(&self, instance: &str) -> InstanceState {
        let report = self.instances.iter().find(|report| report.name == instance);
        report.map_or(InstanceState::Backup, |report| report.state)
    }
}

/// A VRRP instance on a node.
#[derive(KubeSchema, Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceReport {
    /// Name of the instance.
    #[schemars(length(min = 1, max = 512))]
    pub name: String,

    /// Its state there.
    pub state: InstanceState,

    /// Since when it is in that state.
    pub since: Time,
}

/// The state of a VRRP instance on a node: `MASTER` holds its addresses, `BACKUP` waits to take them over,
/// `FAULT` cannot, `INIT` has not begun.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum InstanceState {
    /// It has not begun.
    Init,
    /// It waits.
    #[default]
    Backup,
    /// It holds the addresses.
    Master,
    /// It cannot hold them.
    Fault,
}

impl InstanceState {
    /// The state as keepalived and the metrics name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Init => "INIT",
            Self::Backup => "BACKUP",
            Self::Master => "MASTER",
            Self::Fault => "FAULT",
        }
    }
}

/// The step that a node has reached in a change that all nodes make together.
#[derive(KubeSchema, Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardReport {
    /// The generation of the plan that brings the change.
    pub generation: i64,

    /// The step.
    pub step: GuardStep,
}

/// A step of a change that all nodes make together. `InFault`: the node does not hold the instances that
/// change and has taken them out of service. `Reloaded`: it runs the change. `Ended`: it stopped waiting for
/// the other nodes, because the holder fell silent.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
pub enum GuardStep {
    /// The instances that change are out of service on this node, which does not hold them.
    InFault,
    /// The node runs the change.
    Reloaded,
    /// The node stopped waiting for the others, because the holder fell silent.
    Ended,
}
