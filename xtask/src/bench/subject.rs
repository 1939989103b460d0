//! The allocator under test, ours or any other, in its own process.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use landfall_testkit::{Operator, Process};
use serde::Serialize;
use tokio::time::sleep;

use super::error::{Error, Result};
use super::report::ratio;

/// A million, as in the sizes of files.
const BYTES_PER_MB: u32 = 1_000_000;
const READY_DEADLINE: Duration = Duration::from_mins(2);
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
const STOP_DEADLINE: Duration = Duration::from_secs(30);

/// Which allocator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Landfall,
    Other,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Landfall => "landfall operator",
            Self::Other => "the operator of --operator-cmd",
        })
    }
}

/// How to start the allocator.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    Landfall { binary: PathBuf, namespace: String },
    Other { command: String, log: PathBuf },
}

impl Subject {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Landfall { .. } => Kind::Landfall,
            Self::Other { .. } => Kind::Other,
        }
    }

    pub(super) fn is_ours(&self) -> bool {
        self.kind() == Kind::Landfall
    }

    /// The size of our binary.
    pub(super) fn binary_mb(&self) -> Result<Option<f64>> {
        let Self::Landfall { binary, .. } = self else { return Ok(None) };
        let path = binary.display();
        let bytes = fs::metadata(binary).map_err(Error::io(format!("looking at {path}")))?.len();
        Ok(Some(ratio(bytes, BYTES_PER_MB)))
    }

    /// Starts it; it may need time until it works. All that are started this way count as one Pod: one after
    /// the other, as its container is restarted.
    pub(super) async fn start(&self, kubeconfig: &Path) -> Result<Running> {
        self.start_with(kubeconfig, &[], "bench").await
    }

    /// Starts another one beside it, in its own Pod. Ours only.
    pub(super) async fn start_standby(&self, kubeconfig: &Path) -> Result<Running> {
        self.start_with(kubeconfig, &[], "bench-standby").await
    }

    /// Starts one that works without being elected, whichever others work. Ours only: we do not know the flag
    /// for others.
    pub(super) async fn start_unelected(&self, kubeconfig: &Path) -> Result<Running> {
        self.start_with(kubeconfig, &["--leader-elect=false"], "bench").await
    }

    async fn start_with(&self, kubeconfig: &Path, flags: &[&str], pod: &str) -> Result<Running> {
        let spawned = Instant::now();
        let program = match self {
            Self::Landfall { binary, namespace } => {
                let args = [&["--namespace", namespace.as_str()], flags].concat();
                // A variable, because older builds do not know the flag.
                let pod = [("LANDFALL_POD_UID".to_owned(), pod.to_owned())];
                let operator = Operator::spawn_with(binary, kubeconfig, &args, &pod).await?;
                Program::Landfall(Box::new(operator))
            }
            Self::Other { command, log } => {
                let mut shell = Command::new("sh");
                // `exec`, so that the process we measure is the program and not the shell.
                shell.args(["-c", &format!("exec {command}")]).env("KUBECONFIG", kubeconfig);
                Program::Other(Box::new(Process::spawn(&shell, log)?))
            }
        };
        Ok(Running { spawned, program })
    }
}

enum Program {
    Landfall(Box<Operator>),
    Other(Box<Process>),
}

/// A running allocator, killed on drop.
pub(super) struct Running {
    /// When its process was started.
    pub(super) spawned: Instant,
    program: Program,
}

impl Running {
    fn process(&self) -> &Process {
        match &self.program {
            Program::Landfall(operator) => operator.process(),
            Program::Other(process) => process,
        }
    }

    /// Fails if it is no longer running, which makes waiting for it pointless.
    pub(super) fn check(&self) -> Result<()> {
        let process = self.process();
        if process.is_running() {
            return Ok(());
        }
        let kind = match self.program {
            Program::Landfall(_) => Kind::Landfall,
            Program::Other(_) => Kind::Other,
        };
        Err(Error::SubjectEnded { kind, tail: process.log_tail(25) })
    }

