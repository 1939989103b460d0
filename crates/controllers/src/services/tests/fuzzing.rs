//! Properties that hold for every object a watch may deliver, as functions that panic when one is violated.
//!
//! The random tests and the targets in `fuzz/` call the same functions.
#![expect(clippy::missing_panics_doc, reason = "to panic is what they are for")]

use k8s_openapi::api::core::v1::Service;
use kube::core::DeserializeGuard;
use landfall_api::{IP, IPGroup};
use serde_json::Value;

use super::super::audience::Audience;
use crate::{
    cluster::{
        pool::{self, PoolView},
        service,
    },
    ledger::{Claim, object},
};

/// Reads a Service as a watch does; `None` if the API server would never have accepted it, or if it is not
/// of type `LoadBalancer`.
#[cfg(test)]
pub(in crate::services) fn seen_service(object: Value) -> Option<service::Balancer> {
    service::balancer(&serde_json::from_value::<Service>(object).ok()?)
}

pub(in crate::services) fn seen_claim(object: Value) -> Option<Claim> {
    object::read(&serde_json::from_value::<DeserializeGuard<IP>>(object).ok()?)
}

pub(in crate::services) fn seen_pool(object: Value) -> Option<PoolView> {
    Some(pool::read(&serde_json::from_value::<DeserializeGuard<IPGroup>>(object).ok()?))
}

/// Any JSON is observed without harm, as each of the kinds: a claim has its holders, and an unusable pool has
/// its reasons.
pub fn object(object: &Value) {
    if let Ok(service) = serde_json::from_value::<Service>(object.clone()) {
        service::read(&service);
    }
    if let Some(claim) = seen_claim(object.clone()) {
        let audience = Audience { namespace: "wild", sees_all: false };
        assert!(!claim.described(audience).is_empty());
    }
    if let Some(problems) = seen_pool(object.clone()).and_then(|pool| pool.pool.err()) {
        assert!(!problems.is_empty() && problems.iter().all(|text| !text.is_empty()));
    }
}
