//! Roles and bindings for Prometheus that the replaced operator left of groups that no longer exist.
//!
//! It made them without an owner, so that nobody collected them. They are looked for in namespaces that have a
//! group, or had one while we ran, and only what cannot be another program's is removed, see
//! [`adopt::left_for`].

use std::{collections::BTreeMap, time::Duration};

use super::{
    adopt,
    effect::{Answer, Effect, Step},
};
use crate::{
    backoff::Backoff,
    call::Failure,
    cluster::Cluster,
    engine::{Now, Plan, Report},
    object::ObjectKey,
};

/// Where to look for them.
#[derive(Debug)]
pub(super) struct Leftovers {
    /// Whether to look in every namespace that has a group.
    everywhere: bool,
    namespaces: BTreeMap<String, Search>,
}

/// The search in one namespace.
#[derive(Clone, Copy, Debug)]
enum Search {
    After(Backoff),
    /// A call is in flight, after so many that failed.
    InFlight(u32),
}

impl Default for Leftovers {
    fn default() -> Self {
        Self { everywhere: true, namespaces: BTreeMap::new() }
    }
}

impl Leftovers {
    /// Looks in every namespace that has a group.
    pub(super) fn look_everywhere(&mut self) {
        self.everywhere = true;
    }

    /// Looks where a group has just gone.
    pub(super) fn group_is_gone(&mut self, group: &ObjectKey) {
        self.look_in(group.namespace());
    }

    pub(super) fn plan(&mut self, cluster: &Cluster, now: Now, out: &mut Plan<Effect>) {
        if std::mem::take(&mut self.everywhere) {
            for group in cluster.keepalived_groups.keys() {
                self.look_in(group.namespace());
            }
        }
        for (namespace, search) in &mut self.namespaces {
            if let Search::After(delay) = *search
                && !delay.holds(now)
            {
                *search = Search::InFlight(delay.tries);
                let group = ObjectKey::new(namespace, "");
                out.effects.push(Effect { group, step: Step::FindLeftovers });
            }
        }
    }

    /// Takes in the report of a call about leftovers; returns others back.
    pub(super) fn reported(
        &mut self,
        cluster: &Cluster,
        now: Now,
        report: Report<Effect>,
        out: &mut Plan<Effect>,
    ) -> Option<Report<Effect>> {
        let namespace = report.effect.group.namespace();
        match (&report.effect.step, report.result) {
            (Step::FindLeftovers, Ok(Answer::Leftovers(found))) => {
                // Another group may have gone meanwhile.
                if let Some(Search::InFlight(_)) = self.namespaces.get(namespace) {
                    self.namespaces.remove(namespace);
                }
                for view in found {
                    let group = adopt::left_for(&view)
                        .filter(|group| cluster.keepalived_groups.get(group).is_none());
                    let Some(group) = group else { continue };
                    let (kind, key, uid, version) = (view.kind, view.key, view.uid, view.version);
                    let step = Step::Remove { kind, key, uid, version };
                    out.effects.push(Effect { group, step });
                }
            }
            (Step::Remove { .. }, Ok(_) | Err(Failure::NotFound)) => {}
            (Step::FindLeftovers | Step::Remove { .. }, result) => {
                let tries = match self.namespaces.get(namespace) {
                    Some(Search::InFlight(tries)) => *tries,
                    Some(Search::After(delay)) => delay.tries,
                    None => 0,
                };
                let wait = result.err().map(|failure| failure.asked_to_wait()).unwrap_or_default();
                let delay = Backoff::after(tries, now).at_least(wait, now);
                self.namespaces.insert(namespace.to_owned(), Search::After(delay));
            }
            (_, result) => return Some(Report { effect: report.effect, result }),
        }
        None
    }

    pub(super) fn next_due(&self) -> Option<Duration> {
        let searches = self.namespaces.values();
        let delays = searches.filter_map(|search| match search {
            Search::After(delay) => delay.until,
            Search::InFlight(_) => None,
        });
        delays.min()
    }

    fn look_in(&mut self, namespace: &str) {
        let at_once = Search::After(Backoff { until: None, tries: 0 });
        self.namespaces.insert(namespace.to_owned(), at_once);
    }
}
