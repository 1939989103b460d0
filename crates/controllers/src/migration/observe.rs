//! Turns watched objects into views.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::core::DeserializeGuard;
use landfall_api::{
    GroupSegmentMapping, IPGroupSpec, VirtualIP, convert, keys::ANNOTATION_MIGRATE,
};

use super::view::{MappingView, VirtualIpView};
use crate::object::{ObjectKey, Version, uid};
pub(super) use crate::services::observe::{external_ips, pool};

/// The name of this kind of holder in a claim.
pub(super) const KIND: &str = "VirtualIP";

/// A `VirtualIP`, or `None` if it cannot be read: then there is nothing to do for it.
pub(super) fn virtual_ip(object: DeserializeGuard<VirtualIP>) -> Option<VirtualIpView> {
    let object = object.0.ok()?;
    let annotations = object.metadata.annotations.as_ref();
    let status = object.status.unwrap_or_default();
    Some(VirtualIpView {
        key: ObjectKey::of(&object.metadata),
        uid: uid(&object.metadata),
        version: Version::of(&object.metadata),
        deleting: object.metadata.deletion_timestamp.is_some(),
        migrate: annotations.is_some_and(|all| all.contains_key(ANNOTATION_MIGRATE)),
        finalizers: object.metadata.finalizers.unwrap_or_default(),
        service: object.spec.service,
        wanted: object.spec.ip.filter(|ip| !ip.is_empty()),
        status,
    })
}

/// A `GroupSegmentMapping`. Its errors are kept.
pub(super) fn mapping(object: &DeserializeGuard<GroupSegmentMapping>) -> MappingView {
    let metadata = match &object.0 {
        Ok(mapping) => &mapping.metadata,
        Err(invalid) => &invalid.metadata,
    };
    let name: Arc<str> = metadata.name.as_deref().unwrap_or_default().into();
    let pool_name = MappingView::pool_name(&name);
    let (keepalived_group, segment, pool) = match &object.0 {
        Ok(mapping) => (
            mapping.spec.keepalived_group.clone(),
            mapping.spec.segment.clone(),
            convert::pool(pool_name, &IPGroupSpec::from(&mapping.spec)).map(|read| read.pool),
        ),
        Err(invalid) => (String::new(), String::new(), Err(vec![invalid.error.clone()])),
    };
    MappingView { name, version: Version::of(metadata), keepalived_group, segment, pool }
}

/// A Service without `managedFields`, which are not used here.
pub(super) fn service(mut object: Service) -> Service {
    object.metadata.managed_fields = None;
    object
}
