//! The real kube-proxy on a node, which passes packets for Services on to their endpoints.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::{Node, Program};
use crate::assets::{self, Assets, Program as Binary};
use crate::process::Process;
use crate::{ControlPlane, Proxy, Result};

/// Longer than any machine is busy.
const DEADLINE: Duration = Duration::from_mins(1);
/// How long it may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(5);
const HEALTH: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10_256);

/// A running kube-proxy in the mode `iptables`. It is killed on drop.
#[derive(Debug)]
pub struct KubeProxy {
    process: Arc<Process>,
}

impl KubeProxy {
    /// Starts it as the node of that name, and waits until it has written its first rules.
    ///
    /// Its client sends no token by plain HTTP, which is how `proxy` is reached: whoever is not authenticated
    /// must have the rights of a kube-proxy.
    pub async fn start(node: &Node, plane: &ControlPlane, proxy: &Proxy) -> Result<Self> {
        let assets = Assets::prepare(&[Binary::KubeProxy], &assets::progress_on_stderr)?;
        let url = proxy.url();
        let path = plane.service_account_kubeconfig_via("kube-system", "kube-proxy", &url).await?;
        let mut command = Command::new(assets.path(Binary::KubeProxy));
        command.arg("--kubeconfig").arg(path);
        command.args(["--proxy-mode", "iptables", "--hostname-override", node.name()]);
        command.args(["--healthz-bind-address", &HEALTH.to_string()]);
        // What it would set for connections is the same for all nodes on this machine.
        command.args([
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
        ]);
        let program = Program::new(command).sees(plane.dir());
        let process = node.run(program, "kube-proxy.log")?;
        process
            .ready("kube-proxy to be healthy", DEADLINE, async || {
                let answer = node.inside(health).map_err(|error| error.to_string())?;
                let answer = answer.map_err(|error| error.to_string())?;
                if answer.starts_with("HTTP/1.0 200") { Ok(()) } else { Err(answer) }
            })
            .await?;
        Ok(Self { process })
    }

    pub fn process(&self) -> &Process {
        &self.process
    }
}

fn health() -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&HEALTH, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
