//! A group of nodes, and agents on them.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use landfall_agent::call::{Answer, Counts, InstanceReport, State};
use landfall_agent::{Farewell, Keeper, OwnedAddress, RunDir};
use landfall_testkit::bed::{Keepalived, Node, Program, Running, Sampler};
use landfall_testkit::process::{Process, Signal};
use landfall_testkit::{Bed, wait};
use landfall_vrrp::render::{Host, render};
use landfall_vrrp::{FORMAT, Form, Instance, Plan, Preempt, Transport, Version};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use tokio::task::JoinSet;

use crate::program;

/// Longer than any machine is busy.
pub(crate) const DEADLINE: Duration = Duration::from_mins(3);
/// A worker that does nothing, as long as it lives.
pub(crate) const IDLE: [&str; 2] = ["sleep", "infinity"];
const PASSWORD: &str = "sec ret#";
/// Not the multicast group that is meant for VRRP.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 19);

/// What the instances of a group look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Version 3 with ten adverts a second and anchors.
    Fast,
    /// The same to another multicast group.
    FastElsewhere,
    /// The same over IPv6.
    FastV6,
    /// The same to each node's own address.
    FastUnicast,
    /// The same to each node's own IPv6 address.
    FastUnicastV6,
    /// Version 2 with one advert a second and a password, and no anchors.
    Old,
}

/// The plan for a bed: instance `group/N` has the addresses [`Bed::vip4`] and [`Bed::vip6`] of that number, and
/// n1 comes first.
pub(crate) fn plan(bed: &Bed, kind: Kind, instances: u8) -> Plan {
    let node = |node: &Node| landfall_vrrp::Node {
        name: node.name().to_owned(),
        addresses: vec![node.ipv4().into(), node.ipv6().into()],
    };
    Plan {
        format: FORMAT,
        generation: 1,
        group: "net/group".to_owned(),
        interface: bed.node("n1").device().to_owned(),
        interface_from: None,
        interfaces: BTreeMap::new(),
        password_from: None,
        global_lines: if kind == Kind::FastElsewhere {
            vec![format!("vrrp_mcast_group4 {ELSEWHERE}")]
        } else {
            Vec::new()
        },
        nodes: bed.nodes().iter().map(node).collect(),
        instances: (0..instances).map(|number| instance(kind, number)).collect(),
        leaving: BTreeMap::new(),
        joining: BTreeMap::new(),
        departing: BTreeMap::new(),
    }
}

fn instance(kind: Kind, number: u8) -> Instance {
    let router_id = number + 11;
    let (v4, v6) = (Bed::vip4(number.into()), Bed::vip6(number.into()));
    let anchor = match kind {
        Kind::Fast | Kind::FastElsewhere | Kind::FastUnicast => {
            Ipv4Addr::new(169, 254, 112, router_id).into()
        }
        Kind::FastV6 | Kind::FastUnicastV6 => {
            Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0x112, router_id.into()).into()
        }
        Kind::Old => v4,
    };
    let is_old = kind == Kind::Old;
    Instance {
        name: format!("group/{number}"),
        router_id,
        generation: 1,
        form: Form {
            version: if is_old { Version::V2 } else { Version::V3 },
            advert_millis: if is_old { 1000 } else { 100 },
            transport: match kind {
                Kind::FastUnicast | Kind::FastUnicastV6 => Transport::Unicast,
                Kind::Fast | Kind::FastElsewhere | Kind::FastV6 | Kind::Old => Transport::Multicast,
            },
            password: is_old.then(|| "first".to_owned()),
            advertised: vec![anchor],
            anchor: !is_old,
        },
        excluded: if is_old { vec![v6] } else { vec![v4, v6] },
        order: vec![0, 1, 2],
        preempt: Preempt::Never,
        only_on: None,
        lines: Vec::new(),
        change: None,
    }
}

/// All addresses that a plan lets nodes hold, in the order of its instances.
pub(crate) fn addresses(plan: &Plan) -> Vec<IpAddr> {
    plan.instances.iter().flat_map(Instance::served).collect()
}

pub(crate) fn run_dir(node: &Node) -> RunDir {
    RunDir::new(node.dir().join("run"))
}

fn configuration(plan: &Plan, node: &Node) -> String {
    let dir = run_dir(node);
    let host = Host {
        node: plan.node_index(node.name()),
        interface: node.device(),
        run_dir: dir.path().to_str().unwrap(),
        passwords: &[("first".to_owned(), PASSWORD.to_owned())].into(),
    };
    render(plan, host).unwrap()
}

