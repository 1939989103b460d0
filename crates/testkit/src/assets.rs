//! Finds the control plane's binaries, in a directory the user names or in a cache, and builds missing ones
//! from the Go module registry.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead as _, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// The only place that says which versions are built.
const GO_MOD: &str = include_str!("../../../tools/control-plane/go.mod");
const GO_MOD_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/control-plane");

/// Often enough that a build never seems to hang.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// A program of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    Etcd,
    KubeApiserver,
    Kubectl,
    KubeControllerManager,
    KubeProxy,
}

impl Program {
    pub const ALL: [Self; 5] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::Kubectl,
        Self::KubeControllerManager,
        Self::KubeProxy,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::Kubectl => "kubectl",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeProxy => "kube-proxy",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::KubeProxy => "k8s.io/kubernetes/cmd/kube-proxy",
        }
    }
}

/// The version of Kubernetes that is built, such as `v1.36.3`.
pub fn kubernetes_version() -> Result<&'static str> {
    GO_MOD
        .lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "))
        .and_then(|rest| rest.split_whitespace().next())
        .ok_or(Error::NoVersion)
}

/// The oldest Go that builds it, such as `1.26.0`.
pub fn required_go() -> Result<&'static str> {
    GO_MOD.lines().find_map(|line| line.trim().strip_prefix("go ")).ok_or(Error::NoVersion)
}

/// The folder with the Go module that names the programs to build.
pub fn go_module_dir() -> &'static Path {
    Path::new(GO_MOD_DIR)
}

/// Binaries that exist.
#[derive(Clone, Debug)]
pub struct Assets {
    cache: PathBuf,
    given: Option<PathBuf>,
}

impl Assets {
    /// Makes sure that the `needed` programs exist, building the missing ones.
    ///
    /// If `KUBEBUILDER_ASSETS` is set, binaries in that folder take precedence. Kits for download lack the
    /// controller manager and kube-proxy, so these two may still be built. Blocks for as long as a build
    /// takes, and reports to `progress`.
    pub fn prepare(needed: &[Program], progress: &dyn Fn(&str)) -> Result<Self> {
        let home = std::env::home_dir().ok_or(Error::NoHome)?;
        let assets = Self {
            cache: home.join(".cache/landfall").join(kubernetes_version()?),
            given: std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from),
        };
        if !assets.missing(needed).is_empty() {
            assets.build_missing(needed, progress)?;
        }
        Ok(assets)
    }

    /// The path of a program, if it was among those prepared.
    pub fn path(&self, program: Program) -> PathBuf {
        self.given(program).unwrap_or_else(|| self.cache.join(program.name()))
    }

    fn given(&self, program: Program) -> Option<PathBuf> {
        self.given.as_ref().map(|dir| dir.join(program.name())).filter(|path| path.exists())
    }

    /// Binaries without this stamp, or with the stamp of another go.mod, may be of any version.
    fn stamp(&self) -> PathBuf {
        self.cache.join("go.mod")
    }

    fn is_stamped(&self) -> bool {
        fs::read_to_string(self.stamp()).is_ok_and(|stamp| stamp == GO_MOD)
    }

    fn missing(&self, needed: &[Program]) -> Vec<Program> {
        let stamped = self.is_stamped();
        let is_there = |program: Program| {
            self.given(program).is_some() || (stamped && self.cache.join(program.name()).exists())
        };
        needed.iter().copied().filter(|program| !is_there(*program)).collect()
    }

    fn build_missing(&self, needed: &[Program], progress: &dyn Fn(&str)) -> Result<()> {
        let at = || format!("preparing {}", self.cache.display());
        fs::create_dir_all(&self.cache).map_err(Error::io(at()))?;
        let lock = File::create(self.cache.join("lock")).map_err(Error::io(at()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                progress("waiting for another process that is building the control plane");
                lock.lock().map_err(Error::io(at()))?;
            }
            Err(TryLockError::Error(source)) => return Err(Error::Io { what: at(), source }),
        }
        if !self.is_stamped() {
            // Old binaries are removed before the new stamp is written, so that an interruption in between
            // never leaves an old binary under the new stamp.
            for program in Program::ALL {
                remove_if_there(&self.cache.join(program.name())).map_err(Error::io(at()))?;
            }
            fs::write(self.stamp(), GO_MOD).map_err(Error::io(at()))?;
        }
        // Checked again under the lock: its previous owner may have built everything.
        let missing = self.missing(needed);
        for (index, program) in missing.iter().enumerate() {
            let label = format!("{} ({} of {})", program.name(), index + 1, missing.len());
            self.build(*program, &label, progress)?;
        }
        Ok(())
    }

    fn build(&self, program: Program, label: &str, progress: &dyn Fn(&str)) -> Result<()> {
        let (name, required) = (program.name(), required_go()?);
        let begin = Instant::now();
        progress(&format!("building {label} from source"));
        let unfinished = self.cache.join(format!(".{name}.unfinished"));
        let mut child = Command::new("go")
            .args(["build", "-v", "-trimpath", "-ldflags", &linker_flags()?, "-o"])
            .arg(&unfinished)
            .arg(program.package())
            .current_dir(GO_MOD_DIR)
            .env("CGO_ENABLED", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| {
                if source.kind() == io::ErrorKind::NotFound {
                    Error::GoMissing { missing: name, required }
                } else {
                    Error::Io { what: format!("starting the build of {name}"), source }
                }
            })?;

        let lines = lines_of(child.stderr.take());
        let (mut said, mut reported) = (GoOutput::default(), begin);
        // Stderr ends when the build does.
        loop {
            match lines.recv_timeout(REPORT_EVERY.saturating_sub(reported.elapsed())) {
                Ok(line) => said.take_in(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                let seconds = begin.elapsed().as_secs();
                progress(&format!("building {label} … {seconds} s{}", said.progress()));
            }
        }
        let status = child.wait().map_err(Error::io(format!("waiting for the build of {name}")))?;
        if !status.success() {
            return Err(Error::Build { program: name, tail: said.tail(30) });
        }
        fs::rename(&unfinished, self.cache.join(name))
            .map_err(Error::io(format!("moving the finished {name} into the cache")))?;
        progress(&format!("built {label} in {} s", begin.elapsed().as_secs()));
        Ok(())
    }
}

