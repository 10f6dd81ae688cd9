//! Narrow weights of a canvas model with experts: near those in f32, and the same bits in every batch.

use crate::canvas::{canvas, encoded, scaled};
use crate::common::{execute, push, sized};
use asynclane_model::{Checkpoint, Model, ModelExecutor, WeightDtype};
use serde_json::json;
use step::{Batch, Executor, Row, TopToken};

const VOCAB: usize = 64;
pub const CANVAS: [u32; 8] = [9, 33, 60, 2, 17, 41, 5, 28];
const PROMPT: [u32; 13] = [3, 50, 12, 7, 7, 61, 20, 44, 31, 8, 19, 55, 26];
/// Pages of 8 slots.
const PAGES: [u32; 4] = [2, 0, 3, 1];
/// Least correlation of the log-probabilities with those of f32 weights. Nothing trained these
/// weights to be robust, and every expert of every layer adds its rounding.
const BOUNDS: [(WeightDtype, f64); 3] =
    [(WeightDtype::Bf16, 0.99), (WeightDtype::Int8, 0.9), (WeightDtype::Int4, 0.5)];

/// Random weights whose matrices hold whole groups of four-bit numbers.
pub fn checkpoint(dtype: WeightDtype) -> Checkpoint {
    let full = json!({"partial_rotary_factor": 0.25, "rope_theta": 1e6,
        "rope_type": "proportional"});
    let config = json!({"architectures": ["DiffusionGemmaForBlockDiffusion"],
        "model_type": "diffusion_gemma", "canvas_length": CANVAS.len(),
        "text_config": {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32,
        "num_global_key_value_heads": 1, "intermediate_size": 96, "moe_intermediate_size": 32,
        "num_experts": 6, "top_k_experts": 6, "sliding_window": 6, "vocab_size": VOCAB,
        "max_position_embeddings": 256, "layer_types": ["sliding_attention", "sliding_attention",
        "full_attention"], "rope_parameters": {"full_attention": full}}});
    let checkpoint = Checkpoint::synthetic(&config.to_string(), 3).unwrap();
    checkpoint.with_dtype(dtype)
}

pub fn executor(dtype: WeightDtype) -> ModelExecutor {
    sized(Model::load(checkpoint(dtype)).unwrap(), 8, 0)
}

/// The log-probabilities of a canvas's second step, beside another sequence or alone.
pub fn second_step(executor: &mut dyn Executor, others: bool) -> Vec<TopToken> {
    let mut last = Vec::new();
    for conditioned in [false, true] {
        let mut batch = Batch::default();
        if others {
            let more: Vec<Row> =
                [encoded(&PROMPT[..5], 0), canvas(&CANVAS, 5, false, VOCAB)].concat();
            push(&mut batch, more, &[4, 5], scaled(0.5));
        }
        let given = match conditioned {
            true => Vec::new(),
            false => encoded(&PROMPT, 0),
        };
        let denoised = canvas(&CANVAS, PROMPT.len(), conditioned, VOCAB);
        push(&mut batch, [given, denoised].concat(), &PAGES, scaled(0.7));
        let tops = execute(executor, &batch).tops;
        last = tops[tops.len() - CANVAS.len() * (VOCAB - 1)..].to_vec();
    }
    last
}

/// Log-probabilities by row and token; the token that is not listed is the least probable one.
pub fn by_token(tops: &[TopToken]) -> Vec<f64> {
    let mut all = Vec::with_capacity(CANVAS.len() * VOCAB);
    for tops in tops.chunks(VOCAB - 1) {
        let least = tops.last().map_or(0.0, |top| f64::from(top.logprob));
        let mut row = [least; VOCAB];
        for top in tops {
            row[top.token as usize] = f64::from(top.logprob);
        }
        all.extend(row);
    }
    all
}

/// Pearson's correlation.
pub fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let product = |x: &[f64], y: &[f64], (of_x, of_y): (f64, f64)| -> f64 {
        let pairs = x.iter().zip(y);
        pairs.map(|(x, y)| (x - of_x) * (y - of_y)).sum()
    };
    let both = product(a, b, (mean_a, mean_b));
    let squares = product(a, a, (mean_a, mean_a)) * product(b, b, (mean_b, mean_b));
    both / squares.sqrt()
}

#[test]
fn narrow_weights_stay_near_those_in_f32() {
    let exact = by_token(&second_step(&mut executor(WeightDtype::F32), false));
    for (dtype, bound) in BOUNDS {
        let narrow = by_token(&second_step(&mut executor(dtype), false));
        let found = correlation(&exact, &narrow);
        assert!(bound < found && found < 1.0, "{dtype:?}: {found}");
    }
}

#[test]
fn narrow_weights_have_the_same_bits_in_every_batch() {
    for dtype in WeightDtype::ALL {
        let [alone, beside] = [false, true].map(|others| second_step(&mut executor(dtype), others));
        assert_eq!(alone, beside, "{dtype:?}");
    }
}
