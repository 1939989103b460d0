//! `landfall operator`: builds the parts and connects them; decides nothing.

use std::convert::Infallible;
use std::io;
use std::path::Path;

use futures::StreamExt as _;
use jiff::Timestamp;
use landfall_controllers::blind::Checks;
use landfall_controllers::history::{self, History};
use landfall_controllers::leadership::{Leadership, leadership};
use landfall_controllers::readiness::Readiness;
use landfall_controllers::services::RepairMode;
use landfall_controllers::{Context, Controllers, Metrics, keepalived, services};
use prometheus_client::registry::Registry;
use tracing::{info, warn};

use crate::admin::{self, Admin};
use crate::args::{Controller, InheritedSharing, Operator, Repair};
use crate::client::{self, Cluster};
use crate::elector::{self, Candidate, Elector, Identity, KubeLeases, Timing};
use crate::metrics;
use crate::supervise::{self, Failure, Stage, Supervisor};

/// The namespace of the lease if none is named.
const OWN_NAMESPACE: &str = "landfall-system";

/// Why the operator did not start, or ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("connecting to the cluster")]
    Client(#[from] client::Error),
    #[error("starting the admin server")]
    Admin(#[from] admin::Error),
    #[error("listening for signals")]
    Signals(#[source] io::Error),
    #[error("running the operator")]
    Task(#[from] Failure),
}

impl Error {
    /// The most likely fix, if one is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Client(error) => Some(error.hint()),
            Self::Admin(admin::Error::Bind { .. }) => Some("choose another with --admin-addr"),
            Self::Signals(_) | Self::Task(_) => None,
        }
    }
}

/// Runs until a signal, or until a part of it fails.
pub async fn run(kubeconfig: Option<&Path>, args: &Operator, timing: Timing) -> Result<(), Error> {
    // First, so that a signal during the start is not lost.
    let signals = supervise::signals().map_err(Error::Signals)?;
    let ignored = &args.original.ignored.0;
    if !ignored.is_empty() {
        warn!(flags = ignored.join(","), "flags of kube-vip-cloud-provider have no effect here");
    }
    let cluster = Cluster::load(kubeconfig).await?;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        server = cluster.url(),
        origin = cluster.origin(),
        controllers = ?args.controllers,
        "starting"
    );
    let admin = Admin::bind(args.admin_addr).await?;

    let mut supervisor = Supervisor::default();
    let mut registry = Registry::default();
    let checks = Checks::register(args.watch_check_interval, &mut registry);
    let (readiness, history) = (Readiness::checking(checks), History::default());
    let leadership = if args.leader_elect {
        elect(&mut supervisor, &cluster, args, timing, &history)?
    } else {
        Leadership::always()
    };
    let every = (!args.leader_elect).then_some(history::PROBE_INTERVAL);
    let (client, probed, watches) = (cluster.client()?, history.clone(), readiness.clone());
    supervisor.add(Stage::Lease, "history", async move |stop| {
        history::probe(client, probed, watches, every, stop).await;
        Ok::<_, Infallible>(())
    });
    metrics::register(&mut registry, &leadership, &history);
    let context = Context {
        client: cluster.client()?,
        leadership,
        readiness: readiness.clone(),
        history: history.clone(),
        instance: elector::process_name(wall()).into(),
        metrics: Metrics::register(&mut registry),
    };
    let metrics = args
        .controllers
        .contains(&Controller::Services)
        .then(|| services::Metrics::register(&mut registry, &context.leadership));
    supervisor.add(Stage::Admin, "admin", {
        let readiness = readiness.clone();
        async |stop| {
            admin.serve(readiness, registry, stop).await;
            Ok::<_, Infallible>(())
        }
    });
    let afresh = history.went_back().map(|()| readiness.restart());
    let begin = |supervisor: &mut Supervisor| {
        begin_work(supervisor, &context, args, metrics.as_ref());
        readiness.seal();
    };
    supervisor.run(signals, afresh, begin).await?;
    info!("stopped");
    Ok(())
}

/// Starts all controllers, with empty memory.
fn begin_work(
    supervisor: &mut Supervisor,
    context: &Context,
    args: &Operator,
    metrics: Option<&services::Metrics>,
) {
    let migrates = args.controllers.contains(&Controller::Migration);
    let controllers = Controllers {
        services: metrics.map(|metrics| (settings(args), metrics.since_now())),
        migration: migrates.then_some(args.orphan_grace),
        keepalived: args
            .controllers
            .contains(&Controller::Keepalived)
            .then(|| keepalived::Pods { image: args.agent_image.clone() }),
    };
    supervisor.add(Stage::Work, "controllers", |stop| {
        // Boxed: all watches together make a large future.
        let run = Box::pin(landfall_controllers::run(context, controllers, stop));
        async {
            run.await;
            Ok::<_, Infallible>(())
        }
    });
}

fn settings(args: &Operator) -> services::Settings {
    services::Settings {
        orphan_grace: args.orphan_grace,
        repair: match args.repair {
            Repair::Fix => RepairMode::Fix,
            Repair::Report => RepairMode::Report,
        },
        kube_vip: args.kube_vip(),
        tenancy: services::Tenancy {
            hide_holders: args.hide_holders,
            inherited_keys_share_everywhere: args.inherited_sharing
                == InheritedSharing::EveryNamespace,
        },
    }
}

/// Enters the election for the lease.
fn elect(
    supervisor: &mut Supervisor,
    cluster: &Cluster,
    args: &Operator,
    timing: Timing,
    history: &History,
) -> Result<Leadership, client::Error> {
    let client = cluster.client()?;
    let lease = &args.lease_name;
    let named = args.namespace.as_deref().or_else(|| cluster.namespace());
    let leases = match named {
        Some(namespace) => KubeLeases::new(client, namespace, lease),
        None => KubeLeases::in_own_namespace(client, OWN_NAMESPACE, lease),
    };
    let leases = leases.telling(history.clone());
    let identity = Identity::new(args.pod_uid.as_deref(), wall());
    let name = identity.name();
    info!(
        identity = name,
        namespace = named.unwrap_or(OWN_NAMESPACE),
        lease,
        "standing for election"
    );
    let candidate = Candidate::new(identity, timing);
    let (setter, leadership) = leadership();
    let elector = Elector::new(leases, candidate, setter, wall);
    supervisor.add(Stage::Lease, "lease", async |stop| {
        elector.run(stop).await;
        Ok::<_, Infallible>(())
    });
    Ok(leadership)
}

#[expect(clippy::disallowed_methods, reason = "the lease tells people when it was taken")]
fn wall() -> Timestamp {
    Timestamp::now()
}
