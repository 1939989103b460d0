//! `IPGroup`: a pool of addresses and the rules for giving them out.
#![expect(
    unreachable_pub,
    reason = "`KubeSchema` copies the struct, `pub` included, into a function"
)]

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::{keys, schema};

/// The addresses of a pool, and the Services that it serves.
///
/// Every field is optional, but a pool needs `segment` or `ranges` to have an address at all.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[kube(
    group = "paas.org",
    version = "v1",
    kind = "IPGroup",
    plural = "ipgroups",
    singular = "ipgroup",
    shortname = "ipg",
    category = "landfall",
    status = "IPGroupStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A pool of addresses for LoadBalancer Services, and the rules for giving them out.",
    printcolumn(name = "Segment", type_ = "string", json_path = ".spec.segment"),
    printcolumn(name = "Ranges", type_ = "string", json_path = ".status.ranges"),
    printcolumn(name = "Free", type_ = "string", json_path = ".status.freeShort"),
    printcolumn(name = "Used", type_ = "string", json_path = ".status.used"),
    printcolumn(name = "Waiting", type_ = "integer", json_path = ".status.waiting"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = schema::pool_has_addresses()
)]
#[serde(rename_all = "camelCase")]
pub struct IPGroupSpec {
    /// The pool's main block as a CIDR of either family, such as `10.0.0.0/24`. Host bits are
    /// ignored: `10.0.0.5/29` means `10.0.0.0/29`. First and last address are given out like all
    /// others unless `avoidEnds` is set. Any text is accepted; if it is no CIDR, the condition
    /// `Ready` says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<String>,

    /// Addresses that are never given out, each entry an address, a CIDR or a `first-last` range.
    /// An exclusion also holds for other pools that contain the address. An address that is in
    /// use when it is excluded stays with its holder. Any text is accepted; an entry that cannot be
    /// read excludes nothing, and the condition `Ready` names it.
    #[serde(rename = "excludedIPs", default, skip_serializing_if = "Option::is_none")]
    pub excluded_ips: Option<Vec<String>>,

    /// More addresses, each entry a CIDR, a single address or a `first-last` range, of either
    /// family. `segment` may be left out when this is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "ranges")]
    pub ranges: Vec<String>,

    /// Which pool is tried first when several match: the lowest number. Equal numbers go by name.
    /// Defaults to `100`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,

    /// Whether Services that ask for neither a pool nor an address are served from this pool.
    /// Defaults to `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_assign: Option<bool>,

    /// Namespaces whose Services this pool serves. All of them when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = StructMerge::Atomic)]
    pub namespace_selector: Option<LabelSelector>,

    /// Services this pool serves, by their labels. All of them when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = StructMerge::Atomic)]
    pub service_selector: Option<LabelSelector>,

    /// Serve only Services with exactly this `spec.loadBalancerClass`. When left out, the pool
    /// serves Services without a class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub load_balancer_class: Option<String>,

    /// Hold back the first and last address of each CIDR with more than two addresses, of either
    /// family, and IPv4 addresses that end in `.0` or `.255` wherever they are. A `/31` or `/32`
    /// and a `first-last` range have no ends in this sense. Defaults to `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avoid_ends: Option<bool>,

    /// Keep what this pool has given and give no more. Defaults to `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<bool>,

    /// How many of this pool's addresses a namespace may hold. No limit when left out. Lowering
    /// it takes nothing away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,

    /// How long the address of a deleted Service waits for a Service of the same namespace and
    /// name, in hours, minutes and seconds, such as `1h30m`. Not at all when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(
        validation = Rule::new(
            "self.matches('^[0-9]{1,6}[hms]([0-9]{1,6}[ms])?([0-9]{1,6}s)?$') && duration(self) >= duration('0s')"
        ).message(Message::Expression(
            "'must be a duration such as 1h30m or 45s, not \"' + self + '\"'".into()
        ))
    )]
    pub retain_for: Option<String>,

    /// How the addresses of this pool are announced to the network. When left out, Landfall does not
    /// announce them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announce: Option<Announce>,
}

