//! Changes of what all nodes of a group must agree on, one step at a time.
//!
//! Two nodes whose forms of an instance differ do not understand each other's adverts, and both hold the addresses.
//! So all nodes but the holder stop first, then the holder changes, then the others, and then they may hold again.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use landfall_api::keepalived_group::{
    GroupNode, GuardStep, InstanceReport, InstanceState, KeepalivedGroupStatus,
};
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
        let is_over = self.is_over(generation);
        let has_not = |node: &&landfall_vrrp::Node| !self.runs(&node.name, generation);
        let is_behind = |node: &&landfall_vrrp::Node| match self.report(&node.name) {
            // An agent that says why it cannot carry a plan out is not silent, and may hold what it held.
            Some(report) if is_over => {
                let holds = |one: &InstanceReport| one.state == InstanceState::Master;
                let is_ready = self.ready.contains(node.name.as_str());
                is_ready && report.last_error.is_some() && report.instances.iter().any(holds)
            }
            Some(_) => true,
            // Whatever runs there was not begun by us, unless the node is down.
            None => !is_over && self.ready.contains(node.name.as_str()),
        };
        let nodes = plan.into_iter().flat_map(|plan| &plan.nodes);
        nodes.filter(has_not).filter(is_behind).map(|node| node.name.clone()).collect()
    }

    /// Whether the nodes were waited for long enough since this generation.
    pub(super) fn is_over(&self, generation: i64) -> bool {
        (self.waited)(generation) >= PATIENCE
    }

    /// Whether a node has reported that it runs this generation or a later one.
    pub(super) fn runs(&self, node: &str, generation: i64) -> bool {
        let reported = self.report(node).and_then(|report| report.generation);
        reported.is_some_and(|reported| reported >= generation)
    }

    fn report(&self, node: &str) -> Option<&GroupNode> {
        self.status.nodes.iter().find(|report| report.node == node)
    }

    /// The node of a plan that holds an instance, as far as reports of nodes that are well say.
    fn master(&self, plan: &Plan, instance: &str) -> Option<NodeIndex> {
        let masters = self.status.nodes.iter().filter(|report| {
            self.ready.contains(report.node.as_str())
                && report.state_of(instance) == InstanceState::Master
        });
        // Of several, the one that became it last.
        let since = |report: &&GroupNode| {
            let found = report.instances.iter().find(|one| one.name == instance);
            found.map(|one| one.since.0)
        };
        let masters =
            masters.filter_map(|report| Some((since(&report), plan.node_index(&report.node)?)));
        masters.max().map(|(_, node)| node)
    }

    /// The node that goes first with a change: the one that holds the instance, or else the preferred one of those
    /// that are well.
    fn first(&self, plan: &Plan, instance: &Instance) -> Option<NodeIndex> {
        let is_well = |index: &&NodeIndex| {
            plan.node(**index).is_some_and(|node| self.ready.contains(node.name.as_str()))
        };
        let mut order = instance.order.iter();
        let preferred = || order.clone().find(is_well).or_else(|| order.next()).copied();
        self.master(plan, &instance.name).or_else(preferred)
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
        let wanted = match progress.form {
            Some(form) => std::mem::replace(&mut instance.form, form),
            None => instance.form.clone(),
        };
        instance.change = progress.change;
        hold_meanwhile(instance, &wanted);
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
        let Some(holder) = holder.filter(|holder| !self.is_given_up(instance, change, *holder))
        else {
            // Some nodes may use the one form and some the other. Those that use the new one have it from the last
            // step, in which no node goes back.
            let from = if change.step == Step::Others { &old.form } else { &change.before };
            return Progress {
                change: self.first_step(instance, from),
                form,
                ..Progress::default()
            };
        };
        let waiting = self.waiting(&old.name, change, holder);
        let is_over = waiting.is_empty() || self.nodes.is_over(change.since);
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
        Progress { change: self.first_step(instance, old), ..Progress::default() }
    }

    /// The first step of a change from a form, with the node that holds the instance now.
    fn first_step(&self, instance: &Instance, before: &Form) -> Option<Change> {
        let holder = self.nodes.first(self.draft, instance)?;
        Some(Change { before: before.clone(), holder, step: Step::Mute, since: self.begins })
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

    /// Whether agents have stopped waiting because the holder fell silent, and another node holds the instance.
    /// An agent does not say which instance that was about.
    fn is_given_up(&self, instance: &Instance, change: &Change, holder: NodeIndex) -> bool {
        let reports = self.nodes.status.nodes.iter().filter_map(|report| report.guard.as_ref());
        let mut ended = reports.filter(|report| report.step == GuardStep::Ended);
        ended.any(|report| report.generation >= change.since)
            && self.nodes.master(self.draft, &instance.name).is_some_and(|master| master != holder)
    }
}

/// Lets nodes hold every address of the form that is wanted although they do not use it yet.
fn hold_meanwhile(instance: &mut Instance, wanted: &Form) {
    if wanted.anchor {
        return;
    }
    let before = instance.change.as_ref().map(|change| &change.before);
    let is_everywhere = |address: &IpAddr| {
        let mut forms = before.into_iter().chain([&instance.form]);
        forms.all(|form| form.advertised.contains(address))
    };
    let missing = wanted.advertised.iter().filter(|address| !is_everywhere(address));
    let missing: Vec<_> =
        missing.filter(|address| !instance.excluded.contains(address)).copied().collect();
    instance.excluded.extend(missing);
    instance.excluded.sort_unstable();
}

/// The step after this one; `None` after the last.
const fn next(step: Step) -> Option<Step> {
    match step {
        Step::Mute => Some(Step::Holder),
        Step::Holder => Some(Step::Others),
        Step::Others => None,
    }
}
