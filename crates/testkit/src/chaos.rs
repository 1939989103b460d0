//! Attacks on the operator's binary on a real control plane, behind a bad network, while users act at random
//! and something breaks.
//!
//! An attack consists of rounds. In each, some operators work, users act at random and one thing is attacked,
//! all decided by one seed as far as that is possible where many things run at once. Then the harm ends, and
//! the cluster must settle without violations: see [`judge`].

mod attack;
mod crew;
mod hostile;
mod judge;
mod player;
mod report;
mod world;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kube::Client;

pub use attack::Attack;
pub use crew::Crew;
pub use report::{Report, Violation};

use crate::cluster::{History, Recorder, Snapshot};
use crate::install::Install;
use crate::proxy::faults::Rates;
use crate::random::Random;
use crate::{ControlPlane, Error, Result, wait};
use attack::Scene;
use crew::Operators;
use player::Player;

/// Not a measurement: refused calls are retried at growing intervals.
const SETTLE_DEADLINE: Duration = Duration::from_secs(150);
/// Operators that have not written for this long count as idle; longer than pool status waits for its turn.
const SILENCE: Duration = Duration::from_secs(3);
/// The least number of acts of users in a round.
const ACTS: usize = 120;
const SECOND_NAMESPACE: &str = "landfall-second";

/// What a run needs: the operator, its manifests and a folder for stories.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The operator.
    pub binary: PathBuf,
    /// The folder with CRDs and rights.
    pub deploy: PathBuf,
    pub seed: u64,
    /// Where the story of each violation is kept.
    pub stories: PathBuf,
}

/// What one round attacks, and with which crew.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    pub number: u64,
    pub crew: Crew,
    pub attack: Attack,
    pub rates: Rates,
}

impl Round {
    /// The round of this number: attacks take turns, the seed decides the crew. Every fourth round has a good
    /// network, because a bad one hides what only happens fast.
    pub fn of(seed: u64, number: u64) -> Self {
        let mut random = Random::child(seed, number);
        let turn = usize::try_from(number).unwrap_or_default() % Attack::ALL.len();
        let rates = if random.once_in(4) { Rates::default() } else { Rates::BAD };
        Self { number, crew: *random.pick(&Crew::ALL), attack: Attack::ALL[turn], rates }
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = if self.rates == Rates::default() { "good" } else { "bad" };
        write!(f, "{}, {}, {network} network", self.attack, self.crew)
    }
}

/// A cluster under attack.
pub struct Chaos {
    setting: Setting,
    plane: ControlPlane,
    client: Client,
    first: Install,
    second: Install,
    begin: Instant,
    report: Report,
}

impl Chaos {
    /// Starts a control plane with two installations, without operators yet.
    pub async fn start(setting: Setting) -> Result<Self> {
        let plane = ControlPlane::start().await?;
        let first = Install::new(&plane, &setting.deploy).await?;
        let second = first.again(&plane, SECOND_NAMESPACE).await?;
        for namespace in world::NAMESPACES.into_iter().chain([world::HOSTILE]) {
            plane.ensure_namespace(namespace).await?;
        }
        let client = plane.admin_client().await?;
        let report = Report { seed: setting.seed, ..Report::default() };
        Ok(Self { setting, plane, client, first, second, begin: Instant::now(), report })
    }

    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Plays one round, from quiet to quiet. A violation is not an error: it goes into the report.
    pub async fn round(&mut self, round: Round) -> Result<()> {
        let seed = Random::child(self.setting.seed, round.number).number();
        let player = Player::new(self.client.clone(), seed);
        player.puts_pools_back().await?;
        let recorder = Recorder::start(&self.client).await?;
        let installs = [&self.first, &self.second];
        let network = crew::network(seed, round.rates);
        let binary = &self.setting.binary;
        let mut operators =
            Operators::start(round.crew, binary, &self.plane, installs, network).await?;

        let scene = Scene { plane: &self.plane, deploy: &self.setting.deploy, player: &player };
        let mut random = Random::child(seed, u64::MAX);
        let attack = async {
            let outcome = scene.attack(round.attack, &mut operators, &mut random).await;
            player.ends();
            outcome
        };
        let (attacked, ()) = tokio::join!(attack, player.play(ACTS));
        // Even after an attack that failed: etcd must not stay stopped.
        self.plane.resume_etcd()?;
        operators.repair()?;
        attacked?;

        let mut found = operators.ended();
        player.puts_pools_back().await?;
        found.extend(self.comes_to_rest(&player, &operators).await?);
        let history = recorder.finish().await?;
        found.extend(judge::of_history(&history));
        found.extend(judge::unasked(&history));
        self.count(round, &player, &operators);
        if found.is_empty() {
            return Ok(());
        }
        let story = self.keep_story(round, &found, &player, &operators, &history).await?;
        let wrong = |what| Violation { round: round.number, what, story: story.clone() };
        self.report.violations.extend(found.into_iter().map(wrong));
        Ok(())
    }

