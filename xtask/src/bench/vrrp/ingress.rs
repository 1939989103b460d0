//! From an address in a Service's status to its first announcement: operator, API server, agent and keepalived.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use landfall_api::KeepalivedGroupStatus;
use landfall_api::keys;
use landfall_testkit::bed::Cluster;
use landfall_testkit::{Bed, wait};
use serde_json::json;
use tokio::time::sleep;

use super::report::{INGRESS, INGRESS_MANY, Row};
use super::{DEADLINE, Site};
use crate::bench::error::{Error, Result};
use crate::bench::report::Spread;
use crate::cargo::repository;

/// The group of a cluster on a bed.
const GROUP: &str = "net/edge";
const SHOP: &str = "shop";
/// No allocator serves this class, so that the bench gives the addresses.
const CLASS: &str = "example.com/bench";
/// The number of addresses in a group with many, the measured one included.
const MANY: u16 = 500;
/// Services that are made at once before anything is measured.
const WIDTH: usize = 16;
/// So long nothing changes before an address is given: longer than plans, reloads and status are spaced.
const REST: Duration = Duration::from_millis(1200);
const LOOK: Duration = Duration::from_millis(1);

/// Measures a group with one address, and the same group with many.
pub(super) async fn measure(site: &Site<'_>) -> Result<Vec<Row>> {
    let stage = Stage::new(site).await?;
    let mut rows = Vec::new();
    for (addresses, bar) in [(1, INGRESS), (MANY, INGRESS * INGRESS_MANY)] {
        stage.fill(addresses - 1).await?;
        let row = Row {
            event: format!("address on a Service, {addresses} in the group"),
            advert_millis: 100,
            bar_seconds: bar,
            ..Row::default()
        };
        let outcome = site.watched(row, async |row| stage.runs(site.runs, addresses, row).await);
        rows.push(outcome.await?);
    }
    Ok(rows)
}

struct Stage(Cluster);

impl Stage {
    async fn new(site: &Site<'_>) -> Result<Self> {
        let spec = json!({ "interface": "eth0", "vrrp": {} });
        let bed = Bed::new().await?;
        let cluster = Cluster::new(bed, &repository().join("deploy"), site.binary, spec).await?;
        cluster.plane.ensure_namespace(SHOP).await?;
        let stage = Self(cluster);
        stage.until_applied(|status| status.addresses.is_empty()).await?;
        Ok(stage)
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.0.client.clone(), SHOP)
    }

    /// Gives the group so many addresses.
    async fn fill(&self, addresses: u16) -> Result<()> {
        let all = stream::iter(1..=addresses).map(async |number| {
            let name = format!("filling-{number}");
            self.create(&name).await?;
            self.give(&name, Bed::vip4(number)).await
        });
        all.buffer_unordered(WIDTH).try_collect::<Vec<_>>().await?;
        let wanted = usize::from(addresses);
        self.until_applied(|status| {
            let held = status.addresses.iter().filter(|entry| entry.node.is_some());
            held.count() == wanted
        })
        .await
    }

    /// Gives one address to a Service, again and again.
    async fn runs(&self, runs: u32, number: u16, row: &mut Row) -> Result<()> {
        let vip = Bed::vip4(number);
        let mut times = Vec::new();
        for run in 0..runs {
            let name = format!("measured-{number}-{run}");
            self.create(&name).await?;
            sleep(REST).await;
            let announcements = self.0.bed.announcements()?;
            let sampler = self.0.bed.sampler()?;
            sampler.next_sample().await;
            let at = Instant::now();
            self.give(&name, vip).await?;
            let first = loop {
                if let Some(first) = announcements.first(vip, at) {
                    break first.at;
                }
                if at.elapsed() > DEADLINE {
                    let what = format!("the announcement of {vip}");
                    let missing = self.0.agents.log_tails(10);
                    return Err(Error::Never { what, seconds: DEADLINE.as_secs(), missing });
                }
                sleep(LOOK).await;
            };
            times.push(first.duration_since(at));
            let delete = self.services().delete(&name, &DeleteParams::default()).await;
            delete.map_err(Error::kube("deleting a Service"))?;
            let address = vip.to_string();
            self.until_applied(|status| {
                status.addresses.iter().all(|entry| entry.address != address)
            })
            .await?;
            sampler.next_sample().await;
            row.count_doubles(&sampler.record(), &self.0.bed.names());
        }
        row.runs = times.len();
        row.seconds = Spread::of(times);
        Ok(())
    }

    async fn create(&self, name: &str) -> Result<()> {
        let service = json!({
            "metadata": {
                "name": name,
                "annotations": { keys::ANNOTATION_KEEPALIVED_GROUP: GROUP },
            },
            "spec": {
                "type": "LoadBalancer",
                "loadBalancerClass": CLASS,
                "allocateLoadBalancerNodePorts": false,
                "ports": [{ "port": 80 }],
            },
        });
        let service = serde_json::from_value(service).map_err(Error::json("a Service"))?;
        let created = self.services().create(&PostParams::default(), &service).await;
        created.map(drop).map_err(Error::kube("making a Service"))
    }

    /// Writes an address into the status of a Service.
    async fn give(&self, name: &str, address: IpAddr) -> Result<()> {
        let status =
            json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address.to_string() }] } } });
        let (params, patch) = (PatchParams::default(), Patch::Merge(status));
        let patched = self.services().patch_status(name, &params, &patch).await;
        patched.map(drop).map_err(Error::kube("giving an address"))
    }

    /// Waits until all nodes run the newest plan, and the status of the group says something.
    async fn until_applied(&self, is_it: impl Fn(&KeepalivedGroupStatus) -> bool) -> Result<()> {
        wait::until("all nodes to have applied the plan", DEADLINE, async || {
            let group = self.0.group().await.map_err(|error| error.to_string())?;
            let status = group.status.unwrap_or_default();
            let is_applied = status.nodes.len() == self.0.bed.nodes().len()
                && status.nodes.iter().all(|node| node.generation == status.generation);
            if is_applied && is_it(&status) { Ok(()) } else { Err(format!("{:?}", status.nodes)) }
        })
        .await
        .map_err(landfall_testkit::Error::from)?;
        Ok(())
    }
}
