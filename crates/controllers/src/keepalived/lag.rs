//! Nodes that do not carry out the plan of their group.

use std::{collections::BTreeMap, time::Duration};

use landfall_api::KeepalivedGroupStatus;
use landfall_vrrp::Plan;

use super::change::PATIENCE;
use crate::engine::Now;

/// The nodes of a group whose agents have not carried out its plan.
#[derive(Debug, Default)]
pub(super) struct Lags(BTreeMap<String, Lag>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lag {
    /// The generation that the agent reports, if there is an agent that reports any.
    reported: Option<i64>,
    since: Duration,
}

/// Nodes that have been late for so long that it is to be said.
#[derive(Debug, Default)]
pub(super) struct Late<'a> {
    /// Those whose agents have reported nothing.
    pub without_agent: Vec<&'a str>,
    /// Those whose agents run an earlier plan.
    pub behind: Vec<&'a str>,
}

impl Lags {
    /// Takes in what the agents report. A node that is not ready is none of them: it may run nothing. A node that
    /// goes on from plan to plan is not late, however fast plans follow each other.
    pub(super) fn follow(
        &mut self,
        plan: Option<&Plan>,
        status: &KeepalivedGroupStatus,
        is_ready: impl Fn(&str) -> bool,
        now: Now,
    ) {
        let before = std::mem::take(&mut self.0);
        let Some(plan) = plan else { return };
        for node in plan.nodes.iter().filter(|node| is_ready(&node.name)) {
            let report = status.nodes.iter().find(|report| report.node == node.name);
            let reported = report.and_then(|report| report.generation);
            if reported.is_some_and(|reported| reported >= plan.generation) {
                continue;
            }
            let known = before.get(&node.name).filter(|lag| lag.reported == reported);
            let lag = known.copied().unwrap_or(Lag { reported, since: now.uptime });
            self.0.insert(node.name.clone(), lag);
        }
    }

    /// The nodes that are late.
    pub(super) fn late(&self, now: Now) -> Late<'_> {
        let mut late = Late::default();
        for (node, lag) in self.0.iter().filter(|(_, lag)| lag.is_late(now)) {
            let list =
                if lag.reported.is_some() { &mut late.behind } else { &mut late.without_agent };
            list.push(node);
        }
        late
    }

    /// When the next node will be late.
    pub(super) fn next_late(&self, now: Now) -> Option<Duration> {
        let early = self.0.values().filter(|lag| !lag.is_late(now));
        early.map(|lag| lag.since.saturating_add(PATIENCE)).min()
    }
}

impl Lag {
    fn is_late(self, now: Now) -> bool {
        now.uptime >= self.since.saturating_add(PATIENCE)
    }
}
