//! `IP`: the ledger, one object per taken address.
#![expect(
    unreachable_pub,
    reason = "`KubeSchema` copies the struct, `pub` included, into a function"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::{HolderKind, keys};

/// The pool, the purpose and the holders of an address.
///
/// Every field is optional, since objects of vip-allocator-operator have an empty spec: their name
/// says the address, the label `ipgroup` the pool and the annotation `virtualips.paas.il/owner`
/// the holder.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[kube(
    group = "paas.org",
    version = "v1",
    kind = "IP",
    plural = "ips",
    singular = "ip",
    category = "landfall",
    status = "IPStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "One taken address. Its name is the address, so that an address can be taken only once: \
           IPv4 as it is (`10.0.0.5`), IPv6 as eight groups without zero padding joined by `-` \
           (`2001-db8-0-0-0-0-0-10`).",
    selectable = ".spec.pool",
    selectable = ".spec.use",
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Use", type_ = "string", json_path = ".spec.use"),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    printcolumn(
        name = "Holder",
        type_ = "string",
        json_path = r".metadata.annotations['landfall\.dev/holders','virtualips\.paas\.il/owner']"
    ),
    printcolumn(name = "Reserved For", type_ = "string", json_path = ".spec.reservedFor.namespace"),
    printcolumn(name = "Service", type_ = "string", json_path = ".spec.reservedFor.name"),
    printcolumn(name = "Until", type_ = "string", json_path = ".spec.reservedFor.expires"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.node"),
    printcolumn(
        name = "IPGroup",
        type_ = "string",
        json_path = ".metadata.labels.ipgroup",
        priority = "1"
    ),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = crate::schema::new_ip_is_named_by_an_address(),
    validation = crate::schema::address_is_the_name()
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "!has(oldSelf.address) || (has(self.address) && self.address == oldSelf.address)"
    )
    .message("the address cannot change: the object's name is the address")
    .field_path(".address")
    .reason(Reason::FieldValueForbidden)
)]
pub struct IPSpec {
    /// The address, as in the object's name but with colons for IPv6. It cannot change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 39))]
    #[x_kube(
        validation = Rule::new("isIP(self)").message(Message::Expression(
            "'must be an IP address such as 10.0.0.5 or 2001:db8::10, not \"' + self + '\"'".into()
        ))
    )]
    pub address: Option<String>,

    /// The purpose of the address. `LoadBalancer`: a Service shows it. `Egress`: traffic of a
    /// namespace leaves the cluster with it. `Floating`: a cloud address that follows nodes.
    /// `Reserved`: no holder has it yet, see `reservedFor`.
    #[serde(rename = "use", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "uses")]
    pub use_: Option<String>,

    /// The pool the address was given from, kind and name, such as `IPGroup/dmz`. It stays when
    /// the pool is edited or deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub pool: Option<String>,

    /// The holders of the address. Several only where sharing is allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub holders: Vec<Holder>,

    /// The reservation that keeps the address, set ahead by an administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_for: Option<ReservedFor>,
}

/// The purpose of an address, as `use` in the spec of an `IP` names it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Use {
    /// A Service of type `LoadBalancer` shows it.
    LoadBalancer,
    /// Traffic of a Namespace leaves the cluster with it.
    Egress,
    /// A cloud address that follows nodes.
    Floating,
    /// No holder has it yet; see `reservedFor`.
    Reserved,
}

