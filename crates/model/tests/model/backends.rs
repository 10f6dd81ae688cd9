//! Shared parts of the tests of the backends: small checkpoints and batches of sequences.

use crate::common::{Noise, push, row};
use serde_json::{Value, json};
use step::{Batch, Sampling};

/// Pages of every executor, of 8 slots.
pub const PAGES: u32 = 40;

/// Shapes of small checkpoints: tied and untied, with and without biases, grouped heads.
pub fn shapes() -> [Value; 3] {
    [
        json!({"d_model": 64, "vocab_size": 61, "embedding_size": 64}),
        json!({"d_model": 96, "n_kv_heads": 2, "n_layers": 3, "include_bias": true,
            "bias_for_layer_norm": false}),
        json!({"d_model": 160, "weight_tying": true, "include_qkv_bias": true}),
    ]
}

/// Sequences of these lengths, each with its own pages, out of order.
pub fn batch(noise: &mut Noise, lengths: &[u32], sampling: Sampling) -> Batch {
    let mut batch = Batch::default();
    let mut page = PAGES;
    for &length in lengths {
        let count = length.div_ceil(8);
        let pages: Vec<u32> = (0..count).map(|i| page - 1 - i).collect();
        page -= count;
        let token = |noise: &mut Noise| noise.below(61) as u32;
        let rows = (0..length).map(|i| row(token(noise), i, length)).collect();
        push(&mut batch, rows, &pages, sampling);
    }
    batch
}
