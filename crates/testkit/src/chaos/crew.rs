//! The operators of one round, each behind its own proxy.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::install::Install;
use crate::proxy::faults::{Plan, Rates};
use crate::random::Random;
use crate::{ControlPlane, Error, Operator, Proxy, Result, wait};

/// Not a measurement: a busy machine behind a bad network takes its time.
const DEADLINE: Duration = Duration::from_mins(2);
const UNELECTED: &str = "--leader-elect=false";

/// Which operators work in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Crew {
    /// One operator without an election.
    Lone,
    /// Several at once, with only the protocol to keep them apart.
    Pair,
    Trio,
    /// Two that compete for one lease.
    Elected,
    /// Two installations in two namespaces, each with a leader.
    Installs,
}

impl Crew {
    pub const ALL: [Self; 5] = [Self::Lone, Self::Pair, Self::Trio, Self::Elected, Self::Installs];
}

impl fmt::Display for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lone => "one operator",
            Self::Pair => "two operators without election",
            Self::Trio => "three operators without election",
            Self::Elected => "two operators, one elected",
            Self::Installs => "two installations",
        })
    }
}

pub(super) struct Member {
    pub(super) proxy: Proxy,
    pub(super) operator: Operator,
    kubeconfig: PathBuf,
    flags: Vec<String>,
}

/// The members of a crew, and the operators that died in it.
pub(super) struct Operators {
    binary: PathBuf,
    pub(super) members: Vec<Member>,
    /// Kept for their logs.
    pub(super) fallen: Vec<Operator>,
}

impl Operators {
    pub(super) async fn start(
        crew: Crew,
        binary: &Path,
        plane: &ControlPlane,
        installs: [&Install; 2],
        faults: impl Fn(u64) -> Option<Plan>,
    ) -> Result<Self> {
        let [first, second] = installs;
        let places: &[(&Install, bool)] = match crew {
            Crew::Lone => &[(first, false)],
            Crew::Pair => &[(first, false), (first, false)],
            Crew::Trio => &[(first, false), (first, false), (first, false)],
            Crew::Elected => &[(first, true), (first, true)],
            Crew::Installs => &[(first, true), (second, true)],
        };
        let mut members = Vec::new();
        for (number, (install, elected)) in (0..).zip(places) {
            let proxy = Proxy::start(plane).await?;
            if let Some(plan) = faults(number) {
                proxy.suffer(plan);
            }
            let kubeconfig = install.kubeconfig(plane, &proxy.url()).await?;
            let mut flags = vec!["--namespace".to_owned(), install.namespace().to_owned()];
            flags.extend((!elected).then(|| UNELECTED.to_owned()));
            // An operator that crashes is started again in the same Pod.
            flags.push(format!("--pod-uid=member-{number}"));
            let operator = spawn(binary, &kubeconfig, &flags).await?;
            members.push(Member { proxy, operator, kubeconfig, flags });
        }
        // An operator that is not ready when users begin would miss part of the attack.
        for member in &members {
            member.operator.wait_ready(DEADLINE).await?;
        }
        Ok(Self { binary: binary.to_owned(), members, fallen: Vec::new() })
    }

    /// Kills one operator and starts it again.
    pub(super) async fn crash(&mut self, index: usize) -> Result<()> {
        let member = &mut self.members[index];
        member.operator.kill()?;
        let next = spawn(&self.binary, &member.kubeconfig, &member.flags).await?;
        self.fallen.push(std::mem::replace(&mut member.operator, next));
        Ok(())
    }

    /// Waits until one leads and returns its index; without an election, any index.
    pub(super) async fn leader(&self, random: &mut Random) -> Result<usize> {
        let elects = |member: &Member| !member.flags.iter().any(|flag| flag == UNELECTED);
        if !self.members.iter().all(elects) {
            return Ok(random.below(self.members.len()));
        }
        Ok(wait::until("a leader", DEADLINE, async || self.leading(None).await).await?)
    }

    /// Waits until an operator other than this sleeping one leads.
    pub(super) async fn other_leader(&self, than: usize) -> Result<usize> {
        let what = "another leader";
        Ok(wait::until(what, DEADLINE, async || self.leading(Some(than)).await).await?)
    }

    async fn leading(&self, but: Option<usize>) -> Option<usize> {
        for (index, member) in self.members.iter().enumerate() {
            // A stopped process does not answer at all.
            if Some(index) != but
                && member
                    .operator
                    .metrics()
                    .await
                    .is_ok_and(|it| it.contains("\nlandfall_leader 1\n"))
            {
                return Some(index);
            }
        }
        None
    }

    /// Ends all harm: wakes every operator, and removes all faults between operators and API server.
    pub(super) fn repair(&self) -> Result<()> {
        for Member { proxy, operator, .. } in &self.members {
            operator.cont_signal()?;
            proxy.clear_rules();
            proxy.thaw();
            // A watch that is held back would stay so to its end.
            proxy.cut_connections();
        }
        Ok(())
    }

    /// Waits until no operator has written anything for a while.
    pub(super) async fn silent(&self, time: Duration) -> Result<()> {
        wait::until("silence", DEADLINE, async || {
            let idle = self.members.iter().map(|member| member.proxy.idle()).min();
            if idle.is_none_or(|idle| idle >= time) {
                return Ok(());
            }
            let last = self.members.iter().flat_map(|member| member.proxy.work());
            let last = last.max_by_key(|write| write.at);
            Err(format!("{:?}", last.map(|it| (it.method, it.path, it.status))))
        })
        .await?;
        Ok(())
    }

    /// Operators that ended without being killed.
    pub(super) fn ended(&self) -> Vec<String> {
        let ended = self.members.iter().filter(|member| !member.operator.is_running());
        ended.map(|member| format!("an operator ended: {}", member.operator.log_tail(5))).collect()
    }

    /// The numbers of all requests and writes, and what the proxies did to them.
    pub(super) fn counts(&self) -> (usize, usize, BTreeMap<String, u64>) {
        let (mut requests, mut writes, mut harm) = (0, 0, BTreeMap::new());
        for member in &self.members {
            requests += member.proxy.mark();
            writes += member.proxy.work().len();
            for (kind, count) in member.proxy.harm() {
                *harm.entry(kind).or_default() += count;
            }
        }
        (requests, writes, harm)
    }
}

async fn spawn(binary: &Path, kubeconfig: &Path, flags: &[String]) -> Result<Operator, Error> {
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    Operator::spawn(binary, kubeconfig, &flags).await
}

/// A different bad network for each member.
pub(super) fn network(seed: u64, rates: Rates) -> impl Fn(u64) -> Option<Plan> {
    move |member| {
        let seed = Random::child(seed, 1000 + member).number();
        (rates != Rates::default()).then(|| Plan::new(seed, rates))
    }
}
