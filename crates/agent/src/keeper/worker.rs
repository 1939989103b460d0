//! Keeps the worker running.

use std::{ffi::OsString, time::Duration};

use rustix::process::Signal;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tracing::{error, info, warn};

use super::{backoff::Backoff, launch, process::Process, stopped};

const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
const SETTLED: Duration = Duration::from_mins(1);
/// How long it may take to end when it is told to.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// Starts it again whenever it ends, until the agent is to stop.
pub(super) async fn keep(line: &[OsString], mut stop: watch::Receiver<bool>) {
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT, SETTLED);
    loop {
        let begun = Instant::now();
        match launch::spawn(line) {
            Ok(worker) => {
                info!(pid = worker.id(), "the worker was started");
                tokio::select! {
                    () = worker.ended() => {}
                    () = stopped(&mut stop) => return end(&worker).await,
                }
                warn!(pid = worker.id(), "the worker has ended");
            }
            Err(error) => error!(%error, "the worker cannot be started"),
        }
        tokio::select! {
            () = sleep(backoff.after(begun.elapsed())) => {}
            () = stopped(&mut stop) => return,
        }
    }
}

async fn end(worker: &Process) {
    let asked = worker.signal(Signal::TERM);
    if asked.is_err() || !worker.ends_within(STOP_DEADLINE).await {
        warn!("the worker does not end, and is killed");
        if let Err(error) = worker.kill().await {
            error!(%error, "the worker cannot be killed");
        }
    }
}
