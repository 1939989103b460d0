//! Any object that a watch may bring, as JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(object) = serde_json::from_str(text) {
        landfall_controllers::services::fuzzing::object(&object);
    }
});
