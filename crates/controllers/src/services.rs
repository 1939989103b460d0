//! Services of type `LoadBalancer` and their addresses: watch, plan, apply.
//!
//! The planner's memory is what the watches told plus our own writes that they have not echoed yet.

use std::{future::Future, net::IpAddr, time::Duration};

use jiff::Timestamp;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::{
    apply::Applier,
    effect::{Answer, Effect, Failure, Report},
    plan::{News, Planner},
    queue::Queue,
};
pub use self::{
    classes::Classes,
    metrics::Metrics,
    plan::{KubeVip, RepairMode, Settings},
    world::{AnnotatedServices, Tenancy},
};
use crate::{
    Context,
    engine::{self, Calls, NEWS, Now, Work, if_leading, wall},
    history::{History, Known},
    kinds,
    object::{ObjectKey, Version},
    store::Watched,
};

mod annotate;
pub(crate) mod apply;
mod audience;
mod classes;
mod decide;
pub(crate) mod effect;
mod external;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod fuzz;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod lean;
mod metrics;
#[cfg(test)]
mod model;
pub(crate) mod observe;
pub mod permissions;
pub(crate) mod plan;
mod queue;
mod repair;
#[cfg(feature = "bench")]
pub mod rig;
#[cfg(test)]
mod sim;
pub(crate) mod status;
pub(crate) mod view;
mod waiting;
pub(crate) mod watch;
mod wish;
mod world;

/// Calls under way at once. More than this only lengthens the API server's queue.
const CALLS: usize = 64;
/// Events under way at once, when nothing else is.
const NOTES: usize = 2;
/// How often gauges are brought in line.
const GAUGES: Duration = Duration::from_millis(500);

/// Runs the allocator until `stop`. The watches are registered with `context.readiness` at once, not
/// when the future is first polled, so that nobody looks ready too early.
pub fn run(
    context: Context,
    settings: Settings,
    metrics: Metrics,
    stop: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    let (sender, news) = mpsc::channel(NEWS);
    let watches = watch_all(&context, &settings.kube_vip, sender);
    let applier = Applier::new(context.client.clone(), &context.instance);
    let allocator = Allocator {
        planner: Planner::new(settings),
        queue: Queue::default(),
        notes: 0,
        applier,
        metrics,
        past: context.history.rewinds(),
        history: context.history,
        shown_at: None,
        show_again: false,
    };
    let engine = engine::run(allocator, context.leadership, news, stop);
    async {
        tokio::select! {
            () = watches => {}
            () = engine => {}
        }
    }
}

/// All watches. Claims are listed before Services: the other way round, a claim made in between
/// would look as if its Service did not exist. So are the ranges of `ClusterIPs`: what they cover need
/// not be remembered of each Service.
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

/// What a call came back with.
struct Done {
    report: Report,
    /// What was known when it was sent of what it is about.
    known: Known,
    at: Timestamp,
}

/// The version of what a call was about, as the API server told it.
fn version_of(effect: &Effect, answer: &Answer) -> Option<Version> {
    let version = match answer {
        Answer::Claim(claim) if !matches!(effect, Effect::Release { .. }) => Some(claim.version),
        Answer::Service(service) => Some(service.version),
        Answer::OtherService(version) => Some(*version),
        Answer::Claim(_)
        | Answer::NoClaim
        | Answer::NoService
        | Answer::Pool(_)
        | Answer::Released { .. }
        | Answer::Kept
        | Answer::Done => None,
    };
    // One that cannot be read proves nothing.
    version.filter(|version| *version != Version::default())
}

/// The planner with its hands.
struct Allocator {
    planner: Planner,
    queue: Queue,
    /// Events under way.
    notes: usize,
    applier: Applier,
    metrics: Metrics,
    history: History,
    /// How often it had gone back when we began.
    past: u64,
    /// When the gauges were last brought in line, and whether something happened since.
    shown_at: Option<Duration>,
    show_again: bool,
}

impl Work for Allocator {
    const NAME: &'static str = "services";
    type News = News;
    type Done = Done;

    fn on_news(&mut self, news: News) {
        if let News::Claims(Watched::Present(_, version, _) | Watched::Gone(_, version)) = &news {
            self.history.saw_claim(self.past, version.0);
        }
        self.planner.on_news(news);
    }

    fn on_done(&mut self, Done { report, known, at }: Done, now: Now) {
        if let Ok(answer) = &report.result
            && let Some(found) = version_of(&report.effect, answer)
            && !self.history.answered(report.effect.word(), known, found.0)
        {
            return; // it belongs to a past that is over, and so do we
        }
        if matches!(report.effect, Effect::Note(_)) {
            self.notes = self.notes.saturating_sub(1);
        }
        self.log(&report, at);
        if let Some(note) = self.planner.on_report(report, now) {
            self.queue.push(Effect::Note(note));
        }
    }

