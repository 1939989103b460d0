//! `KeepalivedGroup`: nodes over which the addresses of Services float by VRRP.
#![expect(
    unreachable_pub,
    reason = "`KubeSchema` copies the struct, `pub` included, into a function"
)]
#![expect(clippy::duplicated_attributes, reason = "two columns may have the same type")]

mod name;
mod read;
mod settings;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

pub use self::{
    name::{GroupName, GroupNameError},
    settings::{Device, GroupSettings, Layout, PasswordSource, Slots},
    status::{
        AnnouncedAddress, GroupNode, GuardReport, GuardStep, InstanceReport, InstanceState,
        KeepalivedGroupStatus,
    },
};
use crate::schema;

/// The nodes of a group and how keepalived runs on them.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[kube(
    group = "redhatcop.redhat.io",
    version = "v1alpha1",
    kind = "KeepalivedGroup",
    plural = "keepalivedgroups",
    singular = "keepalivedgroup",
    category = "landfall",
    namespaced,
    status = "KeepalivedGroupStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Nodes over which the addresses of Services float: at any time exactly one of them holds each address, by VRRP.",
    printcolumn(name = "Interface", type_ = "string", json_path = ".spec.interface"),
    printcolumn(name = "Generation", type_ = "integer", json_path = ".status.generation"),
    printcolumn(name = "Applied", type_ = "integer", json_path = ".status.appliedNodes"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct KeepalivedGroupSpec {
    /// The image in which keepalived runs. With the default, which is that of keepalived-operator,
    /// it is Landfall's own image, with keepalived in it.
    #[serde(default = "default_image")]
    pub image: String,

    /// The device of every node on which the addresses are held. Required even where
    /// `interfaceFromIP` or `interfaces` name another. Any text is accepted; if it is no name of a
    /// device, the condition `Ready` says so.
    pub interface: String,

    /// Each node uses the device over which it reaches this address, of either family, instead of
    /// `interface`.
    #[serde(rename = "interfaceFromIP", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    #[x_kube(
        validation = Rule::new(
            "self == '' || isIP(self) || (self.contains(':') && self.contains('.'))"
        ).message(Message::Expression(
            "'must be an IP address such as 10.0.0.1, not \"' + self + '\"'".into()
        ))
    )]
    pub interface_from_ip: Option<String>,

    /// The nodes of the group, by their labels. Every node when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,

    /// The password that the adverts carry. Version 3 of VRRP has none, so it has no effect together with
    /// `vrrp` and on IPv6. Only its first eight characters count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_auth: Option<PasswordAuth>,

    /// Lines for `global_defs` of keepalived's configuration, a keyword and its value each. A
    /// keyword that is not in the list of `docs/reference/verbatim.md`, or with a value that it does not
    /// take, is left out, and the condition `Degraded` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbatim_config: Option<BTreeMap<String, String>>,

    /// Router IDs that are never used, for instance because other programs use them on the same
    /// network. Numbers outside 1 to 255 are not router IDs and exclude nothing.
    #[serde(rename = "blacklistRouterIDs", default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub blacklist_router_ids: Option<Vec<i64>>,

    /// Send adverts to each node of the group individually, where the network does not carry
    /// multicast. Defaults to `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unicast_enabled: Option<bool>,

    /// The priority class of the group's pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemonset_pod_priority_class_name: Option<String>,

    /// Annotations of the group's pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemonset_pod_annotations: Option<BTreeMap<String, String>>,

    /// A fixed number of VRRP instances that carry all addresses, with sub-second adverts. Set it to
    /// `{}` for its defaults. When left out, each Service has an instance of its own, as with
    /// keepalived-operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrrp: Option<Vrrp>,

    /// Namespaces whose Services the group announces. All of them when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = StructMerge::Atomic)]
    pub allowed_namespaces: Option<LabelSelector>,

    /// Addresses that the group announces, each entry a CIDR, a single address or a `first-last`
    /// range, of either family. All of them when left out. Of the addresses that a namespace has in
    /// `spec.externalIPs` alone, without a pool or a claim, a group announces at most 1,024.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "allowed_ranges")]
    pub allowed_ranges: Vec<String>,

    /// The port of every node on which the group's metrics are served. Groups that share a node need
    /// different ones. Defaults to `9650`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub metrics_port: Option<i32>,

    /// Devices of single nodes, by the name of the node. They win over `interfaceFromIP` and
    /// `interface`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "interfaces")]
    pub interfaces: BTreeMap<String, String>,
}

