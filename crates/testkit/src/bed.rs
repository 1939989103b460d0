//! A bed: real nodes made of network namespaces, for tests of addresses that move between them.
//!
//! A bridge joins three nodes, a `client` and `api`, each by a cable of its own, with addresses of both
//! families. Nothing of it has a name or a file outside the test: any number of beds run side by side, all
//! with the same addresses, and nothing is left when the test ends, not even after `kill -9`.
//!
//! ```no_run
//! # use std::process::Command;
//! # use std::time::Duration;
//! # use landfall_testkit::{Bed, Result};
//! # use landfall_testkit::bed::Keepalived;
//! # async fn a_dead_node_is_replaced(config: &str) -> Result<()> {
//! // As root; as an ordinary user the test runs once more in a user namespace, and there is nothing left to do.
//! let Some(bed) = Bed::for_test().await? else { return Ok(()) };
//! let vip = Bed::vip4(1);
//! let sampler = bed.sampler()?;                            // which node holds which address, and when
//! let asking = bed.ask(vip)?;                              // what a client sees of an address
//! let mut daemons = Vec::new();
//! for node in bed.nodes() {
//!     daemons.push(Keepalived::start(node, "keepalived", config).await?);
//! }
//! let log = bed.node("n1").run(Command::new("some-daemon"), "daemon.log")?;
//! let first = sampler.holder(vip, &["n1", "n2", "n3"], Duration::from_secs(60)).await?;
//! let died = bed.node(&first).power_off()?;
//! let others = bed.names_without(&first);
//! let second = sampler.holder(vip, &others, Duration::from_secs(60)).await?;
//! let record = sampler.record();
//! let taken = record.taken(vip, &first, died);             // by which node, how long after
//! let doubled = record.doubled(vip, &others);              // held by two living nodes?
//! let silence = asking.silence(died);                      // the outage, as the client sees it
//! # Ok(()) }
//! ```
//!
//! | part | what it does |
//! | --- | --- |
//! | [`Node`] | runs programs; loses its link, its port or all frames; dies, comes back |
//! | [`Program`] | what a program on a node sees and may do |
//! | [`Running`] | a process, such as one on a node, to end or to freeze it |
//! | [`Keepalived`] | the real one, run by hand: reload, states, every way to die |
//! | [`KubeProxy`] | the real one, in front of endpoints |
//! | [`Agents`], [`Place`], [`Group`] | the agents of a keepalived group, and what they have on a node; such a group, with a plan that the test writes |
//! | [`Cluster`] | such a group with an operator, which plans it |
//! | [`Sampler`], [`Record`] | who held which address when |
//! | [`Asking`], [`Questions`] | which node answered a client, and when none did |
//! | [`Announcements`] | gratuitous ARP and neighbour advertisements as the client hears them |
//! | [`Bed::proxy`] | a control plane on the host's loopback, reachable from nodes, with a proxy's faults |
//!
//! A socket belongs to the network namespace it was made in, whichever thread uses it. That is why
//! [`Node::inside`] is enough for everything that looks into nodes from outside.
//!
//! Daemons of VRRP run before everything else on the machine, where that is allowed, and the directories of nodes
//! are in memory: nodes stand for machines of their own, which wait for no compiler and no disk of others.
//!
//! The kernel's answer to everything else is real: link-local addresses are tentative for a second or two after
//! the link came up, and a link that goes down takes the IPv6 addresses of its node with it.

mod agents;
mod announcements;
mod answers;
mod asking;
mod cluster;
pub mod group;
mod home;
mod keepalived;
mod kube_proxy;
mod netlink;
mod node;
mod processes;
mod program;
mod record;
mod sampler;
mod switch;
mod test;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

pub use agents::{Agents, Place};
pub use announcements::{Announcement, Announcements};
pub use answers::PORT as ANSWER_PORT;
pub use asking::{Answer, Asking, Protocol, Question, Questions, Run};
pub use cluster::{Cluster, SERVICE_RANGES};
pub use group::Group;
pub use keepalived::{Keepalived, State};
pub use kube_proxy::KubeProxy;
pub use netlink::Address;
pub use node::Node;
pub use processes::Running;
pub use program::Program;
pub use record::{Doubled, Holding, Record, Taken};
pub use sampler::{INTERVAL as SAMPLE_INTERVAL, Sampler};
pub use test::privileged;

use crate::proxy::Upstream;
use crate::scratch::Scratch;
use crate::{ControlPlane, Error, Proxy, Result};
use switch::Switch;

