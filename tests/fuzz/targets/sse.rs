//! libFuzzer on the target `sse`.
#![no_main]

use asynclane_tests::fuzz::sse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    sse::run(data);
});
