//! libFuzzer on the target `framing`.
#![no_main]

use asynclane_tests::fuzz::framing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    framing::run(data);
});
