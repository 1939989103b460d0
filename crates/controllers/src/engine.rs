//! The loop that runs every planner: takes news and reports in, and sends effects out.
//!
//! One task plans, because everything that must agree is decided in one place; the calls that a planner
//! asks for run concurrently. The engine handles each effect: its turn, its deadline, the check whether
//! we lead, the log and the metrics. A planner only plans.

use std::{future::Future, panic, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::Client;
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

pub(crate) use self::lanes::Lane;
use self::lanes::{Lanes, Next};
pub use self::metrics::Metrics;
use crate::{
    call::{self, Failure},
    event::Event,
    history::{History, Known},
    leadership::Leadership,
    object::Version,
};

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

/// The two clocks of a plan: one for people, one that never jumps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub wall: Timestamp,
    /// Time since the process started.
    pub uptime: Duration,
}

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

/// Decides and does nothing else. The engine performs its effects.
pub(crate) trait Planner {
    /// The planner's name in the log and in metrics.
    const NAME: &'static str;
    type News;
    type Effect: Call;

    /// Takes in an event of a watch.
    fn on_news(&mut self, news: Self::News);
    /// Takes in the report of an effect.
    fn on_report(&mut self, report: Report<Self::Effect>, now: Now, out: &mut Plan<Self::Effect>);
    /// Decides about everything again, as after gaining leadership.
    fn reconsider_all(&mut self);
    /// Decides what to do. Called only while we lead.
    fn plan(&mut self, now: Now, out: &mut Plan<Self::Effect>);
    /// The uptime at which there is something to decide even without news.
    fn next_due(&self) -> Option<Duration>;
    /// Updates the gauges. Called now and then, not after every step of a burst.
    fn show(&self) {}
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

/// Runs until `stop`, or until all sources of news have ended.
pub(crate) async fn run<P: Planner>(
    planner: P,
    tools: Tools,
    mut news: mpsc::Receiver<P::News>,
    stop: CancellationToken,
) {
    let mut leadership = tools.leadership.clone();
    let mut engine = Engine::new(planner, tools);
    let mut batch = Vec::new();
    loop {
        let due =
            engine.next_due().map_or_else(|| Instant::now() + FAR_OFF, |at| engine.began + at);
        tokio::select! {
            () = stop.cancelled() => break,
            () = leadership.changed() => engine.leads(leadership.is_leader()),
            Some(ended) = engine.calls.join_next() => engine.on_ended(ended),
            count = news.recv_many(&mut batch, NEWS) => {
                if count == 0 {
                    break;
                }
                for item in batch.drain(..) {
                    engine.planner.on_news(item);
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
enum Ended<E: Call> {
    Effect {
        lane: Lane,
        report: Report<E>,
        /// What was known of its object when it was sent.
        known: Known,
    },
    Event(Result<(), Failure>),
}

struct Engine<P: Planner> {
    planner: P,
    tools: Tools,
    lanes: Lanes<P::Effect>,
    calls: JoinSet<Ended<P::Effect>>,
    began: Instant,
    leading: bool,
    /// When the planner last updated its gauges, and whether it must do so again.
    shown_at: Option<Duration>,
    show_again: bool,
}

impl<P: Planner> Engine<P> {
    fn new(planner: P, tools: Tools) -> Self {
        Self {
            planner,
            leading: tools.leadership.is_leader(),
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

    fn leads(&mut self, leading: bool) {
        self.leading = leading;
        if leading {
            info!(controller = P::NAME, "leading: planning begins");
            self.planner.reconsider_all();
        } else {
            info!(controller = P::NAME, "standing by: planning ends");
        }
    }

    fn plan(&mut self) {
        let began = Instant::now();
        let mut out = Plan::default();
        self.planner.plan(self.now(), &mut out);
        self.tools.metrics.planned(P::NAME, began.elapsed());
        if !out.effects.is_empty() {
            debug!(controller = P::NAME, effects = out.effects.len(), "planned");
        }
        self.queue(out);
    }

    fn queue(&mut self, out: Plan<P::Effect>) {
        for effect in out.effects {
            self.lanes.push(effect.lane(), effect.rank(), effect);
        }
        for event in out.events {
            self.lanes.push_event(event);
        }
        self.tools.metrics.dropped(self.lanes.take_dropped());
    }

    /// Sends as many waiting effects as may be in flight.
    fn send(&mut self) {
        while let Some(next) = self.lanes.pop() {
            let (client, leadership) = (self.tools.client.clone(), self.tools.leadership.clone());
            // A task is aligned more strictly than malloc does by itself. glibc hands out the cut-off
            // remainder before the task is freed (sourceware's bug 30723): its room then fits no other
            // task, and 8 KB were lost with each call. Boxed, the task is small.
            match next {
                Next::Effect(lane, effect) => {
                    let known = self.known_of(&effect);
                    self.calls.spawn(Box::pin(async move {
                        let call = call::within(effect.deadline(), effect.perform(&client));
                        let result = if_leading(&leadership, call).await;
                        Ended::Effect { lane, report: Report { effect, result }, known }
                    }));
                }
                Next::Event(event) => {
                    let instance = self.tools.instance.clone();
                    self.calls.spawn(Box::pin(async move {
                        let call = event.write(&client, &instance, wall());
                        let call = call::within(call::DEADLINE, call);
                        Ended::Event(if_leading(&leadership, call).await)
                    }));
                }
            }
        }
    }

    fn known_of(&self, effect: &P::Effect) -> Known {
        match effect.floor() {
            Floor::None => self.tools.history.known(0),
            Floor::Version(version) => self.tools.history.known(version.0),
            Floor::NewestClaim => self.tools.history.newest_claim(),
        }
    }

    fn on_ended(&mut self, ended: Result<Ended<P::Effect>, JoinError>) {
        match unless_cancelled(ended) {
            None => {}
            Some(Ended::Event(result)) => {
                self.lanes.ended(Lane::Event);
                let result = result.as_ref().map_or_else(Failure::label, |()| DONE);
                self.tools.metrics.called(P::NAME, "event", result);
            }
            Some(Ended::Effect { lane, report, known }) => {
                self.lanes.ended(lane);
                if self.is_of_this_history(&report, known) {
                    self.log(&report);
                    let mut out = Plan::default();
                    self.planner.on_report(report, self.now(), &mut out);
                    self.queue(out);
                }
            }
        }
    }

    /// Whether an answer belongs to the known history. If not, everything starts again.
    fn is_of_this_history(&self, report: &Report<P::Effect>, known: Known) -> bool {
        let Ok(answer) = &report.result else { return true };
        let found = report.effect.version_of(answer);
        // A version that cannot be read proves nothing.
        let found = found.filter(|version| *version != Version::default());
        let history = &self.tools.history;
        found.is_none_or(|found| history.answered(report.effect.label(), known, found.0))
    }

    fn log(&self, report: &Report<P::Effect>) {
        let (controller, effect) = (P::NAME, report.effect.label());
        let result = report.result.as_ref().map_or_else(Failure::label, |_| DONE);
        self.tools.metrics.called(controller, effect, result);
        let object = report.effect.object();
        match &report.result {
            Ok(_) if report.effect.matters_to_users() => info!(controller, effect, object, "done"),
            Ok(_) => debug!(controller, effect, object, "done"),
            Err(
                Failure::Refused(message) | Failure::Blocked(message) | Failure::Unknown(message),
            ) => {
                warn!(controller, effect, object, message, "a call failed");
            }
            Err(failure) => debug!(controller, effect, object, ?failure, "a call did not hold"),
        }
    }

    fn next_due(&self) -> Option<Duration> {
        let planned = self.planner.next_due().filter(|_| self.leading);
        let again = self.shown_at.filter(|_| self.show_again);
        planned.into_iter().chain(again.map(|at| at.saturating_add(SHOW_INTERVAL))).min()
    }

    fn show(&mut self) {
        let uptime = self.began.elapsed();
        self.show_again = self.shown_at.is_some_and(|at| uptime < at.saturating_add(SHOW_INTERVAL));
        if !self.show_again {
            self.planner.show();
            self.shown_at = Some(uptime);
        }
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
