//! The calls that the planner of keepalived groups asks for, and how each is performed.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    api::ListParams,
    core::{DeserializeGuard, DynamicObject},
};
use landfall_api::KeepalivedGroup;
use landfall_vrrp::password_name;
use serde_json::{Value, json};

use super::{
    adopt,
    children::{Child, PROMETHEUS_SUFFIX},
};
use crate::{
    call::{Failure, creating, deleting, failure, found, guarded_by_uid, patching},
    cluster::{
        Seen,
        keepalived::{self, ChildKind, ChildView},
    },
    engine::{Call, Floor},
    object::{ObjectKey, Version},
};

/// A call about one group.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Effect {
    pub group: ObjectKey,
    pub step: Step,
}

/// What the call does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Write these fields of the group's status at exactly this version.
    Status { uid: Arc<str>, version: Version, status: Value },
    /// Create an object of the group.
    Create { child: Child },
    /// Change an object of the group at exactly this version.
    Align { child: Child, uid: Arc<str>, version: Version },
    /// Read, without its content, the Secret that has the group's password.
    LookAtSecret { secret: ObjectKey },
    /// Read the object that has the name of one of the group's.
    LookAt { child: Child },
    /// Look in the namespace of a group for what the replaced operator left of other groups.
    FindLeftovers,
    /// Delete an object that it left, at exactly this version.
    Remove { kind: ChildKind, key: ObjectKey, uid: Arc<str>, version: Version },
}

/// The part of a group that a call is about. At most one call about each part is in flight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Status,
    Secret,
    Child(ChildKind, ObjectKey),
    Leftovers,
}

/// The answer to a successful call.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// What it shows of a watched object, until the engine has taken that in.
    Seen(Option<Seen>),
    /// The name of the password in the Secret; `None` if there is no such Secret.
    Secret(Option<String>),
    /// The object of a name, if there is one.
    Found(Option<Box<ChildView>>),
    /// What the replaced operator left, of any group.
    Leftovers(Vec<ChildView>),
    Removed,
}

impl Step {
    pub(super) fn part(&self) -> Part {
        match self {
            Self::Status { .. } => Part::Status,
            Self::LookAtSecret { .. } => Part::Secret,
            Self::Create { child } | Self::Align { child, .. } | Self::LookAt { child } => {
                Part::of(child)
            }
            Self::FindLeftovers => Part::Leftovers,
            Self::Remove { kind, key, .. } => Part::Child(*kind, key.clone()),
        }
    }
}

impl Step {
    /// Whether it writes the plan of the group.
    pub(super) const fn writes_plan(&self) -> bool {
        match self {
            Self::Create { child } | Self::Align { child, .. } => {
                matches!(child.kind, ChildKind::ConfigMap)
            }
            Self::Status { .. }
            | Self::LookAtSecret { .. }
            | Self::LookAt { .. }
            | Self::FindLeftovers
            | Self::Remove { .. } => false,
        }
    }
}

impl Part {
    pub(super) fn of(child: &Child) -> Self {
        Self::Child(child.kind, child.key.clone())
    }
}

impl Call for Effect {
    type Answer = Answer;

    /// After the publishing calls of the allocator, and the plan before everything around it.
    fn rank(&self) -> u8 {
        match self.step.part() {
            Part::Secret | Part::Child(ChildKind::ConfigMap, _) => 1,
            Part::Status | Part::Child(..) => 2,
            Part::Leftovers => 3,
        }
    }