/// A holder of an address.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Kind of the holder: `Service`, `VirtualIP`, `Namespace` or `Node`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,

    /// Namespace of the holder, unless it is a Namespace or a Node itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,

    /// Name of the holder.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// The holder's `metadata.uid`: an object that is created again under the same name is another
    /// holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub uid: Option<String>,

    /// Ports the holder uses on the address, such as `TCP/443`. Holders that share an address
    /// must have disjoint ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "ports")]
    pub ports: Vec<String>,

    /// The holder's `landfall.dev/sharing-key`: only holders with the same key share an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub sharing_key: Option<String>,

    /// The holder's `landfall.dev/sharing-with`: other namespaces it shares the address with, or
    /// `*` for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "namespaces")]
    pub sharing_with: Vec<String>,

    /// Whether the holder has `externalTrafficPolicy: Local`: then all holders that share the
    /// address must select the same pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_traffic: Option<bool>,

    /// The pods the holder selects, as `key=value` pairs in order, separated by commas. Written
    /// only for holders that would share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub selector: Option<String>,

    /// Whether the holder agrees to share with Services that select other pods though traffic stays
    /// on the node it arrives at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_pods: Option<bool>,

    /// The pools that the Service asked for with `landfall.dev/pool` when it got the address. If it
    /// asks for others later, it is moved there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "pools")]
    pub asked_pools: Vec<String>,

    /// The address that this one is to take the place of. The Service shows that one until this one is
    /// shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    pub replaces: Option<String>,

    /// The `spec.loadBalancerClass` under which the Service was served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub load_balancer_class: Option<String>,

    /// The holder's `metadata.resourceVersion` at which its wish for this address was last judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub seen_version: Option<String>,
}

impl Holder {
    /// Most holders that one claim names.
    pub const MOST: usize = 256;
    /// Longest `sharingKey`.
    pub const LONGEST_KEY: usize = 253;
    /// Most namespaces in `sharingWith`.
    pub const MOST_NAMESPACES: usize = 64;
    /// Most `ports`.
    pub const MOST_PORTS: usize = 1024;
    /// Longest `selector`.
    pub const LONGEST_SELECTOR: usize = 4096;
}

/// A reservation that keeps an address.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "has(self.__namespace__) || (has(self.kind) && self.kind == 'Node')"
    )
    .message("the namespace is needed, unless the address is kept for a Node")
    .field_path(".namespace")
    .reason(Reason::FieldValueRequired),
    validation = Rule::new(
        "has(self.name) || !has(self.kind) || self.kind != 'Node'"
    )
    .message("the name of the Node is needed")
    .field_path(".name")
    .reason(Reason::FieldValueRequired)
)]
pub struct ReservedFor {
    /// Kind of the holder that may have the address: `Service`, `Namespace` or `Node`. `Service` when
    /// left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "reserving_kinds")]
    pub kind: Option<String>,

    /// The namespace whose Services may have the address, or the Namespace itself that may. Left out
    /// only for a Node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,

    /// The Service or Node that may have the address. Any Service of the namespace when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,

    /// When the reservation ends. Never when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Time>,

    /// Whether the address waits for a deleted Service (`retainFor` of its pool). Then it counts for
    /// the namespace's quota, and is given up when the namespace asks for another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained: Option<bool>,
}

/// The state of an address as the operator sees it.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IPStatus {
    /// The node that carries the address now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node: Option<String>,

    /// Conditions of the address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(length(max = 32))]
    pub conditions: Vec<Condition>,
}

impl Use {
    /// All purposes.
    pub const ALL: [Self; 4] = [Self::LoadBalancer, Self::Egress, Self::Floating, Self::Reserved];

    /// Reads a purpose; `None` if there is no such purpose.
    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|purpose| purpose.as_str() == text)
    }

    /// The word in `spec.use`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LoadBalancer => "LoadBalancer",
            Self::Egress => "Egress",
            Self::Floating => "Floating",
            Self::Reserved => "Reserved",
        }
    }
}

fn uses(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "string",
        "enum": Use::ALL.map(Use::as_str),
    })
}

fn reserving_kinds(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let kinds = [HolderKind::Service, HolderKind::Namespace, HolderKind::Node];
    schemars::json_schema!({
        "type": "string",
        "enum": kinds.map(HolderKind::as_str),
    })
}

fn namespaces(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": Holder::MOST_NAMESPACES,
        "items": {"type": "string", "maxLength": 63},
    })
}

fn ports(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": Holder::MOST_PORTS,
        "items": {"type": "string", "maxLength": 16},
    })
}

fn pools(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": keys::MOST_ENTRIES,
        "items": {"type": "string", "maxLength": keys::LONGEST_ENTRY},
    })
}
