//! Operators that work side by side, measured as one.

use std::time::Instant;

use futures::future;

use super::error::{Error, Result};
use super::subject::{Calls, Running, Usage};

/// At least one running operator.
pub(super) struct Crew {
    pub(super) first: Running,
    pub(super) others: Vec<Running>,
}

impl Crew {
    pub(super) fn alone(first: Running) -> Self {
        Self { first, others: Vec::new() }
    }

    fn all(&self) -> impl Iterator<Item = &Running> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// When the first of their processes was started.
    pub(super) fn spawned(&self) -> Instant {
        self.others.iter().fold(self.first.spawned, |first, one| first.min(one.spawned))
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.all().map(Running::pid)
    }

    /// Returns when one of them is no longer running.
    pub(super) async fn death(&self) -> Error {
        let deaths = self.all().map(|running| Box::pin(running.death()));
        future::select_all(deaths).await.0
    }

    /// Waits until none has made a call for a second, and returns the calls of all.
    pub(super) async fn quiet(&self) -> Result<Option<Calls>> {
        let counts = future::try_join_all(self.all().map(Running::quiet)).await?;
        Ok(counts.into_iter().flatten().reduce(Calls::and))
    }

    /// The CPU time of all, and the memory of the largest.
    pub(super) fn usage(&self) -> Result<Usage> {
        let first = self.first.usage()?;
        self.others.iter().try_fold(first, |sum, one| Ok(sum.and(one.usage()?)))
    }

    /// Ends them as Kubernetes does.
    pub(super) async fn stop(self) -> Result<()> {
        let all = std::iter::once(self.first).chain(self.others);
        future::try_join_all(all.map(Running::stop)).await?;
        Ok(())
    }
}
