//! A cluster listed once, to explain Services without an operator.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;

use super::{
    super::{
        plan::{Planner, Settings},
        world::KINDS,
    },
    Explanation, explain,
};
pub use crate::cluster::ListError as Error;
use crate::{
    cluster::{Change, News, list_all},
    engine::Now,
    object::ObjectKey,
    shared::Shared,
};

/// Nothing that an explanation depends on depends on the clock.
const NOW: Now = Now { wall: Timestamp::UNIX_EPOCH, uptime: Duration::ZERO };

/// Everything that decides about the addresses of Services, as it was when it was listed.
pub struct Snapshot {
    shared: Shared,
    planner: Planner,
}

impl Snapshot {
    /// Lists everything once.
    pub async fn read(client: &Client, settings: Settings) -> Result<Self, Error> {
        let map = settings.kube_vip.place();
        let mut snapshot = Self::new(settings);
        list_all(client, KINDS, &map, |news| snapshot.hear(news)).await?;
        snapshot.take_stock();
        Ok(snapshot)
    }

    fn new(settings: Settings) -> Self {
        let mut shared = Shared::default();
        let planner = Planner::new(settings, shared.ledger.reader());
        Self { shared, planner }
    }

    fn hear(&mut self, news: News) {
        let changes = self.shared.hear(news);
        self.tell(&changes);
    }

    /// Brings everything in line with what was listed.
    fn take_stock(&mut self) {
        let changes = self.shared.settle();
        self.tell(&changes);
        self.planner.take_stock(self.shared.lend(NOW));
    }

    fn tell(&mut self, changes: &[Change]) {
        for change in changes {
            self.planner.changed(self.shared.lend(NOW), change);
        }
    }

    /// Explains a Service; `None` if it is not there, or no `LoadBalancer`.
    pub fn explain(&self, namespace: &str, name: &str) -> Option<Explanation> {
        let world = self.planner.world(&self.shared.cluster, &self.shared.ledger);
        explain(world, &ObjectKey::new(namespace, name))
    }
}
