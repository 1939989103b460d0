//! What all planners share: the watched objects, the ledger, and what is said of Services.

use crate::{
    announcements::Announcements,
    cluster::{Change, Cluster, Kind, News, Seen},
    engine::{Lent, Now},
    ledger::Ledger,
};

/// The cluster and the ledger, kept in line with each other, and what planners say to each other of Services.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub cluster: Cluster,
    pub ledger: Ledger,
    pub announcements: Announcements,
}

impl Shared {
    /// Lends all of it to a planner for one step.
    pub(crate) fn lend(&mut self, now: Now) -> Lent<'_> {
        Lent {
            cluster: &self.cluster,
            ledger: &mut self.ledger,
            announcements: &mut self.announcements,
            now,
        }
    }

    /// Whether all of these kinds have been listed at least once.
    pub(crate) fn has_listed(&self, kinds: &[Kind]) -> bool {
        let of_ledger = self.ledger.listed() || !kinds.contains(&Kind::Claims);
        of_ledger && kinds.iter().all(|kind| self.cluster.has_listed(*kind))
    }

    /// Takes in an event of a watch.
    pub(crate) fn hear(&mut self, news: News) -> Vec<Change> {
        if let News::Claims(watched) = news {
            self.ledger.observe(watched);
            return Vec::new();
        }
        let changes = self.cluster.observe(news);
        self.heard(changes)
    }

    /// Takes in what the answer to one of our own calls shows.
    pub(crate) fn learn(&mut self, seen: Seen) -> Vec<Change> {
        let changes = self.cluster.learn(seen);
        self.heard(changes)
    }

    fn heard(&mut self, changes: Vec<Change>) -> Vec<Change> {
        for change in &changes {
            self.ledger.heard(&self.cluster, change);
        }
        changes
    }

    /// Brings the ledger in line with all changes of pools, and decides which addresses in
    /// `spec.externalIPs` count. Done once before each round of planning, because it is costly.
    pub(crate) fn settle(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.cluster.take_pools_changed() {
            let pools = self.cluster.usable_pools();
            let overlaps = self.ledger.set_pools(pools, self.cluster.cluster_ips());
            self.cluster.set_order(self.ledger.book.pools(), overlaps);
            changes.push(Change::PoolsSettled);
        }
        self.ledger.weigh_externals(&self.cluster);
        changes
    }
}
