//! What the worker knows, for probes, scrapers and the status of the group.

use std::sync::Arc;

use landfall_vrrp::{Instance, NodeIndex, Plan};

use super::history::Past;
use crate::call::{Counts, InstanceReport, State};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct View {
    /// The plan that keepalived runs, and what it says about this node.
    pub(super) running: Option<Running>,
    pub(super) keepalived: Health,
    pub(super) instances: Vec<(InstanceReport, Past)>,
    pub(super) counts: Counts,
    pub(super) reloads: u64,
    pub(super) reload_failures: u64,
    pub(super) device: Option<String>,
    pub(super) version: Option<String>,
    pub(super) error: Option<String>,
    /// Whether the newest plan does not name this node.
    pub(super) is_left_out: bool,
    /// Instances under change whose holder fell silent.
    pub(super) ended: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Running {
    pub(super) plan: Arc<Plan>,
    pub(super) node: Option<NodeIndex>,
}

/// Whether keepalived does its work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Health {
    /// There has never been a plan for this node, so there is nothing to run.
    #[default]
    NotNeeded,
    Runs,
    Down(String),
}

impl View {
    /// Why the node is not ready: each instance must hold its addresses or know another node that does.
    pub(super) fn unready(&self) -> Option<String> {
        match &self.keepalived {
            Health::Runs => {}
            Health::NotNeeded => return Some("there is no plan yet".to_owned()),
            Health::Down(error) => return Some(error.clone()),
        }
        let Some(Running { plan, node: Some(node) }) = &self.running else { return None };
        let wanted = plan.instances.iter().filter(|instance| !plan.is_muted_on(instance, *node));
        let waiting: Vec<_> =
            wanted.filter(|it| !self.is_settled(it)).map(|it| it.name.as_str()).collect();
        let (first, rest) = waiting.split_first()?;
        let more =
            if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        Some(format!("instance {first}{more} has heard no holder yet"))
    }

    fn is_settled(&self, instance: &Instance) -> bool {
        let found = self.instances.iter().find(|(report, _)| report.name == instance.name);
        found.is_some_and(|(report, _)| match report.state {
            State::Master => true,
            State::Backup => report.counters.advert_rcvd > 0,
            State::Init | State::Fault => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        call::Counters,
        worker::samples::{form, instance, plan},
    };

    #[test]
    fn a_node_is_ready_when_every_instance_has_a_holder() {
        let mut elsewhere = instance("ns/b", 2, form(&["192.0.2.10"]));
        elsewhere.only_on = Some(vec![1]);
        let plan = plan(vec![instance("ns/a", 1, form(&["192.0.2.9"])), elsewhere]);
        let running = |node| Some(Running { plan: Arc::new(plan.clone()), node });
        let report = |name: &str, state, advert_rcvd| {
            let counters = Counters { advert_rcvd, ..Counters::default() };
            let name = name.to_owned();
            (InstanceReport { name, state, counters, ..InstanceReport::default() }, Past::default())
        };
        let b = || report("ns/b", State::Fault, 0);
        for (case, node, health, instances, expected) in [
            ("no plan", Some(0), Health::NotNeeded, vec![], Some("no plan")),
            ("down", Some(0), Health::Down("it died".to_owned()), vec![], Some("it died")),
            ("master", Some(0), Health::Runs, vec![report("ns/a", State::Master, 0), b()], None),
            ("heard", Some(0), Health::Runs, vec![report("ns/a", State::Backup, 1), b()], None),
            (
                "silence",
                Some(0),
                Health::Runs,
                vec![report("ns/a", State::Backup, 0)],
                Some("ns/a has"),
            ),
            (
                "fault",
                Some(0),
                Health::Runs,
                vec![report("ns/a", State::Fault, 9)],
                Some("ns/a has"),
            ),
            ("nothing known", Some(1), Health::Runs, vec![], Some("ns/a and 1 more")),
            ("not of the group", None, Health::Runs, vec![], None),
        ] {
            let view =
                View { running: running(node), keepalived: health, instances, ..View::default() };
            let found = view.unready();
            assert_eq!(found.is_some(), expected.is_some(), "{case}: {found:?}");
            assert!(found.unwrap_or_default().contains(expected.unwrap_or_default()), "{case}");
        }
    }
}
