//! Scenario: a full pool with many waiters; each address that becomes free must go to the oldest.

use std::time::Instant;

use serde_json::json;

use super::{Bench, Scenario, WAKE_DEADLINE, as_usize, pending_by_age};
use crate::bench::error::Result;
use crate::bench::report::{Row, Spread};
use crate::bench::stage::service_name;

/// Addresses freed, one after another.
const FREED: u32 = 30;
const FEWEST_PENDING: u32 = 200;

impl Bench<'_> {
    /// Fills a pool of `size` addresses, or of a tenth of all Services; half as many wait.
    pub(in crate::bench) async fn starved(&mut self, size: Option<u32>) -> Result<Row> {
        let size = size.unwrap_or(self.services / 10).max(FREED + 1);
        let pending = (self.services / 2).max(FEWEST_PENDING);
        self.output.heading(format_args!("starved ({size} addresses, {pending} pending)"));
        let namespace = self.open("starved", size).await?;
        let outcome = self.free_one_by_one(&namespace, size, pending).await;
        self.closed(&namespace, outcome).await
    }

    async fn free_one_by_one(&self, namespace: &str, size: u32, pending: u32) -> Result<Row> {
        let watch = self.watch(namespace);
        // The Service it starts with has the first address.
        let running = self.start_working(namespace, &watch).await?;
        let (width, deadline) = (self.width(), self.deadline());
        self.stage.create_services(namespace, 1..size, width).await?;
        let (full, all) = (as_usize(size), as_usize(size.saturating_add(pending)));
        let what = "the pool is full";
        self.wait_for(running.death(), &watch, what, deadline, |known| known.with_address == full)
            .await?;
        self.stage.create_services(namespace, size..size.saturating_add(pending), width).await?;
        let seen = "all Services are seen";
        watch.until(seen, deadline, |known| known.services.len() == all).await?;
        let before = running.quiet().await?;
        let used = running.usage()?;

        let (mut times, mut in_order) = (Vec::new(), true);
        for index in 1..=FREED {
            let oldest = watch.look(pending_by_age).into_iter().next().unwrap_or_default();
            let leaver = service_name(index);
            self.stage.delete_one(namespace, &leaver).await?;
            let freed = Instant::now();
            let what = "a Service has the freed address";
            self.wait_for(running.death(), &watch, what, WAKE_DEADLINE, |known| {
                known.with_address == full && !known.services.contains_key(&leaver)
            })
            .await?;
            let served = watch.look(|known| known.services.get(&oldest).and_then(|it| it.first));
            in_order &= served.is_some();
            times.push(served.unwrap_or_else(Instant::now).saturating_duration_since(freed));
        }

        let after = running.quiet().await?;
        let mut row = Row::new(Scenario::Starved.name(), size.saturating_add(pending));
        row.allocations = FREED;
        row.seconds = Spread::of(times);
        row.usage = Some(running.usage()?.since(used));
        row.more.insert("addresses", json!(size));
        row.more.insert("oldest_first", json!(in_order));
        let order = if in_order { "the oldest first" } else { "NOT the oldest first" };
        row.remark = format!("{pending} pending, {FREED} freed one by one, {order}");
        if let Some((after, before)) = after.zip(before) {
            let calls = after.since(&before);
            let writes = calls.writes_for_services();
            row.more.insert("writes", json!(writes));
            row.remark = format!("{}; {writes} writes", row.remark);
            row.calls = Some(calls);
        }
        self.audit(&mut row, namespace, &watch).await?;
        running.stop().await?;
        Ok(row)
    }
}
