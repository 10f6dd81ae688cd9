//! libFuzzer on the target `request`.
#![no_main]

use asynclane_tests::fuzz::request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    request::run(data);
});
