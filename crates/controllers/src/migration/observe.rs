//! Turns watched objects into views.

use std::sync::Arc;

use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::core::DeserializeGuard;
use landfall_api::{
    GroupSegmentMapping, Holder, IP, IPGroupSpec, VirtualIP, convert,
    keys::{ANNOTATION_MIGRATE, ANNOTATION_OWNER, LABEL_GSM},
    name,
};

use super::view::{ClaimView, MappingView, Named, VirtualIpView, Whose};
use crate::object::{ObjectKey, Version, uid};
pub(super) use crate::services::observe::{external_ips, pool};

/// What a holder of this kind is called in a claim.
pub(super) const KIND: &str = "VirtualIP";

/// A `VirtualIP`, or `None` if it cannot be read: there is nothing to do for it then.
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

/// An `IP`, or `None` if its name is no address.
pub(super) fn claim(object: &DeserializeGuard<IP>) -> Option<ClaimView> {
    let (metadata, spec) = match &object.0 {
        Ok(ip) => (&ip.metadata, Some(&ip.spec)),
        Err(invalid) => (&invalid.metadata, None),
    };
    let addr = name::parse(metadata.name.as_deref()?).ok()?;
    let whose = match spec {
        None => Whose::Other("an IP object that cannot be read".to_owned()),
        Some(spec) if !spec.holders.is_empty() => holders(&spec.holders),
        Some(spec) if spec.reserved_for.is_some() => Whose::Kept,
        Some(_) => owner(metadata),
    };
    Some(ClaimView {
        addr,
        uid: uid(metadata),
        version: Version::of(metadata),
        whose,
        reserved: spec.and_then(|spec| spec.reserved_for.clone()),
    })
}

fn holders(holders: &[Holder]) -> Whose {
    let named = |holder: &Holder| {
        let namespace = holder.namespace.as_deref()?;
        Some(Named { key: ObjectKey::new(namespace, &holder.name), uid: holder.uid.clone() })
    };
    if let [holder] = holders
        && holder.kind == KIND
        && let Some(named) = named(holder)
    {
        return Whose::VirtualIp(named);
    }
    let services = holders.iter().map(|holder| named(holder).filter(|_| holder.kind == "Service"));
    services.collect::<Option<Vec<_>>>().map_or_else(
        || {
            let names: Vec<_> =
                holders.iter().map(|holder| format!("{} {}", holder.kind, holder.name)).collect();
            Whose::Other(names.join(", "))
        },
        |named| Whose::Services { named, whole: true },
    )
}

/// The original says it by annotation, and the label tells the kind.
fn owner(metadata: &ObjectMeta) -> Whose {
    let owner = metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION_OWNER));
    let Some(key) = owner.and_then(|owner| ObjectKey::parse(owner)) else {
        return Whose::Other("an IP object that names nobody".to_owned());
    };
    let named = Named { key, uid: None };
    let of_mapping = metadata.labels.as_ref().is_some_and(|all| all.contains_key(LABEL_GSM));
    if of_mapping {
        Whose::VirtualIp(named)
    } else {
        Whose::Services { named: vec![named], whole: false }
    }
}

/// A `GroupSegmentMapping`. What is wrong with it is kept.
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

/// A Service without what nobody here looks at.
pub(super) fn service(mut object: Service) -> Service {
    object.metadata.managed_fields = None;
    object
}
