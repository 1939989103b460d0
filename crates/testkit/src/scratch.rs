//! A directory that is removed with the process, however the process ends.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::{Error, Result};

/// A temporary directory removed on drop, or by a small janitor once this process is dead.
///
/// A control plane that lives in a `static` is never dropped, and a test killed with -9 drops
/// nothing at all; an etcd data directory is 64 MB and more, so leaving it behind fills disks.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: TempDir,
    janitor: Child,
}

/// Where files are in memory, so that no other program's use of the disk delays their writers.
const MEMORY: &str = "/dev/shm";

impl Scratch {
    pub(crate) fn new(prefix: &str) -> Result<Self> {
        Self::new_in(&env::temp_dir(), prefix)
    }

    /// In memory where that is possible.
    pub(crate) fn in_memory(prefix: &str) -> Result<Self> {
        Self::new_in(Path::new(MEMORY), prefix).or_else(|_| Self::new(prefix))
    }

    fn new_in(parent: &Path, prefix: &str) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(parent)
            .map_err(Error::io("making a temporary directory"))?;
        // `read` returns at the end of its input, which comes when we close the pipe or die. Its own process
        // group keeps it alive through Ctrl-C; the second of waiting is for processes that die with us and
        // may still be writing.
        let janitor = Command::new("sh")
            .args(["-c", r#"read -r _; sleep 1; exec rm -rf -- "$1""#, "janitor"])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(Error::io("starting the janitor of a temporary directory"))?;
        Ok(Self { dir, janitor })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The directory itself is removed with the field; errors here mean the janitor is gone already.
        drop(self.janitor.kill());
        drop(self.janitor.wait());
    }
}
