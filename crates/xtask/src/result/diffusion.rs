//! A masked diffusion model on one file.

use serde::Deserialize;

/// This server beside llama.cpp's diffusion example on one file, as `tests/lab/records/peers/diffusion.py`
/// measures them.
#[derive(Debug, Deserialize)]
pub struct Diffusion {
    /// The command.
    pub command: String,
    /// Processor and threads.
    pub machine: String,
    /// The model whose sizes are used.
    pub geometry: String,
    /// Tokens of prompt and answer.
    pub length: u64,
    /// The rows.
    pub diffusion: Vec<DiffusionRow>,
}

/// A decoder on one number format. Times are medians of the rounds.
#[derive(Debug, Deserialize)]
pub struct DiffusionRow {
    /// The number format of the file.
    pub format: String,
    /// llama.cpp, or our decoder.
    pub name: String,
    /// Forward passes of the answer.
    pub forwards: u64,
    /// Milliseconds of the answer.
    pub ms: f64,
    /// Milliseconds of a forward pass with all that belongs to it.
    pub ms_per_forward: f64,
    /// llama.cpp's time over this one's, the median of the rounds.
    pub ratio: f64,
}
