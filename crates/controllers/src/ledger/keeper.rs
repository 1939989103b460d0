//! The ledger's own calls: live reads of claims that are due, the end of expired reservations, and the nodes that
//! carry addresses.

use std::time::Duration;

use kube::Client;

use super::{Answer, Ledger, Write};
use crate::{
    call::Failure,
    cluster::{Cluster, Kind},
    engine::{Call, Floor, Lent, Plan, Planner, Report},
    object::Version,
};

/// Keeps the ledger up to date on behalf of all planners. Its memory is the ledger itself.
#[derive(Debug)]
pub(crate) struct Keeper;

impl Planner for Keeper {
    const NAME: &'static str = "ledger";
    const KINDS: &'static [Kind] = &[Kind::Claims];
    type Effect = Write;

    fn reported(&mut self, lent: Lent<'_>, report: Report<Write>, _: &mut Plan<Write>) {
        lent.ledger.written(&report.effect, None, report.result, lent.now);
    }

    fn plan(&mut self, lent: Lent<'_>, out: &mut Plan<Write>) {
        lent.ledger.end_release_delays(lent.now);
        out.effects.extend(lent.ledger.read_due(lent.now));
        out.effects.extend(lent.ledger.expire_due(lent.now));
        out.effects.extend(lent.ledger.place_due(lent.now));
    }

    fn next_due(&self, _: &Cluster, ledger: &Ledger) -> Option<Duration> {
        ledger.next_due()
    }
}

impl Call for Write {
    type Answer = Answer;

    fn rank(&self) -> u8 {
        match self {
            Self::Read { .. } | Self::Touch { .. } => 1,
            Self::Take { .. } => 2,
            Self::Expire { .. } => 3,
            Self::Place { .. } => 4,
        }
    }

    fn label(&self) -> &'static str {
        match self {
            Self::Take { .. } => "take",
            Self::Touch { .. } => "touch",
            Self::Expire { .. } => "expire",
            Self::Place { .. } => "place",
            Self::Read { .. } => "look",
        }
    }

    fn object(&self) -> String {
        self.addr().to_string()
    }

    fn floor(&self) -> Floor {
        match self {
            Self::Take { .. } => Floor::NewestClaim,
            Self::Touch { claim } => Floor::Version(claim.version),
            Self::Place { version, .. } => Floor::Version(*version),
            Self::Read { known, .. } => known.map_or(Floor::None, Floor::Version),
            Self::Expire { .. } => Floor::None,
        }
    }

    fn version_of(&self, answer: &Answer) -> Option<Version> {
        match answer {
            Answer::Claim(claim) => Some(claim.version),
            Answer::NoClaim | Answer::Released { .. } | Answer::Kept => None,
        }
    }

    async fn perform(&self, client: &Client) -> Result<Answer, Failure> {
        self.send(client).await
    }
}
