//! The control plane's etcd: start, save, restore and compact.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::START_DEADLINE;
use crate::assets::{Assets, Program};
use crate::process::Process;
use crate::{Error, Result, http_call, ports};

/// The folders of the data and of a copy of it.
const DATA: &str = "etcd";
const SAVED: &str = "etcd-saved";

/// A running etcd of one member.
#[derive(Debug)]
pub(super) struct Etcd {
    process: Mutex<Arc<Process>>,
    program: PathBuf,
    dir: PathBuf,
    url: String,
    peer_url: String,
}

impl Etcd {
    pub(super) async fn start(assets: &Assets, dir: &Path) -> Result<Self> {
        let (client, peer) = (ports::free()?, ports::free()?);
        let url = format!("http://127.0.0.1:{client}");
        let peer_url = format!("http://127.0.0.1:{peer}");
        let program = assets.path(Program::Etcd);
        let process = run(&program, dir, &url, &peer_url).await?;
        let process = Mutex::new(Arc::new(process));
        Ok(Self { process, program, dir: dir.to_owned(), url, peer_url })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn process(&self) -> Arc<Process> {
        Arc::clone(&self.process.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Copies everything as it is at this moment. The process is suspended meanwhile, so that the copy is
    /// what a crash at this moment would leave, which etcd survives.
    pub(super) fn save(&self) -> Result<()> {
        let saved = self.dir.join(SAVED);
        let doing = |what: &str| Error::io(format!("{what} {}", saved.display()));
        if saved.exists() {
            fs::remove_dir_all(&saved).map_err(doing("removing"))?;
        }
        let process = self.process();
        process.suspend()?;
        let copied = copy(&self.dir.join(DATA), &saved).map_err(doing("copying to"));
        process.resume()?;
        copied
    }

    /// Ends it and starts it again, on the same ports, from the saved copy.
    pub(super) async fn restore(&self) -> Result<()> {
        let (saved, data) = (self.dir.join(SAVED), self.dir.join(DATA));
        self.process().kill()?;
        fs::remove_dir_all(&data).map_err(Error::io("removing etcd's data"))?;
        copy(&saved, &data).map_err(Error::io(format!("copying {}", saved.display())))?;
        let process = run(&self.program, &self.dir, &self.url, &self.peer_url).await?;
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(process);
        Ok(())
    }

    /// Compacts every revision before the present one, which it returns.
    pub(super) async fn compact(&self) -> Result<u64> {
        // Any read tells the revision; this one asks for a key that does not exist.
        let header = self.ask("/v3/kv/range", &json!({"key": "AA=="})).await?;
        let revision = header["header"]["revision"].as_str().and_then(|text| text.parse().ok());
        let revision: u64 = revision.ok_or_else(|| Error::Http {
            url: self.url.clone(),
            reason: format!("no revision in {header}"),
        })?;
        self.ask("/v3/kv/compaction", &json!({"revision": revision.to_string()})).await?;
        Ok(revision)
    }

    /// One call of the gateway, which translates JSON to gRPC.
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

/// Starts the program and returns once it is healthy.
async fn run(program: &Path, dir: &Path, url: &str, peer_url: &str) -> Result<Process> {
    let mut command = Command::new(program);
    command
        .arg("--data-dir")
        .arg(dir.join(DATA))
        .args(["--listen-client-urls", url, "--advertise-client-urls", url])
        .args(["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url])
        .args(["--initial-cluster", &format!("default={peer_url}")])
        // The data need not survive a crash of the machine.
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
    Ok(process)
}

/// Copies a folder and all in it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}
