//! The identity of watched objects: their keys and versions.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// `namespace/name` of an object, or its name alone if it is cluster-scoped. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey(Arc<str>);

impl ObjectKey {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// The key of a cluster-scoped object.
    pub(crate) fn cluster_scoped(name: &str) -> Self {
        Self(name.into())
    }

    /// The key of a namespaced object.
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        Self::new(
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        )
    }

    /// Reads the text of an owner annotation; `None` unless it is `namespace/name`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/')?;
        (!namespace.is_empty() && !name.is_empty() && !name.contains('/'))
            .then(|| Self::new(namespace, name))
    }

    #[cfg(test)]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub(crate) fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A `resourceVersion`. Versions of one kind compare as unsigned integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub u64);

impl Version {
    /// Reads a `resourceVersion`; a missing or odd one sorts before all others.
    pub(crate) fn read(text: Option<&str>) -> Self {
        Self(text.and_then(|text| text.parse().ok()).unwrap_or_default())
    }

    /// The version of an object.
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        Self::read(metadata.resource_version.as_deref())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The uid of an object; empty for one that the API server has not stored yet.
pub(crate) fn uid(metadata: &ObjectMeta) -> Arc<str> {
    metadata.uid.as_deref().unwrap_or_default().into()
}

/// When an object was created; the Unix epoch if it does not say.
pub(crate) fn created(metadata: &ObjectMeta) -> Timestamp {
    metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// The value of a label.
pub(crate) fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a String> {
    metadata.labels.as_ref().and_then(|all| all.get(key))
}
