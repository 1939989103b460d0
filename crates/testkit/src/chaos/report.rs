//! The result of an attack, for people.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A violation of a rule.
#[derive(Clone, Debug)]
pub struct Violation {
    pub round: u64,
    pub what: String,
    /// Where the story is kept: the last acts, all objects, requests and the operators' logs.
    pub story: PathBuf,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { round, what, story } = self;
        write!(f, "  round {round}: {what}\n    story: {}", story.display())
    }
}

/// Everything that was counted.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub seed: u64,
    pub rounds: u64,
    pub time: Duration,
    /// How often there was each attack.
    pub attacks: BTreeMap<String, u64>,
    /// The acts of users by kind, and how often the API server refused them.
    pub acts: BTreeMap<&'static str, u64>,
    pub refused: usize,
    pub touched: BTreeSet<String>,
    /// Requests and writes of all operators that reached their proxies.
    pub requests: usize,
    pub writes: usize,
    /// Operators killed.
    pub crashes: u64,
    /// What the proxies did to requests, by kind.
    pub harm: BTreeMap<String, u64>,
    pub violations: Vec<Violation>,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed                 {}", self.seed)?;
        writeln!(f, "rounds               {} in {:.0} s", self.rounds, self.time.as_secs_f64())?;
        for (attack, count) in &self.attacks {
            writeln!(f, "  {count:6}  {attack}")?;
        }
        let acts: u64 = self.acts.values().sum();
        writeln!(
            f,
            "acts of users        {acts} on {} objects, {} of them refused",
            self.touched.len(),
            self.refused
        )?;
        for (kind, count) in &self.acts {
            writeln!(f, "  {count:6}  {kind}")?;
        }
        let (requests, writes) = (self.requests, self.writes);
        writeln!(f, "operators' writes    {writes} of {requests} requests")?;
        writeln!(f, "operators killed     {}", self.crashes)?;
        writeln!(f, "faults               {}", self.harm.values().sum::<u64>())?;
        for (kind, count) in &self.harm {
            writeln!(f, "  {count:6}  {kind}")?;
        }
        write!(f, "violations           {}", self.violations.len())?;
        for violation in &self.violations {
            write!(f, "\n{violation}")?;
        }
        Ok(())
    }
}
