//! Services of type `LoadBalancer` and their addresses: watch, plan, apply.
//!
//! One task plans, because everything that must agree (who has which address) is decided in one
//! place; the calls it asks for run side by side. Its memory is what the watches told plus our own
//! writes that they have not echoed yet.

use std::{future::Future, panic, time::Duration};

use jiff::Timestamp;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::{
    apply::Applier,
    effect::{Effect, Failure, Report},
    plan::{News, Now, Planner},
    queue::Queue,
};
pub use self::{
    metrics::Metrics,
    plan::{RepairMode, Settings},
};
use crate::{Context, kinds};

pub(crate) mod apply;
mod decide;
pub(crate) mod effect;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod fuzz;
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
pub(crate) mod store;
pub(crate) mod view;
mod waiting;
pub(crate) mod watch;
mod wish;
mod world;

/// The definition of a kind that need not be there.
const VIRTUAL_IPS: &str = "virtualips.paas.org";
/// Calls under way at once. More than this only lengthens the API server's queue.
const CALLS: usize = 64;
/// Events under way at once, when nothing else is.
const NOTES: usize = 2;
/// News the watches may run ahead of the planner.
const NEWS: usize = 1024;
/// How often gauges are brought in line.
const GAUGES: Duration = Duration::from_millis(500);
/// How long calls may take to end once we are told to stop.
const STOP_GRACE: Duration = Duration::from_secs(4);

/// Runs the allocator until `stop`. The watches are registered with `context.readiness` at once, not
/// when the future is first polled, so that nobody looks ready too early.
pub fn run(
    context: Context,
    settings: Settings,
    metrics: Metrics,
    stop: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    let (sender, news) = mpsc::channel(NEWS);
    let watches = watch_all(&context, sender);
    let applier = Applier::new(context.client.clone(), &context.instance);
    let leading = context.leadership.is_leader();
    let engine = Engine {
        planner: Planner::new(settings),
        queue: Queue::default(),
        calls: JoinSet::new(),
        notes: 0,
        applier,
        metrics,
        context,
        began: Instant::now(),
        leading,
        shown_at: None,
        show_again: false,
    };
    async {
        tokio::select! {
            () = watches => {}
            () = engine.run(news, stop) => {}
        }
    }
}

/// All watches. Claims are listed before Services: the other way round, a claim made in between
/// would look as if its Service did not exist.
fn watch_all(context: &Context, news: mpsc::Sender<News>) -> impl Future<Output = ()> + use<> {
    let client = &context.client;
    let listed = |kind| context.readiness.register(kind);
    let claims_listed = listed("ips");
    let claims_known = claims_listed.subscribe();
    let claims = watch::claims(client.clone(), news.clone(), claims_listed);
    let pools = watch::pools(client.clone(), news.clone(), listed("ipgroups"));
    let namespaces = watch::namespaces(client.clone(), news.clone(), listed("namespaces"));
    let services = watch::services(client.clone(), news.clone(), listed("services"));
    let services = async move {
        claims_known.await;
        services.await;
    };
    let nodes = watch::nodes(client.clone(), news.clone(), listed("nodes"));
    let api_servers = watch::api_servers(client.clone(), news.clone(), listed("endpointslices"));
    let (served, definition) = kinds::watch(client.clone(), VIRTUAL_IPS, listed(VIRTUAL_IPS));
    let virtual_ips = watch::virtual_ips(client.clone(), served, news, listed("virtualips"));
    let others = async move {
        tokio::join!(nodes, api_servers, definition, virtual_ips);
    };
    async move {
        tokio::join!(claims, pools, namespaces, services, others);
    }
}

/// The planner with its hands: news in, effects out, reports in.
struct Engine {
    planner: Planner,
    queue: Queue,
    calls: JoinSet<(Report, Timestamp)>,
    notes: usize,
    applier: Applier,
    metrics: Metrics,
    context: Context,
    began: Instant,
    leading: bool,
    /// When the gauges were last brought in line, and whether something happened since.
    shown_at: Option<Instant>,
    show_again: bool,
}