/// Writes to stderr directly, past the capture of the test harness, because a build takes minutes.
pub fn progress_on_stderr(line: &str) {
    // A closed stderr is no reason to stop.
    drop(writeln!(io::stderr(), "landfall-testkit: {line}"));
}

/// A build from the module registry does not know its version, and clients ask for it.
fn linker_flags() -> Result<String> {
    let version = kubernetes_version()?;
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or("0"), parts.next().unwrap_or("0"));
    let base = "k8s.io/component-base/version";
    Ok(format!(
        "-s -w -X {base}.gitVersion={version} -X {base}.gitMajor={major} \
         -X {base}.gitMinor={minor} -X k8s.io/client-go/pkg/version.gitVersion={version}"
    ))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The lines of a child's stderr, read on a thread of their own: a full pipe would stop the child.
fn lines_of(stderr: Option<ChildStderr>) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).split(b'\n')) {
            let Ok(line) = line else { return };
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    lines
}

/// The output of `go build -v`: a line for each package it compiles, one for each module it downloads, and
/// its errors.
#[derive(Debug, Default)]
struct GoOutput {
    packages: usize,
    last: String,
    /// All lines except the packages.
    messages: Vec<String>,
}

impl GoOutput {
    fn take_in(&mut self, line: String) {
        // The path of a package has no blank, and every message has one.
        if line.contains(' ') {
            self.messages.push(line.clone());
        } else {
            self.packages += 1;
        }
        self.last = line;
    }

    /// How far the build is, to be put after the time it took.
    fn progress(&self) -> String {
        match (self.packages, self.last.as_str()) {
            (_, "") => String::new(),
            (0, last) => format!(", {last}"),
            (packages, last) => format!(", package {packages}, {last}"),
        }
    }

    /// The last of its messages.
    fn tail(&self, count: usize) -> String {
        self.messages[self.messages.len().saturating_sub(count)..].join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_that_of_the_go_module() {
        let version = kubernetes_version().unwrap();
        assert!(version.starts_with("v1."), "{version}");
        assert!(linker_flags().unwrap().contains(&format!("version.gitVersion={version}")));
    }

    #[test]
    fn a_build_tells_how_far_it_is_and_fails_with_its_messages_alone() {
        let mut said = GoOutput::default();
        assert_eq!(said.progress(), "");
        for (line, progress) in [
            ("go: downloading k8s.io/api v0.36.3", ", go: downloading k8s.io/api v0.36.3"),
            ("k8s.io/api/core/v1", ", package 1, k8s.io/api/core/v1"),
            ("internal/abi", ", package 2, internal/abi"),
            ("# k8s.io/api/apps/v1", ", package 2, # k8s.io/api/apps/v1"),
            ("types.go:1:1: syntax error", ", package 2, types.go:1:1: syntax error"),
        ] {
            said.take_in(line.to_owned());
            assert_eq!(said.progress(), progress, "{line}");
        }
        assert_eq!(said.tail(2), "# k8s.io/api/apps/v1\ntypes.go:1:1: syntax error");
    }
}
