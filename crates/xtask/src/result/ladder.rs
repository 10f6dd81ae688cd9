//! Forward passes by their number of rows.

use serde::Deserialize;

/// Forward passes of one sequence beside llama.cpp's and PyTorch's products, as
/// `tests/lab/records/peers/ladder.py` measures them. All times are medians in milliseconds.
#[derive(Debug, Deserialize)]
pub struct Ladder {
    /// The command.
    pub command: String,
    /// Processor, threads and matrix kernels.
    pub machine: String,
    /// Versions of the other implementations.
    pub peers: String,
    /// The model whose sizes are used.
    pub geometry: String,
    /// The rows.
    pub ladder: Vec<LadderRow>,
}

/// One number format and number of rows.
#[derive(Debug, Deserialize)]
pub struct LadderRow {
    /// Our number format of the weights.
    pub dtype: String,
    /// Rows of the pass.
    pub rows: u64,
    /// Our pass.
    pub ms: f64,
    /// The matrix products of our pass.
    pub products_ms: f64,
    /// llama.cpp's number format.
    pub llama: String,
    /// llama.cpp's pass.
    pub llama_ms: f64,
    /// llama.cpp's time over ours, the median of the rounds.
    pub llama_ratio: f64,
    /// PyTorch's products, in the formats that it multiplies.
    pub torch_ms: Option<f64>,
    /// Their time over that of our products, the median of the rounds.
    pub torch_ratio: Option<f64>,
}
