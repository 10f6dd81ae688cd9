//! Steps on a GPU.

use serde::Deserialize;

/// Steps on a GPU beside PyTorch's, as `tests/lab/records/peers/cuda_steps.py` measures them.
#[derive(Debug, Deserialize)]
pub struct Steps {
    /// The command.
    pub command: String,
    /// The GPU.
    pub device: String,
    /// PyTorch's version.
    pub torch: String,
    /// The model whose sizes are used.
    pub geometry: String,
    /// The rows.
    pub gpu_steps: Vec<StepRow>,
}

/// One number format and number of rows.
#[derive(Debug, Deserialize)]
pub struct StepRow {
    /// Our number format of the weights.
    pub dtype: String,
    /// Rows of the step.
    pub rows: u64,
    /// Slots that every row sees.
    pub slots: u64,
    /// Milliseconds of our step.
    pub ms: f64,
    /// The least time of a step: one read of weights, keys and values, or the multiplications at the
    /// peak.
    pub floor_ms: f64,
    /// PyTorch's step in bf16.
    pub torch_ms: f64,
}