    fn label(&self) -> &'static str {
        match &self.step {
            Step::Status { .. } => "group_status",
            Step::Create { .. } => "create",
            Step::Align { .. } => "align",
            Step::LookAtSecret { .. } => "look_at_secret",
            Step::LookAt { .. } => "look",
            Step::FindLeftovers => "find_leftovers",
            Step::Remove { .. } => "remove",
        }
    }

    fn object(&self) -> String {
        match &self.step {
            Step::Status { .. } => self.group.to_string(),
            Step::Create { child } | Step::Align { child, .. } | Step::LookAt { child } => {
                format!("{} {}", child.kind.plural(), child.key)
            }
            Step::FindLeftovers => self.group.namespace().to_owned(),
            Step::Remove { kind, key, .. } => format!("{} {key}", kind.plural()),
            Step::LookAtSecret { secret } => secret.to_string(),
        }
    }

    fn matters_to_users(&self) -> bool {
        matches!(self.step, Step::Create { .. } | Step::Align { .. } | Step::Remove { .. })
    }

    fn floor(&self) -> Floor {
        match &self.step {
            Step::Status { version, .. } | Step::Align { version, .. } => Floor::Version(*version),
            Step::Create { .. }
            | Step::LookAtSecret { .. }
            | Step::LookAt { .. }
            | Step::FindLeftovers
            | Step::Remove { .. } => Floor::None,
        }
    }

    fn version_of(&self, answer: &Answer) -> Option<Version> {
        match answer {
            Answer::Seen(Some(Seen::KeepalivedGroup(view))) => Some(view.version),
            Answer::Seen(Some(Seen::Child(view))) => Some(view.version),
            Answer::Seen(_)
            | Answer::Secret(_)
            | Answer::Found(_)
            | Answer::Leftovers(_)
            | Answer::Removed => None,
        }
    }

    fn take_seen(answer: &mut Answer) -> Option<Seen> {
        match answer {
            Answer::Seen(seen) => seen.take(),
            Answer::Secret(_) | Answer::Found(_) | Answer::Leftovers(_) | Answer::Removed => None,
        }
    }

    async fn perform(&self, client: &Client) -> Result<Answer, Failure> {
        match &self.step {
            Step::Status { uid, version, status } => {
                let patch = guarded_by_uid(*version, uid, json!({ "status": status }));
                let api: Api<KeepalivedGroup> =
                    Api::namespaced(client.clone(), self.group.namespace());
                let written = api.patch_status(self.group.name(), &patching(), &patch).await;
                let written = written.map_err(|error| failure(&error))?;
                let view = keepalived::read(DeserializeGuard(Ok(written)));
                Ok(Answer::Seen(Some(Seen::KeepalivedGroup(Box::new(view)))))
            }
            Step::Create { child } => {
                let mut object = DynamicObject::new(child.key.name(), &child.kind.resource())
                    .within(child.key.namespace())
                    .data(child.object.clone());
                adopt_metadata(&mut object)?;
                let created = objects(client, child.kind, &child.key);
                seen(child, created.create(&creating(), &object).await)
            }
            Step::Align { child, uid, version } => {
                let patch = guarded_by_uid(*version, uid, child.object.clone());
                let objects = objects(client, child.kind, &child.key);
                seen(child, objects.patch(child.key.name(), &patching(), &patch).await)
            }
            Step::LookAtSecret { secret } => {
                let api: Api<Secret> = Api::namespaced(client.clone(), secret.namespace());
                let found = found(api.get_metadata(secret.name()).await)?;
                let name = found.map(|found| {
                    let version = found.resource_version().unwrap_or_default();
                    password_name(&found.uid().unwrap_or_default(), &version)
                });
                Ok(Answer::Secret(name))
            }
            Step::LookAt { child } => {
                let objects = objects(client, child.kind, &child.key);
                let found = found(objects.get(child.key.name()).await)?;
                let view = found.map(|found| Box::new(keepalived::read_child(child.kind, found)));
                Ok(Answer::Found(view))
            }
            Step::FindLeftovers => {
                let mut left = Vec::new();
                // The binding goes first: without it the role gives nothing to anybody.
                for kind in [ChildKind::RoleBinding, ChildKind::Role] {
                    let objects = objects(client, kind, &self.group);
                    let all = objects.list(&ListParams::default()).await;
                    let all = all.map_err(|error| failure(&error))?.items.into_iter();
                    let named = all.filter(|one| one.name_any().ends_with(PROMETHEUS_SUFFIX));
                    left.extend(named.map(|one| keepalived::read_child(kind, one)));
                }
                left.retain(|view| adopt::left_for(view).is_some());
                Ok(Answer::Leftovers(left))
            }
            Step::Remove { kind, key, uid, version } => {
                let guard = deleting(uid, Some(*version));
                let deleted = objects(client, *kind, key).delete(key.name(), &guard).await;
                deleted.map(|_| Answer::Removed).map_err(|error| failure(&error))
            }
        }
    }
}

fn objects(client: &Client, kind: ChildKind, key: &ObjectKey) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), key.namespace(), &kind.resource())
}

fn seen(child: &Child, written: kube::Result<DynamicObject>) -> Result<Answer, Failure> {
    let written = written.map_err(|error| failure(&error))?;
    let view = keepalived::read_child(child.kind, written);
    Ok(Answer::Seen(Some(Seen::Child(Box::new(view)))))
}

/// Moves labels and owner from the content to where a dynamic object has them.
fn adopt_metadata(object: &mut DynamicObject) -> Result<(), Failure> {
    let content = object.data.as_object_mut();
    let Some(metadata) = content.and_then(|content| content.remove("metadata")) else {
        return Ok(());
    };
    let read = |field: &str| metadata.get(field).cloned().unwrap_or_default();
    let odd = |error: serde_json::Error| Failure::Refused(error.to_string());
    object.metadata.labels = serde_json::from_value(read("labels")).map_err(odd)?;
    object.metadata.owner_references =
        serde_json::from_value(read("ownerReferences")).map_err(odd)?;
    Ok(())
}
