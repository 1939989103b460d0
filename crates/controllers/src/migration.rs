//! The old kinds `VirtualIP` and `GroupSegmentMapping`: existing ones keep working, and become
//! `LoadBalancer` Services with the same address when their user says so.
//!
//! All of it rests while there are none of them, or not even the kinds, and begins when they appear. Like the allocator
//! it has one task that plans, whose memory is what the watches told plus our own writes that they
//! have not echoed yet. With the allocator it shares the ledger and nothing else: the claim that
//! passes to a Service is the message.

use std::{future::Future, panic, time::Duration};

use jiff::Timestamp;
use landfall_api::VirtualIP;
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
    planner::{News, Planner},
    view::Key,
};
use crate::{
    Context,
    kinds::{self, Served},
    readiness::Listed,
    services::plan::Now,
};

mod apply;
mod clone;
mod effect;
mod observe;
pub mod permissions;
mod plan;
mod planner;
#[cfg(test)]
mod sim;
mod view;
mod watch;
mod world;

/// The definition of `VirtualIP`.
pub const VIRTUAL_IPS: &str = "virtualips.paas.org";
/// The definition of `GroupSegmentMapping`.
pub const MAPPINGS: &str = "groupsegmentmappings.paas.org";

/// Calls under way at once. These kinds are few, and nobody waits for them in a burst.
const CALLS: usize = 16;
/// News the watches may run ahead of the planner.
const NEWS: usize = 1024;
/// How long calls may take to end once we are told to stop.
const STOP_GRACE: Duration = Duration::from_secs(4);

/// Serves the old kinds until `stop`, whenever they are installed.
///
/// Watches are registered with `context.readiness` at once; a kind that is not installed holds
/// nothing up.
pub fn run(context: Context, stop: CancellationToken) -> impl Future<Output = ()> + use<> {
    let register = |name| context.readiness.register(name);
    let (served, watch_virtual_ips) =
        kinds::watch(context.client.clone(), VIRTUAL_IPS, register(VIRTUAL_IPS));
    let (mappings, watch_mappings) =
        kinds::watch(context.client.clone(), MAPPINGS, register(MAPPINGS));
    let (any, watch_any) =
        kinds::any::<VirtualIP>(context.client.clone(), served, register("virtualips"));
    let listed =
        ["virtualips", "groupsegmentmappings", "ipgroups", "ips", "services"].map(register);
    let serve = serve(context, any, mappings, listed, stop);
    async {
        tokio::select! {
            () = watch_virtual_ips => {}
            () = watch_any => {}
            () = watch_mappings => {}
            () = serve => {}
        }
    }
}

/// Runs while there are objects of the kind, and waits while there are none.
async fn serve(
    context: Context,
    mut served: Served,
    mappings: Served,
    listed: [Listed; 5],
    stop: CancellationToken,
) {
    loop {
        let there = tokio::select! {
            () = stop.cancelled() => return,
            there = served.now() => there,
        };
        if there {
            info!("serving VirtualIPs");
            let gone = stop.child_token();
            let (sender, news) = mpsc::channel(NEWS);
            let watches = Box::pin(watch_all(&context, sender, &mappings, listed.clone()));
            let engine = Engine::new(context.clone()).run(news, gone.clone());
            let ends = async {
                served.becomes(false).await;
                gone.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = watches => {}
                () = ends => {}
                () = engine => {}
            }
        }
        for listed in &listed {
            listed.done();
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = served.becomes(true) => {}
        }
    }
}

/// All watches. Claims are listed before those who may hold them: the other way round, a claim made
/// in between would look as if nobody had it.
fn watch_all(
    context: &Context,
    news: mpsc::Sender<News>,
    served: &Served,
    listed: [Listed; 5],
) -> impl Future<Output = ()> + use<> {
    let client = &context.client;
    let [virtual_ips, mappings, groups, claims, services] = listed;
    let claims_known = claims.subscribe();
    let claims = watch::claims(client.clone(), news.clone(), claims);
    let mappings = watch::mappings(client.clone(), news.clone(), mappings, served.clone());
    let groups = watch::groups(client.clone(), news.clone(), groups);
    let services = watch::services(client.clone(), news.clone(), services);
    let virtual_ips = watch::virtual_ips(client.clone(), news, virtual_ips);
    let holders = async move {
        claims_known.await;
        tokio::join!(services, virtual_ips);
    };
    async move {
        tokio::join!(claims, mappings, groups, holders);
    }
}

/// The planner with its hands: news in, effects out, reports in.
struct Engine {
    planner: Planner,
    queue: Vec<(Key, Effect)>,
    calls: JoinSet<Report>,
    applier: Applier,
    context: Context,
    began: Instant,
    leading: bool,
}

impl Engine {
    fn new(context: Context) -> Self {
        Self {
            planner: Planner::default(),
            queue: Vec::new(),
            calls: JoinSet::new(),
            applier: Applier::new(context.client.clone(), &context.instance),
            leading: context.leadership.is_leader(),
            context,
            began: Instant::now(),
        }
    }

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
        }
        self.finish().await;
    }

    /// When there is something to do even if nothing happens.
    fn next_due(&self) -> Instant {
        let planned = self.planner.next_due().filter(|_| self.leading);
        // An hour later the loop merely goes round once.
        planned.map_or_else(|| Instant::now() + Duration::from_hours(1), |due| self.began + due)
    }

    fn now(&self) -> Now {
        Now { wall: wall(), uptime: self.began.elapsed() }
    }

    fn note_leadership(&mut self) {
        self.leading = self.context.leadership.is_leader();
        if self.leading {
            self.planner.reconsider_all();
        }
    }

    fn plan(&mut self) {
        if self.leading && self.context.leadership.is_leader() {
            let now = self.now();
            self.queue.extend(self.planner.plan(now));
        }
    }

    fn start_calls(&mut self) {
        while self.calls.len() < CALLS {
            let Some((key, effect)) = self.queue.pop() else { break };
            let applier = self.applier.clone();
            let leadership = self.context.leadership.clone();
            self.calls.spawn(async move {
                // Asked at the write itself: a process that slept past its lease must not write.
                let result = if leadership.is_leader() {
                    applier.apply(&key, &effect, wall()).await
                } else {
                    Err(Failure::NotSent)
                };
                Report { key, effect, result }
            });
        }
    }

    fn take_in(&mut self, done: Result<Report, tokio::task::JoinError>) {
        let report = match done {
            Ok(report) => report,
            Err(error) => match error.try_into_panic() {
                Ok(payload) => panic::resume_unwind(payload),
                Err(_) => return,
            },
        };
        let (virtualip, effect) = (&report.key, report.effect.word());
        match &report.result {
            Ok(_) => info!(%virtualip, effect, "done"),
            Err(Failure::Refused(words) | Failure::Unknown(words)) => {
                warn!(%virtualip, effect, words, "a call failed");
            }
            Err(failure) => debug!(%virtualip, effect, ?failure, "a call did not hold"),
        }
        let now = self.now();
        self.planner.on_report(report, now);
    }

    /// Lets calls that are under way end.
    async fn finish(mut self) {
        let until = Instant::now() + STOP_GRACE;
        while let Ok(Some(_)) = timeout_at(until, self.calls.join_next()).await {}
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where the migration reads the clock")]
fn wall() -> Timestamp {
    Timestamp::now()
}
