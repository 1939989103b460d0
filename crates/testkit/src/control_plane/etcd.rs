//! The store under the API server.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::START_DEADLINE;
use crate::assets::{Assets, Program};
use crate::process::Process;
use crate::{Error, Result, http_call, ports};

/// A running etcd of one member.
#[derive(Debug)]
pub(super) struct Etcd {
    process: Process,
    url: String,
}

impl Etcd {
    pub(super) async fn start(assets: &Assets, dir: &Path) -> Result<Self> {
        let (client, peer) = (ports::free()?, ports::free()?);
        let url = format!("http://127.0.0.1:{client}");
        let peer_url = format!("http://127.0.0.1:{peer}");
        let mut command = Command::new(assets.path(Program::Etcd));
        command
            .arg("--data-dir")
            .arg(dir.join("etcd"))
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("default={peer_url}")])
            // The data outlives no machine crash and need not.
            .args(["--unsafe-no-fsync", "--log-level=warn"]);
        let process = Process::spawn(&command, &dir.join("etcd.log"))?;
        process
            .ready("etcd's /health", START_DEADLINE, async || {
                match http_call::get(&format!("{url}/health")).await {
                    Ok((status, _)) if status.is_success() => Ok(()),
                    Ok((status, body)) => Err(format!("{status}: {body}")),
                    Err(error) => Err(error.to_string()),
                }
            })
            .await?;
        Ok(Self { process, url })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    /// Forgets every revision before the present one, which it returns.
    pub(super) async fn compact(&self) -> Result<u64> {
        // Any read tells the revision; this one is for a key that nobody has.
        let header = self.ask("/v3/kv/range", &json!({"key": "AA=="})).await?;
        let revision = header["header"]["revision"].as_str().and_then(|text| text.parse().ok());
        let revision: u64 = revision.ok_or_else(|| Error::Http {
            url: self.url.clone(),
            reason: format!("no revision in {header}"),
        })?;
        self.ask("/v3/kv/compaction", &json!({"revision": revision.to_string()})).await?;
        Ok(revision)
    }

    /// One call of the gateway, which speaks JSON for gRPC.
    async fn ask(&self, path: &str, question: &Value) -> Result<Value> {
        let url = format!("{}{path}", self.url);
        let (status, body) = http_call::post(&url, question.to_string()).await?;
        if !status.is_success() {
            return Err(Error::Http { url, reason: format!("{status}: {body}") });
        }
        serde_json::from_str(&body)
            .map_err(|error| Error::Http { url, reason: format!("{error} in {body}") })
    }
}