/// A fixed number of VRRP instances. Each address belongs for good to the one that its hash names.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Vrrp {
    /// The time between two adverts of a holder, from `30ms` to `40s` in steps of 10 ms. A dead
    /// node's addresses are taken over after a little more than three of them. Below `100ms` a group
    /// carries at most 1,000 addresses. Defaults to `100ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(
        validation = Rule::new(
            "self.matches('^([0-9]{1,2}s)?([0-9]{1,5}ms)?$') && self != '' \
             && duration(self) >= duration('30ms') && duration(self) <= duration('40s') \
             && duration(self).getMilliseconds() % 10 == 0"
        ).message(Message::Expression(
            "'must be a time from 30ms to 40s in steps of 10 ms, such as 100ms or 1s, not \"' + self + '\"'".into()
        ))
    )]
    pub advert_interval: Option<String>,

    /// The number of instances, over which the addresses and so the nodes' load are spread. A change
    /// moves addresses to other instances, which interrupts them once. Defaults to `8`. Beside them, a
    /// Service with `externalTrafficPolicy: Local` or with lines for keepalived has an instance of its
    /// own, at most 64 Services of a namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub slots: Option<i32>,

    /// Whether a node that comes back takes its addresses from the node that holds them meanwhile.
    /// Defaults to `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempt: Option<bool>,

    /// How long such a node waits before it does, in hours, minutes and seconds, such as `45s` or `5m`; at most
    /// 1000 seconds. Without effect unless `preempt` is set. Defaults to `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(
        validation = Rule::new(
            "self.matches('^[0-9]{1,6}[hms]([0-9]{1,6}[ms])?([0-9]{1,6}s)?$') \
             && duration(self) >= duration('0s') && duration(self) <= duration('1000s')"
        ).message(Message::Expression(
            "'must be a duration of at most 1000s such as 45s or 5m, not \"' + self + '\"'".into()
        ))
    )]
    pub preempt_delay: Option<String>,

    /// The router IDs that the group may use, for instance because another cluster on the same network
    /// uses others. All of them when left out.
    #[serde(rename = "routerIDs", default, skip_serializing_if = "Option::is_none")]
    pub router_ids: Option<RouterIDs>,
}

/// A range of router IDs.
#[derive(KubeSchema, Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.first) || !has(self.last) || self.first <= self.last")
        .message("first must not be greater than last")
)]
pub struct RouterIDs {
    /// The first ID of the range. Defaults to `1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 255))]
    pub first: Option<i32>,

    /// The last ID of the range. Defaults to `255`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 255))]
    pub last: Option<i32>,
}

/// The Secret that holds the password.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PasswordAuth {
    /// The Secret, in the namespace of the group.
    pub secret_ref: SecretRef,

    /// The key in the Secret.
    #[serde(default = "default_secret_key")]
    pub secret_key: String,
}

/// A Secret in the namespace of the group.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct SecretRef {
    /// Name of the Secret. There is no password when it is left out or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl KeepalivedGroupSpec {
    /// The image that keepalived-operator ran where the group named none.
    pub const DEFAULT_IMAGE: &str = "registry.redhat.io/openshift4/ose-keepalived-ipfailover";

    /// The image to run instead of Landfall's own, if the group names one.
    pub fn other_image(&self) -> Option<&str> {
        named(Some(&self.image)).filter(|image| *image != Self::DEFAULT_IMAGE)
    }

    /// Where the password is, if there is one.
    pub fn password_source(&self) -> Option<PasswordSource> {
        let auth = self.password_auth.as_ref()?;
        let secret = named(auth.secret_ref.name.as_deref())?.to_owned();
        let key = named(Some(&auth.secret_key)).unwrap_or(PasswordSource::DEFAULT_KEY).to_owned();
        Some(PasswordSource { secret, key })
    }

    /// Whether adverts go to each node individually.
    pub fn unicast(&self) -> bool {
        self.unicast_enabled.unwrap_or(false)
    }

    /// The priority class of the pods, if one is set.
    pub fn priority_class(&self) -> Option<&str> {
        named(self.daemonset_pod_priority_class_name.as_deref())
    }
}

/// A text that says something: what the original wrote for an unset field is the empty text.
fn named(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

fn default_image() -> String {
    KeepalivedGroupSpec::DEFAULT_IMAGE.to_owned()
}

fn default_secret_key() -> String {
    PasswordSource::DEFAULT_KEY.to_owned()
}

fn allowed_ranges(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schema::address_blocks(1024)
}

fn interfaces(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 5000,
        "additionalProperties": {
            "type": "string",
            "maxLength": 15,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^[A-Za-z0-9._+-]{1,15}$') && !(self in ['.', '..', 'lo'])",
                "message": "must be a network device such as eth0",
                "messageExpression": "'must be a network device such as eth0, not \"' + self + '\"'",
            }],
        },
    })
}
