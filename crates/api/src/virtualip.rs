//! `VirtualIP`: an address for a Service as vip-allocator-operator up to 0.3 gave it.
#![expect(
    unreachable_pub,
    reason = "`KubeSchema` copies the struct, `pub` included, into a function"
)]
#![expect(clippy::duplicated_attributes, reason = "two columns may have the same type")]

use std::fmt;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// Which Service is exposed, and with which address.
///
/// Fields of release 0.1 (`segment`, `clone`) may still be in old objects. They stay there and
/// mean nothing.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[kube(
    group = "paas.org",
    version = "v1",
    kind = "VirtualIP",
    plural = "virtualips",
    singular = "virtualip",
    shortname = "vip",
    namespaced,
    status = "VirtualIPStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "An address for a Service, shown by a copy of it that has the address in \
           `spec.externalIPs`. Deprecated: existing ones keep working, new ones are refused in \
           favour of a Service of type `LoadBalancer`. The annotation `virtualips.paas.org/migrate` \
           turns one into the other.",
    printcolumn(name = "Service", type_ = "string", json_path = ".status.service"),
    printcolumn(name = "IP", type_ = "string", json_path = ".status.ip"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct VirtualIPSpec {
    /// The Service to expose, of the same namespace.
    pub service: String,

    /// The address it is to have. Any free one of a `GroupSegmentMapping` when left out. It cannot
    /// change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
}

/// The state of a `VirtualIP` as the operator sees it.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct VirtualIPStatus {
    /// The step that it takes or the obstacle that it meets, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// The address it has. It stays when the `VirtualIP` has been migrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,

    /// The address as release 0.1 wrote it. Read where `ip` is missing, never written.
    #[serde(rename = "IP", default, skip_serializing_if = "Option::is_none")]
    pub ip_of_0_1: Option<String>,

    /// The keepalived group of the `GroupSegmentMapping`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalived_group: Option<String>,

    /// The Service that is exposed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,

    /// The copy of the Service that has the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloned_service: Option<String>,

    /// The `GroupSegmentMapping` that gave the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gsm: Option<String>,

    /// How far it is: `Valid`, `Error`, a stage on the way to either, a stage of a migration, or
    /// `Migrated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

impl VirtualIPStatus {
    /// The address it has, in whichever field it is.
    pub fn address(&self) -> Option<&str> {
        let texts = [&self.ip, &self.ip_of_0_1];
        texts.into_iter().flatten().map(String::as_str).find(|text| !text.is_empty())
    }
}

/// The words of `status.state`, as the original writes them.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum State {
    /// An address was found, and its claim is to be made.
    CreatingIp,
    /// The copy of the Service is to be made.
    Exposing,
    /// The Service is exposed.
    Valid,
    /// Something is in the way; `status.message` says what.
    Error,
    /// The migration was asked for.
    Preparing,
    /// The claim passes to the Service.
    Reassociating,
    /// The Service becomes a `LoadBalancer`.
    Converting,
    /// The Service is to show the address.
    Assigning,
    /// The copy and the finalizers go.
    CleaningUp,
    /// The Service has the address, and the `VirtualIP` has nothing left to do.
    Migrated,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::CreatingIp,
        Self::Exposing,
        Self::Valid,
        Self::Error,
        Self::Preparing,
        Self::Reassociating,
        Self::Converting,
        Self::Assigning,
        Self::CleaningUp,
        Self::Migrated,
    ];

    /// The word in `status.state`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CreatingIp => "Creating IP object",
            Self::Exposing => "Exposing service",
            Self::Valid => "Valid",
            Self::Error => "Error",
            Self::Preparing => "Migrating: preparing for migration",
            Self::Reassociating => "Migrating: reassociating IP object",
            Self::Converting => "Migrating: converting service",
            Self::Assigning => "Migrating: assigning original IP",
            Self::CleaningUp => "Migrating: cleaning up",
            Self::Migrated => "Migrated",
        }
    }

    /// The state of this word; `None` for any other text.
    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_address_is_found_under_both_names() {
        for (case, status, expected) in [
            ("since 0.2", json!({"ip": "10.0.0.5"}), Some("10.0.0.5")),
            ("0.1", json!({"IP": "10.0.0.5", "clone": true}), Some("10.0.0.5")),
            ("updated since", json!({"IP": "10.0.0.5", "ip": "10.0.0.6"}), Some("10.0.0.6")),
            ("emptied", json!({"IP": "", "ip": ""}), None),
            ("none", json!({"state": "Error"}), None),
        ] {
            let status: VirtualIPStatus = serde_json::from_value(status).unwrap();
            assert_eq!(status.address(), expected, "{case}");
        }
    }

    #[test]
    fn fields_of_0_1_are_no_mistake() {
        let spec = json!({"service": "web", "segment": "10.0.0.0/24", "clone": true});
        let spec: VirtualIPSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(spec, VirtualIPSpec { service: "web".to_owned(), ip: None });
    }

    #[test]
    fn every_state_is_read_back() {
        for state in State::ALL {
            assert_eq!(State::read(&state.to_string()), Some(state));
        }
        assert_eq!(State::read("valid"), None);
        assert_eq!(State::read(""), None);
    }
}
