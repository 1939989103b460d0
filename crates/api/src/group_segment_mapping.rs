//! `GroupSegmentMapping`: a pool of addresses for `VirtualIP`s.
#![expect(
    unreachable_pub,
    reason = "`KubeSchema` copies the struct, `pub` included, into a function"
)]
#![expect(clippy::duplicated_attributes, reason = "two columns may have the same type")]

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::IPGroupSpec;

/// Which addresses a `VirtualIP` may have, and which keepalived group carried them once.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[kube(
    group = "paas.org",
    version = "v1",
    kind = "GroupSegmentMapping",
    plural = "groupsegmentmappings",
    singular = "groupsegmentmapping",
    shortname = "gsm",
    status = "GroupSegmentMappingStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A pool of addresses for VirtualIPs. Deprecated with them: an `IPGroup` is the pool of \
           LoadBalancer Services.",
    printcolumn(name = "Keepalived Group", type_ = "string", json_path = ".spec.keepalivedGroup"),
    printcolumn(name = "Segment", type_ = "string", json_path = ".spec.segment"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct GroupSegmentMappingSpec {
    /// Copied into the status of `VirtualIPs`, and nothing more.
    pub keepalived_group: String,

    /// The addresses as a CIDR, such as `10.0.0.0/24`. Host bits are ignored.
    pub segment: String,

    /// Addresses that are never given out, neither from here nor from any other pool that contains
    /// them.
    #[serde(rename = "excludedIPs", default, skip_serializing_if = "Option::is_none")]
    pub excluded_ips: Option<Vec<String>>,
}

/// Nothing: the original has the subresource and never writes it.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct GroupSegmentMappingStatus {}

impl From<&GroupSegmentMappingSpec> for IPGroupSpec {
    /// The pool that gives the same addresses to Services.
    fn from(mapping: &GroupSegmentMappingSpec) -> Self {
        Self {
            segment: Some(mapping.segment.clone()),
            excluded_ips: mapping.excluded_ips.clone(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_wire_form_is_the_originals() {
        let wire = json!({
            "keepalivedGroup": "ns/kg", "segment": "10.0.0.0/24", "excludedIPs": ["10.0.0.1"],
        });
        let read: GroupSegmentMappingSpec = serde_json::from_value(wire.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), wire);
        let group = IPGroupSpec::from(&read);
        assert_eq!(
            (group.segment.as_deref(), group.excluded()),
            (Some("10.0.0.0/24"), &["10.0.0.1".to_owned()][..])
        );
    }

    #[test]
    fn objects_of_0_1_may_exclude_nothing() {
        let wire = json!({"keepalivedGroup": "ns/kg", "segment": "10.0.0.0/24"});
        let read: GroupSegmentMappingSpec = serde_json::from_value(wire).unwrap();
        assert_eq!(read.excluded_ips, None);
    }
}
