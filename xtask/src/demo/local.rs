//! The demo on a control plane of its own, on this machine.

use std::path::Path;
use std::time::{Duration, Instant};

use landfall_testkit::bed::SERVICE_RANGES;
use landfall_testkit::{Assets, Bed, ControlPlane, Operator, Program, control_plane};
use tokio::time::{sleep_until, timeout};

use super::nodes::Nodes;
use super::samples::{self, is, names};
use super::show::Show;
use super::watch::{self, Scope};
use super::{Args, DEADLINE, End, Error, NEW_KIND, apply, blocking, build_operator};
use crate::cargo::repository;
use crate::output::{Output, seconds};

/// Where operator and lease live; what deploy/rbac.yaml says.
const NAMESPACE: &str = "landfall-system";
const ACCOUNT: &str = "landfall-operator";

/// Starts a control plane, installs Landfall as its users do, and shows the samples.
pub(super) async fn run(args: &Args, output: &Output) -> Result<End, Error> {
    let binary = build_operator(args.release).await?;
    let plane = start_plane(output).await?;
    let operator = install(&plane, &binary, output).await?;
    let mut samples = samples::expected("");
    let mut nodes = match Bed::possible() {
        Ok(()) => {
            samples.push(samples::floating());
            Some(Nodes::start(&plane, &binary, output).await?)
        }
        Err(reason) => {
            output.say(format_args!("no nodes are shown: {reason}"));
            None
        }
    };

    let (mut show, sender) = Show::new(samples, Some(&operator), output);
    let client = plane.admin_client().await?;
    let watches = watch::run(Scope::whole(client.clone()), sender);
    let show = async {
        output.heading("samples from examples/demo");
        let mut pools = samples::objects()?;
        pools.retain(|object| is(object, "IPGroup"));
        let (pools, has_nodes) = (names(&pools), nodes.is_some());
        let apply = async {
            let folder = samples::folder();
            apply(&plane, &folder.join(samples::POOLS)).await?;
            let read = samples::pools_read(&client, &pools).await;
            read.map_err(landfall_testkit::Error::from)?;
            apply(&plane, &folder).await?;
            if has_nodes { Nodes::apply_service(&plane).await } else { Ok(()) }
        };
        let next_steps = next_steps(&plane, &operator, has_nodes);
        let play = show.play(args.once, nodes.as_mut(), &next_steps);
        let ((), end) = tokio::try_join!(apply, play)?;
        Ok(end)
    };
    let ended = tokio::select! {
        ended = show => ended,
        what = watches => Err(Error::WatchEnded { what }),
    };
    // In order where there is time: it gives its lease back.
    drop(timeout(Duration::from_secs(5), operator.terminate()).await);
    ended
}

async fn start_plane(output: &Output) -> Result<ControlPlane, Error> {
    output.heading("control plane (etcd, kube-apiserver, kube-controller-manager)");
    prepare(&[Program::Etcd, Program::KubeApiserver, Program::Kubectl]).await?;
    let begin = Instant::now();
    let whole = async {
        prepare(&[Program::KubeControllerManager]).await?;
        Ok::<_, Error>(builder().with_controller_manager(true).start().await?)
    };
    let plane = match whole.await {
        Ok(plane) => plane,
        Err(error) => {
            output.say(format_args!("no controller manager: {error}"));
            output.say("going on without; deleted namespaces will stay in `Terminating`");
            builder().start().await?
        }
    };
    output.say(format_args!("{} after {}", plane.url(), seconds(begin.elapsed())));
    Ok(plane)
}

/// The addresses of nodes and Services are of different networks.
fn builder() -> control_plane::Builder {
    ControlPlane::builder().apiserver_arg(SERVICE_RANGES)
}

async fn prepare(needed: &'static [Program]) -> Result<(), Error> {
    blocking(move || {
        let output = Output::new();
        Assets::prepare(needed, &|line| output.say(line))?;
        Ok(())
    })
    .await
}

/// What the getting-started guide does by hand.
async fn install(plane: &ControlPlane, binary: &Path, output: &Output) -> Result<Operator, Error> {
    output
        .heading("kubectl apply -f deploy/crds -f deploy/rbac.yaml -f deploy/rbac-keepalived.yaml");
    plane.install_crds(&repository().join("deploy/crds")).await?;
    let installed = Instant::now();
    for rbac in ["rbac.yaml", "rbac-keepalived.yaml"] {
        apply(plane, &repository().join("deploy").join(rbac)).await?;
    }

    output.heading(format_args!("landfall operator, as ServiceAccount {NAMESPACE}/{ACCOUNT}"));
    let begin = Instant::now();
    let kubeconfig = plane.service_account_kubeconfig(NAMESPACE, ACCOUNT).await?;
    let operator = Operator::spawn(binary, &kubeconfig, &[]).await?;
    operator.wait_ready(DEADLINE).await?;
    output.say(format_args!("ready after {}", seconds(begin.elapsed())));
    sleep_until((installed + NEW_KIND).into()).await;
    Ok(operator)
}

/// What to try with nodes.
const NODES: &str = "
  # which node holds which address, and what the agents report
  kubectl get keepalivedgroup -n net edge -o jsonpath='{.status.addresses}'
  kubectl describe keepalivedgroup -n net edge

  # one address more, announced at once
  kubectl create service loadbalancer -n front second --tcp=80
";

/// Everything a second shell needs, ready to be copied.
fn next_steps(plane: &ControlPlane, operator: &Operator, has_nodes: bool) -> String {
    let kubectl = plane.assets().path(Program::Kubectl);
    let bin = kubectl.parent().unwrap_or_else(|| Path::new("."));
    let (kubeconfig, bin) = (plane.admin_kubeconfig().display(), bin.display());
    let cache = plane.dir().join("kubectl-cache");
    let cache = cache.display();
    let about_nodes = if has_nodes { NODES } else { "" };
    format!(
        "
What to try next, in another shell:

  export KUBECONFIG={kubeconfig} KUBECACHEDIR={cache} PATH={bin}:$PATH

  # who has which address, and how full the pools are
  kubectl get ips
  kubectl get ipg

  # a Service of your own, and its address
  kubectl create service loadbalancer mine --tcp=80
  kubectl get service mine

  # ask for an address that is taken, and read why not
  kubectl patch service mine --type=merge -p '{{\"spec\":{{\"loadBalancerIP\":\"192.0.2.25\"}}}}'
  kubectl describe service mine

  # free the address that shop/mail-copy waits for
  kubectl delete service -n shop mail

  # shrink a pool below what it gave: nobody loses an address
  kubectl patch ipg public --type=merge -p '{{\"spec\":{{\"segment\":\"192.0.2.0/28\"}}}}'
  kubectl get ipg,services -A
{about_nodes}
The operator's log is {}
and its metrics are at http://{}/metrics
Changes appear below. Ctrl-C ends everything and removes its data.
",
        operator.process().log().display(),
        operator.admin_addr(),
    )
}
