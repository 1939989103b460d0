//! The agents of a keepalived group on the nodes of a bed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::{Node, Program, Running};
use crate::process::Process;
use crate::{ControlPlane, Error, Proxy, Result, wait};

const ACCOUNT_DEADLINE: Duration = Duration::from_secs(90);

/// What the agents of one group have on every node for themselves, since those of another may run beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Of the only group, or the first.
    First,
    Second,
}

impl Place {
    /// The folder in which the agent of a node keeps what it remembers.
    pub fn run_dir(self, node: &Node) -> PathBuf {
        node.dir().join(match self {
            Self::First => "run",
            Self::Second => "second-run",
        })
    }

    /// Where it serves its pages, on its own node.
    fn metrics(self) -> &'static str {
        match self {
            Self::First => "127.0.0.1:9650",
            Self::Second => "127.0.0.1:9651",
        }
    }

    fn log(self) -> &'static str {
        match self {
            Self::First => "agent.log",
            Self::Second => "second-agent.log",
        }
    }

    /// A page that the agent of a node serves, and its status; 0 without an answer.
    pub fn page(self, node: &Node, path: &str) -> (u16, String) {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--write-out", "\n%{http_code}"]);
        curl.arg(format!("http://{}{path}", self.metrics()));
        let output = node.output(curl).unwrap_or_default();
        let (body, status) = output.trim_end().rsplit_once('\n').unwrap_or_default();
        (status.parse().unwrap_or_default(), body.to_owned())
    }

    /// The sum of one of the agent's metrics over its labels. A page that cannot be read, and one without the
    /// metric, is an error.
    pub fn metric(self, node: &Node, metric: &str) -> Result<u64> {
        let (status, page) = self.page(node, "/metrics");
        sum(&page, metric).filter(|_| status == 200).ok_or_else(|| Error::Command {
            command: format!("reading {metric} of {}", node.name()),
            output: format!("status {status}\n{page}"),
        })
    }

    /// Waits until the agent of a node says that every instance of the node holds or has heard a holder.
    pub async fn ready(self, node: &Node, deadline: Duration) -> Result<()> {
        wait::until(format!("{} to be ready", node.name()), deadline, async || {
            let (status, body) = self.page(node, "/readyz");
            if status == 200 { Ok(()) } else { Err(body) }
        })
        .await?;
        Ok(())
    }

    /// The processes of a node's keepalived, and those of landfall, which are the agent and its worker.
    pub fn processes(self, node: &Node) -> Result<(Vec<Running>, Vec<Running>)> {
        let run_dir = self.run_dir(node);
        let configuration = run_dir.join("keepalived.conf");
        Ok((Running::of("keepalived", &configuration)?, Running::of("landfall", &run_dir)?))
    }
}

/// Agents as the group's `DaemonSet` would start them: confined, and with the account of the group.
#[derive(Debug)]
pub struct Agents {
    binary: PathBuf,
    group: String,
    kubeconfig: PathBuf,
    plane_dir: PathBuf,
    place: Place,
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
            place: Place::First,
            running: BTreeMap::new(),
        }
    }

    /// The same in another place.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = place;
        self
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
            .args(["--metrics-addr", self.place.metrics()])
            .arg("--run-dir")
            .arg(self.place.run_dir(node))
            .arg("--kubeconfig")
            .arg(kubeconfig);
        let program = Program::new(command).sees(&self.plane_dir).confined();
        let agent = node.run(program, self.place.log())?;
        self.running.insert(node.name().to_owned(), agent);
        Ok(())
    }

    pub fn place(&self) -> Place {
        self.place
    }

    /// The agent that was started last on a node.
    pub fn get(&self, node: &str) -> Option<&Arc<Process>> {
        self.running.get(node)
    }

    /// The last lines of the logs of all agents.
    pub fn log_tails(&self, lines: usize) -> String {
        let tails = self.running.values().map(|agent| agent.log_tail(lines));
        tails.collect::<Vec<_>>().join("\n---\n")
    }
}

/// The sum of the samples of a metric on a page that has it.
fn sum(page: &str, metric: &str) -> Option<u64> {
    // One with labels may have no sample yet.
    let kind = format!("# TYPE {metric} ");
    page.lines().find(|line| line.starts_with(&kind))?;
    let value = |line: &str| {
        let rest = line.strip_prefix(metric).filter(|rest| rest.starts_with([' ', '{']))?;
        Some(rest.rsplit_once(' ').and_then(|(_, value)| value.parse::<u64>().ok()))
    };
    page.lines().filter_map(value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_that_the_page_does_not_have_is_not_taken_for_zero() {
        let page = "# TYPE a counter\na 3\n# TYPE a_b gauge\na_b{x=\"1 2\"} 4\na_b{x=\"3\"} 5\n\
                    # TYPE none gauge\n# TYPE wrong gauge\nwrong 1.5\n";
        for (metric, found) in
            [("a", Some(3)), ("a_b", Some(9)), ("none", Some(0)), ("a_", None), ("wrong", None)]
        {
            assert_eq!(sum(page, metric), found, "{metric}");
        }
        assert_eq!(sum("", "a"), None);
    }
}
