//! Reports to the status of the group: this node's entry, on change only.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Resource as _,
    api::{Patch, PatchParams},
};
use landfall_api::keepalived_group::{
    GroupNode, GuardReport, GuardStep, InstanceReport, InstanceState, KeepalivedGroup,
};
use landfall_vrrp::{Instance, NodeIndex, Step};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::warn;

use super::{
    backoff::Backoff,
    throttle::Throttle,
    view::{Running, View},
};
use crate::call::State;

const INTERVAL: Duration = Duration::from_millis(500);
const DEADLINE: Duration = Duration::from_secs(10);

/// Where and as whom to report.
#[derive(Clone, Debug)]
pub(super) struct Reporter {
    pub(super) api: Api<KeepalivedGroup>,
    pub(super) group: String,
    pub(super) node: String,
    /// Whether the group is being deleted, or is gone, as far as its last answer tells.
    pub(super) is_gone: Arc<AtomicBool>,
}

impl Reporter {
    /// Reports every change of the view, for good.
    pub(super) async fn run(self, mut views: watch::Receiver<View>) {
        let mut throttle = Throttle::new(INTERVAL);
        let mut backoff = Backoff::new(&self.node);
        let mut told = None;
        loop {
            sleep_until(throttle.next(Instant::now())).await;
            let entry = entry(&self.node, &views.borrow_and_update());
            if entry == told || (entry.is_none() && told.is_none()) {
                if views.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let outcome = timeout(DEADLINE, self.write(entry.as_ref())).await;
            throttle.done(Instant::now());
            let problem = match outcome {
                Ok(Ok(())) => {
                    told = entry;
                    backoff.succeeded();
                    continue;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            warn!(problem, "the state of this node could not be reported; it is tried again");
            sleep(backoff.failed()).await;
        }
    }

    async fn write(&self, entry: Option<&GroupNode>) -> kube::Result<()> {
        let manager = format!("landfall-agent-{}", self.node);
        let params = PatchParams::apply(&manager).force();
        let patch = Patch::Apply(json!({
            "apiVersion": KeepalivedGroup::api_version(&()),
            "kind": KeepalivedGroup::kind(&()),
            "status": {"nodes": entry.as_slice()},
        }));
        let written = self.api.patch_status(&self.group, &params, &patch).await;
        let is_gone = match &written {
            Ok(group) => group.metadata.deletion_timestamp.is_some(),
            // That the API server does not know the kind says nothing about the group.
            Err(kube::Error::Api(status)) => {
                let named = status.details.as_ref().map(|details| details.name.as_str());
                status.is_not_found() && named == Some(&self.group)
            }
            Err(_) => return written.map(drop),
        };
        self.is_gone.store(is_gone, Ordering::Relaxed);
        written.map(drop)
    }
}

/// This node's entry; none if it has nothing to do with the group.
fn entry(node: &str, view: &View) -> Option<GroupNode> {
    let running = view.running.as_ref();
    let is_member = running.is_some_and(|running| running.node.is_some());
    if !is_member && view.error.is_none() {
        return None;
    }
    let out_of_rest = view.instances.iter().filter(|(report, _)| report.state != State::Backup);
    let instances = out_of_rest.map(|(report, _)| InstanceReport {
        name: report.name.clone(),
        state: state(report.state),
        since: Time(Timestamp::from_millisecond(report.last_transition_millis).unwrap_or_default()),
    });
    let cut = |error: &String| error.chars().take(GroupNode::LONGEST_ERROR).collect();
    Some(GroupNode {
        node: node.to_owned(),
        generation: running.map(|running| running.plan.generation),
        keepalived_version: view.version.clone(),
        device: view.device.clone(),
        instances: instances.take(GroupNode::MOST_INSTANCES).collect(),
        guard: running.and_then(|running| guard(running, view)),
        last_error: view.error.as_ref().map(cut),
    })
}

/// How far this node is with the changes that all nodes make together: as far as with the slowest of them.
fn guard(running: &Running, view: &View) -> Option<GuardReport> {
    let generation = running.plan.generation;
    let node = running.node?;
    if !view.ended.is_empty() {
        return Some(GuardReport { generation, step: GuardStep::Ended });
    }
    let changing = running.plan.instances.iter().filter(|instance| instance.change.is_some());
    let steps: Option<Vec<_>> = changing.map(|it| reached(it, node, view)).collect();
    let step = steps?.into_iter().min()?;
    Some(GuardReport { generation, step })
}

fn reached(instance: &Instance, node: NodeIndex, view: &View) -> Option<GuardStep> {
    let change = instance.change.as_ref()?;
    let is_holder = change.holder == node;
    let is_in_fault = || {
        let found = view.instances.iter().find(|(report, _)| report.name == instance.name);
        found.is_some_and(|(report, _)| report.state == State::Fault)
    };
    match change.step {
        Step::Others => Some(GuardStep::Reloaded),
        Step::Holder if is_holder => Some(GuardStep::Reloaded),
        // The holder has nothing to do yet.
        Step::Mute if is_holder => None,
        Step::Mute | Step::Holder => is_in_fault().then_some(GuardStep::InFault),
    }
}

fn state(state: State) -> InstanceState {
    match state {
        State::Init => InstanceState::Init,
        State::Backup => InstanceState::Backup,
        State::Master => InstanceState::Master,
        State::Fault => InstanceState::Fault,
    }
}

#[cfg(test)]
mod tests {
    use landfall_vrrp::Change;

    use super::{
        super::{history::Past, samples, view::Health},
        *,
    };

    fn view(instances: Vec<Instance>, states: &[(&str, State)]) -> View {
        let report = |(name, state): &(&str, State)| {
            let report = crate::call::InstanceReport {
                name: (*name).to_owned(),
                state: *state,
                last_transition_millis: 1_700_000_000_500,
                ..crate::call::InstanceReport::default()
            };
            (report, Past::default())
        };
        View {
            running: Some(Running { plan: samples::plan(instances).into(), node: Some(0) }),
            keepalived: Health::Runs,
            instances: states.iter().map(report).collect(),
            device: Some("eth0".to_owned()),
            version: Some("2.2.7".to_owned()),
            ..View::default()
        }
    }

    #[test]
    fn an_entry_names_what_is_not_at_rest() {
        let states = [("ns/a", State::Master), ("ns/b", State::Backup), ("ns/c", State::Fault)];
        let entry = entry("n1", &view(vec![], &states)).unwrap();
        let named: Vec<_> = entry.instances.iter().map(|it| (it.name.as_str(), it.state)).collect();
        assert_eq!(named, [("ns/a", InstanceState::Master), ("ns/c", InstanceState::Fault)]);
        assert_eq!(entry.instances[0].since.0.as_millisecond(), 1_700_000_000_500);
        assert_eq!((entry.generation, entry.device.as_deref()), (Some(1), Some("eth0")));
        assert_eq!((entry.guard, entry.last_error), (None, None));
    }

    #[test]
    fn a_node_that_is_not_of_the_group_has_no_entry() {
        let mut other = view(vec![], &[]);
        other.running.as_mut().unwrap().node = None;
        assert_eq!(entry("n9", &other), None);
        assert_eq!(entry("n9", &View::default()), None);
        let failing = View { error: Some("ä".repeat(2000)), ..View::default() };
        let entry = entry("n9", &failing).unwrap();
        assert_eq!(entry.last_error.unwrap().chars().count(), GroupNode::LONGEST_ERROR);
    }

    #[test]
    fn a_node_is_as_far_as_with_its_slowest_instance() {
        let changing = |name: &str, step, holder| {
            let mut instance = samples::instance(name, 1, samples::form(&["192.0.2.9"]));
            instance.change =
                Some(Change { before: samples::form(&["192.0.2.9"]), holder, step, since: 1 });
            instance
        };
        let (fault, backup) = (("ns/a", State::Fault), ("ns/a", State::Backup));
        for (case, instances, states, expected) in [
            ("no change", vec![], vec![fault], None),
            (
                "in fault",
                vec![changing("ns/a", Step::Mute, 1)],
                vec![fault],
                Some(GuardStep::InFault),
            ),
            ("not yet", vec![changing("ns/a", Step::Mute, 1)], vec![backup], None),
            ("the holder waits", vec![changing("ns/a", Step::Mute, 0)], vec![backup], None),
            (
                "the holder",
                vec![changing("ns/a", Step::Holder, 0)],
                vec![],
                Some(GuardStep::Reloaded),
            ),
            (
                "others wait",
                vec![changing("ns/a", Step::Holder, 1)],
                vec![fault],
                Some(GuardStep::InFault),
            ),
            (
                "others",
                vec![changing("ns/a", Step::Others, 1)],
                vec![fault],
                Some(GuardStep::Reloaded),
            ),
            (
                "two",
                vec![changing("ns/b", Step::Others, 1), changing("ns/a", Step::Mute, 1)],
                vec![fault],
                Some(GuardStep::InFault),
            ),
            (
                "one of two",
                vec![changing("ns/b", Step::Others, 1), changing("ns/a", Step::Mute, 1)],
                vec![],
                None,
            ),
        ] {
            let found = entry("n1", &view(instances, &states)).unwrap().guard;
            assert_eq!(found.map(|guard| guard.step), expected, "{case}");
        }
        let mut silent = view(vec![changing("ns/a", Step::Mute, 1)], &[fault]);
        silent.ended = vec!["ns/a".to_owned()];
        let found = entry("n1", &silent).unwrap().guard.unwrap();
        assert_eq!((found.step, found.generation), (GuardStep::Ended, 1));
    }
}
