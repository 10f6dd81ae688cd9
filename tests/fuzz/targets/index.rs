//! libFuzzer on the target `index`.
#![no_main]

use asynclane_tests::fuzz::index;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    index::run(data);
});