/// How many addresses a namespace may hold.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Quota {
    /// The limit of every namespace that is not listed in `namespaces`. No limit when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub per_namespace: Option<i32>,

    /// Limits of single namespaces, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quotas")]
    pub namespaces: BTreeMap<String, i32>,
}

/// How addresses are announced to the network.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Announce {
    /// The `KeepalivedGroup` that announces every Service served by this pool, as
    /// `namespace/name`. A Service's own annotation wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    #[x_kube(
        validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')")
            .message("must be namespace/name of a KeepalivedGroup")
    )]
    pub keepalived_group: Option<String>,
}

/// The state of a pool as the operator sees it.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IPGroupStatus {
    /// Addresses the pool can give out, exclusions taken off. A decimal number as text, because
    /// an IPv6 block has more of them than a 64-bit integer holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40))]
    pub capacity: Option<String>,

    /// Addresses of the pool that are taken. Where pools overlap, an address counts for the
    /// one that gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40))]
    pub used: Option<String>,

    /// Addresses the pool can still give out. Where pools overlap, an address that both could give
    /// is free in both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40))]
    pub free: Option<String>,

    /// `free` for people: as it is up to ten digits, else rounded, such as `1.8e19`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40))]
    pub free_short: Option<String>,

    /// `spec.ranges` for people: the first two entries and how many more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub ranges: Option<String>,

    /// The same numbers for IPv4 alone, if the pool has such addresses.
    #[serde(rename = "ipv4", default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<FamilyCount>,

    /// The same numbers for IPv6 alone, if the pool has such addresses.
    #[serde(rename = "ipv6", default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<FamilyCount>,

    /// How many Services wait for the pool: it would serve them but cannot, or they ask for one of
    /// its addresses and do not get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<i64>,

    /// The Services that have waited longest for this pool, oldest first; at most ten. The
    /// condition `landfall.dev/Allocated` of each says more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub longest_waiting: Vec<WaitingService>,

    /// The `metadata.generation` this status was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready` says whether the pool can serve, and what is wrong with it if not. `Overlaps` names
    /// other pools that have some of its addresses, while there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(length(max = 32))]
    pub conditions: Vec<Condition>,
}

/// How many addresses of one family a pool has. Decimal numbers as text.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FamilyCount {
    /// Addresses the pool can give out, exclusions taken off.
    #[schemars(length(max = 40))]
    pub capacity: String,

    /// Addresses of the pool that are taken.
    #[schemars(length(max = 40))]
    pub used: String,

    /// Addresses the pool can still give out.
    #[schemars(length(max = 40))]
    pub free: String,
}

/// A Service that waits for a pool.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingService {
    /// Namespace of the Service.
    #[schemars(length(max = 63))]
    pub namespace: String,

    /// Name of the Service.
    #[schemars(length(max = 253))]
    pub name: String,

    /// Why the pool does not serve it, a word from the closed list of reasons.
    #[schemars(length(max = 63))]
    pub reason: String,
}

impl WaitingService {
    /// How many of them a pool's status names.
    pub const MOST: usize = 10;
}

impl IPGroupSpec {
    /// The priority that holds: what was set, else [`keys::DEFAULT_PRIORITY`].
    pub fn priority(&self) -> i32 {
        self.priority.unwrap_or(keys::DEFAULT_PRIORITY)
    }

    /// Whether a Service that asks for nothing in particular may be served: yes unless told not to.
    pub fn auto_assign(&self) -> bool {
        self.auto_assign.unwrap_or(true)
    }

    /// Whether block ends are held back.
    pub fn avoid_ends(&self) -> bool {
        self.avoid_ends.unwrap_or(false)
    }

    /// Whether the pool gives no more.
    pub fn drain(&self) -> bool {
        self.drain.unwrap_or(false)
    }

    /// Entries of `excludedIPs`, none when it was left out.
    pub fn excluded(&self) -> &[String] {
        self.excluded_ips.as_deref().unwrap_or_default()
    }

    /// `retainFor`, read. The CRD lets nothing else in, but an object may be older than the CRD.
    pub fn retain_for(&self) -> Result<Option<Duration>, RetainForError> {
        let Some(text) = &self.retain_for else { return Ok(None) };
        hours_minutes_seconds(text).map(Some).ok_or_else(|| RetainForError(text.clone()))
    }
}

