//! The attacks on operators and control plane while users act.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use kube::Api;
use kube::api::{ListParams, PostParams};
use landfall_api::{IP, IPGroup};

use super::crew::Operators;
use super::player::Player;
use super::world;
use crate::builders::bare_claim;
use crate::random::Random;
use crate::{ControlPlane, Result, wait};

const DEADLINE: Duration = Duration::from_mins(2);
/// The address of a probe claim that is never really created.
const PROBE: [u8; 4] = [192, 0, 2, 253];

/// One attack, in addition to the bad network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attack {
    /// Only the network and the users.
    None,
    /// Operators are killed in the middle of their writes.
    Crashes,
    /// One operator sleeps, past its lease if it leads, and wakes while another works.
    Sleep,
    /// One operator is cut off for a while.
    Partition,
    /// The API server is killed and started again.
    ApiServer,
    /// etcd hangs.
    SlowStore,
    /// etcd is compacted, so that operators lose events they have not received yet.
    Compaction,
    /// The kind of the pools is deleted, with all pools, and comes back.
    PoolsGone,
    /// A policy refuses new claims.
    Policy,
}

impl Attack {
    pub const ALL: [Self; 9] = [
        Self::Crashes,
        Self::Sleep,
        Self::ApiServer,
        Self::Partition,
        Self::PoolsGone,
        Self::Compaction,
        Self::None,
        Self::SlowStore,
        Self::Policy,
    ];
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "the network alone",
            Self::Crashes => "operators crash",
            Self::Sleep => "an operator sleeps",
            Self::Partition => "an operator is cut off",
            Self::ApiServer => "the API server crashes",
            Self::SlowStore => "etcd hangs",
            Self::Compaction => "etcd forgets the past",
            Self::PoolsGone => "the kind of the pools is gone",
            Self::Policy => "a policy refuses claims",
        })
    }
}

/// Where an attack happens.
pub(super) struct Scene<'a> {
    pub(super) plane: &'a ControlPlane,
    pub(super) deploy: &'a Path,
    pub(super) player: &'a Player,
}

impl Scene<'_> {
    /// Carries out the attack from beginning to end. Each step waits for acts of the users meanwhile.
    pub(super) async fn attack(
        &self,
        attack: Attack,
        operators: &mut Operators,
        random: &mut Random,
    ) -> Result<()> {
        match attack {
            Attack::None => self.player.some_acts(60).await,
            Attack::Crashes => {
                for _ in 0..random.among(3..7) {
                    self.player.some_acts(random.among(1..20)).await?;
                    operators.crash(random.below(operators.members.len())).await?;
                }
                Ok(())
            }
            Attack::Sleep => self.sleep(operators, random).await,
            Attack::Partition => {
                let proxy = &operators.members[random.below(operators.members.len())].proxy;
                proxy.freeze_all();
                self.player.some_acts(40).await?;
                if random.once_in(2) {
                    proxy.cut_connections();
                }
                proxy.thaw();
                self.player.some_acts(20).await
            }
            Attack::ApiServer => {
                for _ in 0..random.among(1..3) {
                    self.player.some_acts(20).await?;
                    self.plane.kill_apiserver()?;
                    self.plane.start_apiserver().await?;
                }
                self.player.some_acts(20).await
            }
            Attack::SlowStore => {
                for _ in 0..2 {
                    self.player.some_acts(15).await?;
                    self.plane.pause_etcd()?;
                    // There is no condition to wait for meanwhile.
                    tokio::time::sleep(Duration::from_millis(random.among(500..3000) as u64)).await;
                    self.plane.resume_etcd()?;
                }
                self.player.some_acts(20).await
            }
            Attack::Compaction => self.compact(operators).await,
            Attack::PoolsGone => self.pools_gone().await,
            Attack::Policy => self.policy().await,
        }
    }

    async fn sleep(&self, operators: &Operators, random: &mut Random) -> Result<()> {
        let sleeper = operators.leader(random).await?;
        operators.members[sleeper].operator.stop_signal()?;
        self.player.some_acts(30).await?;
        if operators.members.len() > 1 {
            operators.other_leader(sleeper).await?;
        }
        self.player.some_acts(30).await?;
        operators.members[sleeper].operator.cont_signal()?;
        self.player.some_acts(20).await
    }

    /// Operators fall behind, etcd is compacted past what they have received, and the API server, whose cache
    /// still has it, is restarted: their watches can only go on with a new list.
    async fn compact(&self, operators: &Operators) -> Result<()> {
        self.player.some_acts(20).await?;
        for member in &operators.members {
            member.proxy.freeze_all();
        }
        self.player.some_acts(30).await?;
        self.plane.compact_etcd().await?;
        self.plane.kill_apiserver()?;
        self.plane.start_apiserver().await?;
        for member in &operators.members {
            member.proxy.cut_connections();
            member.proxy.thaw();
        }
        self.player.some_acts(20).await
    }

    async fn pools_gone(&self) -> Result<()> {
        let pools: Api<IPGroup> = Api::all(self.plane.admin_client().await?);
        self.player.some_acts(20).await?;
        self.plane.kubectl(&["delete", "crd", "ipgroups.paas.org", "--timeout=60s"]).await?;
        wait::until("the kind of the pools to go", DEADLINE, async || {
            pools.list(&ListParams::default()).await.is_err()
        })
        .await?;
        self.player.some_acts(30).await?;
        self.plane.install_crds(&self.deploy.join("crds")).await?;
        wait::until("the pools to be back", DEADLINE, async || {
            for pool in world::pools() {
                match pools.create(&PostParams::default(), &pool).await {
                    Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                    made => drop(made?),
                }
            }
            Ok::<_, kube::Error>(())
        })
        .await?;
        self.player.some_acts(20).await
    }

    async fn policy(&self) -> Result<()> {
        let claims: Api<IP> = Api::all(self.plane.admin_client().await?);
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let probe = bare_claim(PROBE.into());
        self.plane.apply_yaml(POLICY).await?;
        wait::until("the policy to refuse", DEADLINE, async || {
            claims.create(&dry, &probe).await.is_err()
        })
        .await?;
        self.player.some_acts(40).await?;
        let kinds = "validatingadmissionpolicybindings,validatingadmissionpolicies";
        self.plane.kubectl(&["delete", kinds, "no-new-claims"]).await?;
        wait::until("the policy to end", DEADLINE, async || claims.create(&dry, &probe).await)
            .await?;
        self.player.some_acts(20).await
    }
}

const POLICY: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: { name: no-new-claims }
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - { apiGroups: [paas.org], apiVersions: [v1], resources: [ips], operations: [CREATE] }
  validations:
  - { expression: 'false', message: no new claims today }
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: { name: no-new-claims }
spec:
  policyName: no-new-claims
  validationActions: [Deny]
";