    fn reconsider_all(&mut self) {
        self.planner.reconsider_all();
    }

    fn plan(&mut self, now: Now) {
        let began = Instant::now();
        let effects = self.planner.plan(now);
        self.metrics.planned(began.elapsed());
        if !effects.is_empty() {
            debug!(effects = effects.len(), "planned");
        }
        for effect in effects {
            self.queue.push(effect);
        }
        self.metrics.dropped(self.queue.take_dropped());
    }

    fn start(&mut self, calls: &mut Calls<Done>) {
        while calls.len().saturating_sub(self.notes) < CALLS {
            let Some(effect) = self.queue.pop() else { break };
            self.send(effect, calls);
        }
        while self.notes < NOTES {
            let Some(effect) = self.queue.pop_note() else { break };
            self.notes = self.notes.saturating_add(1);
            self.send(effect, calls);
        }
    }

    fn next_due(&self, leading: bool) -> Option<Duration> {
        let planned = self.planner.next_due().filter(|_| leading);
        let shown = self.shown_at.filter(|_| self.show_again).map(|at| at.saturating_add(GAUGES));
        planned.into_iter().chain(shown).min()
    }

    /// Brings the gauges in line, but not at every step of a burst.
    fn show(&mut self, uptime: Duration) {
        self.show_again = self.shown_at.is_some_and(|at| uptime < at.saturating_add(GAUGES));
        if !self.show_again {
            self.metrics.show(&self.planner);
            self.shown_at = Some(uptime);
        }
    }
}

impl Allocator {
    fn send(&self, effect: Effect, calls: &mut Calls<Done>) {
        let applier = self.applier.clone();
        let known = self.known_of(&effect);
        calls.send(|leadership| async move {
            let result = if_leading(&leadership, applier.apply(&effect, wall())).await;
            Done { report: Report { effect, result }, known, at: wall() }
        });
    }

    /// A version than which the answer to a call cannot be older.
    fn known_of(&self, effect: &Effect) -> Known {
        let version = match effect {
            Effect::LookAtClaim { known, .. } | Effect::LookAtService { known, .. } => {
                known.unwrap_or_default()
            }
            // What is new is newer than all there was.
            Effect::Take { .. } => return self.history.newest_claim(),
            Effect::Touch { version, .. }
            | Effect::Publish { version, .. }
            | Effect::Annotate { version, .. }
            | Effect::CleanUp { version, .. }
            | Effect::Retract { version, .. } => *version,
            Effect::Release { .. }
            | Effect::Expire { .. }
            | Effect::PoolStatus { .. }
            | Effect::Note(_) => Version::default(),
        };
        self.history.known(version.0)
    }

    fn log_published(&self, key: &ObjectKey, addrs: &[IpAddr], first: bool, at: Timestamp) {
        info!(service = %key, ?addrs, "published");
        if let Some(created) = self.planner.created(key).filter(|_| first) {
            let took = at.duration_since(created);
            self.metrics.allocated(took.try_into().unwrap_or_default());
        }
    }

    fn log(&self, report: &Report, at: Timestamp) {
        let word = report.effect.word();
        match &report.result {
            Ok(_) => {
                self.metrics.called(word, "done");
                match &report.effect {
                    Effect::Release { claim, holder, .. } => {
                        info!(service = %holder.key, addr = %claim.addr, "looked at a claim to release");
                    }
                    Effect::Publish { key, ingress: Some(addrs), first, .. }
                    | Effect::Annotate { key, addrs: Some(addrs), first, .. } => {
                        self.log_published(key, addrs, *first, at);
                    }
                    Effect::CleanUp { key, .. } => {
                        info!(service = %key, "took off what was left on it");
                    }
                    Effect::Take { .. }
                    | Effect::Touch { .. }
                    | Effect::Expire { .. }
                    | Effect::Publish { .. }
                    | Effect::Annotate { .. }
                    | Effect::Retract { .. }
                    | Effect::LookAtClaim { .. }
                    | Effect::LookAtService { .. }
                    | Effect::PoolStatus { .. }
                    | Effect::Note(_) => debug!(effect = word, "done"),
                }
            }
            Err(failure) => {
                self.metrics.called(word, failure.word());
                match failure {
                    Failure::Refused(words) | Failure::Blocked(words) | Failure::Unknown(words) => {
                        warn!(effect = ?report.effect, words, "a call failed");
                    }
                    Failure::Exists
                    | Failure::Conflict
                    | Failure::NotFound
                    | Failure::Throttled(_)
                    | Failure::NotSent => {
                        debug!(effect = word, ?failure, "a call did not hold");
                    }
                }
            }
        }
    }
}
