//! The demo on a cluster that is there already.
//!
//! Others use it, so the demo keeps to itself. Its pools serve only its own namespaces and a class that
//! no other allocator serves. Its operator runs under an account that can write nothing else, and not at
//! all where an operator leads already. Nothing is created unless all names and addresses are free, and
//! only the created objects are removed at the end.

mod account;
mod check;
mod journal;
mod lease;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use landfall::report;
use landfall_api::keys::LABEL_IPGROUP;
use landfall_api::{IP, IPGroup};
use landfall_testkit::control_plane::client_from;
use landfall_testkit::{Operator, wait};
use tokio::time::{sleep_until, timeout};

use super::samples::{self, Seal, is, names};
use super::show::Show;
use super::watch::{self, Scope};
use super::{Args, DEADLINE, End, NEW_KIND, Signals, build_operator};
use crate::output::{Output, seconds};
use journal::Journal;

/// Before the names of all that the demo creates outside of its namespaces.
const PREFIX: &str = "landfall-demo-";
/// Where the demo's operator has its account and its lease.
const SYSTEM: &str = "landfall-demo-system";
/// The `loadBalancerClass` of the samples.
const CLASS: &str = "landfall.dev/demo";
/// On everything that a demo created, with a value of its own for each run.
const LABEL: &str = "landfall.dev/demo";
/// How long the API server may take for one answer.
const CALL_DEADLINE: Duration = Duration::from_secs(15);
/// How long an operator may take to release the claims of Services that are gone.
const RELEASE_DEADLINE: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Client(#[from] landfall::client::Error),
    #[error("cannot reach {url}, the cluster of {}", file.display())]
    Unreachable { url: String, file: PathBuf, source: Box<kube::Error> },
    #[error("no answer from {url}, the cluster of {}, in {}", file.display(), seconds(CALL_DEADLINE))]
    Silent { url: String, file: PathBuf },
    #[error("Landfall needs Kubernetes 1.33 or newer, and this cluster has {0}")]
    TooOld(String),
    #[error("{what}")]
    Call { what: String, source: Box<kube::Error> },
    #[error("creating {what}")]
    Create { what: String, source: Box<kube::Error> },
    #[error("creating {what}: no answer in {}", seconds(CALL_DEADLINE))]
    CreateLate { what: String },
    #[error("{0} has no kind")]
    NoKind(String),
    #[error("writing the objects of the demo")]
    Object(#[from] serde_json::Error),
    #[error(
        "nothing was created, because the cluster has objects of these names already: {}\n\
         Another demo may be running; it removes its objects when it ends. What a killed one left \
         goes with\n  \
         kubectl delete namespaces,ipgroups,clusterroles,clusterrolebindings -l {LABEL}\n  \
         kubectl delete ips -l '{}'",
        found.join(", "),
        claims_of(pools)
    )]
    NamesTaken { found: Vec<String>, pools: Vec<String> },
    #[error(
        "nothing was created, because the kind {name} of this cluster has no {fields}: it comes from \
         an older release or from another program. Use another cluster, or update it with \
         `kubectl apply -f deploy/crds`"
    )]
    OtherKind { name: String, fields: String },
    #[error(
        "nothing was created, because the cluster has {0} and no operator leads: an operator of the \
         demo would serve all pools and Services, not only its own. Start the operator of this \
         cluster, which will serve the samples as well, or use another cluster"
    )]
    NoLeader(String),
    #[error(
        "nothing was created, because addresses of the samples ({addresses}) are in use: {}",
        by.join(", ")
    )]
    Clash { addresses: String, by: Vec<String> },
    #[error("the API server answered the request for a token without one")]
    NoToken,
    #[error("the kubeconfig has no current context with a cluster")]
    NoContext,
    #[error("reading the kubeconfig")]
    Kubeconfig(#[source] Box<kube::config::KubeconfigError>),
    #[error("writing a kubeconfig for the operator")]
    File(#[source] io::Error),
    #[error(transparent)]
    TimedOut(#[from] wait::TimedOut),
    #[error("not removed:\n{}", .0.join("\n"))]
    Left(Vec<String>),
}

impl Error {
    fn call(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Call { what, source: Box::new(source) }
    }

    /// Whether the API server refused a Service because the cluster lacks a family that it wants.
    fn is_about_families(&self) -> bool {
        let Self::Create { source, .. } = self else { return false };
        let kube::Error::Api(status) = &**source else { return false };
        let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
        let about = |field: &str| field.starts_with("spec.ipFamil");
        !causes.is_empty() && causes.iter().all(|cause| about(&cause.field))
    }
}

pub(super) async fn run(
    args: &Args,
    file: &Path,
    signals: &mut Signals,
    output: &Output,
) -> Result<End, super::Error> {
    let prepared = signals.unless_received(prepare(args, file, output)).await?;
    let Some(stage) = prepared else { return Ok(End::Asked) };
    let mut made = Made::new(&stage.client, &stage.run);
    let mut operator = None;
    // Boxed: the watches make a large future.
    let performed = Box::pin(perform(args, &stage, &mut made, &mut operator, signals, output));
    let ended = performed.await;
    if matches!(ended, Err(super::Error::OtherPool(_))) {
        // Before it serves a pool that is not the demo's.
        operator = None;
    }
    output.heading("removing what the demo created (Ctrl-C again leaves the rest)");
    tokio::select! {
        biased;
        () = signals.received() => {}
        () = made.remove(&stage, operator, output) => {}
    }
    let left = made.left();
    if left.is_empty() {
        return ended;
    }
    let left = Error::Left(left);
    if ended.is_err() {
        output.error(&left);
        return ended;
    }
    Err(left.into())
}

/// A cluster on which nothing is in the way.
struct Stage {
    client: Client,
    file: PathBuf,
    /// The value of [`LABEL`] for this demo.
    run: String,
    namespaces: Vec<DynamicObject>,
    pools: Vec<DynamicObject>,
    services: Vec<DynamicObject>,
    account: Vec<DynamicObject>,
    missing_kinds: Vec<CustomResourceDefinition>,
    /// The operator to run, unless one leads in the cluster already.
    binary: Option<PathBuf>,
}

/// Looks at the cluster and builds what is needed; creates nothing.
async fn prepare(args: &Args, file: &Path, output: &Output) -> Result<Stage, super::Error> {
    let cluster = landfall::client::Cluster::load(Some(file)).await.map_err(Error::from)?;
    let client = cluster.client().map_err(Error::from)?;
    output.heading(format_args!("{}, the cluster of {}", cluster.url(), file.display()));
    let (url, file) = (cluster.url(), file.to_owned());
    let version = match timeout(CALL_DEADLINE, client.apiserver_version()).await {
        Ok(Ok(version)) => version,
        Ok(Err(source)) => {
            return Err(Error::Unreachable { url, file, source: Box::new(source) }.into());
        }
        Err(_) => return Err(Error::Silent { url, file }.into()),
    };
    check::version(&version)?;
    output.say(format_args!("Kubernetes {}", version.git_version));

    let run = format!("{:016x}", RandomState::new().build_hasher().finish());
    let seal = Seal { prefix: PREFIX, class: CLASS, label: (LABEL, run.clone()) };
    let samples = samples::objects()?.into_iter().map(|object| seal.apply(object));
    let (pools, others): (Vec<_>, Vec<_>) = samples.partition(|object| is(object, "IPGroup"));
    let (namespaces, services): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|object| is(object, "Namespace"));
    let account = account::objects(&names(&namespaces), &names(&pools)).map_err(Error::from)?;

    let outside = [&namespaces[..], &account].concat();
    let look = async || check::look(&client, &outside, &pools, output).await;
    let mut found = look().await?;
    let mut binary = None;
    if found.leader.is_none() {
        binary = Some(build_operator(args.release).await?);
        // A build may take minutes, in which anything may have come.
        found = look().await?;
    }
    if let Some(leader) = found.leader {
        output.say(format_args!("{leader}: that operator serves the samples, so none is started"));
        binary = None;
    }
    let missing_kinds = found.missing_kinds;
    Ok(Stage { client, file, run, namespaces, pools, services, account, missing_kinds, binary })
}

/// Creates everything and shows the samples. Creating is never cut off, so that what was created is
/// known; Ctrl-C is heard in between.
async fn perform(
    args: &Args,
    stage: &Stage,
    made: &mut Made,
    operator: &mut Option<Operator>,
    signals: &mut Signals,
    output: &Output,
) -> Result<End, super::Error> {
    if !stage.missing_kinds.is_empty() {
        output.heading("kinds that this cluster does not have yet");
        for crd in &stage.missing_kinds {
            let crd = serde_json::from_value(serde_json::to_value(crd).map_err(Error::from)?);
            made.kinds.create(crd.map_err(Error::from)?, output).await?;
        }
        let served = signals.unless_received(kinds_served(&stage.client)).await?;
        let Some(()) = served else { return Ok(End::Asked) };
    }
    output.heading("namespaces of the samples");
    made.namespaces.create_all(stage.namespaces.clone(), output).await?;
    if let Some(binary) = &stage.binary {
        output.heading("landfall operator, allowed to write only where the samples are");
        made.account.create_all(stage.account.clone(), output).await?;
        *operator = signals.unless_received(start(stage, binary, output)).await?;
        if operator.is_none() {
            return Ok(End::Asked);
        }
    }
    let (mut show, sender) = Show::new(samples::expected(PREFIX), operator.as_ref(), output);
    let mut scope =
        Scope::only(&stage.client, &names(&stage.namespaces), &claims_of(&names(&stage.pools)));
    if operator.is_some() {
        scope = scope.and_pools_without(&stage.client, (LABEL, &stage.run));
    }
    let watches = watch::run(scope, sender);
    let play = async {
        output.heading("samples from examples/demo");
        output.say("no nodes are shown: agents would have to run on those of the cluster");
        made.pools.create_all(stage.pools.clone(), output).await?;
        let pools = names(&stage.pools);
        let read =
            async { Ok(samples::pools_read(&stage.client, &pools).await.map_err(Error::from)?) };
        let Some(()) = signals.unless_received(read).await? else { return Ok(End::Asked) };
        for service in &stage.services {
            match made.services.create(service.clone(), output).await {
                Err(error) if error.is_about_families() => {
                    output.error(&error);
                    let namespace = service.namespace().unwrap_or_default();
                    let name = format!("{namespace}/{}", service.name_any());
                    output.say(format_args!("{name} is left out: the cluster cannot have it"));
                    show.leave_out(&name);
                }
                created => created?,
            }
        }
        let next_steps = next_steps(&stage.file, operator.as_ref());
        let played = signals.unless_received(show.play(args.once, None, &next_steps)).await?;
        Ok(played.unwrap_or(End::Asked))
    };
    tokio::select! {
        ended = play => ended,
        what = watches => Err(super::Error::WatchEnded { what }),
    }
}

/// Waits until objects of new kinds can be created and listed.
async fn kinds_served(client: &Client) -> Result<(), super::Error> {
    let created = Instant::now();
    listable(client, "the new kinds").await?;
    sleep_until((created + NEW_KIND).into()).await;
    Ok(())
}

async fn listable(client: &Client, what: &str) -> Result<(), Error> {
    let (pools, claims) = (Api::<IPGroup>::all(client.clone()), Api::<IP>::all(client.clone()));
    let one = ListParams::default().limit(1);
    wait::until(what, DEADLINE, async || {
        pools.list(&one).await?;
        claims.list(&one).await
    })
    .await?;
    Ok(())
}

/// Starts the operator under its account, with its lease beside it.
async fn start(stage: &Stage, binary: &Path, output: &Output) -> Result<Operator, super::Error> {
    let begin = Instant::now();
    let kubeconfig = account::kubeconfig(&stage.client, &stage.file).await?;
    let client = client_from(kubeconfig.path()).await?;
    listable(&client, "the rights of the operator's account").await?;
    let flags = [
        ["--namespace", SYSTEM],
        ["--kube-vip-namespace", SYSTEM],
        ["--controllers", "services"],
        ["--orphan-grace", "5m"],
    ];
    let operator = Operator::spawn(binary, kubeconfig.path(), flags.as_flattened()).await?;
    operator.wait_ready(DEADLINE).await?;
    output.say(format_args!("ready after {}", seconds(begin.elapsed())));
    Ok(operator)
}

/// All that the demo created, in the order in which it was.
struct Made {
    kinds: Journal,
    namespaces: Journal,
    account: Journal,
    pools: Journal,
    services: Journal,
    /// What went wrong with claims, which the operator creates.
    problems: Vec<String>,
}

impl Made {
    fn new(client: &Client, run: &str) -> Self {
        let journal = || Journal::new(client, run);
        Self {
            kinds: journal(),
            namespaces: journal(),
            account: journal(),
            pools: journal(),
            services: journal(),
            problems: Vec::new(),
        }
    }

    /// Removes everything: first what needs an operator to be released, then the operator.
    async fn remove(&mut self, stage: &Stage, operator: Option<Operator>, output: &Output) {
        self.services.remove_all(output).await;
        self.namespaces.remove_all(output).await;
        let is_served =
            stage.binary.is_none() || operator.as_ref().is_some_and(Operator::is_running);
        if !self.pools.is_empty()
            && let Err(error) = release_claims(stage, is_served).await
        {
            self.problems.push(report::chain(&error));
        }
        self.pools.remove_all(output).await;
        if let Some(operator) = operator {
            // In order where there is time: it gives its lease back.
            drop(timeout(Duration::from_secs(5), operator.terminate()).await);
        }
        self.account.remove_all(output).await;
        if !self.kinds.is_empty() && self.problems.is_empty() {
            match used(&stage.client).await {
                Ok(None) => self.kinds.remove_all(output).await,
                Ok(Some(object)) => {
                    output.say(format_args!("the kinds stay, because others use them: {object}"));
                    self.kinds.forget();
                }
                Err(error) => self.problems.push(report::chain(&error)),
            }
        }
    }

    /// What is still there, each with the reason if there is one.
    fn left(&self) -> Vec<String> {
        let Self { kinds, namespaces, account, pools, services, problems } = self;
        let journals = [services, namespaces, pools, account, kinds];
        journals.into_iter().flat_map(Journal::left).chain(problems.iter().cloned()).collect()
    }
}

/// A selector of the claims on addresses of these pools.
fn claims_of(pools: &[String]) -> String {
    format!("{LABEL_IPGROUP} in ({})", pools.join(","))
}

/// Waits until the claims of the samples are released, and deletes those that are not released.
async fn release_claims(stage: &Stage, is_served: bool) -> Result<(), Error> {
    let (namespaces, pools) = (names(&stage.namespaces), names(&stage.pools));
    let claims: Api<IP> = Api::all(stage.client.clone());
    let of_pools =
        ListParams::default().labels(&format!("{LABEL_IPGROUP} in ({})", pools.join(",")));
    let ours = async || {
        let mut listed =
            claims.list(&of_pools).await.map_err(Error::call("listing all IPs"))?.items;
        listed.retain(|claim| is_held_by_samples(claim, &namespaces));
        Ok::<_, Error>(listed)
    };
    if is_served {
        // Too late is no failure: the remaining claims are deleted below.
        drop(
            wait::until("the claims of the samples", RELEASE_DEADLINE, async || {
                ours().await.is_ok_and(|left| left.is_empty())
            })
            .await,
        );
    }
    for claim in ours().await? {
        let preconditions =
            Preconditions { uid: claim.uid(), resource_version: claim.resource_version() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let deleted = claims.delete(&claim.name_any(), &params).await;
        deleted.map_err(Error::call(format!("deleting IP {}", claim.name_any())))?;
    }
    Ok(())
}

/// Whether a claim has holders and all of them are in these namespaces.
fn is_held_by_samples(claim: &IP, namespaces: &[String]) -> bool {
    let holders = &claim.spec.holders;
    !holders.is_empty()
        && holders.iter().all(|holder| {
            holder.namespace.as_ref().is_some_and(|namespace| namespaces.contains(namespace))
        })
}

/// An object of our kinds, if there is one.
async fn used(client: &Client) -> Result<Option<String>, Error> {
    let one = ListParams::default().limit(1);
    let pools = Api::<IPGroup>::all(client.clone()).list_metadata(&one).await;
    let claims = Api::<IP>::all(client.clone()).list_metadata(&one).await;
    let pools = if_there(pools).map_err(Error::call("listing all IPGroups"))?;
    let claims = if_there(claims).map_err(Error::call("listing all IPs"))?;
    let mut pools = pools.iter().flatten().map(|pool| format!("IPGroup {}", pool.name_any()));
    let mut claims = claims.iter().flatten().map(|claim| format!("IP {}", claim.name_any()));
    Ok(pools.next().or_else(|| claims.next()))
}

/// `None` if the object or its kind is not there. A kind that is not installed is a 404 without a
/// reason, which kube does not count as "not found".
fn if_there<T>(answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Ok(there) => Ok(Some(there)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Everything a second shell needs, ready to be copied.
fn next_steps(kubeconfig: &Path, operator: Option<&Operator>) -> String {
    let log = operator.map(|operator| {
        format!(
            "The operator's log is {}\nand its metrics are at http://{}/metrics\n",
            operator.process().log().display(),
            operator.admin_addr(),
        )
    });
    format!(
        "
What to try next, in another shell:

  export KUBECONFIG={}

  # who has which address, and how full the pools are
  kubectl get ips
  kubectl get ipg

  # why a Service has no address
  kubectl describe service -n {PREFIX}shop mail-copy

  # free the address that it waits for
  kubectl delete service -n {PREFIX}shop mail

  # shrink a pool below what it gave: nobody loses an address
  kubectl patch ipg {PREFIX}public --type=merge -p '{{\"spec\":{{\"segment\":\"192.0.2.0/28\"}}}}'
  kubectl get ipg

{}Changes appear below. Ctrl-C removes what the demo created, and whatever is in its namespaces.
",
        kubeconfig.canonicalize().unwrap_or_else(|_| kubeconfig.to_owned()).display(),
        log.unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use landfall_testkit::builders::bare_claim;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_refusal_of_families_leaves_a_sample_out() {
        let refusal = |fields: &[&str]| {
            let causes: Vec<_> = fields.iter().map(|field| json!({ "field": field })).collect();
            let status: Status = serde_json::from_value(json!({
                "code": 422, "reason": "Invalid", "details": { "causes": causes },
            }))
            .unwrap();
            let source = Box::new(kube::Error::Api(Box::new(status)));
            Error::Create { what: "Service web".to_owned(), source }
        };
        for (fields, expected) in [
            (&["spec.ipFamilies[0]"][..], true),
            (&["spec.ipFamilyPolicy", "spec.ipFamilies[1]"], true),
            (&["spec.ipFamilies[0]", "spec.ports"], false),
            (&["spec.ports"], false),
            (&[], false),
        ] {
            assert_eq!(refusal(fields).is_about_families(), expected, "{fields:?}");
        }
        assert!(!Error::NoToken.is_about_families());
    }

    #[test]
    fn a_claim_with_a_holder_outside_the_demo_is_not_deleted() {
        let namespaces = ["demo-shop".to_owned()];
        for (holders, expected) in [
            (&["demo-shop"][..], true),
            (&["demo-shop", "demo-shop"], true),
            (&["demo-shop", "shop"], false),
            (&["shop"], false),
            (&[], false),
        ] {
            let mut claim = bare_claim("192.0.2.1".parse().unwrap());
            let holder = |namespace: &&str| landfall_api::Holder {
                kind: "Service".to_owned(),
                namespace: Some((*namespace).to_owned()),
                ..landfall_api::Holder::default()
            };
            claim.spec.holders = holders.iter().map(holder).collect();
            assert_eq!(is_held_by_samples(&claim, &namespaces), expected, "{holders:?}");
        }
    }
}
