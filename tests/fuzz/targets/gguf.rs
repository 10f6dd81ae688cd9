//! libFuzzer on the target `gguf`.
#![no_main]

use asynclane_tests::fuzz::gguf;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    gguf::run(data);
});
