//! `landfall agent-worker`: builds the worker of the agent and serves its pages; decides nothing.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use futures::stream;
use landfall_agent::RunDir;
use landfall_agent::worker::{self, Settings, Worker};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::admin::Admin;
use crate::agent::KEEPALIVED;
use crate::args::Agent;
use crate::client::{self, Cluster};
use crate::report;
use crate::supervise::{self, Failure, Stage, Supervisor};

/// How long to wait for a port that another program has: that of a replaced agent, for a moment.
const PORT_INTERVAL: Duration = Duration::from_secs(2);

/// Why the worker did not start, or ended with an error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("connecting to the cluster")]
    Client(#[from] client::Error),
    #[error("preparing the worker")]
    Worker(#[from] worker::Error),
    #[error("listening for signals")]
    Signals(#[source] io::Error),
    #[error("running the worker")]
    Task(#[from] Failure),
}

impl Error {
    /// The most likely fix, if one is known.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Client(error) => Some(error.hint()),
            Self::Worker(_) | Self::Signals(_) | Self::Task(_) => None,
        }
    }
}

/// Runs until a signal.
pub(crate) async fn run(kubeconfig: Option<&Path>, args: &Agent) -> Result<(), Error> {
    let signals = supervise::signals().map_err(Error::Signals)?;
    let cluster = Cluster::load(kubeconfig).await?;
    info!(server = cluster.url(), origin = cluster.origin(), "the worker starts");
    let (namespace, group) = args.group.split_once('/').unwrap_or(("", &args.group));
    let settings = Settings {
        client: cluster.client()?,
        namespace: namespace.to_owned(),
        group: group.to_owned(),
        node: args.node.clone(),
        run_dir: RunDir::new(&args.run_dir),
        keepalived: KEEPALIVED.into(),
    };
    let (worker, pages) = Worker::new(settings)?;
    let mut supervisor = Supervisor::default();
    supervisor.add(Stage::Work, "worker", async move |stop| worker.run(stop).await);
    let addr = args.metrics_addr;
    supervisor.add(Stage::Admin, "pages", async move |stop| {
        serve(addr, pages, stop).await;
        Ok::<_, Infallible>(())
    });
    supervisor.run(signals, stream::pending(), |_| {}).await?;
    Ok(())
}

/// Serves the pages as soon as the port is free. Addresses are more important than pages about them.
async fn serve(addr: SocketAddr, pages: Router, stop: CancellationToken) {
    loop {
        match Admin::bind(addr).await {
            Ok(admin) => return admin.serve_pages(pages, stop).await,
            Err(error) => warn!(cause = report::chain(&error), "there are no metrics yet"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(PORT_INTERVAL) => {}
        }
    }
}
