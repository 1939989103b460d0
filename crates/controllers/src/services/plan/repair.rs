//! Repair: at the start and on a slow timer, inconsistencies are reported and then fixed.
//!
//! A fix is no separate action: the watches trigger decisions at once, and repair finds the changes
//! that they missed and triggers those decisions again.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use k8s_openapi::api::core::v1::{ObjectReference, Service};
use landfall_api::{Finding, IP, name};
use landfall_ipam::PoolName;

use super::{Planner, Round, status};
use crate::{
    event,
    object::ObjectKey,
    services::repair::{self, Found},
};

/// How often everything is compared.
const EVERY: Duration = Duration::from_mins(10);
/// The delay of the next round after findings, or anything they concern, changed.
const AGAIN: Duration = Duration::from_secs(5);
/// Services that one round fixes, except the first round.
const BUDGET: usize = 500;
/// How long a fix waits for its report.
const REPORT_DEADLINE: Duration = Duration::from_secs(5);
/// Examples in the text of an event or a condition.
const EXAMPLES: usize = 3;

/// Whether findings are fixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RepairMode {
    /// They are reported and then fixed.
    #[default]
    Fix,
    /// They are only reported, and the Services concerned are left alone.
    Report,
}

/// The state of repair.
#[derive(Debug, Default)]
pub(super) struct Repair {
    rounds: u64,
    /// The uptime of the next round.
    at: Duration,
    /// The findings of the last round.
    open: BTreeSet<Found>,
    /// The Services that they concern, and the addresses of those that concern none.
    concerned: BTreeSet<ObjectKey>,
    addrs: BTreeSet<IpAddr>,
    /// Services to decide about once the findings are reported, and by when at the latest.
    to_fix: BTreeSet<ObjectKey>,
    /// Pools whose status does not contain the findings yet.
    untold: BTreeSet<PoolName>,
    fix_by: Duration,
    /// Services that are left alone because findings are only reported.
    left_alone: BTreeSet<ObjectKey>,
    /// Whether a Service or claim that the findings concern has changed since.
    recheck_due: bool,
    /// How many findings of each kind there were in total.
    counted: BTreeMap<Finding, u64>,
    /// How many claims were released because their Service did not appear.
    collected: u64,
}

impl Repair {
    /// The findings about a pool.
    pub(super) fn about<'a>(&'a self, pool: &'a PoolName) -> impl Iterator<Item = &'a Found> {
        self.open.iter().filter(move |found| found.pool.as_ref() == Some(pool))
    }

    pub(super) fn next_due(&self) -> Duration {
        if self.to_fix.is_empty() { self.at } else { self.at.min(self.fix_by) }
    }

    /// A Service changed: a finding about it may be over.
    pub(super) fn recheck(&mut self, key: &ObjectKey) {
        self.recheck_due |= self.concerned.contains(key);
    }

    /// A change may concern any Service.
    pub(super) fn recheck_all(&mut self) {
        self.recheck_due = true;
    }

    /// The same for the claim on an address.
    pub(super) fn recheck_claim(&mut self, addr: IpAddr) {
        self.recheck_due |= self.addrs.contains(&addr);
    }

    /// The status of a pool contains the findings, or cannot be written.
    pub(super) fn told(&mut self, pool: &PoolName) {
        self.untold.remove(pool);
    }

    /// A claim was released, perhaps because its Service did not appear.
    pub(super) fn count_collected(&mut self, orphaned: bool) {
        self.collected = self.collected.saturating_add(u64::from(orphaned));
    }

    /// Whether decisions about a Service must wait: until findings are reported, or for good.
    pub(super) fn holds(&self, key: &ObjectKey) -> bool {
        self.to_fix.contains(key) || self.left_alone.contains(key)
    }
}

impl Planner {
    /// How many findings of each kind there were in total.
    pub(in crate::services) const fn counted(&self) -> &BTreeMap<Finding, u64> {
        &self.repair.counted
    }

    /// How many claims were released because the Service they named did not appear.
    pub(in crate::services) const fn collected(&self) -> u64 {
        self.repair.collected
    }

    /// How many findings of a kind there were in the last round.
    pub(in crate::services) fn open(&self, finding: Finding) -> usize {
        self.repair.open.iter().filter(|found| found.finding == finding).count()
    }
}

