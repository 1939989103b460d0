//! Changes of what all nodes of a group must agree on, one step at a time.
//!
//! Two nodes whose forms of an instance differ do not understand each other's adverts, and both hold the addresses.
//! So all nodes but the holder stop first, then the holder changes, then the others, and then they may hold again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use landfall_api::keepalived_group::{GroupNode, GuardStep, InstanceState, KeepalivedGroupStatus};
use landfall_vrrp::{Change, Form, Instance, NodeIndex, Plan, Step};

/// How long a step waits for a node that reports nothing.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// What is known of the nodes that carry a change out.
#[derive(Clone, Copy)]
pub(super) struct Nodes<'a> {
    pub status: &'a KeepalivedGroupStatus,
    /// The nodes that are well, as their kubelets report.
    pub ready: &'a BTreeSet<&'a str>,
    /// How long the step that began with this generation has lasted.
    pub waited: &'a dyn Fn(i64) -> Duration,
}

impl Nodes<'_> {
    /// The nodes of a plan that have not carried out this generation, unless they were waited for long enough.
    pub(super) fn behind(&self, plan: Option<&Plan>, generation: i64) -> BTreeSet<String> {
        if (self.waited)(generation) >= PATIENCE {
            return BTreeSet::new();
        }
        let is_behind = |node: &&landfall_vrrp::Node| match self.report(&node.name) {
            Some(report) => report.generation.is_none_or(|reported| reported < generation),
            // Whatever runs there was not begun by us, unless the node is down.
            None => self.ready.contains(node.name.as_str()),
        };
        let nodes = plan.into_iter().flat_map(|plan| &plan.nodes);
        nodes.filter(is_behind).map(|node| node.name.clone()).collect()
    }

    fn report(&self, node: &str) -> Option<&GroupNode> {
        self.status.nodes.iter().find(|report| report.node == node)
    }
}

/// A plan in which no form changes at once.
#[derive(Debug, PartialEq)]
pub(super) struct Guarded {
    pub plan: Plan,
    /// Nodes that hold up a change.
    pub silent: BTreeSet<String>,
}

/// Replaces each change of a form in a draft by its next step. `found` has the forms of instances that another
/// operator ran, while there is no plan before.
pub(super) fn guard(
    mut draft: Plan,
    before: Option<&Plan>,
    found: &BTreeMap<String, Form>,
    nodes: Nodes<'_>,
) -> Guarded {
    let mut silent = BTreeSet::new();
    let running = before.into_iter().flat_map(|plan| &plan.instances);
    let running: BTreeMap<_, _> =
        running.map(|instance| (instance.name.as_str(), instance)).collect();
    let begins = before.map_or(1, |plan| plan.generation.saturating_add(1));
    let mut instances = std::mem::take(&mut draft.instances);
    for instance in &mut instances {
        let round = Round { draft: &draft, before, nodes, begins };
        let old = running.get(instance.name.as_str());
        let progress = match (old, found.get(&instance.name)) {
            (Some(old), _) => round.go_on(instance, old),
            (None, Some(form)) if before.is_none() => round.begin(instance, form),
            (None, _) => Progress::default(),
        };
        if let Some(form) = progress.form {
            instance.form = form;
        }
        instance.change = progress.change;
        silent.extend(progress.silent);
    }
    draft.instances = instances;
    Guarded { plan: draft, silent }
}

/// What becomes of one instance.
#[derive(Default)]
struct Progress {
    /// The form that it changes to or keeps, if that is not the one of the draft.
    form: Option<Form>,
    change: Option<Change>,
    silent: BTreeSet<String>,
}

struct Round<'a> {
    draft: &'a Plan,
    before: Option<&'a Plan>,
    nodes: Nodes<'a>,
    /// The generation of the plan that is being made.
    begins: i64,
}

impl Round<'_> {
    fn go_on(&self, instance: &Instance, old: &Instance) -> Progress {
        let Some(change) = &old.change else { return self.begin(instance, &old.form) };
        // Another change waits until this one is over.
        let form = Some(old.form.clone());
        let holder = self.before.and_then(|plan| plan.node(change.holder));
        let holder = holder.and_then(|node| self.draft.node_index(&node.name));
        let Some(holder) = holder.filter(|_| !self.is_given_up(change)) else {
            return Progress { form, ..Progress::default() };
        };
        let waiting = self.waiting(&old.name, change, holder);
        let is_over = waiting.is_empty() || (self.nodes.waited)(change.since) >= PATIENCE;
        let step = if is_over { next(change.step) } else { Some(change.step) };
        let since = if is_over { self.begins } else { change.since };
        let change = step.map(|step| Change { step, since, holder, ..change.clone() });
        Progress { form, change, silent: waiting }
    }

    /// Begins a change if the form of the draft is another one, as soon as every node has an agent.
    fn begin(&self, instance: &Instance, old: &Form) -> Progress {
        if instance.form == *old {
            return Progress::default();
        }
        let without_agent: BTreeSet<_> = self
            .draft
            .nodes
            .iter()
            .map(|node| &node.name)
            .filter(|name| {
                self.nodes.ready.contains(name.as_str()) && self.nodes.report(name).is_none()
            })
            .cloned()
            .collect();
        if !without_agent.is_empty() {
            return Progress {
                form: Some(old.clone()),
                silent: without_agent,
                ..Progress::default()
            };
        }
        let is_master =
            |report: &&GroupNode| report.state_of(&instance.name) == InstanceState::Master;
        let master = self.nodes.status.nodes.iter().find(is_master);
        let master = master.and_then(|report| self.draft.node_index(&report.node));
        let holder = master.or_else(|| instance.order.first().copied());
        let change = holder.map(|holder| Change {
            before: old.clone(),
            holder,
            step: Step::Mute,
            since: self.begins,
        });
        Progress { change, ..Progress::default() }
    }

    /// The nodes that have not carried out the present step.
    fn waiting(&self, instance: &str, change: &Change, holder: NodeIndex) -> BTreeSet<String> {
        let concerned = |index: NodeIndex| match change.step {
            Step::Mute | Step::Others => index != holder,
            Step::Holder => index == holder,
        };
        let done = |report: &GroupNode| {
            let runs = report.generation.is_some_and(|generation| generation >= change.since);
            let muted = report.state_of(instance) == InstanceState::Fault;
            runs && (change.step != Step::Mute || muted)
        };
        let nodes = (0..).zip(&self.draft.nodes);
        let concerned = nodes.filter(|(index, _)| concerned(*index)).map(|(_, node)| &node.name);
        // A node that is down runs nothing. When it comes back it gets the plan before keepalived starts.
        let concerned = concerned.filter(|name| self.nodes.ready.contains(name.as_str()));
        concerned.filter(|name| !self.nodes.report(name).is_some_and(done)).cloned().collect()
    }

    /// Whether an agent has stopped waiting because the holder fell silent.
    fn is_given_up(&self, change: &Change) -> bool {
        let reports = self.nodes.status.nodes.iter().filter_map(|report| report.guard.as_ref());
        let mut ended = reports.filter(|report| report.step == GuardStep::Ended);
        ended.any(|report| report.generation >= change.since)
    }
}

/// The step after this one; `None` after the last.
const fn next(step: Step) -> Option<Step> {
    match step {
        Step::Mute => Some(Step::Holder),
        Step::Holder => Some(Step::Others),
        Step::Others => None,
    }
}
