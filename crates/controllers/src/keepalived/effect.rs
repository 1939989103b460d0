//! The calls that the planner of keepalived groups asks for, and how each is performed.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    core::{DeserializeGuard, DynamicObject},
};
use landfall_api::KeepalivedGroup;
use landfall_vrrp::password_name;
use serde_json::{Value, json};

use super::children::Child;
use crate::{
    call::{Failure, creating, failure, found, guarded_by_uid, patching},
    cluster::{
        Seen,
        keepalived::{self, ChildKind},
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
}

/// The part of a group that a call is about. At most one call about each part is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Status,
    Secret,
    Child(ChildKind),
}

/// The answer to a successful call.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// What it shows of a watched object, until the engine has taken that in.
    Seen(Option<Seen>),
    /// The name of the password in the Secret; `None` if there is no such Secret.
    Secret(Option<String>),
}

impl Step {
    pub(super) const fn part(&self) -> Part {
        match self {
            Self::Status { .. } => Part::Status,
            Self::LookAtSecret { .. } => Part::Secret,
            Self::Create { child } | Self::Align { child, .. } => Part::Child(child.kind),
        }
    }
}

impl Call for Effect {
    type Answer = Answer;

    /// After the publishing calls of the allocator, and the plan before everything around it.
    fn rank(&self) -> u8 {
        match self.step.part() {
            Part::Secret | Part::Child(ChildKind::ConfigMap) => 1,
            Part::Status | Part::Child(_) => 2,
        }
    }

    fn label(&self) -> &'static str {
        match &self.step {
            Step::Status { .. } => "group_status",
            Step::Create { .. } => "create",
            Step::Align { .. } => "align",
            Step::LookAtSecret { .. } => "look_at_secret",
        }
    }

    fn object(&self) -> String {
        match &self.step {
            Step::Status { .. } => self.group.to_string(),
            Step::Create { child } | Step::Align { child, .. } => {
                format!("{} {}", child.kind.plural(), child.key)
            }
            Step::LookAtSecret { secret } => secret.to_string(),
        }
    }

    fn matters_to_users(&self) -> bool {
        matches!(self.step.part(), Part::Child(_))
    }

    fn floor(&self) -> Floor {
        match &self.step {
            Step::Status { version, .. } | Step::Align { version, .. } => Floor::Version(*version),
            Step::Create { .. } | Step::LookAtSecret { .. } => Floor::None,
        }
    }

    fn version_of(&self, answer: &Answer) -> Option<Version> {
        match answer {
            Answer::Seen(Some(Seen::KeepalivedGroup(view))) => Some(view.version),
            Answer::Seen(Some(Seen::Child(view))) => Some(view.version),
            Answer::Seen(_) | Answer::Secret(_) => None,
        }
    }

    fn take_seen(answer: &mut Answer) -> Option<Seen> {
        match answer {
            Answer::Seen(seen) => seen.take(),
            Answer::Secret(_) => None,
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
                let created = objects(client, child).create(&creating(), &object).await;
                seen(child, created)
            }
            Step::Align { child, uid, version } => {
                let patch = guarded_by_uid(*version, uid, child.object.clone());
                let name = child.key.name();
                seen(child, objects(client, child).patch(name, &patching(), &patch).await)
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
        }
    }
}

fn objects(client: &Client, child: &Child) -> Api<DynamicObject> {
    let namespace = child.key.namespace();
    Api::namespaced_with(client.clone(), namespace, &child.kind.resource())
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