/// Writes what a worker would write for a plan.
pub(crate) fn write(plan: &Plan, node: &Node) {
    let dir = run_dir(node);
    let index = plan.node_index(node.name()).unwrap();
    fs::create_dir_all(dir.track()).unwrap();
    for instance in &plan.instances {
        fs::write(dir.track().join(instance.router_id.to_string()), "0").unwrap();
    }
    let mut owned = dir.read_owned().unwrap();
    let all = plan.instances.iter().flat_map(|instance| instance.addresses_on(index));
    owned.extend(all.map(|address| OwnedAddress { address, interface: node.device().to_owned() }));
    RunDir::write(&dir.owned(), &owned).unwrap();
    let farewells: Vec<_> = plan.instances.iter().map(|it| farewell(plan, it, node)).collect();
    RunDir::write(&dir.farewells(), &farewells).unwrap();
    RunDir::write_text(&dir.configuration(), configuration(plan, node).as_bytes()).unwrap();
}

fn farewell(plan: &Plan, instance: &Instance, node: &Node) -> Farewell {
    let first = instance.form.advertised[0];
    let is_unicast = instance.form.transport == Transport::Unicast;
    let own = plan.node(plan.node_index(node.name()).unwrap()).unwrap();
    let others = plan.nodes.iter().filter(|it| it.name != node.name());
    let nodes = others.filter_map(|it| it.address_like(first)).filter(|_| is_unicast);
    let group = (!plan.global_lines.is_empty()).then_some(ELSEWHERE.into());
    Farewell {
        instance: instance.name.clone(),
        router_id: instance.router_id,
        form: instance.form.clone(),
        interface: node.device().to_owned(),
        source: own.address_like(first).filter(|_| is_unicast),
        peers: nodes.chain(group).collect(),
        password: instance.form.password.is_some().then(|| PASSWORD.to_owned()),
    }
}

/// A keepalived without an agent, all of whose instances have heard the master.
pub(crate) async fn plain(plan: &Plan, node: &Node) -> Keepalived {
    write(plan, node);
    let daemon = Keepalived::start(node, "plain", &configuration(plan, node)).await.unwrap();
    let heard = wait::until("all instances to hear the master", DEADLINE, async || {
        let counts = counts(&daemon, "advert_rcvd").await;
        let all = counts.len() == plan.instances.len() && counts.iter().all(|it| *it > 0);
        if all { Ok(()) } else { Err(format!("{counts:?}")) }
    });
    heard.await.unwrap();
    daemon
}

/// A keeper on a node.
pub(crate) struct Agent {
    pub(crate) node: Node,
    pub(crate) process: Arc<Process>,
    pub(crate) keeper: Keeper,
    asking: JoinSet<Result<(), wait::TimedOut>>,
}

impl Agent {
    pub(crate) fn start(node: &Node) -> Self {
        Self::with_worker(node, &IDLE)
    }

    pub(crate) fn with_worker(node: &Node, worker: &[&str]) -> Self {
        let command = program::keeper(run_dir(node).path(), worker);
        Self::with_command(node, Program::new(command).confined())
    }

    /// The same without a worker that asks for keepalived.
    pub(crate) fn with_silent_worker(node: &Node) -> Self {
        let command = program::keeper(run_dir(node).path(), &IDLE);
        Self::alone(node, Program::new(command).confined())
    }

    pub(crate) fn with_command(node: &Node, program: Program) -> Self {
        Self::alone(node, program).asking()
    }

    fn alone(node: &Node, program: Program) -> Self {
        // The program is started by others, which are in no folder of ours.
        let own = std::env::current_exe().unwrap();
        let process = node.run(program.sees(own.parent().unwrap()), "agent.log").unwrap();
        Self {
            node: node.clone(),
            process,
            keeper: Keeper::new(&run_dir(node)),
            asking: JoinSet::new(),
        }
    }

    /// Asks for keepalived, as a worker does once it knows the plan.
    fn asking(mut self) -> Self {
        let keeper = self.keeper.clone();
        let asks = move || {
            let keeper = keeper.clone();
            async move { keeper.use_configuration().await.map(drop).map_err(|it| it.to_string()) }
        };
        self.asking.spawn(wait::until("the keeper to answer", DEADLINE, asks));
        self
    }

    /// The keeper's next answer.
    pub(crate) async fn answer(&self) -> Answer {
        self.until("the keeper to answer", async || {
            self.keeper.report().await.map_err(|error| error.to_string())
        })
        .await
    }

