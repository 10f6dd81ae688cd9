//! Two servers on one file.

use serde::Deserialize;

/// This server beside llama.cpp's on one file, as `tests/lab/records/peers/serving.py` measures them.
#[derive(Debug, Deserialize)]
pub struct Serving {
    /// The command.
    pub command: String,
    /// Processor and threads.
    pub machine: String,
    /// Name of the file.
    pub model: String,
    /// Output tokens of every request.
    pub tokens: u64,
    /// The rows.
    pub serving: Vec<ServingRow>,
}

/// A server under one number of streams. Figures are medians of the rounds.
#[derive(Debug, Deserialize)]
pub struct ServingRow {
    /// The server.
    pub name: String,
    /// Streams in flight.
    pub concurrency: u64,
    /// Output tokens per second of all streams.
    pub tps: f64,
    /// Milliseconds to the first text, at the client.
    pub ttft_ms: f64,
    /// TPS divided by that of llama.cpp.
    pub ratio: f64,
}
