//! The loop that runs every planner: takes news and reports in, and sends effects out.
//!
//! One task plans, because everything that must agree is decided in one place; the calls that planners
//! ask for run concurrently. The engine owns what planners share, and lends it to one at a time: an
//! address that one has taken is taken for the next. It handles each effect: its turn, its deadline, the
//! check whether we lead, the log and the metrics. A planner only plans.

use std::{future::Future, panic, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::Client;
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

pub use self::metrics::Metrics;
pub(crate) use self::{any::AnyPlanner, lanes::Lane};
use self::{
    any::{AnyCall, AnyPlan, Done},
    lanes::{Lanes, Next},
};
pub(crate) use crate::clock::Now;
use crate::{
    announcements::Announcements,
    call::{self, Failure},
    cluster::{Change, Cluster, Kind, News, Seen},
    event::Event,
    history::{History, Known},
    leadership::Leadership,
    ledger::Ledger,
    object::Version,
    shared::Shared,
    store::Watched,
};

mod any;
mod lanes;
mod metrics;

/// How many news items may wait for the planner.
pub(crate) const NEWS: usize = 1024;
/// How long calls may take to end after we are told to stop.
const STOP_GRACE: Duration = Duration::from_secs(4);
/// Means "never": if it does pass, the loop merely runs once more.
const FAR_OFF: Duration = Duration::from_hours(1);
/// How often a planner updates its gauges.
const SHOW_INTERVAL: Duration = Duration::from_millis(500);

/// One guarded, idempotent call in which everything is decided.
pub(crate) trait Call: std::fmt::Debug + Send + Sync + 'static {
    /// The answer to a successful call.
    type Answer: Send + 'static;

    /// The order of effects when too many wait: the lowest rank goes first.
    fn rank(&self) -> u8;
    /// The effect's name in the log and in metrics.
    fn label(&self) -> &'static str;
    /// The object that the log names.
    fn object(&self) -> String;

    fn lane(&self) -> Lane {
        Lane::Kube
    }

    fn deadline(&self) -> Duration {
        call::DEADLINE
    }

    /// Whether the log mentions the call at its default level.
    fn matters_to_users(&self) -> bool {
        false
    }

    /// A version that the answer cannot be older than, unless history went back.
    fn floor(&self) -> Floor {
        Floor::None
    }

    /// The version of the object that the answer is about.
    fn version_of(&self, _answer: &Self::Answer) -> Option<Version> {
        None
    }

    /// Takes out of the answer what it shows of a watched object. All planners are told of that before
    /// the call is reported.
    fn take_seen(_answer: &mut Self::Answer) -> Option<Seen> {
        None
    }

    /// Performs the call once: the planner decides what a failure means.
    fn perform(
        &self,
        client: &Client,
    ) -> impl Future<Output = Result<Self::Answer, Failure>> + Send;
}

/// What was known of the object of a call before it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Floor {
    None,
    /// The object at this version.
    Version(Version),
    /// The newest claim: a claim created now is newer than all others.
    NewestClaim,
}

/// An effect and its result.
#[derive(Debug)]
pub(crate) struct Report<E: Call> {
    pub effect: E,
    pub result: Result<E::Answer, Failure>,
}

/// The effects and events that a planner asks for.
#[derive(Debug)]
pub(crate) struct Plan<E> {
    pub effects: Vec<E>,
    pub events: Vec<Event>,
}

impl<E> Default for Plan<E> {
    fn default() -> Self {
        Self { effects: Vec::new(), events: Vec::new() }
    }
}

/// What the engine lends to a planner for one step.
pub(crate) struct Lent<'a> {
    pub cluster: &'a Cluster,
    pub ledger: &'a mut Ledger,
    pub announcements: &'a mut Announcements,
    pub now: Now,
}

