//! A planner with everything that the engine would lend it, for tests that play the engine themselves.

use super::super::{
    effect::{Answer, Effect},
    plan::{Planner, Settings},
    world::KINDS,
};
use crate::{
    call::Failure,
    cluster::{Change, News},
    engine::{Call as _, Now, Plan, Planner as _, Report},
    event::Event,
    ledger::{Keeper, Write},
    shared::Shared,
};

/// One planner of Services beside the keeper of the ledger.
#[derive(Debug)]
pub(in crate::services) struct Runner {
    pub(in crate::services) shared: Shared,
    pub(in crate::services) planner: Planner,
}

impl Runner {
    pub(in crate::services) fn new(settings: Settings) -> Self {
        let mut shared = Shared::default();
        let planner = Planner::new(settings, shared.ledger.reader());
        Self { shared, planner }
    }

    #[cfg(test)]
    pub(in crate::services) const fn world(&self) -> super::super::world::World<'_> {
        self.planner.world(&self.shared.cluster, &self.shared.ledger)
    }

    /// A watch tells of an event.
    pub(in crate::services) fn hear(&mut self, news: News, now: Now) -> Vec<Event> {
        let changes = self.shared.hear(news);
        self.tell(&changes, now)
    }

    fn tell(&mut self, changes: &[Change], now: Now) -> Vec<Event> {
        for change in changes {
            self.planner.changed(self.shared.lend(now), change);
        }
        let mut out = Plan::default();
        self.planner.catch_up(self.shared.lend(now), &mut out);
        out.events
    }

    /// Plans as a leader does. Calls of the keeper are as good as calls of the planner for no Service.
    pub(in crate::services) fn plan(&mut self, now: Now) -> Plan<Effect> {
        let mut out = Plan::default();
        let changes = self.shared.settle();
        out.events = self.tell(&changes, now);
        if self.shared.has_listed(Keeper::KINDS) {
            let mut kept = Plan::<Write>::default();
            Keeper.plan(self.shared.lend(now), &mut kept);
            let kept = kept.effects.into_iter();
            out.effects.extend(kept.map(|write| Effect::Claim { write, service: None }));
        }
        if self.shared.has_listed(KINDS) {
            self.planner.plan(self.shared.lend(now), &mut out);
        }
        out
    }

    /// A call has ended.
    pub(in crate::services) fn report(
        &mut self,
        effect: Effect,
        mut result: Result<Answer, Failure>,
        now: Now,
    ) -> Vec<Event> {
        let seen = result.as_mut().ok().and_then(Effect::take_seen);
        let changes = seen.map(|seen| self.shared.learn(seen)).unwrap_or_default();
        let mut out = Plan { effects: Vec::new(), events: self.tell(&changes, now) };
        self.planner.reported(self.shared.lend(now), Report { effect, result }, &mut out);
        out.events
    }

    /// Brings everything in line with what was told, without planning anything.
    #[cfg(test)]
    pub(in crate::services) fn take_stock(&mut self, now: Now) {
        let changes = self.shared.settle();
        self.tell(&changes, now);
        self.planner.take_stock(self.shared.lend(now));
    }

    /// When there is something to do even without news.
    pub(in crate::services) fn next_due(&self) -> Option<std::time::Duration> {
        let listed = self.shared.has_listed(KINDS);
        let planner = self.planner.next_due().filter(|_| listed);
        planner.into_iter().chain(self.shared.ledger.next_due()).min()
    }
}
