//! Scenario: Services have addresses of another allocator, then the operator starts.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use super::Bench;
use crate::bench::error::{Error, Result};
use crate::bench::limits::{self, WIDTHS};
use crate::bench::neighbours::Moment;
use crate::bench::raw::{Call, spread};
use crate::bench::report::{Row, duration};
use crate::bench::stage::{IPS_PATH, MOST_ADDRESSES, bytes, limit_address, pool_address};
use crate::bench::subject::Running;
use crate::bench::watch::{self, Seen, services_path};

/// How often the operator's progress is read.
const LOOK: Duration = Duration::from_millis(5);

impl Bench<'_> {
    /// Every address is shown and none has a claim: how long until all have one?
    pub(in crate::bench) async fn take_over(&mut self) -> Result<Row> {
        self.output.heading(format_args!("take-over ({} Services)", self.services));
        let namespace = self.open("take-over", MOST_ADDRESSES).await?;
        let outcome = self.taken_over(&namespace).await;
        self.closed(&namespace, outcome).await
    }

    async fn taken_over(&self, namespace: &str) -> Result<Row> {
        self.stage.create_services(namespace, 0..self.services, self.width()).await?;
        let services = watch::list(&self.stage.admin, namespace).await?;
        let creates = self.time_of_creates(namespace, &services).await?;
        self.show_all(namespace, &services).await?;
        let watch = self.watch(namespace);
        let before = versions(&watch::list(&self.stage.admin, namespace).await?);

        let mut pids = self.stage.plane.pids();
        let moment = Moment::now(&pids)?;
        let running = self.start().await?;
        pids.push(running.pid());
        let seconds = tokio::select! {
            seconds = self.time_of_ledger(&running) => seconds?,
            error = running.death() => return Err(error),
        };
        let others = moment.others_until(&Moment::now(&pids)?);
        let calls = running.quiet().await?;

        let mut row = Row::new("take-over", self.services);
        row.rate = Some(f64::from(self.services) / seconds);
        row.allocations = self.services;
        row.calls = calls;
        row.usage = Some(running.usage()?);
        row.others = Some(others);
        let after = versions(&watch::list(&self.stage.admin, namespace).await?);
        let written = before.iter().zip(&after).filter(|(before, after)| before != after).count();
        row.more.insert("services_written", json!(written));
        row.more.insert("ledger_seconds", json!(seconds));
        row.more.insert("creates_seconds", json!(creates));
        row.remark = format!(
            "{}, that many creates {}; {written} Services written",
            duration(seconds),
            duration(creates)
        );
        self.audit(&mut row, namespace, &watch).await?;
        running.stop().await?;
        Ok(row)
    }

    /// From the operator's first claim to its last.
    async fn time_of_ledger(&self, running: &Running) -> Result<f64> {
        let (end, mut first, mut taken) = (Instant::now() + self.deadline(), None, 0);
        while Instant::now() < end {
            taken = running.calls().await?.map_or(0, |calls| calls.of("take"));
            if taken > 0 {
                first.get_or_insert_with(Instant::now);
            }
            if taken >= u64::from(self.services) {
                let begin = first.unwrap_or_else(Instant::now);
                return Ok(begin.elapsed().as_secs_f64());
            }
            sleep(LOOK).await;
        }
        Err(Error::Never {
            what: "the ledger is complete".to_owned(),
            seconds: self.deadline().as_secs(),
            missing: format!("{taken} claims"),
        })
    }

    /// How long the API server takes to create as many claims, at the best width.
    async fn time_of_creates(&self, namespace: &str, services: &[Seen]) -> Result<f64> {
        let client = self.stage.operator_client().await?;
        let mut best = f64::INFINITY;
        for width in WIDTHS {
            let calls = (0_u32..)
                .zip(services)
                .map(|(at, seen)| limits::take(&self.stage, namespace, seen, at));
            let calls = calls.collect::<Result<Vec<_>>>()?;
            let begin = Instant::now();
            let sender = client.clone();
            spread(width, calls, move |call: Call| {
                let client = sender.clone();
                async move { call.send(&client).await.map(drop) }
            })
            .await?;
            best = best.min(begin.elapsed().as_secs_f64());
            let made = (0..self.services).map(|at| format!("{IPS_PATH}/{}", limit_address(at)));
            self.stage.delete_all(made.collect()).await?;
        }
        Ok(best)
    }

    /// Gives every Service an address as another allocator would.
    async fn show_all(&self, namespace: &str, services: &[Seen]) -> Result<()> {
        let mut calls = Vec::new();
        for (index, seen) in (0_u32..).zip(services) {
            let ingress = json!([{"ip": pool_address(index), "ipMode": "VIP"}]);
            let patch = json!({"status": {"loadBalancer": {"ingress": ingress}}});
            let path = format!("{}/{}/status", services_path(namespace), seen.metadata.name);
            calls.push(Call::merge(path, bytes(&patch, "a status")?));
        }
        let client = self.stage.admin.clone();
        spread(self.width(), calls, move |call| {
            let client = client.clone();
            async move { call.send(&client).await.map(drop) }
        })
        .await?;
        Ok(())
    }
}

/// Name and version of each, in the order of their names.
fn versions(services: &[Seen]) -> Vec<(String, String)> {
    let each = services.iter().map(|seen| &seen.metadata);
    let mut all: Vec<_> =
        each.map(|meta| (meta.name.clone(), meta.resource_version.clone())).collect();
    all.sort_unstable();
    all
}