impl Round<'_> {
    /// Compares everything, if a round is due.
    pub(super) fn plan_repair(&mut self) {
        if std::mem::take(&mut self.own.repair.recheck_due) {
            self.own.repair.at = self.own.repair.at.min(self.now.uptime.saturating_add(AGAIN));
        }
        if self.own.repair.at > self.now.uptime {
            return;
        }
        let found = repair::findings(self.world()).into_iter();
        let found: BTreeSet<_> = found.filter(|found| !self.is_under_way(found)).collect();
        let new: Vec<_> = found.difference(&self.own.repair.open).cloned().collect();
        let same = new.is_empty() && found.len() == self.own.repair.open.len();
        self.own.statuses.dirty |= !same;
        self.own.repair.at = self.now.uptime.saturating_add(if same { EVERY } else { AGAIN });
        self.tell(&new);
        for found in &new {
            let count = self.own.repair.counted.entry(found.finding).or_default();
            *count = count.saturating_add(1);
        }
        let concerned: BTreeSet<_> = found.iter().flat_map(|found| found.keys.clone()).collect();
        match self.own.settings.repair {
            RepairMode::Report => self.own.repair.left_alone.clone_from(&concerned),
            RepairMode::Fix => {
                // The first round finds everything that piled up before the start, and fixes all of it.
                let budget = if self.own.repair.rounds == 0 { usize::MAX } else { BUDGET };
                self.own.repair.to_fix.extend(concerned.iter().take(budget).cloned());
                self.own.repair.untold =
                    found.iter().filter_map(|found| found.pool.clone()).collect();
                self.own.repair.fix_by = self.now.uptime.saturating_add(REPORT_DEADLINE);
            }
        }
        let without_holder = found.iter().filter(|found| found.keys.is_empty());
        self.own.repair.addrs = without_holder.filter_map(|found| found.addr).collect();
        self.own.repair.open = found;
        self.own.repair.concerned = concerned;
        self.own.repair.rounds = self.own.repair.rounds.saturating_add(1);
    }

    /// Marks the Services with findings for decision, once the pools report the findings.
    pub(super) fn plan_fixes(&mut self) -> bool {
        let untold = self.own.repair.untold.iter().any(|pool| self.cluster.pool(pool).is_some());
        if self.own.repair.to_fix.is_empty() || (untold && self.own.repair.fix_by > self.now.uptime)
        {
            return false;
        }
        for key in std::mem::take(&mut self.own.repair.to_fix) {
            self.mark(&key);
        }
        true
    }

    /// Whether a finding is only a step of work in progress. In the first round there is none.
    fn is_under_way(&self, found: &Found) -> bool {
        let busy = found.addr.is_some_and(|addr| self.ledger.is_in_flight(addr));
        let at_work = |key: &ObjectKey| {
            self.own.progress.is_engaged(key)
                || self.own.progress.awaits_address(key)
                // A delay without an end only remembers an earlier failure.
                || self.own.progress.write_delay(key).is_some_and(|(delay, _)| delay.until.is_some())
        };
        let waits = |key: &ObjectKey| {
            found.finding == Finding::NeverShown && self.own.waiting.contains(key)
        };
        let deleting =
            |key: &ObjectKey| self.cluster.balancer(key).is_some_and(|view| view.deleting);
        busy || found.keys.iter().any(|key| at_work(key) || waits(key) || deleting(key))
    }

    /// Reports findings by kind, each on the pool it concerns. An address that is shared without
    /// consent is reported on the Services: their owners must settle it, and may not see pools.
    fn tell(&mut self, new: &[Found]) {
        let mut groups: BTreeMap<(Option<&PoolName>, Finding), Vec<&Found>> = BTreeMap::new();
        for found in new {
            groups.entry((found.pool.as_ref(), found.finding)).or_default().push(found);
        }
        for ((pool, finding), group) in groups {
            let done = match self.own.settings.repair {
                RepairMode::Fix => finding.repair(),
                RepairMode::Report => "Only reported (--repair=report).",
            };
            let tell = |about: Option<ObjectReference>, group: &[&Found]| {
                let message = format!("{}. {done}", summary(group.iter().copied()));
                Some(status::event(about?, true, finding.as_str(), message))
            };
            let of_owners = finding == Finding::SharedWithoutConsent;
            if !of_owners || pool.is_some() {
                let event = tell(self.about(pool, &group), &group);
                self.out.events.extend(event);
            }
            for found in group.iter().filter(|_| of_owners) {
                for key in &found.keys {
                    let event = tell(self.about_service(key), &[found]);
                    self.out.events.extend(event);
                }
            }
        }
    }

    /// The object that the event is about: the pool, else the first Service or claim concerned.
    fn about(&self, pool: Option<&PoolName>, group: &[&Found]) -> Option<ObjectReference> {
        if let Some(view) = pool.and_then(|pool| self.cluster.pool(pool)) {
            return Some(status::about_pool(view));
        }
        group.iter().find_map(|found| {
            let service = found.keys.iter().find_map(|key| self.about_service(key));
            let claim = || {
                let claim = self.ledger.claim(found.addr?)?;
                Some(event::about::<IP>(None, &name::of(claim.addr), &claim.uid))
            };
            service.or_else(claim)
        })
    }

    fn about_service(&self, key: &ObjectKey) -> Option<ObjectReference> {
        let uid = &self.cluster.services.get(key)?.uid;
        Some(event::about::<Service>(Some(key.namespace()), key.name(), uid))
    }
}

/// Several findings in one sentence.
pub(in crate::services) fn summary<'a>(findings: impl IntoIterator<Item = &'a Found>) -> String {
    let mut rest = 0_usize;
    let mut texts = Vec::new();
    for found in findings {
        if texts.len() < EXAMPLES {
            texts.push(found.text.as_str());
        } else {
            rest = rest.saturating_add(1);
        }
    }
    let more = if rest > 0 { format!("; and {rest} more") } else { String::new() };
    format!("{}{more}", texts.join("; "))
}
