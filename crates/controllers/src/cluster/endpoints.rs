//! One view per slice of endpoints: the Service, and the nodes that have a ready endpoint.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::object::{ObjectKey, Version};

/// The label by which a slice names its Service.
const SERVICE: &str = "kubernetes.io/service-name";

/// A slice of the endpoints of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SliceView {
    pub key: ObjectKey,
    pub version: Version,
    /// The Service; none if it is of something else.
    pub service: Option<ObjectKey>,
    /// The nodes on which an endpoint of it is ready.
    pub nodes: BTreeSet<Arc<str>>,
}

/// Reads a slice.
pub(crate) fn read(object: EndpointSlice) -> SliceView {
    let metadata = object.metadata;
    let key = ObjectKey::of(&metadata);
    let service = metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE));
    let is_ready = |ready: Option<bool>| ready.unwrap_or(true);
    let endpoints = object.endpoints.into_iter();
    let ready = endpoints.filter(|endpoint| {
        is_ready(endpoint.conditions.as_ref().and_then(|conditions| conditions.ready))
    });
    SliceView {
        service: service.map(|name| ObjectKey::new(key.namespace(), name)),
        version: Version::of(&metadata),
        nodes: ready.filter_map(|endpoint| endpoint.node_name.map(Arc::from)).collect(),
        key,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(labels: &Value, endpoints: &Value) -> SliceView {
        let object = json!({
            "metadata": { "name": "web-x", "namespace": "shop", "labels": labels },
            "addressType": "IPv4",
            "endpoints": endpoints,
        });
        read(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_slice_has_the_nodes_with_a_ready_endpoint() {
        let endpoint = |node: &str, conditions: Value| json!({ "addresses": ["10.0.0.1"], "nodeName": node, "conditions": conditions });
        let view = slice(
            &json!({ SERVICE: "web" }),
            &json!([
                endpoint("n1", json!({ "ready": true })),
                endpoint("n2", json!({ "ready": false, "serving": true, "terminating": true })),
                endpoint("n3", json!({})),
                { "addresses": ["10.0.0.2"] },
            ]),
        );
        assert_eq!(view.service, Some(ObjectKey::new("shop", "web")));
        assert_eq!(view.nodes, BTreeSet::from(["n1".into(), "n3".into()]));
        assert_eq!(slice(&json!({}), &json!([])).service, None);
    }
}
