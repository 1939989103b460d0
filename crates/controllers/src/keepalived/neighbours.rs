//! Router IDs of other groups.
//!
//! A node takes an advert for one of its own if it has the router ID of one of its instances. Of two instances with
//! one ID, the addresses of the one with the lower priority are then held by no node. So groups that have a node in
//! common share no ID, and groups of slots avoid even those of all other groups, which may be on the same network.

use std::collections::{BTreeMap, BTreeSet};

use landfall_api::keepalived_group::Layout;

use super::{decide::is_selected, members::World, progress::Progress};
use crate::{cluster::keepalived::GroupView, object::ObjectKey};

/// The router IDs of all other groups.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    /// Those that nodes of groups with a node in common use or may use.
    pub near: BTreeSet<u8>,
    /// Those of all other groups.
    pub distant: BTreeSet<u8>,
    /// Those that each group with a node in common is to have.
    pub sharing: BTreeMap<ObjectKey, BTreeSet<u8>>,
    /// Those of `sharing` that this group is to give up, as the younger one.
    pub yielded: BTreeSet<u8>,
}

impl Neighbours {
    /// Looks at all groups but this one. `progress` is what is remembered of them, `own` what is of this one.
    pub(super) fn of(
        world: World<'_>,
        view: &GroupView,
        own: &Progress,
        progress: &BTreeMap<ObjectKey, Progress>,
    ) -> Self {
        let (selected, planned) = (selected(world, view), planned(own));
        let all: BTreeSet<&str> = selected.union(&planned).copied().collect();
        let mut found = Self::default();
        let others = world.cluster.keepalived_groups.values();
        for other in others.filter(|other| other.key != view.key) {
            let progress = progress.get(&other.key);
            let in_use = in_use(other, progress);
            // The nodes of a group that cannot be used go on as its last plan says.
            let theirs = match &other.settings {
                Ok(_) => self::selected(world, other),
                Err(_) => progress.map(self::planned).unwrap_or_default(),
            };
            let was_near = || progress.is_some_and(|it| !self::planned(it).is_disjoint(&all));
            if !theirs.is_disjoint(&all) || was_near() {
                found.near.extend(&in_use);
            } else {
                found.distant.extend(&in_use);
            }
            if !other.deleting && !theirs.is_disjoint(&selected) {
                let given = progress.map(|it| it.router_ids.clone()).unwrap_or_default();
                let ids = if given.is_empty() { in_use } else { given };
                if yields(view, other) {
                    found.yielded.extend(&ids);
                }
                found.sharing.insert(other.key.clone(), ids);
            }
        }
        if !is_slotted(view) {
            found.distant.clear();
        }
        found
    }

    /// The IDs that groups with a node in common are to have as well, by group.
    pub(super) fn shared(&self, ids: &BTreeMap<String, u8>) -> BTreeMap<ObjectKey, BTreeSet<u8>> {
        let own: BTreeSet<u8> = ids.values().copied().collect();
        let shared = self.sharing.iter().map(|(key, ids)| (key, ids.intersection(&own).copied()));
        let shared = shared.map(|(key, ids)| (key.clone(), ids.collect::<BTreeSet<u8>>()));
        shared.filter(|(_, ids)| !ids.is_empty()).collect()
    }
}

fn is_slotted(view: &GroupView) -> bool {
    view.settings.as_ref().is_ok_and(|settings| matches!(settings.layout, Layout::Slots(_)))
}

/// Whether the first of two groups gets other IDs if both have the same: a new ID interrupts fewer instances in the
/// layout of slots.
fn yields(view: &GroupView, other: &GroupView) -> bool {
    let age = |view: &GroupView| (view.created, view.key.clone());
    is_slotted(view) && (!is_slotted(other) || age(view) > age(other))
}

/// The nodes that the settings of a group select.
fn selected<'a>(world: World<'a>, view: &GroupView) -> BTreeSet<&'a str> {
    let Ok(settings) = &view.settings else { return BTreeSet::new() };
    let names = world.cluster.nodes.keys();
    let is_one = |name: &&String| {
        let view = world.cluster.nodes.get(*name);
        view.is_some_and(|view| is_selected(settings, view))
    };
    names.filter(is_one).map(String::as_str).collect()
}

/// The nodes of the plans that a group has.
fn planned(progress: &Progress) -> BTreeSet<&str> {
    progress.plans().flat_map(|plan| &plan.nodes).map(|node| node.name.as_str()).collect()
}

/// The IDs that nodes of a group use or may use soon.
fn in_use(view: &GroupView, progress: Option<&Progress>) -> BTreeSet<u8> {
    let written = view.status.router_ids.values().filter_map(|id| u8::try_from(*id).ok());
    let remembered = progress.into_iter().flat_map(|progress| {
        let plans = || progress.plans();
        let planned = plans().flat_map(|plan| &plan.instances).map(|one| one.router_id);
        let leaving = plans().flat_map(|plan| &plan.leaving);
        let leaving = leaving.filter(|(address, _)| progress.leaving.contains(address));
        let leaving = leaving.map(|(_, one)| one.router_id);
        planned.chain(leaving).chain(progress.router_ids.iter().copied())
    });
    written.chain(remembered).collect()
}
