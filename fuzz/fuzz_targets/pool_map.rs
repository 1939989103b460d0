//! The data of kube-vip's `ConfigMap`: one `key=value` a line, where `;` in a value stands for a line end.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let data = lines.map(|(key, value)| (key.to_owned(), value.replace(';', "\n")));
    landfall_api::fuzzing::pool_map(&data.collect());
});
