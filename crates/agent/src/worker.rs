//! The worker: carries out the plan of a group on one node, and reports what came of it.
//!
//! It watches one `ConfigMap` and at most one Secret. Reports, metrics and watches are tasks of their own, so that an
//! API server that does not answer delays no plan.

mod backoff;
mod carry;
mod check;
mod confirm;
mod device;
mod farewell;
mod follow;
mod history;
mod listener;
mod metrics;
mod netlink;
mod owned;
mod pages;
mod passwords;
mod peers;
mod plan_source;
mod report;
mod round;
#[cfg(test)]
mod samples;
mod silence;
mod throttle;
mod track;
mod view;

use std::{
    io,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::Router;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use landfall_vrrp::PasswordFrom;
use tokio::{sync::watch, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::{
    backoff::Backoff,
    check::Keepalived,
    follow::Seen,
    netlink::Changes,
    report::Reporter,
    round::Rounds,
    view::{Health, View},
};
pub use self::{
    metrics::{Description, descriptions},
    plan_source::PLAN_KEY,
};
use crate::RunDir;

/// How long the last report may take.
const LAST_REPORT_DEADLINE: Duration = Duration::from_secs(2);

/// What a worker needs to know.
#[derive(Clone)]
pub struct Settings {
    pub client: Client,
    /// The namespace of the group.
    pub namespace: String,
    pub group: String,
    /// The name of this node.
    pub node: String,
    pub run_dir: RunDir,
    /// keepalived's program file.
    pub keepalived: PathBuf,
}

/// Why a worker cannot work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("using the folder of the agent: {0}")]
    RunDir(String),
    #[error("listening to changes of the network")]
    Network(#[source] io::Error),
    #[error("a task of the worker ended")]
    TaskEnded,
}

/// A worker that does not run yet.
#[derive(Debug)]
pub struct Worker {
    run_dir: RunDir,
    rounds: Rounds,
    reporter: Reporter,
    plans: Followed<ConfigMap>,
    secrets: Api<Secret>,
    views: watch::Sender<View>,
}

#[derive(Debug)]
struct Followed<K> {
    api: Api<K>,
    name: String,
}

impl Worker {
    /// Reads what the last one left behind. The pages are health, readiness and metrics.
    pub fn new(settings: Settings) -> Result<(Self, Router), Error> {
        let Settings { client, namespace, group, node, run_dir, keepalived } = settings;
        let full_name = format!("{namespace}/{group}");
        let keepalived = Keepalived::new(keepalived);
        let rounds = Rounds::new(full_name, node.clone(), &run_dir, keepalived)
            .map_err(|trouble| Error::RunDir(trouble.to_string()))?;
        let (views, view) = watch::channel(View::default());
        let plans =
            Followed { api: Api::namespaced(client.clone(), &namespace), name: group.clone() };
        let secrets = Api::namespaced(client.clone(), &namespace);
        let api = Api::namespaced(client, &namespace);
        let reporter = Reporter { api, group, node, is_gone: Arc::default() };
        Ok((Self { run_dir, rounds, reporter, plans, secrets, views }, pages::router(view)))
    }

    /// Runs until `stop`, and then reports once more what the keeper answers.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let Self { run_dir, rounds, reporter, plans, secrets, views } = self;
        let (view, is_gone) = (views.subscribe(), Arc::clone(&reporter.is_gone));
        let changes = Changes::open().map_err(Error::Network)?;
        let backoff = Backoff::new(&reporter.node);
        let (plans_in, plan) = watch::channel(Seen::Unknown);
        let (secrets_in, secret) = watch::channel(Seen::Unknown);
        let (sources, source) = watch::channel(None);
        let (mut tasks, mut reports) = (JoinSet::new(), JoinSet::new());
        // It ends when the rounds have ended and their last view is reported.
        reports.spawn(reporter.run(views.subscribe()));
        tasks.spawn(async move {
            follow::follow(plans.api, &plans.name, &plans_in, backoff).await;
        });
        tasks.spawn(follow_secret(secrets, source, secrets_in, backoff));
        let inputs = round::Inputs { plan, secret, changes };
        tasks.spawn(rounds.run(inputs, sources, views, stop.clone()));
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => {
                if timeout(LAST_REPORT_DEADLINE, reports.join_next()).await.is_err() {
                    warn!("the end of this agent could not be reported in time");
                }
                forget_if_left(&run_dir, &view.borrow(), is_gone.load(Ordering::Relaxed));
                return Ok(());
            }
            ended = tasks.join_next() => ended,
            ended = reports.join_next() => ended,
        };
        match ended {
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Some(_) | None => Err(Error::TaskEnded),
        }
    }
}

/// Removes plan and passwords from the disk of a node that is no longer in the group, or whose group is gone. Else
/// the next agent needs them.
fn forget_if_left(run_dir: &RunDir, view: &View, is_gone: bool) {
    let is_stopped = matches!(view.keepalived, Health::Down(_) | Health::NotNeeded);
    if !is_stopped || !(view.is_left_out || is_gone) {
        return;
    }
    match run_dir.forget() {
        Ok(()) => info!("nothing of the plan is left on this node"),
        Err(error) => warn!(%error, "passwords may be left on this node"),
    }
}

/// Follows the Secret that the plan names, and none if it names none.
async fn follow_secret(
    api: Api<Secret>,
    mut source: watch::Receiver<Option<PasswordFrom>>,
    news: watch::Sender<Seen<Secret>>,
    backoff: Backoff,
) {
    loop {
        let name = source.borrow_and_update().as_ref().map(|source| source.secret.clone());
        let following = async {
            match &name {
                Some(name) => follow::follow(api.clone(), name, &news, backoff).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = following => {}
            changed = source.changed() => if changed.is_err() { return },
        }
    }
}
