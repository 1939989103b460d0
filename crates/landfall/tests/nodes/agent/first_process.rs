//! The agent as the first process of a container, with process ids of its own: the death of its keeper moves nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use landfall_agent::call::{Answer, State};
use landfall_agent::{Keeper, RunDir};
use landfall_testkit::bed::{Node, Program, Running};
use landfall_testkit::process::Signal;
use landfall_testkit::{Bed, Process, wait};
use landfall_vrrp::{FORMAT, Plan};

use super::group::slot;
use crate::LONG;

/// The API server cannot be reached: the plan is the last good one, on disk.
const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: 'https://127.0.0.1:1'}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
current-context: none
users: [{name: none, user: {token: none}}]
";

struct Container {
    node: Node,
    run_dir: RunDir,
    process: Arc<Process>,
}

impl Container {
    fn start(node: &Node) -> Self {
        let run_dir = RunDir::new(node.dir().join("run"));
        let kubeconfig = node.dir().join("kubeconfig");
        fs::write(&kubeconfig, KUBECONFIG).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--", env!("CARGO_BIN_EXE_landfall")]);
        command.args(["agent", "--group=net/edge", "--node", node.name()]);
        command.args(["--metrics-addr=127.0.0.1:9650", "--run-dir"]).arg(run_dir.path());
        command.arg("--kubeconfig").arg(kubeconfig);
        // The program is started by another one, which is in no folder of ours.
        let own = Path::new(env!("CARGO_BIN_EXE_landfall")).parent().unwrap();
        let process = node.run(Program::new(command).sees(own), "agent.log").unwrap();
        Self { node: node.clone(), run_dir, process }
    }

    async fn until<T>(&self, what: &str, look: impl AsyncFnMut() -> Result<T, String>) -> T {
        let outcome = wait::until(what.to_owned(), LONG, look).await;
        outcome.unwrap_or_else(|error| panic!("{error}\n{}", self.process.log_tail(100)))
    }

    /// The keeper that answers, once all instances are in a state, and how often it has started keepalived.
    async fn keeper_with(&self, state: State) -> (Running, u64) {
        let keeper = Keeper::new(&self.run_dir);
        let starts = self.until("a keeper with that state", async || match keeper.report().await {
            Ok(Answer::Runs { starts, instances, .. })
                if !instances.is_empty() && instances.iter().all(|it| it.state == state) =>
            {
                Ok(starts)
            }
            other => Err(format!("{other:?}")),
        });
        let starts = starts.await;
        let all = Running::of("landfall", self.run_dir.path()).unwrap();
        let agents: Vec<_> = all.iter().filter(|it| it.words[1] == "agent").collect();
        let is_child = |it: &&&Running| agents.iter().any(|other| other.pid == it.parent);
        let keeper = agents.iter().find(is_child).unwrap_or_else(|| panic!("{all:?}"));
        ((**keeper).clone(), starts)
    }

    /// Ends a keeper, and returns once it has ended.
    async fn kills(&self, keeper: &Running, signal: Signal) {
        keeper.signal(signal).unwrap();
        let all = || Running::all().unwrap();
        self.until("the end of the keeper", async || {
            if all().contains(keeper) { Err("it runs".to_owned()) } else { Ok(()) }
        })
        .await;
    }

    fn keepalived(&self) -> Vec<Running> {
        Running::of("keepalived", &self.run_dir.configuration()).unwrap()
    }
}

fn plan(bed: &Bed) -> Plan {
    let node = |node: &Node| landfall_vrrp::Node {
        name: node.name().to_owned(),
        addresses: vec![node.ipv4().into(), node.ipv6().into()],
    };
    Plan {
        format: FORMAT,
        generation: 1,
        group: "net/edge".to_owned(),
        interface: "eth0".to_owned(),
        interface_from: None,
        interfaces: BTreeMap::new(),
        password_from: None,
        global_lines: vec![],
        nodes: bed.nodes().iter().map(node).collect(),
        instances: vec![slot(1, &[0, 1, 2], &[Bed::vip4(1)])],
        leaving: BTreeMap::new(),
        joining: BTreeMap::new(),
        departing: BTreeMap::new(),
    }
}

#[tokio::test]
async fn a_keeper_that_is_killed_is_replaced_and_nothing_moves() {
    let Some(bed) = Bed::for_test().await.unwrap() else { return };
    let (n1, vip) = (bed.node("n1"), Bed::vip4(1));
    let run_dir = RunDir::new(n1.dir().join("run"));
    fs::create_dir_all(run_dir.path()).unwrap();
    RunDir::write(&run_dir.plan(), &plan(&bed)).unwrap();
    let container = Container::start(n1);
    let (first, _) = container.keeper_with(State::Master).await;
    let sampler = bed.sampler().unwrap();
    let before = container.keepalived();
    assert_eq!(before.len(), 2, "{before:?}");

    let mut keeper = first;
    for signal in [Signal::SIGKILL, Signal::SIGABRT] {
        container.kills(&keeper, signal).await;
        let (next, starts) = container.keeper_with(State::Master).await;
        assert_eq!(starts, 0, "keepalived was started again");
        keeper = next;
    }
    let pids = |all: &[Running]| all.iter().map(|it| it.pid).collect::<Vec<_>>();
    assert_eq!(pids(&container.keepalived()), pids(&before));
    sampler.next_sample().await;
    let record = sampler.record();
    assert_eq!((record.holdings(vip).len(), record.holders(vip)), (1, vec!["n1"]));

    // One that cannot begin ends the container, whose log says why.
    let other = Container::start(n1);
    assert!(!other.process.ended(LONG).await.unwrap().success());
    let log = other.process.log_tail(50);
    assert!(log.contains("another agent uses"), "{log}");
    assert_eq!(pids(&container.keepalived()), pids(&before));

    // A signal for the keeper that comes before it can take it is not lost.
    keeper.signal(Signal::SIGKILL).unwrap();
    let first = Running::all().unwrap().into_iter().find(|it| it.pid == keeper.parent).unwrap();
    first.signal(Signal::SIGTERM).unwrap();
    assert!(container.process.ended(LONG).await.unwrap().success());
    assert_eq!(container.keepalived(), []);
    assert!(!container.node.holds(vip).unwrap());
}
