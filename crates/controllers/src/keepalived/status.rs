//! What a group says about itself: conditions, generation, and who holds which address.

use std::{collections::BTreeMap, net::IpAddr};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use landfall_api::{
    KeepalivedGroupStatus, Problem,
    condition::{self, Status},
    keepalived_group::{AnnouncedAddress, GroupNode, InstanceState, Layout},
    keys::CONDITION_READY,
};
use landfall_vrrp::{Instance, Plan};
use serde_json::{Value, json};

use super::{
    decide::Decision,
    lag::Late,
    password::{self, Password},
};
use crate::{cluster::keepalived::GroupView, object::ObjectKey};

/// The condition of a group part of which does not work.
const CONDITION_DEGRADED: &str = "Degraded";
/// The conditions of the replaced operator, of which one is `True`, and their reasons as it spelt them.
const CONDITION_SUCCESS: &str = "ReconcileSuccess";
const CONDITION_ERROR: &str = "ReconcileError";
const SUCCEEDED: &str = "LastReconcileCycleSucceded";
const FAILED: &str = "LastReconcileCycleFailed";
/// The reasons of which the replaced operator knew nothing.
const IDS_SHARED: &str = "RouterIDsShared";
const NO_AGENTS: &str = "NoAgents";
const WITHOUT_AGENT: &str = "NodesWithoutAgent";
const BEHIND: &str = "NodesBehind";
/// How many names a message has.
const MOST_NAMED: usize = 5;

/// Everything that a group's status is made from.
pub(super) struct Situation<'a> {
    pub view: &'a GroupView,
    /// The plan that nodes are to carry out.
    pub plan: Option<&'a Plan>,
    pub password: &'a Password,
    pub decision: Option<&'a Decision>,
    /// Whether a node is ready.
    pub is_ready: &'a dyn Fn(&str) -> bool,
    /// Whether there is such a node.
    pub exists: &'a dyn Fn(&str) -> bool,
    /// Nodes that have not carried out the plan for long.
    pub late: Late<'a>,
    /// Messages of the API server about writes that it refused.
    pub refused: Vec<&'a str>,
}

/// What a group's status should be.
pub(super) struct Summary {
    /// The fields to write, if any differs.
    pub patch: Option<Value>,
    /// Every address of the group, in order.
    pub addresses: Vec<AnnouncedAddress>,
}

impl Situation<'_> {
    /// Whether a node is in the plan.
    fn is_planned(&self, node: &str) -> bool {
        self.plan.is_some_and(|plan| plan.node_index(node).is_some())
    }

    /// How many nodes of the plan have carried out this one or an earlier one.
    fn carrying(&self) -> usize {
        let reports = self.view.status.nodes.iter();
        reports.filter(|node| node.generation.is_some() && self.is_planned(&node.node)).count()
    }
}

/// What a group's status should be.
pub(super) fn summary(situation: &Situation<'_>, now: Timestamp) -> Summary {
    let old = &situation.view.status;
    let conditions = conditions(situation, now);
    let generation = situation.plan.map(|plan| plan.generation);
    let is_current = |node: &&GroupNode| generation.is_some() && node.generation == generation;
    let applied = old.nodes.iter().filter(is_current).count();
    let applied = generation.is_some().then(|| i64::try_from(applied).unwrap_or(i64::MAX));
    let addresses = addresses(situation);
    let listed = addresses.get(..KeepalivedGroupStatus::MOST_ADDRESSES).unwrap_or(&addresses);
    let same = old.conditions == conditions
        && old.generation == generation
        && old.applied_nodes == applied
        && old.addresses == listed;
    // An agent keeps its own entry. It cannot remove it when its node is gone.
    let is_left =
        |node: &&GroupNode| situation.is_planned(&node.node) || (situation.exists)(&node.node);
    let nodes: Vec<_> = old.nodes.iter().filter(is_left).collect();
    let patch = (!same || nodes.len() < old.nodes.len()).then(|| {
        let mut patch = json!({
            "conditions": conditions,
            "generation": generation,
            "appliedNodes": applied,
            "addresses": listed,
        });
        if nodes.len() < old.nodes.len() {
            patch["nodes"] = json!(nodes);
        }
        patch
    });
    Summary { patch, addresses }
}