    /// Waits for order and silence, and returns what is wrong.
    async fn comes_to_rest(&self, player: &Player, operators: &Operators) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let beside_toys = |seen: &Snapshot| {
            let told = judge::untold(seen);
            judge::beside_toys(seen).into_iter().chain(told).collect()
        };
        found.extend(self.reaches("what was written by hand to be told", beside_toys).await);
        player.tidies_toys().await?;
        let in_order = |seen: &Snapshot| {
            let mut pools = world::pools();
            pools.push(world::mapped_pool());
            let unserved = judge::unserved(seen, &pools);
            seen.problems().into_iter().chain(unserved).chain(hostile::harm(seen)).collect()
        };
        found.extend(self.reaches("order", in_order).await);
        if let Err(noise) = operators.silent(SILENCE).await {
            found.push(format!("no silence: {noise:?}"));
        }
        // A cluster that was in order for a moment must still be so once operators are silent.
        let seen = Snapshot::take(&self.client).await?;
        found.extend(in_order(&seen).into_iter().map(|it: String| format!("in silence: {it}")));
        Ok(found)
    }

    async fn reaches(
        &self,
        what: &str,
        mut problems: impl FnMut(&Snapshot) -> Vec<String>,
    ) -> Option<String> {
        wait::until(what, SETTLE_DEADLINE, async || {
            let seen = Snapshot::take(&self.client).await.map_err(|error| format!("{error:?}"))?;
            let problems = problems(&seen);
            if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
        })
        .await
        .err()
        .map(|late| late.to_string())
    }

    fn count(&mut self, round: Round, player: &Player, operators: &Operators) {
        let (requests, writes, harm) = operators.counts();
        let report = &mut self.report;
        report.rounds += 1;
        report.time = self.begin.elapsed();
        *report.attacks.entry(format!("{}, {}", round.attack, round.crew)).or_default() += 1;
        for (kind, count) in player.by_kind() {
            *report.acts.entry(kind).or_default() += count;
        }
        for (kind, count) in harm {
            *report.harm.entry(kind).or_default() += count;
        }
        report.refused += player.refused();
        report.touched.extend(player.touched());
        report.requests += requests;
        report.writes += writes;
        report.crashes += operators.fallen.len() as u64;
    }

    /// Writes down everything that helps to understand what happened.
    async fn keep_story(
        &self,
        round: Round,
        found: &[String],
        player: &Player,
        operators: &Operators,
        history: &History,
    ) -> Result<PathBuf> {
        let dir = self.setting.stories.join(format!("{}-{}", self.setting.seed, round.number));
        fs::create_dir_all(&dir).map_err(Error::io(format!("making {}", dir.display())))?;
        let seen = Snapshot::take(&self.client).await?;
        let (found, acts) = (found.join("\n"), player.last_acts().join("\n"));
        write(&dir, "story.txt", &format!("{round}\n\n{found}\n\nlast acts:\n{acts}\n"))?;
        write(&dir, "history.txt", &history.lines().join("\n"))?;
        write(&dir, "services.json", &json(&seen.services))?;
        write(&dir, "claims.json", &json(&seen.claims))?;
        for (index, member) in operators.members.iter().enumerate() {
            let requests = member.proxy.requests();
            let lines: Vec<_> = requests.iter().map(ToString::to_string).collect();
            write(&dir, &format!("requests-{index}.txt"), &lines.join("\n"))?;
        }
        let alive = operators.members.iter().map(|member| &member.operator);
        for (index, operator) in operators.fallen.iter().chain(alive).enumerate() {
            let copy = dir.join(format!("operator-{index}.log"));
            fs::copy(operator.process().log(), &copy)
                .map_err(Error::io(format!("keeping {}", copy.display())))?;
        }
        Ok(dir)
    }
}

fn json<T: k8s_openapi::serde::Serialize>(objects: &T) -> String {
    serde_json::to_string_pretty(objects).unwrap_or_else(|error| error.to_string())
}

fn write(dir: &Path, name: &str, text: &str) -> Result<()> {
    let path = dir.join(name);
    fs::write(&path, text).map_err(Error::io(format!("writing {}", path.display())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_tells_its_rounds_and_every_attack_meets_every_crew() {
        let tell = |seed| (0..50).map(|number| Round::of(seed, number).to_string()).collect();
        let told: Vec<String> = tell(1);
        assert_eq!(told, tell(1));
        assert_ne!(told, tell(2));
        let met: BTreeSet<_> =
            (0..1000).map(|number| Round::of(1, number)).map(|it| (it.attack, it.crew)).collect();
        assert_eq!(met.len(), Attack::ALL.len() * Crew::ALL.len());
    }
}
