//! The models of the self-test, and the passes that are compared.

use super::{Format, PAGE, SAMPLED, VOCAB};
use crate::{Checkpoint, LoadError, WeightDtype};
use step::{Batch, Denoise, PageId, Position, Row, Sampling, Score, Segment, Slot};

/// The divisor of the logits of sampled canvases.
const SCALE: f32 = 0.6;
/// Slots of the canvas model's window.
const WINDOW: u32 = 48;

/// A small model.
#[derive(Clone, Copy)]
pub(super) enum Network {
    /// LLaDA's architecture.
    Full {
        /// Query heads.
        heads: usize,
        /// Key/value heads.
        num_kv_heads: usize,
        /// Width of the model.
        width: usize,
    },
    /// DiffusionGemma's architecture, with its head widths. Every row has all experts, because two
    /// nearly equal ones may change places when numbers are rounded.
    Canvas,
}

impl Network {
    /// The head widths are 32, 64 and 128, and 256 with a window and 512 without.
    pub(super) const ALL: [Self; 4] =
        [Self::full(6, 3, 192), Self::full(4, 1, 256), Self::full(3, 3, 384), Self::Canvas];

    pub(super) const fn full(heads: usize, num_kv_heads: usize, width: usize) -> Self {
        Self::Full { heads, num_kv_heads, width }
    }

    /// A description of its distinguishing sizes.
    pub(super) fn name(self) -> String {
        match self {
            Self::Full { heads, num_kv_heads, width } => {
                format!("{heads}/{num_kv_heads} heads of {}", width / heads)
            }
            Self::Canvas => "a canvas model".to_owned(),
        }
    }

    /// The accepted difference of log-probabilities in a format.
    pub(super) fn tolerance(self, format: Format) -> f64 {
        match self {
            Self::Full { .. } => format.tolerance,
            Self::Canvas => format.canvas,
        }
    }

    /// Random weights with an MLP of width `mlp`, for sequences of up to `rows` rows.
    pub(super) fn checkpoint(
        self,
        dtype: WeightDtype,
        mlp: usize,
        rows: u32,
    ) -> Result<Checkpoint, LoadError> {
        let positions = rows.max(64);
        let config = match self {
            Self::Full { heads, num_kv_heads, width } => format!(
                r#"{{"architectures": ["LLaDAModelLM"], "d_model": {width}, "n_heads": {heads},
                "n_kv_heads": {num_kv_heads}, "n_layers": 2, "mlp_hidden_size": {mlp},
                "vocab_size": {VOCAB}, "max_sequence_length": {positions}, "mask_token_id": 5,
                "eos_token_id": 1}}"#
            ),
            Self::Canvas => format!(
                r#"{{"architectures": ["DiffusionGemmaForBlockDiffusion"],
                "model_type": "diffusion_gemma", "canvas_length": 256, "text_config": {{
                "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
                "num_key_value_heads": 2, "head_dim": 256, "global_head_dim": 512,
                "num_global_key_value_heads": 1, "intermediate_size": {mlp},
                "moe_intermediate_size": 64, "num_experts": 3, "top_k_experts": 3,
                "sliding_window": {WINDOW}, "vocab_size": {VOCAB},
                "max_position_embeddings": {positions},
                "layer_types": ["sliding_attention", "full_attention"]}}}}"#
            ),
        };
        Ok(Checkpoint::synthetic(&config, 7)?.with_dtype(dtype))
    }

    /// The passes over sequences of these lengths, each with its own pages in descending order. A
    /// sequence of a canvas model is a prompt with a canvas as long, which is denoised twice: the second
    /// time with the mean embeddings of the first.
    pub(super) fn passes(self, lengths: &[u32]) -> Vec<Batch> {
        match self {
            Self::Full { .. } => vec![batch(lengths, Sampling::GREEDY, |length| {
                (0..length).map(|i| scored(i, length)).collect()
            })],
            Self::Canvas => [false, true]
                .map(|conditioned| {
                    let canvas = Sampling { scale: SCALE, ..Sampling::GREEDY };
                    batch(lengths, canvas, |length| canvas_rows(length, conditioned))
                })
                .into(),
        }
    }
}

/// The token at a place.
fn token(i: u32) -> u32 {
    (i * 7919 + i * i * 31) % VOCAB
}

/// A row that sees the slots below `end`.
fn row(i: u32, end: u32) -> Row {
    Row::new(token(i), Position::new(i), Slot::new(i), Slot::new(end))
}

fn scored(i: u32, end: u32) -> Row {
    Row { score: Score::Candidate, ..row(i, end) }
}

/// The prompt and the canvas of a sequence, or the canvas alone once its prompt is encoded.
fn canvas_rows(length: u32, conditioned: bool) -> Vec<Row> {
    let start = length / 2;
    let prompt = (0..start).filter(|_| !conditioned).map(|i| row(i, i + 1));
    let canvas = (start..length)
        .map(|i| Row { denoise: Some(Denoise { conditioned }), ..scored(i, length) });
    prompt.chain(canvas).collect()
}

/// A batch of sequences; every second one is sampled, the others as `others` says.
fn batch(lengths: &[u32], others: Sampling, rows: impl Fn(u32) -> Vec<Row>) -> Batch {
    let mut batch = Batch::default();
    let mut page = 0;
    for (number, &length) in lengths.iter().enumerate() {
        let (row, table) = (batch.rows.len() as u32, batch.pages.len() as u32);
        let count = length.div_ceil(PAGE);
        batch.pages.extend((page..page + count).rev().map(PageId));
        page += count;
        batch.rows.extend(rows(length));
        batch.segments.push(Segment {
            rows: row..batch.rows.len() as u32,
            pages: table..table + count,
            sampling: if number % 2 == 0 { others } else { SAMPLED },
        });
    }
    batch
}
