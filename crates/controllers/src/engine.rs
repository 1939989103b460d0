//! The loop that every controller runs: news in, effects out, reports in.
//!
//! One task plans, because everything that must agree is decided in one place; the calls it asks for
//! run side by side.

use std::{panic, time::Duration};

use jiff::Timestamp;
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{leadership::Leadership, services::effect::Failure};

/// News the watches may run ahead of the planner.
pub(crate) const NEWS: usize = 1024;
/// How long calls may take to end once we are told to stop.
const STOP_GRACE: Duration = Duration::from_secs(4);
/// A time that never comes while the process runs: when it does, the loop merely goes round once.
const FAR_OFF: Duration = Duration::from_hours(1);

/// The two clocks a plan needs: one for what people read, one that never jumps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub wall: Timestamp,
    /// Time since the process began.
    pub uptime: Duration,
}

/// What an engine drives: a planner and how its effects are done.
pub(crate) trait Work {
    /// Its name in the log.
    const NAME: &'static str;
    type News;
    /// What a call comes back with.
    type Done: Send + 'static;

    fn on_news(&mut self, news: Self::News);
    fn on_done(&mut self, done: Self::Done, now: Now);
    /// Looks at everything anew, as after gaining leadership.
    fn reconsider_all(&mut self);
    /// Decides what to do. Only asked while we lead.
    fn plan(&mut self, now: Now);
    /// Sends of what was decided as much as may be under way at once.
    fn start(&mut self, calls: &mut Calls<Self::Done>);
    /// The uptime at which there is something to do even if nothing happens.
    fn next_due(&self, leading: bool) -> Option<Duration>;
    /// A round is over.
    fn show(&mut self, _uptime: Duration) {}
}

/// Calls under way.
pub(crate) struct Calls<D> {
    set: JoinSet<D>,
    leadership: Leadership,
}

impl<D: Send + 'static> Calls<D> {
    pub(crate) fn len(&self) -> usize {
        self.set.len()
    }

    /// Begins a call. It is given what tells whether we lead, for [`if_leading`].
    pub(crate) fn send<F>(&mut self, call: impl FnOnce(Leadership) -> F)
    where
        F: Future<Output = D> + Send + 'static,
    {
        // A task is aligned to more than malloc gives by itself, and what glibc cuts off for that is
        // taken before a large one is given back (sourceware's bug 30723): its room then fits no
        // other, and 8 KB were lost with each call.
        self.set.spawn(Box::pin(call(self.leadership.clone())));
    }
}

/// Does a call only if we lead now. Asked at the write itself: a process that slept past its lease
/// must not write.
pub(crate) async fn if_leading<A>(
    leadership: &Leadership,
    call: impl Future<Output = Result<A, Failure>>,
) -> Result<A, Failure> {
    if leadership.is_leader() { call.await } else { Err(Failure::NotSent) }
}

/// Works until `stop`, or until nobody tells any news any more.
pub(crate) async fn run<W: Work>(
    mut work: W,
    mut leadership: Leadership,
    mut news: mpsc::Receiver<W::News>,
    stop: CancellationToken,
) {
    let began = Instant::now();
    let now = || Now { wall: wall(), uptime: began.elapsed() };
    let mut leading = leadership.is_leader();
    let mut calls = Calls { set: JoinSet::new(), leadership: leadership.clone() };
    let mut batch = Vec::new();
    loop {
        let due =
            work.next_due(leading).map_or_else(|| Instant::now() + FAR_OFF, |due| began + due);
        tokio::select! {
            () = stop.cancelled() => break,
            () = leadership.changed() => {
                leading = leadership.is_leader();
                if leading {
                    info!(controller = W::NAME, "leading: planning begins");
                    work.reconsider_all();
                } else {
                    info!(controller = W::NAME, "standing by: planning ends");
                }
            }
            Some(done) = calls.set.join_next() => {
                if let Some(done) = unless_cancelled(done) {
                    work.on_done(done, now());
                }
            }
            count = news.recv_many(&mut batch, NEWS) => {
                if count == 0 {
                    break;
                }
                for item in batch.drain(..) {
                    work.on_news(item);
                }
            }
            () = sleep_until(due) => {}
        }
        if leading && leadership.is_leader() {
            work.plan(now());
        }
        work.start(&mut calls);
        work.show(began.elapsed());
    }
    // A write whose answer we throw away costs the next leader a look.
    let until = Instant::now() + STOP_GRACE;
    while let Ok(Some(_)) = timeout_at(until, calls.set.join_next()).await {}
}

/// What a call came back with. Its panic is ours.
fn unless_cancelled<D>(done: Result<D, JoinError>) -> Option<D> {
    match done {
        Ok(done) => Some(done),
        Err(error) => match error.try_into_panic() {
            Ok(payload) => panic::resume_unwind(payload),
            Err(_) => None,
        },
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where controllers read the clock")]
pub(crate) fn wall() -> Timestamp {
    Timestamp::now()
}
