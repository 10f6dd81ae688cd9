//! libFuzzer on the target `config`.
#![no_main]

use asynclane_tests::fuzz::config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    config::run(data);
});
