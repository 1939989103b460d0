//! Scenario: one new Service at a time, with nothing else going on; how long until it has its address?

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use super::{Bench, Scenario, WAKE_DEADLINE, latencies};
use crate::bench::error::Result;
use crate::bench::report::{Row, Spread, duration};
use crate::bench::stage::{IPS_PATH, LEDGER_POOL, limit_address, reservation};
use crate::bench::subject::Running;
use crate::bench::watch::Watch;

/// Services created one after another.
const SINGLES: u32 = 100;
/// Lets the writes that follow an allocation, such as its event, end before the next is timed.
const PAUSE: Duration = Duration::from_millis(50);

impl Bench<'_> {
    /// Each turn also times one bare write with the operator's rights, so that both are measured at the same
    /// moment.
    pub(super) async fn single(
        &self,
        running: &Running,
        namespace: &str,
        watch: &Watch,
    ) -> Result<Row> {
        let client = self.stage.operator_client().await?;
        let (before, used) = (running.quiet().await?, running.usage()?);
        let (mut times, mut writes) = (Vec::new(), Vec::new());
        for index in 0..SINGLES {
            let name = format!("single-{index:05}");
            // For a Service that does not exist, so that the operator has nothing to do but learn of it.
            let write = reservation(limit_address(index), LEDGER_POOL, &name, None)?;
            sleep(PAUSE).await;
            let begin = Instant::now();
            write.send(&client).await?;
            writes.push(begin.elapsed());

            sleep(PAUSE).await;
            let created = self.stage.create_one(namespace, &name).await?;
            let what = "the new Service has an address";
            let done = self.wait_for(running.death(), watch, what, WAKE_DEADLINE, |known| {
                known.has_address(&name)
            });
            done.await?;
            times.extend(watch.look(|known| latencies(&[created], known)));
        }
        let after = running.quiet().await?;
        let mut row = Row::new(Scenario::Single.name(), self.services);
        row.allocations = SINGLES;
        row.seconds = Spread::of(times);
        row.calls = after.zip(before).map(|(after, before)| after.since(&before));
        row.usage = Some(running.usage()?.since(used));
        row.remark = format!("{SINGLES} times one created; after each create's answer");
        if let Some(write) = Spread::of(writes) {
            row.more.insert("one_write_seconds", json!(write));
            row.remark = format!("{}; one write p50 {}", row.remark, duration(write.p50));
        }
        self.audit(&mut row, namespace, watch).await?;
        let claims = (0..SINGLES).map(|index| format!("{IPS_PATH}/{}", limit_address(index)));
        self.stage.delete_all(claims.collect()).await?;
        Ok(row)
    }
}