    /// Returns when it is no longer running, with the end of its log.
    pub(super) async fn death(&self) -> Error {
        loop {
            sleep(LOOK_INTERVAL).await;
            if let Err(error) = self.check() {
                return error;
            }
        }
    }

    /// Time from its start to `/readyz`; `None` for an allocator whose readiness we cannot read.
    pub(super) async fn ready_after(&self) -> Result<Option<Duration>> {
        let Program::Landfall(operator) = &self.program else { return Ok(None) };
        while self.spawned.elapsed() < READY_DEADLINE {
            self.check()?;
            if operator.get("/readyz").await.is_ok_and(|(status, _)| status.is_success()) {
                return Ok(Some(self.spawned.elapsed()));
            }
            sleep(Duration::from_millis(2)).await;
        }
        // The testkit's own wait reports best what was missing.
        operator.wait_ready(Duration::from_secs(1)).await?;
        Ok(Some(self.spawned.elapsed()))
    }

    /// Waits until it leads; the lease of a killed process of another Pod runs out first.
    pub(super) async fn leading(&self) -> Result<()> {
        let Program::Landfall(operator) = &self.program else { return Ok(()) };
        let what = "the operator leads";
        landfall_testkit::wait::until(what, READY_DEADLINE, async || {
            let metrics = operator.metrics().await.map_err(|error| error.to_string())?;
            let leads = metrics.lines().any(|line| line.trim() == "landfall_leader 1");
            if leads { Ok(()) } else { Err("it stands by".to_owned()) }
        })
        .await
        .map_err(landfall_testkit::Error::from)?;
        Ok(())
    }

    /// The calls it counted; `None` if it does not count them.
    pub(super) async fn calls(&self) -> Result<Option<Calls>> {
        match &self.program {
            Program::Landfall(operator) => Ok(Some(Calls::parse(&operator.metrics().await?))),
            Program::Other(_) => Ok(None),
        }
    }

    /// Waits until it has made no call for a second, and returns the calls it counted.
    pub(super) async fn quiet(&self) -> Result<Option<Calls>> {
        let end = Instant::now() + READY_DEADLINE;
        let mut last = self.calls().await?;
        loop {
            sleep(Duration::from_secs(1)).await;
            let now = self.calls().await?;
            if now == last || Instant::now() >= end {
                return Ok(now);
            }
            last = now;
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.process().pid()
    }

    pub(super) fn usage(&self) -> Result<Usage> {
        self.check()?;
        Usage::of(self.pid())
    }

    /// Ends it as Kubernetes does.
    pub(super) async fn stop(self) -> Result<()> {
        self.process().terminate(STOP_DEADLINE).await?;
        Ok(())
    }

    /// Kills it, as a crash would.
    pub(super) fn kill(self) -> Result<()> {
        self.process().kill()?;
        Ok(())
    }
}

/// Calls of the operator by effect, from its metric `landfall_calls_total`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Calls(BTreeMap<String, u64>);

impl Calls {
    pub(super) fn parse(metrics: &str) -> Self {
        let mut calls = BTreeMap::new();
        for line in metrics.lines() {
            let Some(rest) = line.strip_prefix("landfall_calls_total{") else { continue };
            let Some((labels, value)) = rest.rsplit_once("} ") else { continue };
            let label = |name: &str| {
                let mut pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
                pairs.find(|(key, _)| *key == name).map(|(_, value)| value.trim_matches('"'))
            };
            // A call that was not sent does not count.
            if label("result") == Some("not_sent") {
                continue;
            }
            let count: u64 = value.trim().parse().unwrap_or_default();
            *calls.entry(label("effect").unwrap_or_default().to_owned()).or_default() += count;
        }
        Self(calls)
    }