fn conditions(situation: &Situation<'_>, now: Timestamp) -> Vec<Condition> {
    let (ready, degraded) = (ready(situation), degraded(situation));
    let mut conditions = situation.view.status.conditions.clone();
    let mut set = |kind: &str, holds: bool, reason: &str, message: &str| {
        let status = if holds { Status::True } else { Status::False };
        let generation = Some(situation.view.generation);
        condition::set(&mut conditions, kind, status, reason, message, generation, now);
    };
    match &ready {
        Ok(message) => set(CONDITION_READY, true, "Serving", message),
        Err((reason, message)) => set(CONDITION_READY, false, reason, message),
    }
    match &degraded {
        None => set(CONDITION_DEGRADED, false, "AsExpected", ""),
        Some((reason, message)) => set(CONDITION_DEGRADED, true, reason, message),
    }
    let error = ready.err().filter(is_of_operator).or_else(|| degraded.filter(is_of_operator));
    let error = error.map(|(_, message)| message);
    set(CONDITION_SUCCESS, error.is_none(), SUCCEEDED, "");
    let reason = if error.is_some() { FAILED } else { SUCCEEDED };
    set(CONDITION_ERROR, error.is_some(), reason, &error.unwrap_or_default());
    conditions
}

type Trouble = (&'static str, String);

/// Whether something is not done yet that is the operator's to do. The replaced operator looked at nothing else.
fn is_of_operator((reason, _): &Trouble) -> bool {
    ![NO_AGENTS, WITHOUT_AGENT, BEHIND, IDS_SHARED].contains(reason)
}

/// What the group announces, or why it announces nothing.
fn ready(situation: &Situation<'_>) -> Result<String, Trouble> {
    if let Err(problems) = &situation.view.settings {
        return Err(("Invalid", problems_text(problems)));
    }
    match situation.password {
        Password::Missing => {
            let message = "the Secret that passwordAuth names does not exist. Create it.";
            return Err(("PasswordMissing", message.to_owned()));
        }
        Password::Unknown => {
            return Err(("Pending", "the Secret of its password is being looked up".to_owned()));
        }
        Password::NotUsed | Password::Named(_) => {}
    }
    match situation.plan {
        None => Err(("Pending", "its plan is being written".to_owned())),
        Some(plan) if plan.nodes.is_empty() => Err((
            "NoNodes",
            "no node has the labels of nodeSelector. Label a node, or change nodeSelector."
                .to_owned(),
        )),
        Some(_) => match situation.carrying() {
            0 => Err((
                NO_AGENTS,
                format!(
                    "no agent has carried its plan out yet. If that lasts, look at the pods of the DaemonSet {}.",
                    situation.view.key
                ),
            )),
            1 => Ok("announced from 1 node".to_owned()),
            nodes => Ok(format!("announced from {nodes} nodes")),
        },
    }
}

/// The first thing that does not work as it should.
fn degraded(situation: &Situation<'_>) -> Option<Trouble> {
    if let Some(message) = situation.refused.first() {
        return Some(("WriteRefused", (*message).to_owned()));
    }
    let decision = situation.decision?;
    if !decision.without_id.is_empty() {
        let names = named(decision.without_id.iter().map(String::as_str));
        let message = format!(
            "no router ID is left for {names}. Give the group the field vrrp, which needs a few router IDs for any \
             number of Services, or fewer Services."
        );
        return Some(("RouterIDsExhausted", message));
    }
    if !decision.shared_ids.is_empty() {
        let texts = decision.shared_ids.iter().map(|(group, ids)| {
            let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
            format!("{} of {group}", named(ids.iter().map(String::as_str)))
        });
        let texts: Vec<_> = texts.collect();
        let message = format!(
            "a group with a node in common has the same router IDs: {}. Nodes take the adverts of the one for those of \
             the other, and in the layout of slots one of them is held by no node. Add the IDs to blacklistRouterIDs \
             of one of the groups, which gives its instances others.",
            named(texts.iter().map(String::as_str))
        );
        return Some((IDS_SHARED, message));
    }
    if decision.full {
        let message = format!(
            "its plan has no room for more addresses: a ConfigMap holds a MiB. Let another group announce the Services \
             that wait, or give this one fewer nodes{}.",
            if is_slotted(situation) {
                ""
            } else {
                " or the field vrrp, with which a plan is shorter"
            }
        );
        return Some(("PlanFull", message));
    }
    if let Some((millis, count)) = decision.kept_interval {
        let message = format!(
            "vrrp.advertInterval has no effect while the group has {count} addresses: adverts stay {millis} ms apart, \
             because shorter intervals than 100 ms leave no time for so many. Set it to 100 ms or more, or let other \
             groups announce some of the addresses."
        );
        return Some(("AdvertIntervalKept", message));
    }
    if !decision.silent.is_empty() {
        let names = named(decision.silent.iter().map(String::as_str));
        let message = format!(
            "a change waits for nodes whose agents do not report: {names}. Look at their pods."
        );
        return Some(("ChangeWaits", message));
    }
    let reports = situation.view.status.nodes.iter();
    let reports = reports.filter(|node| situation.is_planned(&node.node));
    let failing = reports.filter_map(|node| Some((&node.node, node.last_error.as_ref()?)));
    let failing: Vec<_> = failing.map(|(node, error)| format!("{node}: {error}")).collect();
    if !failing.is_empty() {
        return Some(("NodesFailing", named(failing.iter().map(String::as_str))));
    }
    if let Some(trouble) = late(situation) {
        return Some(trouble);
    }
    let settings = situation.view.settings.as_ref().ok()?;
    let mut warnings = settings.warnings.clone();
    if settings.password.is_some() && !password::is_used_by(settings) {
        let fault = "it has no effect, because version 3 of the protocol has no passwords";
        warnings.push(Problem::new("passwordAuth", fault, "Remove it"));
    }
    (!warnings.is_empty()).then(|| ("PartlyRead", problems_text(&warnings)))
}

fn is_slotted(situation: &Situation<'_>) -> bool {
    let settings = situation.view.settings.as_ref();
    settings.is_ok_and(|settings| matches!(settings.layout, Layout::Slots(_)))
}

/// Nodes on which the plan is not carried out, although they are ready.
fn late(situation: &Situation<'_>) -> Option<Trouble> {
    let Late { without_agent, behind } = &situation.late;
    let key = &situation.view.key;
    if !without_agent.is_empty() {
        let names = named(without_agent.iter().copied());
        let message = format!(
            "no agent reports from {names}. Look at the pods of the DaemonSet {key} there: kubectl describe says why \
             one is missing or does not start, and its log says what it cannot do."
        );
        return Some((WITHOUT_AGENT, message));
    }
    (!behind.is_empty()).then(|| {
        let names = named(behind.iter().copied());
        let message = format!(
            "an earlier plan is carried out on {names}. Look at the log of the pods of the DaemonSet {key} there, \
             and delete a pod that does not reach the API server; its addresses stay where they are."
        );
        (BEHIND, message)
    })
}

fn problems_text(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn named<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    let more = names.len().saturating_sub(MOST_NAMED);
    let text = names.into_iter().take(MOST_NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{text} and {more} more") } else { text }
}

/// The node that holds the addresses of an instance, with all of them, and since when. Of several that say so, one
/// that is ready, and of those the one that became it last.
pub(super) fn holder<'a>(
    status: &'a KeepalivedGroupStatus,
    instance: &Instance,
    is_ready: &dyn Fn(&str) -> bool,
) -> Option<(&'a GroupNode, Timestamp)> {
    let has_all = |node: &&GroupNode| {
        node.generation.is_some_and(|generation| generation >= instance.generation)
    };
    let reports = status.nodes.iter().filter(has_all).flat_map(|node| {
        let reports = node.instances.iter().filter(|report| report.name == instance.name);
        reports.map(move |report| (node, report))
    });
    let masters = reports.filter(|(_, report)| report.state == InstanceState::Master);
    masters
        .map(|(node, report)| (node, report.since.0))
        .max_by_key(|(node, since)| (is_ready(&node.node), *since))
}

/// Every address of the group, in order.
fn addresses(situation: &Situation<'_>) -> Vec<AnnouncedAddress> {
    let (Some(plan), Some(decision)) = (situation.plan, situation.decision) else {
        return situation.view.status.addresses.clone();
    };
    let services: BTreeMap<IpAddr, &ObjectKey> = decision
        .announced
        .iter()
        .flat_map(|one| one.addresses.iter().map(|address| (*address, &one.service)))
        .collect();
    let mut all: Vec<(IpAddr, AnnouncedAddress)> = Vec::new();
    for instance in &plan.instances {
        let holder = holder(&situation.view.status, instance, situation.is_ready);
        for address in instance.served() {
            let Some(service) = services.get(&address) else { continue };
            let entry = AnnouncedAddress {
                address: address.to_string(),
                service: service.to_string(),
                instance: instance.name.clone(),
                vrid: i32::from(instance.router_id),
                node: holder.map(|(node, _)| node.node.clone()),
                since: holder
                    .map(|(_, since)| k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(since)),
            };
            all.push((address, entry));
        }
    }
    all.sort_by_key(|(address, _)| *address);
    all.into_iter().map(|(_, entry)| entry).collect()
}
