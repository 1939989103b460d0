//! Services as they are read here: without `managedFields`, the largest part of many objects, which
//! nobody here looks at.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Service, ServiceSpec, ServiceStatus},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::Resource;
use serde::{Deserialize, Deserializer};

/// A Service whose metadata is read only as far as it is needed.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LeanService {
    #[serde(deserialize_with = "lean")]
    metadata: ObjectMeta,
    spec: Option<ServiceSpec>,
    status: Option<ServiceStatus>,
}

impl From<LeanService> for Service {
    fn from(lean: LeanService) -> Self {
        Self { metadata: lean.metadata, spec: lean.spec, status: lean.status }
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

/// What is read of an object's metadata.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeanMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
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
        labels: lean.labels,
        annotations: lean.annotations,
        finalizers: lean.finalizers,
        ..ObjectMeta::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::services::observe;

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
        assert_eq!(observe::service(&lean), observe::service(&whole));
        assert_eq!(observe::external_ips(&lean), observe::external_ips(&whole));
        assert!(observe::leftover(&lean).is_some());
        assert_eq!(observe::leftover(&lean), observe::leftover(&whole));
    }
}
