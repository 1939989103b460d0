//! Addresses, ranges and CIDRs, wherever a user writes one.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| landfall_ipam::fuzzing::block(text));
