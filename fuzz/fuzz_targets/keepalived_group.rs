//! The spec of a `KeepalivedGroup`, as JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(spec) = serde_json::from_str(text) {
        landfall_api::fuzzing::keepalived_group(spec);
    }
});
