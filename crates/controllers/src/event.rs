//! Kubernetes events, which users read in `kubectl describe`.
//!
//! kube's `Recorder` is not used: it remembers every event for six minutes without a bound, and repeats
//! one as a patch of a series, for which the operator's role would need another verb. Planners send an
//! event once, or at intervals of their own.

use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, Resource, api::PostParams};
use landfall_api::keys;

use crate::call::{Failure, failure};

/// The longest name that the API server accepts.
const LONGEST_NAME: usize = 253;
/// The longest note that the events API accepts.
const LONGEST_NOTE: usize = 1024;
/// The namespace of events about cluster-scoped objects.
const NAMESPACE_OF_CLUSTER_SCOPED: &str = "default";

/// A Kubernetes event to be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    /// The object that the event is about.
    pub about: ObjectReference,
    /// The action, as a verb.
    pub action: &'static str,
    pub reason: String,
    pub message: String,
    pub warning: bool,
}

impl Event {
    /// Writes the event beside the object that it is about.
    pub(crate) async fn write(
        &self,
        client: &Client,
        instance: &str,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let name = self.about.name.as_deref().unwrap_or_default();
        let namespace = self.about.namespace.as_deref().unwrap_or(NAMESPACE_OF_CLUSTER_SCOPED);
        let end = self.message.floor_char_boundary(LONGEST_NOTE);
        let event = v1::Event {
            metadata: ObjectMeta {
                // Unique without a random number: at most one event per object and nanosecond.
                name: Some(event_name(name, now)),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            action: Some(self.action.to_owned()),
            event_time: Some(MicroTime(now)),
            note: Some(self.message.split_at(end).0.to_owned()),
            reason: Some(self.reason.clone()),
            regarding: Some(self.about.clone()),
            reporting_controller: Some(format!("{}operator", keys::PREFIX)),
            reporting_instance: Some(instance.to_owned()),
            type_: Some(if self.warning { "Warning" } else { "Normal" }.to_owned()),
            ..v1::Event::default()
        };
        let events: Api<v1::Event> = Api::namespaced(client.clone(), namespace);
        let created = events.create(&PostParams::default(), &event).await;
        created.map(drop).map_err(|error| failure(&error))
    }
}

/// The name of an event: as much of the object's name as fits, because that may have the full length.
fn event_name(about: &str, now: Timestamp) -> String {
    let suffix = format!(".{:x}", now.as_nanosecond());
    // Object names are ASCII, so every position is a boundary.
    let kept = about.get(..LONGEST_NAME.saturating_sub(suffix.len())).unwrap_or(about);
    format!("{}{suffix}", kept.trim_end_matches(['-', '.']))
}

/// The object that an event is about.
pub(crate) fn about<K: Resource<DynamicType = ()>>(
    namespace: Option<&str>,
    name: &str,
    uid: &str,
) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        namespace: namespace.map(str::to_owned),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}
