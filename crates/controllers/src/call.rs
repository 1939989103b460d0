//! Calls to the API server: kinds of failures, deadlines and guards.

use std::{error::Error, fmt::Display, future::Future, time::Duration};

use kube::{
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::params::Preconditions,
};
use landfall_api::keys;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::object::Version;

/// The deadline of every call: kube has no read timeout of its own.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// The field manager in `managedFields`.
const MANAGER: &str = "landfall";

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The name is taken.
    Exists,
    /// The object is at another version.
    Conflict,
    /// There is no such object.
    NotFound,
    /// The API server refused, and will refuse again until something is changed.
    Refused(String),
    /// A webhook without a backend refuses every write of the kind.
    Blocked(String),
    /// The API server is overloaded: it did nothing, and asks us to wait this long.
    Throttled(Duration),
    /// The call may have happened or not.
    Unknown(String),
    /// The call was not sent, because we do not lead.
    NotSent,
}

impl Failure {
    /// The value of the label `result` in metrics.
    pub(crate) const fn label(&self) -> &'static str {
        match self {
            Self::Exists => "exists",
            Self::Conflict => "conflict",
            Self::NotFound => "not_found",
            Self::Refused(_) => "refused",
            Self::Blocked(_) => "blocked",
            Self::Throttled(_) => "throttled",
            Self::Unknown(_) => "unknown",
            Self::NotSent => "not_sent",
        }
    }

    /// The API server's message, if it refused and will refuse again until something is changed.
    pub(crate) fn refusal(&self) -> Option<&str> {
        match self {
            Self::Refused(message) | Self::Blocked(message) => Some(message),
            Self::Exists
            | Self::Conflict
            | Self::NotFound
            | Self::Throttled(_)
            | Self::Unknown(_)
            | Self::NotSent => None,
        }
    }

    /// How long the API server asked us to wait.
    pub(crate) const fn asked_to_wait(&self) -> Duration {
        match self {
            Self::Throttled(wait) => *wait,
            Self::Exists
            | Self::Conflict
            | Self::NotFound
            | Self::Refused(_)
            | Self::Blocked(_)
            | Self::Unknown(_)
            | Self::NotSent => Duration::ZERO,
        }
    }
}

/// Performs a call with a deadline.
pub(crate) async fn within<A>(
    deadline: Duration,
    call: impl Future<Output = Result<A, Failure>>,
) -> Result<A, Failure> {
    timeout(deadline, call).await.unwrap_or_else(|_| {
        Err(Failure::Unknown(format!("no answer within {} s", deadline.as_secs())))
    })
}

/// The parameters of our creates.
pub(crate) fn creating() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

/// The parameters of our patches.
pub(crate) fn patching() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// A merge patch that succeeds only at exactly this version.
pub(crate) fn guarded(version: Version, mut patch: Value) -> Patch<Value> {
    patch["metadata"]["resourceVersion"] = json!(version.to_string());
    Patch::Merge(patch)
}

/// The same for exactly this object, not a later one with the same name.
pub(crate) fn guarded_by_uid(version: Version, uid: &str, mut patch: Value) -> Patch<Value> {
    patch["metadata"]["uid"] = json!(uid);
    guarded(version, patch)
}

/// The parameters to delete exactly this object, at exactly this version if one is given.
pub(crate) fn deleting(uid: &str, version: Option<Version>) -> DeleteParams {
    let preconditions = Preconditions {
        resource_version: version.map(|version| version.to_string()),
        uid: Some(uid.to_owned()),
    };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

/// The result of a live read: `get` sends no `resourceVersion`, so no cache answers.
pub(crate) fn found<K: DeserializeOwned>(read: kube::Result<K>) -> Result<Option<K>, Failure> {
    match read.map_err(|error| failure(&error)) {
        Ok(object) => Ok(Some(object)),
        Err(Failure::NotFound) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The failure that an error means.
pub(crate) fn failure(error: &kube::Error) -> Failure {
    let kube::Error::Api(status) = error else {
        return Failure::Unknown(chain(error));
    };
    match (status.code, status.reason.as_str()) {
        (409, "AlreadyExists") => Failure::Exists,
        (409, _) => Failure::Conflict,
        (404, _) => Failure::NotFound,
        (429, _) => {
            let wait = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            Failure::Throttled(Duration::from_secs(wait.into()))
        }
        (400..=408 | 411..=428, _) => Failure::Refused(status.message.clone()),
        (500, _) if status.message.contains("failed calling webhook") => {
            Failure::Blocked(webhook_explained(&status.message))
        }
        _ => Failure::Unknown(chain(error)),
    }
}

/// The replaced operator's webhook outlives it and then refuses every write of an `IP`, even by
/// administrators. They need its name more than the API server's own message.
fn webhook_explained(message: &str) -> String {
    if message.contains(&format!("{:?}", keys::WEBHOOK_LEFT)) {
        format!(
            "the webhook {} that vip-allocator-operator left behind refuses every change of an IP \
             object; remove it with `kubectl delete validatingwebhookconfiguration {}`, and this \
             goes on by itself ({message})",
            keys::WEBHOOK_LEFT,
            keys::WEBHOOK_LEFT_CONFIGURATION,
        )
    } else {
        message.to_owned()
    }
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        append(&mut text, &cause);
        source = cause.source();
    }
    text
}

fn append(text: &mut String, cause: &dyn Display) {
    let cause = cause.to_string();
    if !text.contains(&cause) {
        text.push_str(": ");
        text.push_str(&cause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_carries_the_message_that_users_are_told() {
        let text = || "no".to_owned();
        for (failure, message) in [
            (Failure::Refused(text()), Some("no")),
            (Failure::Blocked(text()), Some("no")),
            (Failure::Unknown(text()), None),
            (Failure::Exists, None),
            (Failure::Conflict, None),
            (Failure::NotFound, None),
            (Failure::Throttled(Duration::ZERO), None),
            (Failure::NotSent, None),
        ] {
            assert_eq!(failure.refusal(), message, "{failure:?}");
        }
    }
}
