//! Runs the tasks of this process and ends them in order; the only place that spawns.
//!
//! A task that dies alone would leave an operator that looks alive and does half of its work. So the first
//! task that ends without being asked ends the process, and the kubelet starts it again. If everything the
//! work remembers has become wrong, only the work is ended and begun again: the lease is kept, and the admin
//! port answers the whole time.

use std::any::Any;
use std::error::Error as StdError;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures::stream::{self, Stream, StreamExt as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::report;

type BoxError = Box<dyn StdError + Send + Sync>;

/// How long an aborted task may take to notice.
const ABORT_GRACE: Duration = Duration::from_secs(1);

/// When a task is stopped: the stages end one after the other, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// All tasks that plan and apply.
    Work,
    /// The lease: released only when no work is left, because then the next leader begins.
    Lease,
    /// Health and metrics, so that the whole stop can be observed.
    Admin,
}

impl Stage {
    const ALL: [Self; 3] = [Self::Work, Self::Lease, Self::Admin];

    /// How long a task may take to end by itself; together well below the kubelet's 30 s.
    fn grace(self) -> Duration {
        match self {
            Self::Work | Self::Lease => Duration::from_secs(5),
            Self::Admin => Duration::from_secs(1),
        }
    }
}

/// Why the process ends other than by a graceful stop.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("task {task} ended without being asked to")]
    Ended { task: &'static str },
    #[error("task {task} failed")]
    Failed { task: &'static str, source: BoxError },
    #[error("task {task} panicked: {message}")]
    Panicked { task: &'static str, message: String },
    #[error("a second signal, {signal}, ended the graceful stop")]
    Aborted { signal: &'static str },
}

struct Running {
    id: Id,
    stage: Stage,
    name: &'static str,
    handle: AbortHandle,
}

/// All tasks of the process.
#[derive(Default)]
pub struct Supervisor {
    tasks: JoinSet<Result<(), BoxError>>,
    running: Vec<Running>,
    stops: [CancellationToken; Stage::ALL.len()],
}

impl Supervisor {
    /// Starts a task, which gets the token that tells it to end.
    ///
    /// Tasks of one stage share their token and end together.
    pub fn add<F, E>(
        &mut self,
        stage: Stage,
        name: &'static str,
        task: impl FnOnce(CancellationToken) -> F,
    ) where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let task = task(self.stop(stage).clone());
        let handle = self.tasks.spawn(async { task.await.map_err(Into::into) });
        self.running.push(Running { id: handle.id(), stage, name, handle });
    }

    /// Runs until a signal or the first task that ends by itself, then stops the rest in order.
    ///
    /// `begin` adds the tasks of [`Stage::Work`], at the start and each time that `afresh` says so, after all
    /// earlier ones have ended. A second signal ends everything at once.
    pub async fn run(
        mut self,
        mut signals: impl Stream<Item = &'static str> + Unpin,
        afresh: impl Stream<Item = ()>,
        mut begin: impl FnMut(&mut Self),
    ) -> Result<(), Failure> {
        let mut afresh = pin!(afresh);
        begin(&mut self);
        let cause = loop {
            tokio::select! {
                signal = next(&mut signals) => {
                    info!(signal, "stopping");
                    break None;
                }
                (task, end) = self.ended() => {
                    let failure = end.unwrap_or(Failure::Ended { task });
                    error!(cause = report::chain(&failure), "stopping");
                    break Some(failure);
                }
                Some(()) = afresh.next() => {}
            }
            info!("ending all work, to begin afresh");
            let restarted = tokio::select! {
                biased;
                signal = next(&mut signals) => {
                    info!(signal, "stopping");
                    break None;
                }
                restarted = self.end_work() => restarted,
            };
            if let Err(failure) = restarted {
                error!(cause = report::chain(&failure), "stopping");
                break Some(failure);
            }
            begin(&mut self);
        };
        let stopped = tokio::select! {
            biased;
            signal = next(&mut signals) => Err(Failure::Aborted { signal }),
            stopped = self.stop_all() => stopped,
        };
        // The cause of the stop says more than an error during it.
        cause.map_or(stopped, Err)
    }

    fn stop(&self, stage: Stage) -> &CancellationToken {
        let [work, lease, admin] = &self.stops;
        match stage {
            Stage::Work => work,
            Stage::Lease => lease,
            Stage::Admin => admin,
        }
    }

    async fn stop_all(&mut self) -> Result<(), Failure> {
        let mut first = Ok(());
        for stage in Stage::ALL {
            first = first.and(self.stop_stage(stage).await);
        }
        first
    }

    /// Ends the tasks of one stage, and returns the first error on the way.
    async fn stop_stage(&mut self, stage: Stage) -> Result<(), Failure> {
        let mut first = Ok(());
        self.stop(stage).cancel();
        let mut until = Instant::now() + stage.grace();
        let mut aborted = false;
        while self.running.iter().any(|task| task.stage == stage) {
            match timeout_at(until, self.ended()).await {
                Ok((task, None)) => debug!(task, "task ended"),
                Ok((_, Some(failure))) => {
                    error!(cause = report::chain(&failure), "while stopping");
                    first = first.and(Err(failure));
                }
                // The task does not even yield; its writes are guarded, and we have to end.
                Err(_) if aborted => break,
                Err(_) => {
                    for task in self.running.iter().filter(|task| task.stage == stage) {
                        warn!(task = task.name, "not ended in time, aborting it");
                        task.handle.abort();
                    }
                    until = Instant::now() + ABORT_GRACE;
                    aborted = true;
                }
            }
        }
        self.running.retain(|task| task.stage != stage);
        first
    }

    /// Ends all work, so that it can begin again. Any other task that ends meanwhile was not asked to.
    async fn end_work(&mut self) -> Result<(), Failure> {
        let others = self.running.iter().filter(|task| task.stage != Stage::Work);
        let others: Vec<_> = others.map(|task| (task.id, task.name)).collect();
        self.stop_stage(Stage::Work).await?;
        let runs = |id: Id| self.running.iter().any(|task| task.id == id);
        if let Some((_, task)) = others.into_iter().find(|(id, _)| !runs(*id)) {
            return Err(Failure::Ended { task });
        }
        let [work, ..] = &mut self.stops;
        *work = CancellationToken::new();
        Ok(())
    }

    /// The next task that ends, and its error; waits for ever if there is none.
    async fn ended(&mut self) -> (&'static str, Option<Failure>) {
        loop {
            let Some(joined) = self.tasks.join_next_with_id().await else {
                return std::future::pending().await;
            };
            let id = joined.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
            let Some(at) = self.running.iter().position(|task| task.id == id) else { continue };
            let task = self.running.swap_remove(at).name;
            let failure = match joined {
                Ok((_, Ok(()))) => None,
                Ok((_, Err(source))) => Some(Failure::Failed { task, source }),
                Err(error) => error.try_into_panic().ok().map(|payload| Failure::Panicked {
                    task,
                    message: panic_message(payload.as_ref()),
                }),
            };
            return (task, failure);
        }
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
        .to_owned()
}

async fn next(signals: &mut (impl Stream<Item = &'static str> + Unpin)) -> &'static str {
    match signals.next().await {
        Some(signal) => signal,
        None => std::future::pending().await,
    }
}

/// The signals that end the process gracefully; from now on they no longer kill it.
pub fn signals() -> io::Result<impl Stream<Item = &'static str> + Unpin> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(stream::poll_fn(move |context| {
        if terminate.poll_recv(context).is_ready() {
            return Poll::Ready(Some("SIGTERM"));
        }
        interrupt.poll_recv(context).map(|_| Some("SIGINT"))
    }))
}

#[cfg(test)]
mod tests;
