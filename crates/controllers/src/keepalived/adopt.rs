//! Objects that have the name of a group's object: which of them are the group's, whoever made them.
//!
//! Only objects with the label of a group are watched. The replaced operator gave none to its `DaemonSet`s, roles
//! and bindings, and anybody can remove one: such an object is found when its name turns out to be taken.

use serde_json::{Value, json};

use super::children::{self, Child};
use crate::{
    cluster::keepalived::{ChildKind, ChildView, GroupView},
    object::ObjectKey,
};

/// An object that the watch does not show, although it has the name of one of the group's.
#[derive(Clone, Debug)]
pub(super) enum Hidden {
    /// Its name is taken, and nothing else is known of it.
    Unseen,
    /// The group's, as it was found.
    Found(Box<ChildView>),
}

/// Whether an object with the label of a group is this group's. The replaced operator set the same owner.
pub(super) fn is_of(found: &ChildView, group: &GroupView) -> bool {
    !found.deleting && (owners(found).is_empty() || is_owned(found, group))
}

/// Whether an object without the label is this group's as well. The replaced operator left the roles for
/// Prometheus without an owner, and wrote whatever had their names at every turn: what is there is its own.
pub(super) fn may_adopt(found: &ChildView, group: &GroupView) -> bool {
    let is_role = matches!(found.kind, ChildKind::Role | ChildKind::RoleBinding);
    let is_monitors = is_role && found.key.name() == children::prometheus_name(group.key.name());
    !found.deleting && (is_owned(found, group) || is_monitors && owners(found).is_empty())
}

fn owners(found: &ChildView) -> &[Value] {
    let owners = found.object["metadata"]["ownerReferences"].as_array();
    owners.map_or(&[], Vec::as_slice)
}

fn is_owned(found: &ChildView, group: &GroupView) -> bool {
    owners(found).iter().any(|owner| owner["uid"] == *group.uid)
}

/// What is said of an object of another owner that has the name of one of the group's.
pub(super) fn taken(child: &Child) -> String {
    let (kind, key) = (child.kind.plural(), &child.key);
    format!("{kind} {key} exists and is not of this group. Delete or rename it.")
}

/// The groups that an object with this name may be of.
pub(super) fn groups_of(key: &ObjectKey) -> impl Iterator<Item = ObjectKey> {
    let suffixes = ["", children::AGENT_SUFFIX, children::PROMETHEUS_SUFFIX];
    let names = suffixes.into_iter().filter_map(|suffix| key.name().strip_suffix(suffix));
    names.map(|name| ObjectKey::new(key.namespace(), name))
}

/// The group that a role or binding was made for by the replaced operator, if nothing says that it may be
/// another program's: its name and content are exactly those, and it has no owner, label or annotation.
pub(super) fn left_for(found: &ChildView) -> Option<ObjectKey> {
    let name = found.key.name().strip_suffix(children::PROMETHEUS_SUFFIX)?;
    let metadata = &found.object["metadata"];
    let is_bare = ["labels", "annotations", "ownerReferences"].iter().all(|field| {
        let field = &metadata[*field];
        field.is_null() || *field == json!([]) || *field == json!({})
    });
    let is_exact = match found.kind {
        ChildKind::Role => found.object["rules"] == children::prometheus_rules(),
        ChildKind::RoleBinding => {
            let binding = children::prometheus_binding(name);
            ["roleRef", "subjects"].iter().all(|field| found.object[*field] == binding[*field])
        }
        ChildKind::ConfigMap
        | ChildKind::DaemonSet
        | ChildKind::ServiceAccount
        | ChildKind::PodMonitor => false,
    };
    let is_left = is_bare && is_exact && !found.deleting && !name.is_empty();
    is_left.then(|| ObjectKey::new(found.key.namespace(), name))
}
