//! Checkpoints, architectures and the executors that run them.
//!
//! A [`Checkpoint`] is a Hugging Face folder (or the same files in memory). [`Model::load`]
//! chooses the architecture from its `config.json`. A [`ModelExecutor`] owns the model, the
//! physical KV pool and the threads, and runs one batch at a time.
//!
//! Letters in shapes: `r` rows of the batch, `h` query heads, `g` key/value heads, `c` head
//! width, `d` model width, `m` MLP width, `v` vocabulary.
#![deny(missing_docs)]

mod arch;
mod checkpoint;
mod config;
mod device;
mod error;
mod executor;
mod files;
mod filter;
mod geometry;
mod gguf;
mod info;
mod inputs;
mod json;
mod memory;
mod model;
mod router;
mod selftest;
mod sharing;
mod weights;

pub use arch::Family;
pub use checkpoint::{Checkpoint, Survey};
pub use device::StepLoad;
pub use device::{DeviceConfig, DeviceExecutor, DeviceMemory, DeviceModel, KvMemory};
pub use error::{ForwardError, LoadError, one_line};
pub use executor::{ExecutorConfig, ModelExecutor};
pub use files::Files;
pub use filter::FilterWeights;
pub use geometry::Geometry;
pub use gguf::TokenizerJson;
pub use info::{
    CanvasInfo, DrafterInfo, ExpertInfo, FormatInfo, HeadSizes, ModelInfo, RowGate, RowInfo,
    VocabularyInfo,
};
pub use json::strict_json;
pub use kernels::Accelerator;
pub use kernels::device::{
    Check, Device, DeviceError, DeviceLimits, Division, LaunchTime, MatrixFormat, ProductLaunch,
    ProductSizes, Roofline,
};
pub use kernels::{Candle, Cpu, Form, Host, KvDtype, TileSupport, WeightDtype};
pub use memory::Memory;
pub use model::Model;
pub use selftest::{selftest, selftest_of_models, selftest_of_overlap, selftest_on_cpu};
pub use sharing::ExpertSharing;
