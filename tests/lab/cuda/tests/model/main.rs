//! Whole models on the emulated device, compared with the processor. Small checkpoints, batches and
//! references are those of the tests of `crates/model`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    dead_code,
    reason = "the shared modules serve tests of other backends too"
)]

#[path = "../../../../../crates/model/tests/model/backends.rs"]
mod backends;
#[path = "../../../../../crates/model/tests/model/canvas.rs"]
mod canvas;
#[path = "../../../../../crates/model/tests/model/canvas_dtypes.rs"]
mod canvas_dtypes;
#[path = "../../../../../crates/model/tests/model/chunks.rs"]
mod chunks;
#[path = "../../../../../crates/model/tests/model/common.rs"]
mod common;
#[cfg(test)]
mod device;
#[path = "../../../../../crates/model/tests/model/families.rs"]
mod families;
#[path = "../../../../../crates/model/tests/model/official.rs"]
mod official;
