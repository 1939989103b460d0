//! Three nodes on this machine, made of network namespaces, with an agent each, whose addresses move.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use landfall_testkit::bed::{Agents, Sampler};
use landfall_testkit::{Bed, ControlPlane, Proxy};

use super::{DEADLINE, Error, apply};
use crate::cargo::repository;
use crate::output::Output;

/// The group in `examples/nodes`, and the label of its nodes there.
const GROUP: (&str, &str) = ("net", "edge");
const LABEL: (&str, &str) = ("landfall.example/edge", "yes");

/// Where the objects of the nodes lie.
const FOLDER: &str = "examples/nodes";

/// The nodes, and the group that they are in.
pub(super) struct Nodes {
    // In this order they end.
    agents: Agents,
    sampler: Sampler,
    bed: Bed,
    _proxy: Proxy,
}

/// An address that came to another node.
pub(super) struct Moved {
    pub to: String,
    pub after: Duration,
}

impl Nodes {
    /// Starts them in a cluster with an operator that looks after keepalived groups.
    pub(super) async fn start(
        plane: &ControlPlane,
        binary: &Path,
        output: &Output,
    ) -> Result<Self, Error> {
        output
            .heading(format_args!("nodes n1, n2 and n3, and the group of {FOLDER}/10-group.yaml"));
        let bed = Bed::new().await?;
        bed.register(&plane.admin_client().await?, LABEL).await?;
        apply(plane, &repository().join(FOLDER).join("10-group.yaml")).await?;
        let proxy = bed.proxy(plane).await?;
        let mut agents = Agents::of_group(binary, GROUP, plane, &proxy).await?;
        bed.nodes().iter().try_for_each(|node| agents.start(node))?;
        Ok(Self { agents, sampler: bed.sampler()?, bed, _proxy: proxy })
    }

    /// Creates the Service whose address they hold.
    pub(super) async fn apply_service(plane: &ControlPlane) -> Result<(), Error> {
        apply(plane, &repository().join(FOLDER).join("20-service.yaml")).await
    }

    /// Switches the holder of an address off, and waits until another node holds it.
    pub(super) async fn switch_off(&self, address: IpAddr, holder: &str) -> Result<Moved, Error> {
        let others = self.bed.names_without(holder);
        self.sampler.next_sample().await;
        let died = self.bed.node(holder).power_off()?;
        let next = self.sampler.holder(address, &others, DEADLINE).await;
        let to = next.map_err(landfall_testkit::Error::from)?;
        let taken = self.sampler.record().taken(address, holder, died);
        Ok(Moved { to, after: taken.map_or_else(|| died.elapsed(), |taken| taken.after) })
    }

    /// Switches a node on again, with an agent.
    pub(super) async fn switch_on(&mut self, name: &str) -> Result<(), Error> {
        let node = self.bed.node(name);
        node.power_on().await?;
        Ok(self.agents.start(node)?)
    }
}
