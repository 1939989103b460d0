//! The operator as users run it: the binary, in its own process.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::process::Process;
use crate::scratch::Scratch;
use crate::{Error, Result, http_call};

const ADDRESS_DEADLINE: Duration = Duration::from_secs(30);
const STOP_DEADLINE: Duration = Duration::from_secs(30);

/// A running `landfall operator`, killed on drop.
#[derive(Debug)]
pub struct Operator {
    process: Process,
    admin: SocketAddr,
    _dir: Scratch,
}

impl Operator {
    /// Starts the operator and waits until it has logged its admin port, not until it is ready: while another
    /// operator leads, or behind a frozen proxy, it will not be.
    pub async fn spawn(binary: &Path, kubeconfig: &Path, extra_args: &[&str]) -> Result<Self> {
        Self::spawn_with(binary, kubeconfig, extra_args, &[]).await
    }

    /// The same with additional environment variables.
    pub async fn spawn_with(
        binary: &Path,
        kubeconfig: &Path,
        extra_args: &[&str],
        variables: &[(String, String)],
    ) -> Result<Self> {
        let dir = Scratch::new("landfall-operator-")?;
        let mut command = Command::new(binary);
        command
            .arg("operator")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--admin-addr", "127.0.0.1:0", "--log-format", "text"])
            // No test restores claims before Services unless it says so; a flag overrides this.
            .env("LANDFALL_ORPHAN_GRACE", "0s")
            .envs(variables.iter().cloned())
            .args(extra_args);
        let process = Process::spawn(&command, &dir.path().join("operator.log"))?;
        let admin = process
            .ready("admin_addr in the operator's log", ADDRESS_DEADLINE, async || {
                let log = std::fs::read_to_string(process.log()).map_err(|e| e.to_string())?;
                find_admin_addr(&log).ok_or_else(|| "a log without it".into())
            })
            .await?;
        Ok(Self { process, admin, _dir: dir })
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Where it serves health, readiness and metrics.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin
    }

    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Waits for `/readyz`; the error shows the end of its log.
    pub async fn wait_ready(&self, deadline: Duration) -> Result<()> {
        self.process
            .ready("the operator's /readyz", deadline, async || {
                let (status, body) = self.get("/readyz").await.map_err(|e| e.to_string())?;
                if status.is_success() { Ok(()) } else { Err(format!("{status}: {body}")) }
            })
            .await
    }

    /// One GET on the admin port.
    pub async fn get(&self, path: &str) -> Result<(http::StatusCode, String)> {
        http_call::get(&format!("http://{}{path}", self.admin)).await
    }

    /// The text of `/metrics`.
    pub async fn metrics(&self) -> Result<String> {
        let (status, body) = self.get("/metrics").await?;
        if status.is_success() {
            Ok(body)
        } else {
            Err(Error::Http { url: "/metrics".into(), reason: format!("{status}: {body}") })
        }
    }

    /// Kills it, as a crash would.
    pub fn kill(&self) -> Result<ExitStatus> {
        self.process.kill()
    }

    /// Ends it as Kubernetes does, and returns its exit status.
    pub async fn terminate(&self) -> Result<ExitStatus> {
        self.process.terminate(STOP_DEADLINE).await
    }

    /// Suspends it, as an overloaded node or a suspended machine does.
    pub fn stop_signal(&self) -> Result<()> {
        self.process.suspend()
    }

    /// Lets a suspended operator go on, unaware of the time that passed.
    pub fn cont_signal(&self) -> Result<()> {
        self.process.resume()
    }

    pub fn is_running(&self) -> bool {
        self.process.is_running()
    }

    pub fn log_tail(&self, lines: usize) -> String {
        self.process.log_tail(lines)
    }
}

/// Finds `admin_addr` in a log of either format, with or without colours.
fn find_admin_addr(log: &str) -> Option<SocketAddr> {
    let plain = without_escapes(log);
    plain.split("admin_addr").skip(1).find_map(|rest| {
        let value = rest.trim_start_matches(['"', '=', ':', ' ']);
        let end = value.find(['"', ' ', ',', '}', '\n']).unwrap_or(value.len());
        value[..end].parse().ok()
    })
}

fn without_escapes(text: &str) -> String {
    let mut pieces = text.split('\u{1b}');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        // Colours end with `m`; the log writes no other sequences.
        plain.push_str(piece.split_once('m').map_or("", |(_, rest)| rest));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_addr_is_found_in_every_format() {
        let found = "127.0.0.1:8080".parse().ok();
        for (case, log, expected) in [
            ("text", "INFO landfall: listening admin_addr=127.0.0.1:8080 pid=3\n", found),
            ("text, quoted", "listening admin_addr=\"127.0.0.1:8080\"\n", found),
            ("colours", "\u{1b}[3madmin_addr\u{1b}[0m\u{1b}[2m=\u{1b}[0m127.0.0.1:8080\n", found),
            ("json", r#"{"fields":{"admin_addr":"127.0.0.1:8080","x":1}}"#, found),
            ("the setting before it", "admin_addr=none\nadmin_addr=127.0.0.1:8080\n", found),
            ("IPv6", "admin_addr=[::1]:80\n", "[::1]:80".parse().ok()),
            ("absent", "INFO landfall: starting\n", None),
        ] {
            assert_eq!(find_admin_addr(log), expected, "{case}");
        }
    }
}
