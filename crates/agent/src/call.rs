//! What the worker asks of the keeper: one JSON value a line, and one line for the answer.

use serde::{Deserialize, Serialize};

/// A request of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// Start keepalived with the configuration in the folder, or let it read the configuration again if it
    /// runs. Answered with the states once keepalived has read it.
    Use,
    /// Tell what every instance does.
    Report,
    /// Tell whether keepalived runs, at once and without asking keepalived: no instances are told.
    Alive,
}

/// The keeper's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// keepalived runs.
    Runs {
        /// How often it was started since the keeper started.
        starts: u64,
        instances: Vec<InstanceReport>,
        /// What the keeper has counted.
        counts: Counts,
    },
    /// keepalived does not run, and why.
    Down { error: String, counts: Counts },
}

/// What one instance does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceReport {
    pub name: String,
    pub interface: String,
    pub router_id: u8,
    /// The version of the protocol, the time between two adverts and the priority that it was given, as far as
    /// keepalived tells them.
    pub version: Option<u8>,
    pub advert_millis: Option<u32>,
    pub priority: Option<u8>,
    pub state: State,
    /// Milliseconds since 1970 at which it entered the state.
    pub last_transition_millis: i64,
    /// All addresses, advertised or not, as keepalived knows them.
    pub addresses: Vec<String>,
    pub counters: Counters,
}

/// The states of an instance, by keepalived's own numbers 0 to 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    #[default]
    Init,
    Backup,
    Master,
    Fault,
}

/// keepalived's counters of one instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    pub advert_rcvd: u64,
    pub advert_sent: u64,
    pub become_master: u64,
    pub release_master: u64,
    pub packet_len_err: u64,
    pub advert_interval_err: u64,
    pub ip_ttl_err: u64,
    pub invalid_type_rcvd: u64,
    pub addr_list_err: u64,
    pub invalid_authtype: u64,
    pub authtype_mismatch: u64,
    pub auth_failure: u64,
    pub pri_zero_rcvd: u64,
    pub pri_zero_sent: u64,
}

/// What the keeper has counted since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Goodbyes said for a keepalived that died.
    pub goodbyes: u64,
    /// Addresses taken off the node in keepalived's place.
    pub swept: u64,
}
