//! One view per node: its addresses, its labels, and whether it can be relied on.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;

use super::{Labels, address};

/// The taint of a node that an administrator declared dead.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeView {
    pub labels: Labels,
    /// All addresses that it lists.
    pub addresses: Vec<IpAddr>,
    /// The addresses by which other nodes reach it, at most one per family.
    pub internal: Vec<IpAddr>,
    /// Whether its kubelet reports that it is well.
    pub ready: bool,
    /// Whether an administrator declared it dead.
    pub out_of_service: bool,
}

/// Reads a node.
pub(crate) fn read(object: Node) -> NodeView {
    let status = object.status.unwrap_or_default();
    let listed = status.addresses.unwrap_or_default();
    let parsed = listed.iter().filter_map(|entry| Some((entry, address::read(&entry.address)?)));
    let (mut addresses, mut internal): (Vec<IpAddr>, Vec<IpAddr>) = (Vec::new(), Vec::new());
    for (entry, address) in parsed {
        addresses.push(address);
        let is_new = !internal.iter().any(|other| other.is_ipv4() == address.is_ipv4());
        if entry.type_ == "InternalIP" && is_new {
            internal.push(address);
        }
    }
    let is_ready = |kind: &str, status: &str| kind == "Ready" && status == "True";
    let conditions = status.conditions.unwrap_or_default();
    let taints = object.spec.and_then(|spec| spec.taints).unwrap_or_default();
    NodeView {
        labels: object.metadata.labels.unwrap_or_default(),
        addresses,
        internal,
        ready: conditions.iter().any(|one| is_ready(&one.type_, &one.status)),
        out_of_service: taints.iter().any(|taint| taint.key == OUT_OF_SERVICE),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sim::fixtures::ip;

    fn node(status: &serde_json::Value, taints: &serde_json::Value) -> NodeView {
        let object = json!({
            "metadata": { "name": "n1", "labels": { "role": "edge" } },
            "spec": { "taints": taints },
            "status": status,
        });
        read(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_node_has_one_internal_address_per_family() {
        let entry = |kind: &str, address: &str| json!({ "type": kind, "address": address });
        let addresses = json!([
            entry("Hostname", "n1"),
            entry("ExternalIP", "203.0.113.1"),
            entry("InternalIP", "192.0.2.1"),
            entry("InternalIP", "192.0.2.2"),
            entry("InternalIP", "2001:db8::1"),
        ]);
        let view = node(&json!({ "addresses": addresses }), &json!([]));
        assert_eq!(view.internal, [ip("192.0.2.1"), ip("2001:db8::1")]);
        assert_eq!(view.addresses.len(), 4);
        assert_eq!(view.labels["role"], "edge");
    }

    #[test]
    fn an_address_counts_however_it_is_spelt() {
        let addresses = json!([{ "type": "InternalIP", "address": "::ffff:192.0.2.1" }]);
        let view = node(&json!({ "addresses": addresses }), &json!([]));
        assert_eq!((view.addresses, view.internal), (vec![ip("192.0.2.1")], vec![ip("192.0.2.1")]));
    }

    #[test]
    fn a_node_is_ready_only_if_its_kubelet_says_so() {
        for (conditions, taints, ready, out_of_service) in [
            (json!([{ "type": "Ready", "status": "True" }]), json!([]), true, false),
            (json!([{ "type": "Ready", "status": "Unknown" }]), json!([]), false, false),
            (json!([{ "type": "DiskPressure", "status": "True" }]), json!([]), false, false),
            (json!([]), json!([{ "key": OUT_OF_SERVICE, "effect": "NoExecute" }]), false, true),
        ] {
            let view = node(&json!({ "conditions": conditions }), &taints);
            assert_eq!((view.ready, view.out_of_service), (ready, out_of_service), "{conditions}");
        }
    }
}
