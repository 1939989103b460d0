//! What two Services say about sharing an address: a JSON list of two objects with `metadata` and `spec`.
#![no_main]

use k8s_openapi::api::core::v1::Service;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok([one, other]) = serde_json::from_str::<[Service; 2]>(text) else { return };
    let parts = |service: Service| (service.metadata, service.spec.unwrap_or_default());
    landfall_api::fuzzing::sharing(&parts(one), &parts(other));
});
