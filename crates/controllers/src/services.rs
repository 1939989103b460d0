//! Services of type `LoadBalancer` and their addresses: watch, plan, apply.
//!
//! The planner's memory is what the watches have shown plus our own writes not echoed yet.

use std::{future::Future, time::Duration};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

#[cfg(any(test, feature = "fuzzing"))]
pub use self::tests::fuzzing;
#[cfg(feature = "bench")]
pub use self::tests::rig;
pub use self::{
    classes::Classes,
    metrics::Metrics,
    plan::{KubeVip, RepairMode, Settings},
    world::{AnnotatedServices, Tenancy},
};
use self::{
    effect::Effect,
    plan::{News, Planner},
};
use crate::{
    Context,
    engine::{self, NEWS, Now, Plan, Report},
    history::History,
    kinds,
    store::Watched,
};

mod annotate;
pub(crate) mod apply;
mod audience;
mod classes;
mod decide;
pub(crate) mod effect;
pub mod explain;
mod external;
mod holding;
mod lean;
mod metrics;
pub(crate) mod observe;
pub mod permissions;
pub(crate) mod plan;
mod repair;
pub(crate) mod status;
#[cfg(any(test, feature = "bench", feature = "fuzzing"))]
mod tests;
pub(crate) mod view;
mod waiting;
pub(crate) mod watch;
mod wish;
mod world;

/// Runs the allocator until `stop`. The watches are registered with `context.readiness` at once, not
/// when the future is first polled, so that the process never looks ready too early.
pub fn run(
    context: &Context,
    settings: Settings,
    metrics: Metrics,
    stop: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    let (sender, news) = mpsc::channel(NEWS);
    let watches = watch_all(context, &settings.kube_vip, sender);
    let allocator = Allocator {
        planner: Planner::new(settings),
        metrics,
        rewinds: context.history.rewinds(),
        history: context.history.clone(),
    };
    let engine = engine::run(allocator, context.tools(), news, stop);
    async {
        tokio::select! {
            () = watches => {}
            () = engine => {}
        }
    }
}

/// All watches. Claims are listed before Services: the other way round, a claim made in between would
/// seem to name a missing Service. The ranges of `ClusterIPs` come before Services as well: addresses
/// that they cover need not be remembered per Service.
fn watch_all(
    context: &Context,
    kube_vip: &KubeVip,
    news: mpsc::Sender<News>,
) -> impl Future<Output = ()> + use<> {
    let client = &context.client;
    let listed = |kind| context.readiness.register(kind);
    let claims_listed = listed("ips");
    let claims_known = claims_listed.subscribe();
    let claims = watch::claims(client.clone(), news.clone(), claims_listed);
    let groups = watch::pools(client.clone(), news.clone(), listed("ipgroups"));
    let map = watch::pool_map(client.clone(), kube_vip, news.clone(), listed("configmaps"));
    let pools = async move {
        tokio::join!(groups, map);
    };
    let namespaces = watch::namespaces(client.clone(), news.clone(), listed("namespaces"));
    let services = watch::services(client.clone(), news.clone(), listed("services"));
    let (served, cluster_ranges) = kinds::built_in(client.clone(), kinds::SERVICE_CIDRS);
    let ranges_listed = listed("servicecidrs");
    let ranges_known = ranges_listed.subscribe();
    let ranges = watch::service_ranges(client.clone(), served, news.clone(), ranges_listed);
    let services = async move {
        tokio::join!(claims_known, ranges_known);
        services.await;
    };
    let nodes = watch::nodes(client.clone(), news.clone(), listed("nodes"));
    let api_servers = watch::api_servers(client.clone(), news.clone(), listed("endpointslices"));
    let (served, definition) =
        kinds::watch(client.clone(), kinds::VIRTUAL_IPS, listed(kinds::VIRTUAL_IPS));
    let virtual_ips = watch::virtual_ips(client.clone(), served, news, listed("virtualips"));
    let others = async move {
        tokio::join!(nodes, api_servers, definition, virtual_ips, cluster_ranges, ranges);
    };
    async move {
        tokio::join!(claims, pools, namespaces, services, others);
    }
}

/// The planner with its metrics and the history of versions.
struct Allocator {
    planner: Planner,
    metrics: Metrics,
    history: History,
    /// How often history had gone back when this allocator started.
    rewinds: u64,
}

impl engine::Planner for Allocator {
    const NAME: &'static str = "services";
    type News = News;
    type Effect = Effect;

    fn on_news(&mut self, news: News) {
        if let News::Claims(Watched::Present(_, version, _) | Watched::Gone(_, version)) = &news {
            self.history.saw_claim(self.rewinds, version.0);
        }
        self.planner.on_news(news);
    }

    fn on_report(&mut self, report: Report<Effect>, now: Now, out: &mut Plan<Effect>) {
        if report.result.is_ok()
            && let Effect::Publish { key, ingress: Some(_), first: true, .. }
            | Effect::Annotate { key, addrs: Some(_), first: true, .. } = &report.effect
            && let Some(created) = self.planner.created(key)
        {
            let took = now.wall.duration_since(created);
            self.metrics.allocated(took.try_into().unwrap_or_default());
        }
        out.events.extend(self.planner.on_report(report, now));
    }

    fn reconsider_all(&mut self) {
        self.planner.reconsider_all();
    }

    fn plan(&mut self, now: Now, out: &mut Plan<Effect>) {
        self.planner.plan(now, out);
    }

    fn next_due(&self) -> Option<Duration> {
        self.planner.next_due()
    }

    fn show(&self) {
        self.metrics.show(&self.planner);
    }
}