/// Decides and does nothing else. The engine performs its effects.
pub(crate) trait Planner: Send + 'static {
    /// The planner's name in the log and in metrics.
    const NAME: &'static str;
    /// The kinds that must have been listed before it plans.
    const KINDS: &'static [Kind];
    type Effect: Call;

    /// Takes in a change of the watched objects.
    fn changed(&mut self, _lent: Lent<'_>, _change: &Change) {}
    /// Takes in the changes of the ledger since the last call.
    fn catch_up(&mut self, _lent: Lent<'_>, _out: &mut Plan<Self::Effect>) {}
    /// Takes in the report of an effect.
    fn reported(
        &mut self,
        lent: Lent<'_>,
        report: Report<Self::Effect>,
        out: &mut Plan<Self::Effect>,
    );
    /// Decides about everything again, as after gaining leadership.
    fn reconsider_all(&mut self, _lent: Lent<'_>) {}
    /// Decides what to do. Called only while we lead, and once all its kinds have been listed.
    fn plan(&mut self, lent: Lent<'_>, out: &mut Plan<Self::Effect>);
    /// The uptime at which there is something to decide even without news.
    fn next_due(&self, cluster: &Cluster, ledger: &Ledger) -> Option<Duration>;
    /// Updates the gauges. Called now and then, not after every step of a burst.
    fn show(&self, _cluster: &Cluster, _ledger: &Ledger) {}
}

/// The engine's dependencies.
pub(crate) struct Tools {
    pub client: Client,
    /// The name of this process in events.
    pub instance: Arc<str>,
    pub leadership: Leadership,
    pub history: History,
    pub metrics: Metrics,
}

/// Runs planners until `stop`, or until all sources of news have ended. Earlier planners come first in
/// every round.
pub(crate) async fn run(
    planners: Vec<Box<dyn AnyPlanner>>,
    shared: Shared,
    tools: Tools,
    mut news: mpsc::Receiver<News>,
    stop: CancellationToken,
) {
    let mut leadership = tools.leadership.clone();
    let mut engine = Engine::new(planners, shared, tools);
    let mut batch = Vec::new();
    loop {
        let due =
            engine.next_due().map_or_else(|| Instant::now() + FAR_OFF, |at| engine.began + at);
        tokio::select! {
            () = stop.cancelled() => break,
            () = leadership.changed() => engine.leads(leadership.is_leader()),
            Some(ended) = engine.calls.join_next() => {
                engine.on_ended(ended);
                // One round of planning for everything that ended meanwhile.
                while let Some(ended) = engine.calls.try_join_next() {
                    engine.on_ended(ended);
                }
            }
            count = news.recv_many(&mut batch, NEWS) => {
                if count == 0 {
                    break;
                }
                for item in batch.drain(..) {
                    engine.on_news(item);
                }
            }
            () = sleep_until(due) => {}
        }
        if engine.leading && leadership.is_leader() {
            engine.plan();
        }
        engine.send();
        engine.show();
    }
    // An unread answer to a write costs the next leader a live read.
    let until = Instant::now() + STOP_GRACE;
    while let Ok(Some(_)) = timeout_at(until, engine.calls.join_next()).await {}
}

/// A call that has ended.
enum Ended {
    Effect {
        /// The place of its planner.
        planner: usize,
        lane: Lane,
        report: Done,
        /// What was known of its object when it was sent.
        known: Known,
    },
    /// The name of the planner that asked for it, and its result.
    Event(&'static str, Result<(), Failure>),
}

struct Engine {
    planners: Vec<Box<dyn AnyPlanner>>,
    shared: Shared,
    tools: Tools,
    lanes: Lanes<Job>,
    calls: JoinSet<Ended>,
    began: Instant,
    leading: bool,
    /// How often history had gone back when this engine started.
    rewinds: u64,
    /// When the planners last updated their gauges, and whether they must do so again.
    shown_at: Option<Duration>,
    show_again: bool,
}

impl Engine {
    fn new(planners: Vec<Box<dyn AnyPlanner>>, shared: Shared, tools: Tools) -> Self {
        Self {
            planners,
            shared,
            leading: tools.leadership.is_leader(),
            rewinds: tools.history.rewinds(),
            tools,
            lanes: Lanes::default(),
            calls: JoinSet::new(),
            began: Instant::now(),
            shown_at: None,
            show_again: false,
        }
    }

    fn now(&self) -> Now {
        Now { wall: wall(), uptime: self.began.elapsed() }
    }

    /// Lets every planner take a step.
    fn each(&mut self, step: impl Fn(&mut dyn AnyPlanner, Lent<'_>)) {
        let now = self.now();
        for planner in &mut self.planners {
            step(planner.as_mut(), self.shared.lend(now));
        }
    }

    fn leads(&mut self, leading: bool) {
        self.leading = leading;
        if leading {
            info!("leading: planning begins");
            self.each(|planner, lent| planner.reconsider_all(lent));
        } else {
            info!("standing by: planning ends");
        }
    }

    /// Takes in an event of a watch.
    fn on_news(&mut self, news: News) {
        if let News::Claims(Watched::Present(_, version, _) | Watched::Gone(_, version)) = &news {
            self.tools.history.saw_claim(self.rewinds, version.0);
        }
        let changes = self.shared.hear(news);
        self.tell(&changes);
    }

    /// Tells every planner of changes.
    fn tell(&mut self, changes: &[Change]) {
        for change in changes {
            self.each(|planner, lent| planner.changed(lent, change));
        }
        self.catch_up();
    }

    /// Lets every planner take in what others changed in the ledger.
    fn catch_up(&mut self) {
        let now = self.now();
        for (place, planner) in self.planners.iter_mut().enumerate() {
            let out = planner.catch_up(self.shared.lend(now));
            queue(&mut self.lanes, place, planner.name(), out);
        }
    }

    fn plan(&mut self) {
        let changes = self.shared.settle();
        self.tell(&changes);
        let now = self.now();
        for (place, planner) in self.planners.iter_mut().enumerate() {
            if !self.shared.has_listed(planner.kinds()) {
                continue;
            }
            let began = Instant::now();
            let out = planner.plan(self.shared.lend(now));
            self.tools.metrics.planned(planner.name(), began.elapsed());
            if !out.effects.is_empty() {
                debug!(controller = planner.name(), effects = out.effects.len(), "planned");
            }
            queue(&mut self.lanes, place, planner.name(), out);
        }
        self.catch_up();
    }

    /// Sends as many waiting effects as may be in flight.
    fn send(&mut self) {
        self.tools.metrics.dropped(self.lanes.take_dropped());
        while let Some(next) = self.lanes.pop() {
            let (client, leadership) = (self.tools.client.clone(), self.tools.leadership.clone());
            // A task is aligned more strictly than malloc does by itself. glibc hands out the cut-off
            // remainder before the task is freed (sourceware's bug 30723): its room then fits no other
            // task, and 8 KB were lost with each call. Boxed, the task is small.
            match next {
                Next::Effect(lane, Job { planner, call }) => {
                    let known = self.known_of(call.floor());
                    self.calls.spawn(Box::pin(async move {
                        let report = call.send(&client, &leadership).await;
                        Ended::Effect { planner, lane, report, known }
                    }));
                }
                Next::Event(planner, event) => {
                    let instance = self.tools.instance.clone();
                    self.calls.spawn(Box::pin(async move {
                        let call = event.write(&client, &instance, wall());
                        let call = call::within(call::DEADLINE, call);
                        Ended::Event(planner, if_leading(&leadership, call).await)
                    }));
                }
            }
        }
    }

    fn known_of(&self, floor: Floor) -> Known {
        match floor {
            Floor::None => self.tools.history.known(0),
            Floor::Version(version) => self.tools.history.known(version.0),
            Floor::NewestClaim => self.tools.history.newest_claim(),
        }
    }

    fn on_ended(&mut self, ended: Result<Ended, JoinError>) {
        match unless_cancelled(ended) {
            None => {}
            Some(Ended::Event(planner, result)) => {
                self.lanes.ended(Lane::Event);
                let result = result.as_ref().map_or_else(Failure::label, |()| DONE);
                self.tools.metrics.called(planner, "event", result);
            }
            Some(Ended::Effect { planner, lane, report, known }) => {
                self.lanes.ended(lane);
                self.report(planner, report, known);
            }
        }
    }

    /// Takes in what the answer to a call shows, and reports the call to its planner. An answer from
    /// another history is dropped: everything starts again.
    fn report(&mut self, place: usize, mut report: Done, known: Known) {
        let now = self.now();
        let Some(planner) = self.planners.get(place) else { return };
        // A version that cannot be read proves nothing.
        let found = report.version().filter(|version| *version != Version::default());
        let answered = |found: Version| self.tools.history.answered(report.label(), known, found.0);
        if !found.is_none_or(answered) {
            return;
        }
        report.log(planner.name(), &self.tools.metrics);
        if let Some(seen) = report.take_seen() {
            let changes = self.shared.learn(seen);
            self.tell(&changes);
        }
        if let Some(planner) = self.planners.get_mut(place) {
            let out = planner.reported(self.shared.lend(now), report);
            queue(&mut self.lanes, place, planner.name(), out);
        }
        self.catch_up();
    }

    fn next_due(&self) -> Option<Duration> {
        let planners =
            self.planners.iter().filter(|planner| self.shared.has_listed(planner.kinds()));
        let planned = planners.filter_map(|planner| planner.next_due(&self.shared)).min();
        let planned = planned.filter(|_| self.leading);
        let again = self.shown_at.filter(|_| self.show_again);
        planned.into_iter().chain(again.map(|at| at.saturating_add(SHOW_INTERVAL))).min()
    }

    fn show(&mut self) {
        let uptime = self.began.elapsed();
        self.show_again = self.shown_at.is_some_and(|at| uptime < at.saturating_add(SHOW_INTERVAL));
        if !self.show_again {
            for planner in &self.planners {
                planner.show(&self.shared);
            }
            self.shown_at = Some(uptime);
        }
    }
}

/// A call that waits for its turn, and the place of the planner that asked for it.
struct Job {
    planner: usize,
    call: Box<dyn AnyCall>,
}

/// Queues what a planner asks for.
fn queue(lanes: &mut Lanes<Job>, place: usize, name: &'static str, out: AnyPlan) {
    for call in out.effects {
        lanes.push(call.lane(), call.rank(), Job { planner: place, call });
    }
    for event in out.events {
        lanes.push_event(name, event);
    }
}

/// The result label of a successful call in metrics.
const DONE: &str = "done";

/// Performs a call only if we lead now. Checked right before the write: a process that slept past its
/// lease must not write.
async fn if_leading<A>(
    leadership: &Leadership,
    call: impl Future<Output = Result<A, Failure>>,
) -> Result<A, Failure> {
    if leadership.is_leader() { call.await } else { Err(Failure::NotSent) }
}

/// The result of a call. Its panic is passed on.
fn unless_cancelled<D>(ended: Result<D, JoinError>) -> Option<D> {
    match ended {
        Ok(ended) => Some(ended),
        Err(error) => match error.try_into_panic() {
            Ok(payload) => panic::resume_unwind(payload),
            Err(_) => None,
        },
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where controllers read the clock")]
fn wall() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests;
