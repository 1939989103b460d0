//! The patches of labels and annotations for a Service that kube-vip announces.

use std::net::IpAddr;

use landfall_api::{
    keys::{
        ANNOTATION_KUBE_VIP_ADDRESSES, ANNOTATION_KUBE_VIP_INTERFACE, IMPLEMENTATION_KUBE_VIP,
        LABEL_IMPLEMENTATION, LABEL_KUBE_VIP_ADDRESS,
    },
    kube_vip,
};
use serde_json::{Value, json};

/// Publishes these addresses; `None` leaves them as they are and only writes labels and interface.
///
/// Without addresses the annotation is removed: kube-vip reads an empty one as an empty host name.
pub(super) fn show(addrs: Option<&[IpAddr]>, interface: Option<&str>) -> Value {
    let mut patch = json!({"metadata": {"labels": {
        LABEL_IMPLEMENTATION: IMPLEMENTATION_KUBE_VIP,
        LABEL_KUBE_VIP_ADDRESS: null,
    }}});
    if let Some(addrs) = addrs {
        let text = (!addrs.is_empty()).then(|| kube_vip::addresses_text(addrs));
        patch["metadata"]["annotations"][ANNOTATION_KUBE_VIP_ADDRESSES] = json!(text);
        patch["spec"]["loadBalancerIP"] = json!(addrs.first());
    }
    if let Some(interface) = interface {
        patch["metadata"]["annotations"][ANNOTATION_KUBE_VIP_INTERFACE] = json!(interface);
    }
    patch
}

/// Removes all of it from a Service that is no longer a `LoadBalancer`.
pub(super) fn hide() -> Value {
    json!({
        "metadata": {
            "labels": {LABEL_IMPLEMENTATION: null, LABEL_KUBE_VIP_ADDRESS: null},
            "annotations": {ANNOTATION_KUBE_VIP_ADDRESSES: null},
        },
        "spec": {"loadBalancerIP": null},
    })
}
