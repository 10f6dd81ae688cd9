//! libFuzzer on the target `grammar`.
#![no_main]

use asynclane_tests::fuzz::grammar;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    grammar::run(data);
});
