//! libFuzzer on the target `template`.
#![no_main]

use asynclane_tests::fuzz::template;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    template::run(data);
});
