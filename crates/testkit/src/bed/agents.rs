//! The agents of a keepalived group on the nodes of a bed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::{Node, Program, Running};
use crate::process::Process;
use crate::{ControlPlane, Proxy, Result, wait};

/// Where each agent serves its pages, on its own node.
const METRICS: &str = "127.0.0.1:9650";
/// The folder of an agent, in that of its node.
const RUN_DIR: &str = "run";
const ACCOUNT_DEADLINE: Duration = Duration::from_secs(90);

/// Agents as the group's `DaemonSet` would start them: confined, and with the account of the group.
#[derive(Debug)]
pub struct Agents {
    binary: PathBuf,
    group: String,
    kubeconfig: PathBuf,
    plane_dir: PathBuf,
    running: BTreeMap<String, Arc<Process>>,
}

impl Agents {
    /// None runs yet. `group` is `namespace/name`; the kubeconfig is for a proxy that nodes can reach.
    pub fn new(binary: &Path, group: &str, kubeconfig: &Path, plane: &ControlPlane) -> Self {
        Self {
            binary: binary.to_owned(),
            group: group.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            plane_dir: plane.dir().to_owned(),
            running: BTreeMap::new(),
        }
    }

    /// The same with the account that the operator makes for the group.
    pub async fn of_group(
        binary: &Path,
        group: (&str, &str),
        plane: &ControlPlane,
        proxy: &Proxy,
    ) -> Result<Self> {
        let kubeconfig = Self::kubeconfig(group, plane, proxy).await?;
        let (namespace, name) = group;
        Ok(Self::new(binary, &format!("{namespace}/{name}"), &kubeconfig, plane))
    }

    /// A kubeconfig of that account.
    pub async fn kubeconfig(
        (namespace, name): (&str, &str),
        plane: &ControlPlane,
        proxy: &Proxy,
    ) -> Result<PathBuf> {
        let account = format!("{name}-agent");
        let found = wait::until("the agents' account", ACCOUNT_DEADLINE, async || {
            plane.service_account_kubeconfig_via(namespace, &account, &proxy.url()).await
        });
        Ok(found.await?)
    }

    /// Starts the agent of a node, in place of one that has ended.
    pub fn start(&mut self, node: &Node) -> Result<()> {
        let kubeconfig = self.kubeconfig.clone();
        self.start_with(node, &kubeconfig)
    }

    /// The same with a connection of its own to the API server.
    pub fn start_with(&mut self, node: &Node, kubeconfig: &Path) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command
            .args(["agent", "--group", &self.group, "--node", node.name()])
            .args(["--metrics-addr", METRICS])
            .arg("--run-dir")
            .arg(run_dir(node))
            .arg("--kubeconfig")
            .arg(kubeconfig);
        let program = Program::new(command).sees(&self.plane_dir).confined();
        let agent = node.run(program, "agent.log")?;
        self.running.insert(node.name().to_owned(), agent);
        Ok(())
    }

    /// The agent that was started last on a node.
    pub fn get(&self, node: &str) -> Option<&Arc<Process>> {
        self.running.get(node)
    }

    /// The processes of a node's keepalived, and those of landfall, which are the agent and its worker.
    pub fn processes(node: &Node) -> Result<(Vec<Running>, Vec<Running>)> {
        let configuration = run_dir(node).join("keepalived.conf");
        Ok((Running::of("keepalived", &configuration)?, Running::of("landfall", &run_dir(node))?))
    }

    /// The last lines of the logs of all agents.
    pub fn log_tails(&self, lines: usize) -> String {
        let tails = self.running.values().map(|agent| agent.log_tail(lines));
        tails.collect::<Vec<_>>().join("\n---\n")
    }
}

/// Waits until the agent of a node says that every instance of the node holds or has heard a holder.
pub async fn ready(node: &Node, deadline: Duration) -> Result<()> {
    wait::until(format!("{} to be ready", node.name()), deadline, async || {
        let (status, body) = page(node, "/readyz");
        if status == 200 { Ok(()) } else { Err(body) }
    })
    .await?;
    Ok(())
}

/// The folder in which the agent of a node keeps what it remembers.
pub fn run_dir(node: &Node) -> PathBuf {
    node.dir().join(RUN_DIR)
}

/// A page that the agent of a node serves, and its status; 0 without an answer.
pub fn page(node: &Node, path: &str) -> (u16, String) {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--write-out", "\n%{http_code}"]);
    curl.arg(format!("http://{METRICS}{path}"));
    let output = node.output(curl).unwrap_or_default();
    let (body, status) = output.trim_end().rsplit_once('\n').unwrap_or_default();
    (status.parse().unwrap_or_default(), body.to_owned())
}

/// The sum of one of the agent's metrics over its labels.
pub fn metric(node: &Node, metric: &str) -> u64 {
    let (_, page) = page(node, "/metrics");
    let samples = page
        .lines()
        .filter(|line| line.strip_prefix(metric).is_some_and(|rest| rest.starts_with([' ', '{'])));
    samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}
