//! A group that carries out a plan and is watched: who holds which instance, and who held it when.

use std::time::Instant;

use landfall_testkit::bed::{Record, Sampler};
use landfall_testkit::wait;
use landfall_vrrp::{Instance, NodeIndex, Plan};

use super::group::Group;
use super::kinds::addresses;
use crate::LONG;

pub(super) const ALL: [&str; 3] = ["n1", "n2", "n3"];

/// The nodes but one.
pub(super) fn without(name: &str) -> Vec<&'static str> {
    ALL.into_iter().filter(|it| *it != name).collect()
}

/// The name of a node by its place in a plan that has all nodes.
pub(super) fn node(index: NodeIndex) -> &'static str {
    ALL[usize::try_from(index).unwrap()]
}

pub(super) struct Site {
    pub(super) group: Group,
    pub(super) sampler: Sampler,
    pub(super) plan: Plan,
}

impl Site {
    /// Nodes whose agents are started already carry out these instances.
    pub(super) async fn new(group: Group, instances: Vec<Instance>) -> Self {
        let plan = group.plan(1, instances);
        Self::with_plan(group, plan).await
    }

    /// The same with a plan of their own.
    pub(super) async fn with_plan(group: Group, plan: Plan) -> Self {
        let sampler = group.bed.sampler().unwrap();
        group.write(&plan).await;
        group.applied(plan.generation, &ALL).await;
        let site = Self { group, sampler, plan };
        site.all_ready().await;
        site
    }

    /// The instances of the plan.
    pub(super) fn instances(&self) -> Vec<Instance> {
        self.plan.instances.clone()
    }

    /// Waits until every instance of every node holds or has heard a holder.
    pub(super) async fn all_ready(&self) {
        for name in ALL {
            self.group.ready(name).await;
        }
    }

    /// The node that holds all addresses of an instance, as the only one of these nodes and once there is one.
    /// Other nodes may hold them besides.
    pub(super) async fn holder(&self, instance: &Instance, among: &[&'static str]) -> &'static str {
        let what = format!("one holder of {} among {among:?}", instance.name);
        let outcome = wait::until(what, LONG, async || {
            self.sampler.next_sample().await;
            let record = self.sampler.record();
            let holders = |address| -> Vec<String> {
                let all = record.holders(address).into_iter().filter(|it| among.contains(it));
                all.map(str::to_owned).collect()
            };
            let all: Vec<_> = addresses(instance).into_iter().map(holders).collect();
            let is_only = |name: &&&str| all.iter().all(|holders| holders == &[**name]);
            among.iter().find(is_only).copied().ok_or_else(|| format!("{all:?}"))
        })
        .await;
        outcome.unwrap_or_else(|error| {
            let logs = ALL.map(|name| self.group.agent(name).log_tail(60));
            panic!("{error}\n{}", logs.join("\n---\n"))
        })
    }

    /// What was seen since a moment, up to a sample that begins now.
    pub(super) async fn record_since(&self, begin: Instant) -> Record {
        self.sampler.next_sample().await;
        self.sampler.record().since(begin)
    }
}
