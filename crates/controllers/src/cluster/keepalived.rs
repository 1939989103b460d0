//! Keepalived groups, and the objects that are generated for them.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    ResourceExt as _,
    core::{ApiResource, DeserializeGuard, DynamicObject, GroupVersionKind},
};
use landfall_api::{
    GroupSettings, KeepalivedGroup, KeepalivedGroupStatus, Problem, announce::AnnounceRequest,
};
use serde_json::Value;

use crate::object::{ObjectKey, Version, created, uid};

/// A keepalived group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GroupView {
    pub key: ObjectKey,
    pub uid: Arc<str>,
    pub version: Version,
    pub generation: i64,
    pub created: Timestamp,
    pub deleting: bool,
    /// Its settings, or what is wrong with them.
    pub settings: Result<Box<GroupSettings>, Vec<Problem>>,
    pub status: Box<KeepalivedGroupStatus>,
}

/// Reads a keepalived group. One that cannot be read is a group that cannot be used.
pub(crate) fn read(object: DeserializeGuard<KeepalivedGroup>) -> GroupView {
    let (metadata, settings, status) = match object.0 {
        Ok(group) => {
            let settings = group.settings().map(Box::new);
            (group.metadata, settings, group.status.unwrap_or_default())
        }
        Err(invalid) => {
            let problem = Problem::new("spec", invalid.error.clone(), "Correct the group's spec");
            (invalid.metadata, Err(vec![problem]), KeepalivedGroupStatus::default())
        }
    };
    GroupView {
        key: ObjectKey::of(&metadata),
        uid: uid(&metadata),
        version: Version::of(&metadata),
        generation: metadata.generation.unwrap_or_default(),
        created: created(&metadata),
        deleting: metadata.deletion_timestamp.is_some(),
        settings,
        status: Box::new(status),
    }
}

/// What a Service says by annotation about being announced.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Announceable {
    pub created: Timestamp,
    pub request: AnnounceRequest,
    /// All its conditions, unless it is of type `LoadBalancer`, whose view has them.
    pub conditions: Vec<Condition>,
}

/// A kind of objects that are generated for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ChildKind {
    ConfigMap,
    DaemonSet,
    ServiceAccount,
    Role,
    RoleBinding,
    PodMonitor,
}

impl ChildKind {
    pub(crate) const ALL: [Self; 6] = [
        Self::ConfigMap,
        Self::DaemonSet,
        Self::ServiceAccount,
        Self::Role,
        Self::RoleBinding,
        Self::PodMonitor,
    ];

    /// Its name in paths, in the log and in metrics.
    pub(crate) const fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::DaemonSet => "daemonsets",
            Self::ServiceAccount => "serviceaccounts",
            Self::Role => "roles",
            Self::RoleBinding => "rolebindings",
            Self::PodMonitor => "podmonitors",
        }
    }

    /// How the API server knows the kind.
    pub(crate) fn resource(self) -> ApiResource {
        let (group, version, kind) = match self {
            Self::ConfigMap => ("", "v1", "ConfigMap"),
            Self::DaemonSet => ("apps", "v1", "DaemonSet"),
            Self::ServiceAccount => ("", "v1", "ServiceAccount"),
            Self::Role => ("rbac.authorization.k8s.io", "v1", "Role"),
            Self::RoleBinding => ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
            Self::PodMonitor => ("monitoring.coreos.com", "v1", "PodMonitor"),
        };
        let kind = GroupVersionKind::gvk(group, version, kind);
        ApiResource::from_gvk_with_plural(&kind, self.plural())
    }
}

/// An object with the label of a group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChildView {
    pub kind: ChildKind,
    pub key: ObjectKey,
    pub uid: Arc<str>,
    pub version: Version,
    pub deleting: bool,
    /// The object without its status and without what the API server keeps for itself.
    pub object: Value,
}

/// Reads an object with the label of a group.
pub(crate) fn read_child(kind: ChildKind, mut object: DynamicObject) -> ChildView {
    object.managed_fields_mut().clear();
    let metadata = object.metadata;
    let mut content = object.data;
    if let Some(fields) = content.as_object_mut() {
        fields.remove("status");
        fields.insert(
            "metadata".to_owned(),
            serde_json::json!({
                "labels": metadata.labels,
                "annotations": metadata.annotations,
                "ownerReferences": metadata.owner_references,
            }),
        );
    }
    ChildView {
        kind,
        key: ObjectKey::of(&metadata),
        uid: uid(&metadata),
        version: Version::of(&metadata),
        deleting: metadata.deletion_timestamp.is_some(),
        object: content,
    }
}