/// Reads a time such as `1h30m`. Not by kube's `Duration`, which panics at a number that is too large or that has a
/// sign in the middle.
pub fn hours_minutes_seconds(text: &str) -> Option<Duration> {
    let mut total = (!text.is_empty()).then_some(Duration::ZERO)?;
    for part in text.split_inclusive(['h', 'm', 's']) {
        let (number, unit) = part.split_at_checked(part.len().checked_sub(1)?)?;
        let seconds = match unit {
            "h" => 3600,
            "m" => 60,
            "s" => 1,
            _ => return None,
        };
        let number: u32 = number.parse().ok()?;
        total = total.checked_add(Duration::from_secs(u64::from(number).checked_mul(seconds)?))?;
    }
    Some(total)
}

impl Quota {
    /// The limit of `namespace`; `None` is no limit.
    pub fn of(&self, namespace: &str) -> Option<i32> {
        self.namespaces.get(namespace).copied().or(self.per_namespace)
    }
}

/// `retainFor` holds no duration.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("retainFor is {0:?}, expected a duration such as 1h30m")]
pub struct RetainForError(String);

fn ranges(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schema::address_set(1024)
}

fn quotas(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "additionalProperties": {"type": "integer", "format": "int32", "minimum": 0},
        "maxProperties": 4096,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn spec(json: serde_json::Value) -> IPGroupSpec {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn the_wire_form_is_the_originals_and_nothing_is_added() {
        let wire = json!({"segment": "10.0.0.5/29", "excludedIPs": []});
        let read = spec(wire.clone());
        assert_eq!(read.excluded_ips.as_deref(), Some(&[][..]), "an empty list stays a list");
        assert_eq!(serde_json::to_value(&read).unwrap(), wire);
        assert_eq!(serde_json::to_value(IPGroupSpec::default()).unwrap(), json!({}));
    }

    #[test]
    fn omitted_fields_have_their_documented_defaults() {
        let empty = spec(json!({}));
        assert_eq!((empty.priority(), empty.auto_assign()), (100, true));
        assert_eq!((empty.avoid_ends(), empty.drain()), (false, false));
        assert_eq!((empty.excluded(), empty.retain_for()), (&[][..], Ok(None)));
    }

    #[test]
    fn retain_for_reads_every_text_that_the_crd_lets_in() {
        for (text, seconds) in
            [("1h30m", 5400), ("24h", 86400), ("5m30s", 330), ("45s", 45), ("0s", 0)]
        {
            let read = spec(json!({"retainFor": text})).retain_for();
            assert_eq!(read, Ok(Some(Duration::from_secs(seconds))), "{text}");
        }
        for text in ["", "90", "3d", "-1h", "1h-5m", "999999999999999999999h", "h", "soon"] {
            let error = spec(json!({"retainFor": text})).retain_for().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("1h30m"), "{error}");
        }
    }

    #[test]
    fn a_namespaces_own_quota_comes_first() {
        let quota = Quota {
            per_namespace: Some(5),
            namespaces: [("a".to_owned(), 20), ("b".to_owned(), 0)].into(),
        };
        assert_eq!((quota.of("a"), quota.of("b"), quota.of("c")), (Some(20), Some(0), Some(5)));
        assert_eq!(Quota::default().of("a"), None);
    }

    proptest! {
        #[test]
        fn every_duration_that_the_crd_lets_in_is_read(
            text in "[0-9]{1,6}[hms]([0-9]{1,6}[ms])?([0-9]{1,6}s)?"
        ) {
            let read = spec(json!({"retainFor": text})).retain_for();
            prop_assert!(matches!(read, Ok(Some(_))), "{:?}", read);
        }

        #[test]
        fn any_other_text_is_refused_by_its_own_words(
            text in "\\PC*|[-+]?([-+]?[0-9]{0,25}(\\.[0-9]{0,3})?(h|m|s|ms|us|µs|ns|d|e9h)){0,3}"
        ) {
            if let Err(error) = spec(json!({"retainFor": text})).retain_for() {
                let quoted = format!("{text:?}");
                prop_assert!(error.to_string().contains(&quoted));
            }
        }
    }
}
