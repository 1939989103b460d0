//! Deserializes Services without `managedFields`, the largest part of many objects, and only as much of
//! the rest as is used. A user may fill an object up to the API server's limit, and many are in memory
//! at once during a list.

use std::{borrow::Cow, collections::BTreeMap, fmt, marker::PhantomData};

use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Service, ServicePort, ServiceSpec, ServiceStatus},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::Resource;
use landfall_api::{Holder, keys};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// A Service whose metadata is read only as far as it is needed.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LeanService {
    #[serde(deserialize_with = "lean")]
    metadata: ObjectMeta,
    spec: Option<LeanSpec>,
    status: Option<ServiceStatus>,
}

impl From<LeanService> for Service {
    fn from(lean: LeanService) -> Self {
        let spec = lean.spec.map(Into::into);
        Self { metadata: lean.metadata, spec, status: lean.status }
    }
}

impl Resource for LeanService {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Service::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Service::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Service::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Service::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The parts of an object's metadata that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeanMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    #[serde(default)]
    labels: Few<Entries, { keys::MOST_LABELS + 1 }>,
    #[serde(default)]
    annotations: Few<Annotations, { usize::MAX }>,
    #[serde(default)]
    finalizers: Few<Vec<String>, { keys::MOST_FINALIZERS + 1 }>,
}

/// The parts of a Service's spec that are read.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeanSpec {
    #[serde(rename = "type")]
    type_: Option<String>,
    #[serde(default)]
    ip_families: Few<Vec<String>, 4>,
    ip_family_policy: Option<String>,
    load_balancer_class: Option<String>,
    #[serde(rename = "loadBalancerIP")]
    load_balancer_ip: Option<String>,
    #[serde(rename = "externalIPs", default)]
    external_ips: Few<Vec<String>, { keys::MOST_EXTERNAL_IPS }>,
    #[serde(rename = "clusterIPs", default)]
    cluster_ips: Few<Vec<String>, 4>,
    external_traffic_policy: Option<String>,
    #[serde(default)]
    ports: Few<Vec<ServicePort>, { Holder::MOST_PORTS + 1 }>,
    #[serde(default)]
    selector: Few<Entries, LONGEST_SELECTOR>,
}

/// A selector with more pairs is longer than any that is ever compared.
const LONGEST_SELECTOR: usize = Holder::LONGEST_SELECTOR / 2;

impl From<LeanSpec> for ServiceSpec {
    fn from(lean: LeanSpec) -> Self {
        Self {
            type_: lean.type_,
            ip_families: lean.ip_families.some(),
            ip_family_policy: lean.ip_family_policy,
            load_balancer_class: lean.load_balancer_class,
            load_balancer_ip: lean.load_balancer_ip,
            external_ips: lean.external_ips.some(),
            cluster_ips: lean.cluster_ips.some(),
            external_traffic_policy: lean.external_traffic_policy,
            ports: lean.ports.some(),
            selector: lean.selector.some().map(|entries| entries.0),
            ..Self::default()
        }
    }
}

/// The first entries of a list or map; the rest is dropped. One more than the limit shows that there
/// are too many.
#[derive(Clone, Debug)]
struct Few<C, const MOST: usize>(Option<C>);

impl<C, const MOST: usize> Default for Few<C, MOST> {
    fn default() -> Self {
        Self(None)
    }
}

impl<C, const MOST: usize> Few<C, MOST> {
    fn some(self) -> Option<C> {
        self.0
    }
}

/// Labels, or the pairs of a selector.
#[derive(Clone, Debug, Default)]
struct Entries(BTreeMap<String, String>);

/// Annotations that are read.
#[derive(Clone, Debug, Default)]
struct Annotations(BTreeMap<String, String>);

/// A collection that a [`Few`] can hold.
trait Collect: Default {
    fn from_list<'de, A: SeqAccess<'de>>(_: A, _most: usize) -> Result<Self, A::Error> {
        Err(serde::de::Error::custom("expected a map"))
    }

    fn from_map<'de, A: MapAccess<'de>>(_: A, _most: usize) -> Result<Self, A::Error> {
        Err(serde::de::Error::custom("expected a list"))
    }
}

