//! `cargo xtask demo`: a cluster, the operator and sample Services, to look at and to play with.

mod samples;
mod screen;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use landfall_testkit::{Assets, ControlPlane, Operator, Program};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout};

use crate::cargo::{self, repository};
use crate::output::{Output, seconds};
use screen::Screen;
use watch::{Board, News};

/// Where operator and lease live; what deploy/rbac.yaml says.
const NAMESPACE: &str = "landfall-system";
const ACCOUNT: &str = "landfall-operator";
/// Not a measurement: a shared machine may be slow, and a wrong answer is wrong in any time.
const DEADLINE: Duration = Duration::from_mins(2);
/// How long threads may take to end when everything they did is over.
const THREADS_GRACE: Duration = Duration::from_secs(1);
/// The API server holds back creations of a kind that is younger than this, in case another server
/// does not know it yet. Waiting it out keeps that out of the times we show.
const NEW_KIND: Duration = Duration::from_secs(2);
/// How often to see whether the operator still runs.
const PULSE: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// End when every sample has what it should have, and fail if one has not
    #[arg(long)]
    once: bool,
    /// Run the optimised build
    #[arg(long)]
    release: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Testkit(#[from] landfall_testkit::Error),
    #[error("starting the async runtime")]
    Runtime(#[source] io::Error),
    #[error("listening for signals")]
    Signal(#[source] io::Error),
    #[error("running a blocking call")]
    Thread(#[source] io::Error),
    #[error(transparent)]
    Cargo(#[from] cargo::Error),
    #[error("the operator ended ({status}); the end of its log:\n{tail}")]
    OperatorEnded { status: String, tail: String },
    #[error("the watch of {what} ended")]
    WatchEnded { what: &'static str },
    #[error("after {} not every sample has what it should have:\n{}", seconds(DEADLINE), .0.join("\n"))]
    Late(Vec<String>),
}

/// Why the demo ends without an error.
enum End {
    /// Ctrl-C, or a polite kill.
    Asked,
    /// Every sample has what it should have, and that was all to see.
    Done,
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<(), Error> {
    let runtime = tokio::runtime::Runtime::new().map_err(Error::Runtime)?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let demo = demo(args, output);
        tokio::select! {
            // First: Ctrl-C also ends a build under way, and that is no error then.
            biased;
            () = signals.received() => Ok(End::Asked),
            ended = demo => ended,
        }
    });
    // A build may still be under way on a thread of its own; its processes end with ours.
    runtime.shutdown_timeout(THREADS_GRACE);
    match ended? {
        End::Asked => output.say("\nended: operator, control plane and all data are gone"),
        End::Done => output.say("every sample has what it should have"),
    }
    Ok(())
}

/// Both are caught from the beginning: dropping what runs is what ends it in order.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self, Error> {
        let listen = |kind| signal(kind).map_err(Error::Signal);
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

async fn demo(args: &Args, output: &Output) -> Result<End, Error> {
    let release = args.release;
    let binary = blocking(move || {
        Output::new().heading("cargo build --package landfall");
        Ok::<_, Error>(cargo::build_operator(release)?)
    })
    .await?;
    let plane = start_plane(output).await?;
    let operator = install(&plane, &binary, output).await?;

    let (sender, mut news) = mpsc::channel(64);
    let client = plane.admin_client().await?;
    let watches = watch::run(client, sender);
    let show = async {
        let mut show = Show {
            board: Board::default(),
            screen: Screen::new(output),
            missing: samples::EXPECTED.iter().map(|sample| (sample.service, sample)).collect(),
            deadline: Instant::now() + DEADLINE,
        };
        output.heading("samples from examples/demo");
        let samples = repository().join("examples/demo");
        let samples = samples.to_string_lossy();
        let flags = ["apply", "--server-side", "-f", &samples];
        let apply = async { plane.kubectl(&flags).await.map_err(Error::from) };
        tokio::try_join!(apply, show.until_settled(&operator, &mut news))?;
        if args.once {
            return Ok(End::Done);
        }
        show.screen.below(&next_steps(&plane, &operator));
        show.forever(&operator, &mut news).await
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
        Ok::<_, Error>(ControlPlane::builder().with_controller_manager(true).start().await?)
    };
    let plane = match whole.await {
        Ok(plane) => plane,
        Err(error) => {
            output.say(format_args!("no controller manager: {error}"));
            output.say("going on without; deleted namespaces will stay in `Terminating`");
            ControlPlane::start().await?
        }
    };
    output.say(format_args!("{} after {}", plane.url(), seconds(begin.elapsed())));
    Ok(plane)
}

async fn prepare(needed: &'static [Program]) -> Result<(), Error> {
    blocking(move || {
        let output = Output::new();
        Assets::prepare(needed, &|line| output.say(line))?;
        Ok(())
    })
    .await
}

/// Runs what takes minutes where it does not keep Ctrl-C from being heard.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Thread(error.into()))?
}

/// What the getting-started guide does by hand.
async fn install(plane: &ControlPlane, binary: &Path, output: &Output) -> Result<Operator, Error> {
    output.heading("kubectl apply -f deploy/crds -f deploy/rbac.yaml");
    plane.install_crds(&repository().join("deploy/crds")).await?;
    let installed = Instant::now();
    let rbac = repository().join("deploy/rbac.yaml");
    plane.kubectl(&["apply", "--server-side", "-f", &rbac.to_string_lossy()]).await?;

    output.heading(format_args!("landfall operator, as ServiceAccount {NAMESPACE}/{ACCOUNT}"));
    let begin = Instant::now();
    let kubeconfig = plane.service_account_kubeconfig(NAMESPACE, ACCOUNT).await?;
    let operator = Operator::spawn(binary, &kubeconfig, &[]).await?;
    operator.wait_ready(DEADLINE).await?;
    output.say(format_args!("ready after {}", seconds(begin.elapsed())));
    sleep_until((installed + NEW_KIND).into()).await;
    Ok(operator)
}

/// What is seen, what is still to come, and where it is drawn.
struct Show<'a> {
    board: Board,
    screen: Screen<'a>,
    missing: BTreeMap<&'static str, &'static samples::Sample>,
    deadline: Instant,
}

impl Show<'_> {
    /// Draws until every sample has what it should have.
    async fn until_settled(
        &mut self,
        operator: &Operator,
        news: &mut mpsc::Receiver<News>,
    ) -> Result<(), Error> {
        loop {
            self.missing.retain(|_, sample| self.board.shortfall(sample).is_some());
            if self.missing.is_empty() {
                return Ok(());
            }
            if Instant::now() >= self.deadline {
                let short = |sample: &&samples::Sample| self.board.shortfall(sample);
                return Err(Error::Late(self.missing.values().filter_map(short).collect()));
            }
            self.step(operator, news).await?;
            self.screen.table(&self.board);
        }
    }

    /// Tells every change until somebody ends it.
    async fn forever(
        &mut self,
        operator: &Operator,
        news: &mut mpsc::Receiver<News>,
    ) -> Result<End, Error> {
        loop {
            self.step(operator, news).await?;
            self.screen.lines(&self.board);
        }
    }

    /// Takes in what the watches told, or notices that the operator is gone.
    async fn step(
        &mut self,
        operator: &Operator,
        news: &mut mpsc::Receiver<News>,
    ) -> Result<(), Error> {
        let mut batch = Vec::new();
        tokio::select! {
            _ = news.recv_many(&mut batch, 64) => {}
            () = sleep_until((Instant::now() + PULSE).into()) => {}
        }
        for (at, item) in batch {
            self.board.take_in(item, at);
        }
        match operator.process().exit_status() {
            None => Ok(()),
            Some(status) => Err(Error::OperatorEnded {
                status: status.to_string(),
                tail: operator.log_tail(25),
            }),
        }
    }
}

/// Everything a second shell needs, ready to be copied.
fn next_steps(plane: &ControlPlane, operator: &Operator) -> String {
    let kubectl = plane.assets().path(Program::Kubectl);
    let bin = kubectl.parent().unwrap_or_else(|| Path::new("."));
    let (kubeconfig, bin) = (plane.admin_kubeconfig().display(), bin.display());
    let cache = plane.dir().join("kubectl-cache");
    let cache = cache.display();
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

The operator's log is {}
and its metrics are at http://{}/metrics
Changes appear below. Ctrl-C ends everything and removes its data.
",
        operator.process().log().display(),
        operator.admin_addr(),
    )
}