impl Engine {
    async fn run(mut self, mut news: mpsc::Receiver<News>, stop: CancellationToken) {
        let mut batch = Vec::new();
        loop {
            let due = self.next_due();
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.context.leadership.changed() => self.note_leadership(),
                Some(done) = self.calls.join_next() => self.take_in(done),
                count = news.recv_many(&mut batch, NEWS) => {
                    if count == 0 {
                        break;
                    }
                    for item in batch.drain(..) {
                        self.planner.on_news(item);
                    }
                }
                () = sleep_until(due) => {}
            }
            self.plan();
            self.start_calls();
            self.show();
        }
        self.finish().await;
    }

    /// When there is something to do even if nothing happens.
    fn next_due(&self) -> Instant {
        let planned = self.planner.next_due().filter(|_| self.leading).map(|due| self.began + due);
        let shown = self.shown_at.filter(|_| self.show_again).map(|at| at + GAUGES);
        planned.into_iter().chain(shown).min().unwrap_or_else(far_off)
    }

    /// Brings the gauges in line, but not at every step of a burst.
    fn show(&mut self) {
        let now = Instant::now();
        self.show_again = self.shown_at.is_some_and(|at| now < at + GAUGES);
        if !self.show_again {
            self.metrics.show(&self.planner);
            self.shown_at = Some(now);
        }
    }

    fn now(&self) -> Now {
        Now { wall: wall(), uptime: self.began.elapsed() }
    }

    fn note_leadership(&mut self) {
        self.leading = self.context.leadership.is_leader();
        if self.leading {
            info!("leading: planning begins");
            self.planner.reconsider_all();
        } else {
            info!("standing by: planning ends");
        }
    }

    fn plan(&mut self) {
        if !(self.leading && self.context.leadership.is_leader()) {
            return;
        }
        let began = Instant::now();
        let effects = self.planner.plan(self.now());
        self.metrics.planned(began.elapsed());
        if !effects.is_empty() {
            debug!(effects = effects.len(), "planned");
        }
        for effect in effects {
            self.queue.push(effect);
        }
        self.metrics.dropped(self.queue.take_dropped());
    }

    fn start_calls(&mut self) {
        while self.calls.len().saturating_sub(self.notes) < CALLS {
            let Some(effect) = self.queue.pop() else { break };
            self.start(effect);
        }
        while self.notes < NOTES {
            let Some(effect) = self.queue.pop_note() else { break };
            self.notes = self.notes.saturating_add(1);
            self.start(effect);
        }
    }

    fn start(&mut self, effect: Effect) {
        let applier = self.applier.clone();
        let leadership = self.context.leadership.clone();
        self.calls.spawn(async move {
            // Asked at the write itself: a process that slept past its lease must not write.
            let result = if leadership.is_leader() {
                applier.apply(&effect, wall()).await
            } else {
                Err(Failure::NotSent)
            };
            (Report { effect, result }, wall())
        });
    }

    fn take_in(&mut self, done: Result<(Report, Timestamp), tokio::task::JoinError>) {
        let (report, at) = match done {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(payload) => panic::resume_unwind(payload),
                Err(_) => return,
            },
        };
        if matches!(report.effect, Effect::Note(_)) {
            self.notes = self.notes.saturating_sub(1);
        }
        self.log(&report, at);
        let now = self.now();
        if let Some(note) = self.planner.on_report(report, now) {
            self.queue.push(Effect::Note(note));
        }
    }

    fn log(&self, report: &Report, at: Timestamp) {
        let word = report.effect.word();
        match &report.result {
            Ok(_) => {
                self.metrics.called(word, "done");
                match &report.effect {
                    Effect::Publish { key, ingress: Some(addrs), first, .. } => {
                        info!(service = %key, ?addrs, "published");
                        if let Some(created) = self.planner.created(key).filter(|_| *first) {
                            let took = at.duration_since(created);
                            self.metrics.allocated(took.try_into().unwrap_or_default());
                        }
                    }
                    Effect::Release { claim, holder, .. } => {
                        info!(service = %holder.key, addr = %claim.addr, "looked at a claim to release");
                    }
                    Effect::DropFinalizers { key, .. } => {
                        info!(service = %key, "took off the finalizer of a replaced operator");
                    }
                    Effect::Take { .. }
                    | Effect::Touch { .. }
                    | Effect::Expire { .. }
                    | Effect::Publish { .. }
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
                    Failure::Exists | Failure::Conflict | Failure::NotFound | Failure::NotSent => {
                        debug!(effect = word, ?failure, "a call did not hold");
                    }
                }
            }
        }
    }

    /// Lets calls that are under way end: a write whose answer we throw away costs the next leader
    /// a look.
    async fn finish(mut self) {
        let until = Instant::now() + STOP_GRACE;
        while let Ok(Some(_)) = timeout_at(until, self.calls.join_next()).await {}
    }
}

/// A time that never comes while the process runs; an hour later the loop merely goes round once.
fn far_off() -> Instant {
    Instant::now() + Duration::from_hours(1)
}

#[expect(clippy::disallowed_methods, reason = "the one place where the allocator reads the clock")]
fn wall() -> Timestamp {
    Timestamp::now()
}