impl<T: for<'a> Deserialize<'a>> Collect for Vec<T> {
    fn from_list<'de, A: SeqAccess<'de>>(mut list: A, most: usize) -> Result<Self, A::Error> {
        let mut kept = Self::new();
        while kept.len() < most {
            match list.next_element()? {
                Some(entry) => kept.push(entry),
                None => return Ok(kept),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(kept)
    }
}

impl Collect for Entries {
    fn from_map<'de, A: MapAccess<'de>>(mut map: A, most: usize) -> Result<Self, A::Error> {
        let mut kept = Self::default();
        while kept.0.len() < most {
            match map.next_entry()? {
                Some((key, value)) => drop(kept.0.insert(key, value)),
                None => return Ok(kept),
            }
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(kept)
    }
}

impl Collect for Annotations {
    fn from_map<'de, A: MapAccess<'de>>(mut map: A, _most: usize) -> Result<Self, A::Error> {
        let mut kept = Self::default();
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            if keys::is_read_on_services(&key) {
                let Text(value) = map.next_value()?;
                kept.0.insert(key.into_owned(), value);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(kept)
    }
}

/// The value of an annotation, cut at the longest length that is ever read.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Cut;
        impl Visitor<'_> for Cut {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                let end = text.floor_char_boundary(keys::LONGEST_VALUE);
                Ok(Text(text.split_at(end).0.to_owned()))
            }
        }
        deserializer.deserialize_str(Cut)
    }
}

impl<'de, C: Collect, const MOST: usize> Deserialize<'de> for Few<C, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct First<C, const MOST: usize>(PhantomData<C>);
        impl<'de, C: Collect, const MOST: usize> Visitor<'de> for First<C, MOST> {
            type Value = Few<C, MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list or a map")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Few(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                C::from_list(list, MOST).map(|kept| Few(Some(kept)))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                C::from_map(map, MOST).map(|kept| Few(Some(kept)))
            }
        }
        deserializer.deserialize_any(First(PhantomData))
    }
}

fn lean<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let lean = LeanMeta::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: lean.name,
        namespace: lean.namespace,
        uid: lean.uid,
        resource_version: lean.resource_version,
        creation_timestamp: lean.creation_timestamp,
        deletion_timestamp: lean.deletion_timestamp,
        labels: lean.labels.some().map(|entries| entries.0),
        annotations: lean.annotations.some().map(|kept| kept.0),
        finalizers: lean.finalizers.some(),
        ..ObjectMeta::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::service;

    #[test]
    fn nothing_that_is_looked_at_is_left_out() {
        let object = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "12",
                "creationTimestamp": "2026-01-02T03:04:05Z",
                "deletionTimestamp": "2026-01-02T03:04:06Z",
                "labels": {"tier": "front"},
                "annotations": {
                    "landfall.dev/addresses": "10.0.0.5", "landfall.dev/pool": "dmz",
                    "landfall.dev/sharing-key": "k", "landfall.dev/sharing-with": "*",
                },
                "finalizers": ["ips.paas.org/finalizer", "others.example/finalizer"],
                "managedFields": [{"manager": "m", "fieldsV1": {"f:metadata": {}}}],
            },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": "c.example/lb",
                "loadBalancerIP": "10.0.0.5", "ports": [{"port": 80}], "selector": {"app": "web"},
                "ipFamilies": ["IPv4"], "externalIPs": ["192.0.2.1"],
            },
            "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.5"}]}},
        });
        let whole: Service = serde_json::from_value(object.clone()).unwrap();
        let lean: LeanService = serde_json::from_value(object).unwrap();
        let lean = Service::from(lean);
        assert_eq!(lean.metadata.managed_fields, None);
        let view = service::read(&lean);
        assert_eq!(view, service::read(&whole));
        assert!(view.balancer.is_some() && view.leftover.is_some() && !view.external.is_empty());
    }

    /// Bytes that the views of a Service keep, except their own fixed size.
    fn kept(service: &Service) -> usize {
        format!("{:?}", service::read(service)).len()
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(16))]

        /// The memory kept per object is bounded, whatever a user writes.
        #[test]
        fn a_view_of_any_object_stays_small(
            count in 0..20_000_usize,
            entry in "[a-z0-9.:,/ ]{0,20}",
            annotation in proptest::sample::select(keys::read_on_services().collect::<Vec<_>>()),
            kind in proptest::sample::select(vec!["LoadBalancer", "ClusterIP"]),
        ) {
            let list: Vec<_> = (0..count).map(|n| format!("{entry}{n}")).collect();
            let map: BTreeMap<_, _> = list.iter().map(|key| (key.clone(), entry.clone())).collect();
            let ports: Vec<_> = (0..count).map(|port| json!({"port": port})).collect();
            let object = json!({
                "metadata": {
                    "name": "web", "namespace": "shop", "labels": map, "finalizers": list,
                    "annotations": {annotation: list.join(","), "other": entry.repeat(count)},
                },
                "spec": {
                    "type": kind, "externalIPs": list, "ports": ports, "selector": map,
                    "ipFamilies": ["IPv4"],
                },
            });
            let text = object.to_string();
            let lean: LeanService = serde_json::from_str(&text).unwrap();
            let bytes = kept(&Service::from(lean));
            // 64 KiB for ports that are shared and 20 times as much as a usual Service for the rest.
            proptest::prop_assert!(bytes < 150_000, "{} bytes kept of {}", bytes, text.len());
        }
    }
}