    /// The calls since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let counts = self.0.iter().map(|(effect, count)| {
            (
                effect.clone(),
                count.saturating_sub(before.0.get(effect).copied().unwrap_or_default()),
            )
        });
        Self(counts.filter(|(_, count)| *count > 0).collect())
    }

    fn sum(&self, counts: impl Fn(&str) -> bool) -> u64 {
        self.0.iter().filter(|(effect, _)| counts(effect)).map(|(_, count)| count).sum()
    }

    pub(super) fn of(&self, effect: &str) -> u64 {
        self.sum(|other| other == effect)
    }

    pub(super) fn events(&self) -> u64 {
        self.sum(|effect| effect == "event")
    }

    pub(super) fn but_events(&self) -> u64 {
        self.sum(|effect| effect != "event")
    }

    pub(super) fn writes(&self) -> u64 {
        self.sum(|effect| effect != "look")
    }

    /// Writes of claims and Services: the cost of allocations. Events and the status of pools are written at
    /// their own rate, however many allocations there are.
    pub(super) fn writes_for_services(&self) -> u64 {
        self.sum(|effect| !matches!(effect, "look" | "event" | "pool_status"))
    }

    /// The calls of both together.
    pub(super) fn and(mut self, other: Self) -> Self {
        for (effect, count) in other.0 {
            *self.0.entry(effect).or_default() += count;
        }
        self
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.0.iter().map(|(effect, n)| format!("{effect} {n}")).collect();
        f.write_str(&parts.join(", "))
    }
}

/// The CPU time and memory that a process has used.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Usage {
    pub(super) cpu_seconds: f64,
    pub(super) resident_mb: f64,
    pub(super) peak_mb: f64,
}

impl Usage {
    /// The unit of times in `/proc`: Linux always shows programs 1/100 s.
    pub(super) const TICKS_PER_SECOND: f64 = 100.0;

    /// The CPU time of both, and the memory of the larger.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds + other.cpu_seconds,
            resident_mb: self.resident_mb.max(other.resident_mb),
            peak_mb: self.peak_mb.max(other.peak_mb),
        }
    }

    /// The CPU time used since `before`, and the present memory.
    pub(super) fn since(self, before: Self) -> Self {
        Self { cpu_seconds: self.cpu_seconds - before.cpu_seconds, ..self }
    }

    pub(super) fn of(pid: u32) -> Result<Self> {
        let read = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            fs::read_to_string(&path).map_err(Error::io(format!("reading {path}")))
        };
        let (stat, status) = (read("stat")?, read("status")?);
        // The name in parentheses may hold blanks; utime and stime are fields 14 and 15.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let ticks: f64 =
            fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        Ok(Self {
            cpu_seconds: ticks / Self::TICKS_PER_SECOND,
            resident_mb: Self::megabytes(&status, "VmRSS:"),
            peak_mb: Self::megabytes(&status, "VmHWM:"),
        })
    }

    /// A size in a file of `/proc`; 0 if it is not there.
    pub(super) fn megabytes(text: &str, key: &str) -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        number.and_then(|number| number.parse::<f64>().ok()).unwrap_or_default() / 1024.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_from_the_metrics_of_the_operator() {
        let before = Calls::parse("landfall_calls_total{effect=\"take\",result=\"done\"} 2\n");
        let calls = Calls::parse(
            "# TYPE landfall_calls counter\n\
             landfall_calls_total{effect=\"take\",result=\"done\"} 5\n\
             landfall_calls_total{effect=\"take\",result=\"exists\"} 1\n\
             landfall_calls_total{result=\"not_sent\",effect=\"take\"} 9\n\
             landfall_calls_total{effect=\"event\",result=\"done\"} 3\n\
             landfall_calls_total{effect=\"look\",result=\"done\"} 7\n\
             landfall_leader 1\n",
        );
        assert_eq!((calls.but_events(), calls.events(), calls.writes()), (13, 3, 9));
        assert_eq!(calls.writes_for_services(), 6);
        assert_eq!(calls.since(&before).to_string(), "event 3, look 7, take 4");
        assert_eq!(calls.since(&calls).to_string(), "");
        assert_eq!(before.and(calls).to_string(), "event 3, look 7, take 8");
    }

    #[test]
    fn usage_of_this_process_is_plausible() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.resident_mb > 1.0 && usage.peak_mb >= usage.resident_mb / 2.0, "{usage:?}");
        assert!(usage.cpu_seconds < 1e6, "{usage:?}");
    }
}
