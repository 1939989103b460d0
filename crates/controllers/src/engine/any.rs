//! Planners and their calls without their types, so that one engine runs any number of them.

use std::{any::Any, pin::Pin, time::Duration};

use kube::Client;
use tracing::{debug, info, warn};

use super::{Call, DONE, Floor, Lane, Lent, Metrics, Plan, Planner, Report, if_leading};
use crate::{
    call::{self, Failure},
    cluster::{Change, Kind, Seen},
    leadership::Leadership,
    object::Version,
    shared::Shared,
};

/// A planner of any type, see [`Planner`].
pub(crate) trait AnyPlanner: Send {
    fn name(&self) -> &'static str;
    fn kinds(&self) -> &'static [Kind];
    fn changed(&mut self, lent: Lent<'_>, change: &Change);
    fn catch_up(&mut self, lent: Lent<'_>) -> AnyPlan;
    fn reported(&mut self, lent: Lent<'_>, report: Done) -> AnyPlan;
    fn reconsider_all(&mut self, lent: Lent<'_>);
    fn plan(&mut self, lent: Lent<'_>) -> AnyPlan;
    fn next_due(&self, shared: &Shared) -> Option<Duration>;
    fn show(&self, shared: &Shared);
}

/// The calls and events that a planner asks for.
pub(crate) type AnyPlan = Plan<Box<dyn AnyCall>>;

/// A call of any type, see [`Call`].
pub(crate) trait AnyCall: Send {
    fn lane(&self) -> Lane;
    fn rank(&self) -> u8;
    fn floor(&self) -> Floor;
    /// Performs it, if we lead by then, within its deadline.
    fn send<'a>(
        self: Box<Self>,
        client: &'a Client,
        leadership: &'a Leadership,
    ) -> Pin<Box<dyn Future<Output = Done> + Send + 'a>>;
}

/// The report of a call of any type.
pub(crate) struct Done(Box<dyn AnyReport>);

trait AnyReport: Send {
    fn label(&self) -> &'static str;
    fn version(&self) -> Option<Version>;
    fn take_seen(&mut self) -> Option<Seen>;
    fn log(&self, controller: &'static str, metrics: &Metrics);
    fn any(self: Box<Self>) -> Box<dyn Any>;
}

impl Done {
    pub(super) fn label(&self) -> &'static str {
        self.0.label()
    }

    /// The version of the object that the answer is about.
    pub(super) fn version(&self) -> Option<Version> {
        self.0.version()
    }

    pub(super) fn take_seen(&mut self) -> Option<Seen> {
        self.0.take_seen()
    }

    pub(super) fn log(&self, controller: &'static str, metrics: &Metrics) {
        self.0.log(controller, metrics);
    }
}

impl<P: Planner> AnyPlanner for P {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn kinds(&self) -> &'static [Kind] {
        P::KINDS
    }

    fn changed(&mut self, lent: Lent<'_>, change: &Change) {
        Planner::changed(self, lent, change);
    }

    fn catch_up(&mut self, lent: Lent<'_>) -> AnyPlan {
        let mut out = Plan::default();
        Planner::catch_up(self, lent, &mut out);
        of_any_type(out)
    }

    fn reported(&mut self, lent: Lent<'_>, report: Done) -> AnyPlan {
        let mut out = Plan::default();
        // Reports come back to the planner that asked for the call, so the type is always right.
        if let Ok(report) = report.0.any().downcast() {
            Planner::reported(self, lent, *report, &mut out);
        }
        of_any_type(out)
    }

    fn reconsider_all(&mut self, lent: Lent<'_>) {
        Planner::reconsider_all(self, lent);
    }

    fn plan(&mut self, lent: Lent<'_>) -> AnyPlan {
        let mut out = Plan::default();
        Planner::plan(self, lent, &mut out);
        of_any_type(out)
    }

    fn next_due(&self, shared: &Shared) -> Option<Duration> {
        Planner::next_due(self, &shared.cluster, &shared.ledger)
    }

    fn show(&self, shared: &Shared) {
        Planner::show(self, &shared.cluster, &shared.ledger);
    }
}

fn of_any_type<E: Call>(plan: Plan<E>) -> AnyPlan {
    let effects = plan.effects.into_iter().map(|effect| Box::new(effect) as Box<dyn AnyCall>);
    Plan { effects: effects.collect(), events: plan.events }
}

impl<E: Call> AnyCall for E {
    fn lane(&self) -> Lane {
        Call::lane(self)
    }

    fn rank(&self) -> u8 {
        Call::rank(self)
    }

    fn floor(&self) -> Floor {
        Call::floor(self)
    }

    fn send<'a>(
        self: Box<Self>,
        client: &'a Client,
        leadership: &'a Leadership,
    ) -> Pin<Box<dyn Future<Output = Done> + Send + 'a>> {
        Box::pin(async move {
            let call = call::within(self.deadline(), self.perform(client));
            let result = if_leading(leadership, call).await;
            Done(Box::new(Report { effect: *self, result }))
        })
    }
}

impl<E: Call> AnyReport for Report<E> {
    fn label(&self) -> &'static str {
        self.effect.label()
    }

    fn version(&self) -> Option<Version> {
        self.effect.version_of(self.result.as_ref().ok()?)
    }

    fn take_seen(&mut self) -> Option<Seen> {
        E::take_seen(self.result.as_mut().ok()?)
    }

    fn log(&self, controller: &'static str, metrics: &Metrics) {
        let effect = self.effect.label();
        let result = self.result.as_ref().map_or_else(Failure::label, |_| DONE);
        metrics.called(controller, effect, result);
        let object = self.effect.object();
        match &self.result {
            Ok(_) if self.effect.matters_to_users() => info!(controller, effect, object, "done"),
            Ok(_) => debug!(controller, effect, object, "done"),
            Err(
                Failure::Refused(message) | Failure::Blocked(message) | Failure::Unknown(message),
            ) => {
                warn!(controller, effect, object, message, "a call failed");
            }
            Err(failure) => debug!(controller, effect, object, ?failure, "a call did not hold"),
        }
    }

    fn any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
