//! Operations of a forward pass: CPU implementations as candle custom ops, and the same operations
//! on CUDA devices.
//!
//! Invariant of all operations: **a row's result never depends on the other rows of the batch**. No
//! reduction is split by the number of rows, threads or segments, so a row has the same bits alone
//! and in a batch of any size.
//!
//! Letters in shapes: `r` rows of the batch, `h` query heads, `g` key/value heads, `c` head
//! width, `d` model width, `v` vocabulary, `p` slots of a KV page.
#![deny(missing_docs)]

mod append;
mod attention;
mod backend;
mod blocks;
mod cache;
pub mod device;
mod gather;
mod gemm;
mod ggml;
mod linear;
mod norm;
mod parallel;
mod rope;
mod routing;
mod score;
mod simd;
mod storage;
mod sync;

pub use append::append;
pub use attention::{PagedAttention, Visible};
pub use backend::{
    Accelerator, ArrayKind, Attention, Backend, Candle, Counting, Cpu, DeviceKv, ExpertRows,
    Experts, Head, Host, LayerScratch, Mixture, Norm, Numbers, Pass, Projection, Residual, Rows,
    ScoredRange, Selection, Storage, Stored, StoredTable, StoredVector, Table, TableNumbers,
};
pub use blocks::{BlockRows, BlockType, FP8_SCALES, float4, float8};
pub use cache::{CopyPages, KvDtype, KvSizes, Pool, WriteRows};
pub use gather::AddRows;
pub use gemm::{row_in_codes, row_to_bytes};
pub use linear::{Epilogue, Linear, Matrix};
pub use norm::{HeadNorm, rms_norm};
pub use parallel::Team;
pub use rope::{Llama3Scaling, QueryGrowth, Rope, RopeScaling, RopeSpec, RopeTable, YarnScaling};
pub use routing::{RouterFunction, Routing};
pub use score::{Scorer, ScorerRow, Scores, score};
pub use simd::InstructionSet;
pub use simd::amx::TileSupport;
pub use simd::blocks::Form;
pub use simd::unit::WeightDtype;
