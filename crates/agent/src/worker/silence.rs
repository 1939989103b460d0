//! Notices a holder that falls silent in the middle of a change.
//!
//! During a change all nodes but the holder wait in state FAULT, in which keepalived hears nothing. If the holder
//! dies, its addresses would be on no node until the operator finds out. So the agent listens itself, and lets
//! this node take part again after ten adverts that did not come.

use std::{collections::BTreeMap, time::Duration};

use landfall_vrrp::{NodeIndex, Plan};
use tokio::time::Instant;

use super::listener::Families;

/// The number of adverts whose absence counts as silence.
const MISSED: u32 = 10;

/// The instances that wait for their holder.
#[derive(Debug, Default)]
pub(super) struct Silence {
    waiting: BTreeMap<String, Waiting>,
    ended: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    router_id: u8,
    holder: NodeIndex,
    /// The families of the adverts that the holder may send. Only silence in all of them means that it is silent.
    families: Families,
    patience: Duration,
    heard: Instant,
}

impl Silence {
    /// Takes the instances that wait for their holder according to a plan. Those that have waited before go on.
    pub(super) fn follow(&mut self, plan: &Plan, node: Option<NodeIndex>, now: Instant) {
        let before = std::mem::take(&mut self.waiting);
        let instances = plan
            .instances
            .iter()
            .filter(|instance| node.is_some_and(|node| instance.waits_for_holder_on(node)));
        for instance in instances {
            let Some(change) = &instance.change else { continue };
            let longest = instance.form.advert_millis.max(change.before.advert_millis);
            let known = before.get(&instance.name).filter(|it| it.holder == change.holder);
            let waiting = Waiting {
                router_id: instance.router_id,
                holder: change.holder,
                families: Families::of(&instance.form) | Families::of(&change.before),
                patience: Duration::from_millis(longest.into()) * MISSED,
                heard: known.map_or(now, |known| known.heard),
            };
            if known.is_none() {
                self.ended.retain(|name| *name != instance.name);
            }
            self.waiting.insert(instance.name.clone(), waiting);
        }
        self.ended.retain(|name| self.waiting.contains_key(name));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The instances that wait no longer.
    pub(super) fn ended(&self) -> &[String] {
        &self.ended
    }

    /// An advert of this router id has come.
    pub(super) fn heard(&mut self, router_id: u8, now: Instant) {
        for waiting in self.waiting.values_mut().filter(|it| it.router_id == router_id) {
            waiting.heard = now;
        }
    }

    /// All holders count as heard now, because there was no listener before.
    pub(super) fn begin(&mut self, now: Instant) {
        for waiting in self.waiting.values_mut() {
            waiting.heard = now;
        }
    }

    /// The families of all adverts that are waited for.
    pub(super) fn families(&self) -> Families {
        self.waiting.values().fold(Families::NONE, |all, it| all | it.families)
    }

    /// When the next holder counts as silent, unless it is heard. `hears` are the families that are listened to.
    pub(super) fn due(&self, hears: Families) -> Option<Instant> {
        self.audible(hears).map(|(_, it)| it.heard + it.patience).min()
    }

    /// Ends the wait for holders that are silent; returns whether there is one.
    pub(super) fn end(&mut self, hears: Families, now: Instant) -> bool {
        let silent = self.audible(hears).filter(|(_, it)| it.heard + it.patience <= now);
        let silent: Vec<_> = silent.map(|(name, _)| name.clone()).collect();
        self.ended.extend(silent.iter().cloned());
        !silent.is_empty()
    }

    /// The instances that wait for a holder that would be heard.
    fn audible(&self, hears: Families) -> impl Iterator<Item = (&String, &Waiting)> {
        let waiting = self.waiting.iter().filter(|(name, _)| !self.ended.contains(name));
        waiting.filter(move |(_, it)| hears.contain(it.families))
    }
}

#[cfg(test)]
mod tests {
    use landfall_vrrp::{Change, Form, Instance, Step};

    use super::*;
    use crate::worker::samples::{form, instance, plan};

    fn changing(name: &str, router_id: u8, holder: NodeIndex) -> Instance {
        let before = Form { advert_millis: 1000, ..form(&["192.0.2.9"]) };
        let mut instance = instance(name, router_id, form(&["192.0.2.9"]));
        instance.change = Some(Change { before, holder, step: Step::Mute, since: 1 });
        instance
    }

    #[test]
    fn a_wait_ends_after_ten_adverts_that_did_not_come() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let plan =
            plan(vec![changing("ns/a", 1, 1), changing("ns/b", 2, 1), changing("ns/c", 3, 0)]);
        let mut silence = Silence::default();
        silence.follow(&plan, Some(0), start);
        assert_eq!(silence.due(Families::BOTH), Some(at(10)));
        silence.heard(1, at(5));
        silence.heard(3, at(5));
        // A later plan of the same change begins nothing again.
        silence.follow(&plan, Some(0), at(6));
        assert!(!silence.end(Families::BOTH, at(9)));
        assert!(silence.end(Families::BOTH, at(10)));
        assert_eq!(silence.ended(), ["ns/b"]);
        assert_eq!(silence.due(Families::BOTH), Some(at(15)));
        silence.begin(at(14));
        assert!(!silence.end(Families::BOTH, at(20)));
        assert!(silence.end(Families::BOTH, at(24)));
        assert_eq!(silence.ended(), ["ns/b", "ns/a"]);
        assert_eq!(silence.due(Families::BOTH), None);
    }

    #[test]
    fn another_holder_is_waited_for_again_and_no_change_ends_everything() {
        let start = Instant::now();
        let late = start + Duration::from_mins(1);
        let mut silence = Silence::default();
        silence.follow(&plan(vec![changing("ns/a", 1, 1)]), Some(0), start);
        assert!(silence.end(Families::BOTH, late));
        let mut other = plan(vec![changing("ns/a", 1, 2)]);
        silence.follow(&other, Some(0), late);
        assert!(silence.ended().is_empty() && !silence.end(Families::BOTH, late));
        assert!(silence.end(Families::BOTH, late + Duration::from_mins(1)));
        other.instances[0].change = None;
        silence.follow(&other, Some(0), late);
        assert!(silence.is_empty() && silence.ended().is_empty());
    }

    #[test]
    fn a_holder_that_cannot_be_heard_is_not_silent() {
        let start = Instant::now();
        let late = start + Duration::from_mins(1);
        let mut over_v6 = changing("ns/b", 2, 1);
        over_v6.form.advertised = vec!["2001:db8::9".parse().unwrap()];
        let mut silence = Silence::default();
        silence.follow(&plan(vec![changing("ns/a", 1, 1), over_v6]), Some(0), start);
        assert_eq!(silence.families(), Families::BOTH);
        assert_eq!(silence.due(Families::NONE), None);
        assert!(!silence.end(Families::NONE, late));
        // Its adverts are of one family before the change and of the other one after it.
        assert!(silence.end(Families::V4, late));
        assert_eq!(silence.ended(), ["ns/a"]);
        assert_eq!(silence.due(Families::V6), None);
        assert!(silence.end(Families::BOTH, late));
        assert_eq!(silence.ended(), ["ns/a", "ns/b"]);
    }
}
