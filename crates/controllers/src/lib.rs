//! The controllers of Landfall, which observe, plan and apply, and the parts they share.

mod absent;
mod announcements;
mod backoff;
pub mod blind;
mod call;
mod clock;
mod cluster;
mod engine;
mod event;
pub mod history;
mod index;
pub mod keepalived;
pub mod kinds;
pub mod leadership;
mod ledger;
pub mod migration;
mod object;
pub mod permissions;
pub mod readiness;
pub mod services;
mod shared;
#[cfg(test)]
mod sim;
mod store;
mod watch;

use std::{collections::BTreeSet, future::Future, sync::Arc, time::Duration};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use self::engine::Metrics;
use self::{
    cluster::watch_all,
    engine::{AnyPlanner, NEWS, Tools},
    history::History,
    leadership::Leadership,
    ledger::Keeper,
    readiness::Readiness,
    services::KubeVip,
    shared::Shared,
};

/// The dependencies of every controller.
#[derive(Clone)]
pub struct Context {
    pub client: kube::Client,
    pub leadership: Leadership,
    pub readiness: Readiness,
    pub history: History,
    /// The name of this process in events.
    pub instance: Arc<str>,
    pub metrics: Metrics,
}

/// The controllers to run, each with its settings.
#[derive(Default)]
pub struct Controllers {
    pub services: Option<(services::Settings, services::Metrics)>,
    /// How long a claim waits for a `VirtualIP` that was missing when we started.
    pub migration: Option<Duration>,
    pub keepalived: Option<keepalived::Pods>,
}

/// Runs controllers until `stop`, on one set of watches and one ledger.
///
/// The watches are registered with `context.readiness` at once, not when the future is first polled, so that
/// the process never looks ready too early.
pub fn run(
    context: &Context,
    controllers: Controllers,
    stop: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    let mut shared = Shared::default();
    // First, so that in every round the others know the ledger as it is.
    let mut planners: Vec<Box<dyn AnyPlanner>> = vec![Box::new(Keeper)];
    let mut kube_vip = KubeVip::default();
    if let Some((settings, metrics)) = controllers.services {
        kube_vip = settings.kube_vip.clone();
        planners.push(services::planner(settings, metrics, &mut shared.ledger));
    }
    if let Some(orphan_grace) = controllers.migration {
        planners.push(migration::planner(orphan_grace, &mut shared.ledger));
    }
    if let Some(pods) = controllers.keepalived {
        planners.push(keepalived::planner(pods, &mut shared.ledger));
    }
    let kinds: BTreeSet<_> = planners.iter().flat_map(|planner| planner.kinds()).copied().collect();
    let (sender, news) = mpsc::channel(NEWS);
    let watches = watch_all(context, &kinds, &kube_vip.place(), &sender);
    let tools = Tools {
        client: context.client.clone(),
        instance: context.instance.clone(),
        leadership: context.leadership.clone(),
        history: context.history.clone(),
        metrics: context.metrics.clone(),
    };
    let engine = engine::run(planners, shared, tools, news, stop);
    async {
        tokio::select! {
            () = watches => {}
            () = engine => {}
        }
    }
}
