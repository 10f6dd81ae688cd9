//! Whole models on the emulated device, compared with the processor. Small checkpoints, batches and
//! references are those of the tests of `crates/model`.
#![expect(dead_code, reason = "the shared modules serve tests of other backends too")]

#[cfg(test)]
#[path = "../../../../../crates/model/tests/model/backends.rs"]
mod backends;
#[cfg(test)]
#[path = "../../../../../crates/model/tests/model/canvas.rs"]
mod canvas;
#[cfg(test)]
#[path = "../../../../../crates/model/tests/model/canvas_dtypes.rs"]
mod canvas_dtypes;
#[cfg(test)]
#[path = "../../../../../crates/model/tests/model/chunks.rs"]
mod chunks;
#[cfg(test)]
#[path = "../../../../../crates/model/tests/model/common.rs"]
mod common;
#[cfg(test)]
mod device;
#[cfg(test)]
#[path = "../../../../../crates/model/tests/model/families.rs"]
mod families;
#[cfg(test)]
#[path = "../../../../../crates/model/tests/model/gguf_files.rs"]
mod gguf_files;
#[cfg(test)]
#[path = "../../../../../crates/model/tests/model/official.rs"]
mod official;
