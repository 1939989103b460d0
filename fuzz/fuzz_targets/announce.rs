//! The annotations by which a Service asks a `KeepalivedGroup` to announce it, and the lines of a group.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    landfall_api::fuzzing::announce_request(text, text, text);
    if let Ok(config) = serde_json::from_str(text) {
        landfall_api::fuzzing::verbatim(&config);
    }
});
