//! Scenario: edits of a full pool for which Services wait.

use serde_json::{Value, json};

use super::{Bench, Scenario, as_usize, pending_by_age};
use crate::bench::error::{Error, Result};
use crate::bench::report::{Row, Spread};
use crate::bench::stage::{pool_address, pool_range, pool_size_up_to};
use crate::bench::subject::Running;
use crate::bench::watch::{Known, Watch};

/// Services that wait for an address.
const MOST_PENDING: u32 = 1000;

/// A pool without a free address, and how many Services wait for one.
#[derive(Clone, Copy, Debug)]
pub(super) struct FullPool {
    size: u32,
    pub(super) pending: u32,
}

impl FullPool {
    /// The edit that adds one address, for the oldest waiter.
    pub(super) fn grow_by_one(&mut self) -> Value {
        self.size = self.size.saturating_add(1);
        self.pending = self.pending.saturating_sub(1);
        json!({ "ranges": [pool_range(self.size)] })
    }
}

impl Bench<'_> {
    /// Shrinks the pool to the addresses in use, and creates Services for which none is left.
    pub(super) async fn let_some_wait(
        &self,
        running: &Running,
        namespace: &str,
        watch: &Watch,
    ) -> Result<FullPool> {
        let size = watch.look(highest_address).map(pool_size_up_to).ok_or(Error::WatchEnded)?;
        let pending = (self.services / 2).min(MOST_PENDING);
        self.stage.edit_pool(namespace, &json!({ "ranges": [pool_range(size)] })).await?;
        self.stage.pool_is_known(namespace).await?;
        // Below the highest address there may be free ones, of Services that were deleted.
        let (served, known) = watch.look(|known| (known.with_address, known.services.len()));
        let gaps = size.saturating_sub(u32::try_from(served).unwrap_or(u32::MAX));
        let more = gaps.saturating_add(pending);
        let range = self.services..self.services.saturating_add(more);
        self.stage.create_services(namespace, range, self.width()).await?;
        let (full, all) = (as_usize(size), known.saturating_add(as_usize(more)));
        let (what, deadline) = ("the pool is full", self.deadline());
        self.wait_for(running.death(), watch, what, deadline, |known| {
            known.with_address == full && known.services.len() == all
        })
        .await?;
        running.quiet().await?;
        Ok(FullPool { size, pending })
    }

    /// Two edits: the pool grows by half of what is missing, and then loses an address that is in use, which
    /// must change nothing.
    pub(super) async fn pool_edit(
        &self,
        running: &Running,
        namespace: &str,
        watch: &Watch,
        pool: FullPool,
    ) -> Result<Row> {
        let room = pool.pending.div_ceil(2);
        let (grown, heirs) = (pool.size.saturating_add(room), watch.look(pending_by_age));
        let heirs = heirs.into_iter().take(as_usize(room));
        let (before, used) = (running.quiet().await?, running.usage()?);
        let edit = json!({ "ranges": [pool_range(grown)] });
        let edited = self.stage.edit_pool(namespace, &edit).await?;
        let (what, deadline, served) = ("all new addresses are in use", self.deadline(), grown);
        self.wait_for(running.death(), watch, what, deadline, |known| {
            known.with_address == as_usize(served)
        })
        .await?;
        let times: Vec<_> =
            watch.look(|known| heirs.filter_map(|name| known.services.get(&name)?.first).collect());
        let in_order = times.len() == as_usize(room);
        let widened = running.quiet().await?;

        let edit = json!({ "excludedIPs": [pool_address(0)] });
        self.stage.edit_pool(namespace, &edit).await?;
        self.stage.pool_is_known(namespace).await?;
        let excluded = running.quiet().await?;

        let mut row = Row::new(Scenario::PoolEdit.name(), self.services);
        row.allocations = room;
        row.seconds = Spread::since(edited, &times);
        row.usage = Some(running.usage()?.since(used));
        row.more.insert("pending", json!(pool.pending));
        row.more.insert("oldest_first", json!(in_order));
        let order = if in_order { "the oldest first" } else { "NOT the oldest first" };
        row.remark = format!("{} pending, room for {room}, {order}", pool.pending);
        if let (Some(before), Some(widened), Some(excluded)) = (before, widened, excluded) {
            let idle = excluded.since(&widened).writes_for_services();
            row.more.insert("writes_of_exclusion", json!(idle));
            row.remark = format!("{}; then an exclusion, {idle} writes", row.remark);
            row.calls = Some(widened.since(&before));
        }
        self.audit(&mut row, namespace, watch).await?;
        Ok(row)
    }
}

fn highest_address(known: &Known) -> Option<std::net::Ipv4Addr> {
    let shown = known.services.values().filter_map(|track| track.address.as_deref());
    shown.filter_map(|address| address.parse().ok()).max()
}
