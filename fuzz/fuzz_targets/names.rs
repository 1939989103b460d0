//! Names of `IP` objects.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| landfall_api::fuzzing::name(text));
