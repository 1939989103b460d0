//! Scenario: the operator is killed; what its successor does at its start, and how soon Services are served.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use super::pool_edit::FullPool;
use super::standing::{AFTER_LEADING, OTHERS_SETTLE};
use super::{Bench, Scenario, WAKE_DEADLINE, pending_by_age};
use crate::bench::error::{Error, Result};
use crate::bench::report::{Row, Spread, duration};
use crate::bench::subject::Running;
use crate::bench::watch::{Known, Watch};

impl Bench<'_> {
    /// Three deaths. After the first there is nothing to do, and nothing must be done. After the others there
    /// is an address for the oldest waiter: it is given by the same Pod's next process, and then by a
    /// standby.
    pub(super) async fn restart(
        &self,
        running: Running,
        namespace: &str,
        watch: &Watch,
        full: Option<&mut FullPool>,
    ) -> Result<(Row, Running)> {
        let before = watch.look(addresses);
        running.kill()?;
        let lists = self.stage.time_of_lists().await?;
        let mut running = self.start().await?;
        let ready = running.ready_after().await?;
        running.leading().await?;
        sleep(if ready.is_some() { AFTER_LEADING } else { OTHERS_SETTLE }).await;
        let calls = running.quiet().await?;

        let pending = full.as_ref().map_or(0, |pool| pool.pending);
        let mut row = Row::new(Scenario::Restart.name(), self.services);
        row.seconds = Spread::of(ready);
        row.usage = Some(running.usage()?);
        row.more.insert("list_seconds", json!(lists));
        row.more.insert("pending", json!(pending));
        let lists = duration(lists);
        row.remark = format!("{pending} pending; kill -9, started again; the lists alone {lists}");
        if let Some(calls) = calls {
            row.more.insert("writes", json!(calls.writes()));
            row.remark = format!("{}; {} writes", row.remark, calls.writes());
            row.calls = Some(calls);
        }
        let after = watch.look(addresses);
        let moved = before.iter().filter(|(name, addr)| after.get(*name) != Some(addr)).count();
        let came = after.keys().filter(|name| !before.contains_key(*name)).count();

        if let Some(pool) = full {
            let next = self.start();
            let (again, started) = self.succession(running, next, namespace, watch, pool).await?;
            let kubeconfig = self.stage.kubeconfig(None).await?;
            let standby = self.subject.start_standby(&kubeconfig).await?;
            standby.ready_after().await?;
            let next = async { Ok(standby) };
            let (other, standby) = self.succession(started, next, namespace, watch, pool).await?;
            running = standby;
            row.more.insert("served_after_restart_seconds", json!(again));
            row.more.insert("served_by_standby_seconds", json!(other));
            let (again, other) = (duration(again), duration(other));
            row.remark = format!(
                "{}; killed again, a Service served after {again}, by a standby after {other}",
                row.remark
            );
        }
        self.audit(&mut row, namespace, watch).await?;
        row.changed = row.changed.max(moved).max(came);
        Ok((row, running))
    }

    /// Seconds from the death of a leader until the next operator serves the oldest waiter. Its address is
    /// added while no operator leads.
    async fn succession(
        &self,
        leader: Running,
        next: impl Future<Output = Result<Running>>,
        namespace: &str,
        watch: &Watch,
        pool: &mut FullPool,
    ) -> Result<(f64, Running)> {
        let oldest = watch.look(pending_by_age).into_iter().next().ok_or(Error::WatchEnded)?;
        let killed = Instant::now();
        leader.kill()?;
        self.stage.edit_pool(namespace, &pool.grow_by_one()).await?;
        let next = next.await?;
        let what = "a Service is served by the next operator";
        self.wait_for(next.death(), watch, what, WAKE_DEADLINE, |known| known.has_address(&oldest))
            .await?;
        let served = watch.look(|known| known.services.get(&oldest).and_then(|it| it.first));
        let served = served.map_or(Duration::ZERO, |at| at.saturating_duration_since(killed));
        next.quiet().await?;
        Ok((served.as_secs_f64(), next))
    }
}

fn addresses(known: &Known) -> BTreeMap<String, String> {
    let services = known.services.iter();
    services.filter_map(|(name, track)| Some((name.clone(), track.address.clone()?))).collect()
}
