//! Runs steady, single, churn, restart, pool edit and idle in one namespace, each on the Services of those
//! before. The small ones are here.

use std::time::{Duration, Instant};

use landfall_testkit::Proxy;
use serde_json::json;
use tokio::time::sleep;

use super::{Bench, Scenario, WAKE_DEADLINE, as_usize, latencies, sorted_times};
use crate::bench::error::{Error, Result};
use crate::bench::report::{Row, Spread};
use crate::bench::stage::{MOST_ADDRESSES, service_name};
use crate::bench::subject::Running;
use crate::bench::watch::Watch;

/// Deletions and creations of churn.
const CHURNS: u32 = 200;
const IDLE: Duration = Duration::from_secs(20);
/// How long an allocator that does not report readiness may take to come to rest.
pub(super) const OTHERS_SETTLE: Duration = Duration::from_secs(15);
/// The operator starts all its writes within this time after it leads.
pub(super) const AFTER_LEADING: Duration = Duration::from_secs(2);

impl Bench<'_> {
    pub(in crate::bench) async fn standing(&mut self, wanted: &[Scenario]) -> Result<Vec<Row>> {
        let namespace = self.open("standing", MOST_ADDRESSES).await?;
        let outcome = self.all_standing(wanted, &namespace).await;
        self.closed(&namespace, outcome).await
    }

    async fn all_standing(&self, wanted: &[Scenario], namespace: &str) -> Result<Vec<Row>> {
        let watch = self.watch(namespace);
        let mut rows = Vec::new();
        self.output.heading(format_args!("steady ({} Services)", self.services));
        let mut running = self.start_working(namespace, &watch).await?;
        let row = self.steady(&running, namespace, &watch).await?;
        if wanted.contains(&Scenario::Steady) {
            rows.push(row);
        }
        if wanted.contains(&Scenario::Single) {
            self.output.heading(format_args!("single at {} Services", self.services));
            rows.push(self.single(&running, namespace, &watch).await?);
        }
        if wanted.contains(&Scenario::Churn) {
            self.output.heading(format_args!("churn ({CHURNS} at {} Services)", self.services));
            rows.push(self.churn(&running, namespace, &watch).await?);
        }
        let some_wait = [Scenario::Restart, Scenario::PoolEdit];
        let mut full = None;
        if self.subject.is_ours() && some_wait.iter().any(|scenario| wanted.contains(scenario)) {
            self.output.heading("filling the pool until some wait");
            full = Some(self.let_some_wait(&running, namespace, &watch).await?);
        }
        if wanted.contains(&Scenario::Restart) {
            self.output.heading(format_args!("restart at {} Services", self.services));
            let (row, started) = self.restart(running, namespace, &watch, full.as_mut()).await?;
            running = started;
            rows.push(row);
        }
        if let Some(pool) = full.filter(|_| wanted.contains(&Scenario::PoolEdit)) {
            self.output.heading(format_args!("pool edit at {} Services", self.services));
            rows.push(self.pool_edit(&running, namespace, &watch, pool).await?);
        }
        running.stop().await?;
        if wanted.contains(&Scenario::Idle) {
            self.output.heading(format_args!("idle at {} Services", self.services));
            rows.push(self.idle(namespace, &watch).await?);
        }
        Ok(rows)
    }

    async fn steady(&self, running: &Running, namespace: &str, watch: &Watch) -> Result<Row> {
        let (before, used) = (running.calls().await?, running.usage()?);
        let begin = Instant::now();
        let created = self.stage.create_services(namespace, 0..self.services, self.width()).await?;
        let creates = f64::from(self.services) / begin.elapsed().as_secs_f64();
        // And the Service that showed that the operator works.
        let count = as_usize(self.services).saturating_add(1);
        let (all, deadline) = ("all have an address", self.deadline());
        self.wait_for(running.death(), watch, all, deadline, |known| known.with_address == count)
            .await?;

        let after = running.quiet().await?;
        let last = watch.look(sorted_times).last().copied().ok_or(Error::WatchEnded)?;
        let mut row = Row::new(Scenario::Steady.name(), self.services);
        row.seconds = Spread::of(watch.look(|known| latencies(&created, known)));
        row.rate = Some(f64::from(self.services) / (last - begin).as_secs_f64());
        row.allocations = self.services;
        row.calls = after.zip(before).map(|(after, before)| after.since(&before));
        row.usage = Some(running.usage()?.since(used));
        row.more.insert("creates_per_second", json!(creates));
        row.remark = format!("after each create's answer; {creates:.0} creates/s");
        self.audit(&mut row, namespace, watch).await?;
        Ok(row)
    }

    async fn churn(&self, running: &Running, namespace: &str, watch: &Watch) -> Result<Row> {
        let (before, used) = (running.calls().await?, running.usage()?);
        let mut times = Vec::new();
        let count = CHURNS.min(self.services);
        for index in 0..count {
            self.stage.delete_one(namespace, &service_name(index)).await?;
            let name = format!("new-{index:05}");
            let created = self.stage.create_one(namespace, &name).await?;
            let what = "the new Service has an address";
            self.wait_for(running.death(), watch, what, WAKE_DEADLINE, |known| {
                known.has_address(&name)
            })
            .await?;
            times.extend(watch.look(|known| latencies(&[created], known)));
        }
        let after = running.quiet().await?;
        let mut row = Row::new(Scenario::Churn.name(), self.services);
        row.allocations = count;
        row.seconds = Spread::of(times);
        row.calls = after.zip(before).map(|(after, before)| after.since(&before));
        row.usage = Some(running.usage()?.since(used));
        row.remark = format!("{count} times one deleted, one created; after each create's answer");
        self.audit(&mut row, namespace, watch).await?;
        Ok(row)
    }

    /// Counted by a proxy between operator and API server, so that no allocator's own count is trusted.
    async fn idle(&self, namespace: &str, watch: &Watch) -> Result<Row> {
        let proxy = Proxy::start(&self.stage.plane).await?;
        let kubeconfig = self.stage.kubeconfig(Some(&proxy.url())).await?;
        let running = self.subject.start(&kubeconfig).await?;
        let ready = running.ready_after().await?;
        running.leading().await?;
        sleep(if ready.is_some() { AFTER_LEADING } else { OTHERS_SETTLE }).await;
        running.quiet().await?;

        let (mark, used) = (proxy.mark(), running.usage()?);
        sleep(IDLE).await;
        let requests: Vec<_> = proxy
            .requests_since(mark)
            .into_iter()
            .filter(|request| !request.is_watch() && !request.is_for("leases"))
            .collect();
        let mut row = Row::new(Scenario::Idle.name(), self.services);
        row.usage = Some(running.usage()?.since(used));
        row.more.insert("requests", json!(requests.len()));
        row.remark = format!("{} requests in {} s", requests.len(), IDLE.as_secs());
        for request in requests.iter().take(5) {
            self.output.say(format_args!("  {} {}", request.method, request.path));
        }
        self.audit(&mut row, namespace, watch).await?;
        running.stop().await?;
        Ok(row)
    }
}