    /// How often keepalived was started, and what its instances do, once it runs.
    pub(crate) async fn runs(&self) -> (u64, Vec<InstanceReport>) {
        self.until("keepalived to run", async || match self.keeper.report().await {
            Ok(Answer::Runs { starts, instances, .. }) => Ok((starts, instances)),
            other => Err(format!("{other:?}")),
        })
        .await
    }

    pub(crate) async fn counts(&self) -> Counts {
        match self.answer().await {
            Answer::Runs { counts, .. } | Answer::Down { counts, .. } => counts,
        }
    }

    /// Waits until all instances are in a state.
    pub(crate) async fn reaches(&self, state: State) {
        self.until("all instances to be in another state", async || {
            let (_, instances) = self.runs().await;
            let is_there = instances.iter().all(|it| it.state == state);
            if is_there && !instances.is_empty() { Ok(()) } else { Err(format!("{instances:?}")) }
        })
        .await;
    }

    /// Waits, and shows the log if the time is over.
    pub(crate) async fn until<T, E: ToString>(
        &self,
        what: &str,
        look: impl AsyncFnMut() -> Result<T, E>,
    ) -> T {
        let mut look = look;
        let outcome = wait::until(what.to_owned(), DEADLINE, async || {
            look().await.map_err(|error| error.to_string())
        })
        .await;
        outcome.unwrap_or_else(|error| panic!("{error}\n{}", self.process.log_tail(100)))
    }

    /// The processes of its keepalived, its parent process first.
    pub(crate) fn keepalived(&self) -> Vec<u32> {
        let all = Running::of("keepalived", &run_dir(&self.node).configuration()).unwrap();
        all.iter().map(|it| it.pid).collect()
    }

    /// Waits until both processes of a keepalived run, neither of them being one of these.
    pub(crate) async fn keepalived_other_than(&self, before: &[u32]) -> Vec<u32> {
        self.until("another keepalived", async || {
            let now = self.keepalived();
            let is_other = now.len() == 2 && now.iter().all(|id| !before.contains(id));
            if is_other { Ok(now) } else { Err(format!("{now:?}")) }
        })
        .await
    }

    pub(crate) async fn terminate(&self) -> ExitStatus {
        self.process.terminate(DEADLINE).await.unwrap()
    }

    /// Waits until the node holds none of these addresses.
    pub(crate) async fn lets_go(&self, addresses: &[IpAddr]) {
        self.until("the node to hold none of the addresses", async || {
            let held = self.node.addresses().map_err(|error| error.to_string())?;
            let left: Vec<_> = held.iter().filter(|it| addresses.contains(&it.ip)).collect();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    }
}

/// The processes that a process has started.
pub(crate) fn children(id: u32) -> impl Iterator<Item = Running> {
    Running::all().unwrap().into_iter().filter(move |it| it.parent == id)
}

pub(crate) fn signal(id: u32, signal: Signal) {
    kill(Pid::from_raw(id.try_into().unwrap()), signal).unwrap();
}

/// Waits until one node holds all of the addresses.
pub(crate) async fn held_by(sampler: &Sampler, addresses: &[IpAddr], name: &str) {
    for address in addresses {
        let held = wait::until(format!("{name} to hold {address}"), DEADLINE, async || {
            let record = sampler.record();
            let holders = record.holders(*address);
            if holders == [name] { Ok(()) } else { Err(format!("{holders:?}")) }
        });
        held.await.unwrap();
    }
}

/// How many goodbyes each instance of a keepalived has heard.
pub(crate) async fn heard(daemon: &Keepalived) -> Vec<u64> {
    counts(daemon, "pri_zero_rcvd").await
}

async fn counts(daemon: &Keepalived, counter: &str) -> Vec<u64> {
    let dump = daemon.dump().await.unwrap();
    dump.iter().map(|it| it["stats"][counter].as_u64().unwrap()).collect()
}

/// An address that is none of ours, on the device of the node: that of an instance with a shorter prefix, and
/// another one.
pub(crate) fn foreign(node: &Node, ours: IpAddr) -> Vec<String> {
    let mut added = Vec::new();
    for address in [format!("{ours}/25"), "198.51.100.9/32".to_owned()] {
        let mut ip = Command::new("ip");
        ip.args(["address", "add", &address, "dev", node.device()]);
        node.output(ip).unwrap();
        added.push(address);
    }
    added
}

/// The addresses of a node as `ip` shows them, with their prefixes.
pub(crate) fn shown(node: &Node) -> String {
    node.ip("-brief address show").unwrap()
}
