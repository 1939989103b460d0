//! The copy of a Service that shows the address, as `spec.externalIPs`.

use std::{collections::BTreeMap, net::IpAddr};

use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::Resource as _;
use landfall_api::VirtualIP;
use landfall_ipam::Family;
use serde_json::{Map, Value, json};

use super::world::is_headless;
use crate::cluster::virtual_ip::VirtualIpView;

const TYPE: &str = "ClusterIP";

/// The copy to create.
///
/// Only fields that a Service of type `ClusterIP` can have are copied: newer API servers refuse the
/// rest. Finalizers are not copied, because the programs that set them know nothing of the copy and
/// would never remove them.
pub(super) fn make(vip: &VirtualIpView, original: &Service, addr: IpAddr) -> Service {
    let mut spec = original.spec.clone().unwrap_or_default();
    if is_headless(&spec) && spec.selector.is_none() {
        // The API server reports both families for such a Service even in a cluster with one, and
        // refuses that for any other Service. The family of the address is enough.
        spec.ip_family_policy = None;
        spec.ip_families = Some(vec![Family::of(addr).to_string()]);
    }
    let key = vip.clone_key();
    Service {
        metadata: ObjectMeta {
            name: Some(key.name().to_owned()),
            namespace: Some(key.namespace().to_owned()),
            labels: original.metadata.labels.clone(),
            annotations: original.metadata.annotations.clone(),
            owner_references: Some(vec![OwnerReference {
                api_version: VirtualIP::api_version(&()).into_owned(),
                kind: VirtualIP::kind(&()).into_owned(),
                name: vip.key.name().to_owned(),
                uid: vip.uid.to_string(),
                controller: None,
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            type_: Some(TYPE.to_owned()),
            external_ips: Some(vec![addr.to_string()]),
            ports: Some(ports(&spec)),
            selector: spec.selector,
            session_affinity: spec.session_affinity,
            session_affinity_config: spec.session_affinity_config,
            publish_not_ready_addresses: spec.publish_not_ready_addresses,
            internal_traffic_policy: spec.internal_traffic_policy,
            ip_family_policy: spec.ip_family_policy,
            ip_families: spec.ip_families,
            traffic_distribution: spec.traffic_distribution,
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// The merge patch of metadata and spec that updates a copy; `None` if it is up to date.
///
/// Covers the parts of [`make`] that follow the original, and those that make the copy show the
/// address.
pub(super) fn difference(copy: &Service, original: &Service, addr: IpAddr) -> Option<Value> {
    let (now, wanted) =
        (copy.spec.clone().unwrap_or_default(), original.spec.clone().unwrap_or_default());
    let mut metadata = Map::new();
    let maps = [
        ("labels", &copy.metadata.labels, &original.metadata.labels),
        ("annotations", &copy.metadata.annotations, &original.metadata.annotations),
    ];
    for (field, now, wanted) in maps {
        if let Some(patch) = map_difference(now.as_ref(), wanted.as_ref()) {
            metadata.insert(field.to_owned(), patch);
        }
    }
    let mut spec = Map::new();
    if now.type_.as_deref() != Some(TYPE) {
        // Fields that other types need and this one must not have.
        for field in [
            "externalTrafficPolicy",
            "healthCheckNodePort",
            "loadBalancerIP",
            "loadBalancerClass",
            "loadBalancerSourceRanges",
            "allocateLoadBalancerNodePorts",
            "externalName",
        ] {
            spec.insert(field.to_owned(), Value::Null);
        }
        spec.insert("type".to_owned(), json!(TYPE));
    }
    let addrs = vec![addr.to_string()];
    if now.external_ips.as_ref() != Some(&addrs) {
        spec.insert("externalIPs".to_owned(), json!(addrs));
    }
    if now.ports.as_ref() != Some(&ports(&wanted)) {
        spec.insert("ports".to_owned(), json!(ports(&wanted)));
    }
    if let Some(patch) = map_difference(now.selector.as_ref(), wanted.selector.as_ref()) {
        spec.insert("selector".to_owned(), patch);
    }
    if now.session_affinity != wanted.session_affinity
        || now.session_affinity_config != wanted.session_affinity_config
    {
        spec.insert("sessionAffinity".to_owned(), json!(wanted.session_affinity));
        spec.insert("sessionAffinityConfig".to_owned(), json!(wanted.session_affinity_config));
    }
    let ready = |spec: &ServiceSpec| spec.publish_not_ready_addresses.unwrap_or_default();
    if ready(&now) != ready(&wanted) {
        spec.insert("publishNotReadyAddresses".to_owned(), json!(ready(&wanted)));
    }
    if metadata.is_empty() && spec.is_empty() {
        return None;
    }
    Some(json!({ "metadata": metadata, "spec": spec }))
}

/// The ports without their node ports, because each Service needs its own.
fn ports(spec: &ServiceSpec) -> Vec<ServicePort> {
    let ports = spec.ports.iter().flatten().cloned();
    ports.map(|port| ServicePort { node_port: None, ..port }).collect()
}

/// A merge patch from one map to another: keys that are gone are set to null.
fn map_difference(
    now: Option<&BTreeMap<String, String>>,
    wanted: Option<&BTreeMap<String, String>>,
) -> Option<Value> {
    let empty = BTreeMap::new();
    let (now, wanted) = (now.unwrap_or(&empty), wanted.unwrap_or(&empty));
    let gone = now.keys().filter(|key| !wanted.contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let new = wanted.iter().filter(|(key, value)| now.get(*key) != Some(*value));
    let new = new.map(|(key, value)| (key.clone(), json!(value)));
    let patch: Map<String, Value> = gone.chain(new).collect();
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests;