/// The numbers of `client` and `api`, which are the last parts of their addresses; nodes count from 1.
const CLIENT: u8 = 201;
const API: u8 = 202;

/// The number of nodes of a usual bed.
const NODES: u8 = 3;

/// A running bed; dropping it ends everything in it.
#[derive(Debug)]
pub struct Bed {
    nodes: Vec<Node>,
    client: Node,
    api: Node,
    /// Last, for processes in the nodes write there.
    dir: Scratch,
}

impl Bed {
    /// A bed of three nodes, `n1` to `n3`. It can be made by root, of the machine or of a user namespace; tests
    /// call [`Bed::for_test`] instead.
    pub async fn new() -> Result<Self> {
        Self::with_nodes(NODES).await
    }

    /// A bed of up to 200 nodes.
    pub async fn with_nodes(count: u8) -> Result<Self> {
        let dir = Scratch::in_memory("landfall-bed-")?;
        let switch = Arc::new(Switch::new()?);
        let node = |name: &str, number| Node::new(name, number, dir.path(), &switch);
        let nodes = (1..=count.min(CLIENT - 1)).map(|number| node(&format!("n{number}"), number));
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        let (client, api) = (node("client", CLIENT)?, node("api", API)?);
        let bed = Self { nodes, client, api, dir };
        for node in bed.everything() {
            node.born().await?;
        }
        Ok(bed)
    }

    /// The nodes, without `client` and `api`.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node of that name.
    ///
    /// # Panics
    /// If there is none: a test that misspells it cannot go on.
    #[expect(clippy::panic, reason = "only tests call it, and with names of their own")]
    pub fn node(&self, name: &str) -> &Node {
        let found = self.everything().find(|node| node.name() == name);
        found.unwrap_or_else(|| panic!("the bed has no node {name}"))
    }

    /// The names of all nodes.
    pub fn names(&self) -> Vec<&str> {
        self.nodes.iter().map(Node::name).collect()
    }

    /// The names of all nodes but one.
    pub fn names_without(&self, name: &str) -> Vec<&str> {
        self.names().into_iter().filter(|it| *it != name).collect()
    }

    /// A machine beside the nodes, from which tests ask.
    pub fn client(&self) -> &Node {
        &self.client
    }

    /// The machine on which nodes find the control plane.
    pub fn api(&self) -> &Node {
        &self.api
    }

    /// A directory for files of the test, removed with the bed.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// An address in the network of the nodes that no machine has by itself.
    pub fn vip4(number: u16) -> IpAddr {
        let [high, low] = number.to_be_bytes();
        // The first 256 are for machines.
        Ipv4Addr::new(10, 77, high.saturating_add(1), low).into()
    }

    /// The same of the other family.
    pub fn vip6(number: u16) -> IpAddr {
        Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 1, number).into()
    }

    /// Watches all addresses of all nodes from now on.
    pub fn sampler(&self) -> Result<Sampler> {
        Sampler::start(self.nodes.clone())
    }

    /// Lets the client ask an address all the time, by UDP and TCP.
    pub fn ask(&self, address: IpAddr) -> Result<Asking> {
        self.ask_at(SocketAddr::new(address, ANSWER_PORT))
    }

    /// The same at another port, such as that of a Service, which must lead to [`ANSWER_PORT`] of a node.
    pub fn ask_at(&self, address: SocketAddr) -> Result<Asking> {
        Asking::start(&self.client, address)
    }

    /// Listens for announcements of addresses at the client from now on.
    pub fn announcements(&self) -> Result<Announcements> {
        Announcements::start(&self.client, &self.nodes)
    }

    /// A proxy in front of a control plane that nodes can reach: it listens in `api`, and its requests go out
    /// from the host, on whose loopback the control plane is. The kubeconfig for it is
    /// [`ControlPlane::service_account_kubeconfig_via`] with [`Proxy::url`]; a program on a node needs to be
    /// told that it [sees](Program::sees) the directory of the control plane.
    pub async fn proxy(&self, plane: &ControlPlane) -> Result<Proxy> {
        self.proxy_to(Upstream::of(plane)?).await
    }

    /// The same in front of something else.
    pub async fn proxy_to(&self, upstream: Upstream) -> Result<Proxy> {
        let addr = (self.api.ipv4(), 0);
        let listener = self.api.inside(move || TcpListener::bind(addr))?;
        Proxy::start_on(listener.map_err(Error::io("binding a port in `api`"))?, upstream).await
    }

    fn everything(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().chain([&self.client, &self.api])
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // A test may still have a node or what runs on it. One that is off already is no failure.
        for node in self.everything() {
            drop(node.power_off());
        }
    }
}
