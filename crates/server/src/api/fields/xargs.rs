//! `vllm_xargs`: vLLM's fields for canvases of noise.

use engine::decoding::{DecodingSpec, Value};
use schemars::JsonSchema;
use serde::Deserialize;
use step::Attention;

use super::numbers::{Int, TokenNumber};
use super::prompt::token_ids;
use super::types::List;
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::pipeline::written::Piece;

const FIELD: &str = "vllm_xargs";

/// The members that this server follows; their meaning is vLLM's.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "VllmXargs")]
pub struct XargsFields {
    /// The tokens of the first canvas in its first step, as many as the canvas has.
    diffusion_seed_canvas: Option<List<TokenNumber>>,
    /// Positions of the canvas that keep their seed in every step.
    diffusion_pinned: Option<List<Int<0, 65_535>>>,
    /// Largest number of steps of a canvas.
    diffusion_max_steps: Option<Int<1, 1024>>,
    /// Ends with the most probable tokens of the first canvas, read at temperature 1.
    diffusion_read_only: Option<bool>,
    /// Writes and reads the tokens of `logprob_token_ids` alone.
    diffusion_constrained: Option<bool>,
    /// Positions of the canvas; the model's number by default.
    diffusion_canvas_length: Option<Int<1, 1024>>,
}

/// The effects of the field.
#[derive(Clone, Debug, Default)]
pub struct Xargs {
    /// The canvas, if it is seeded.
    pub canvas: Option<Vec<Piece>>,
    /// True if the whole first canvas is the answer.
    pub reads_only: bool,
    /// True if an answer has listed tokens alone.
    pub writes_listed: bool,
}

impl XargsFields {
    /// Returns true if no member asks for anything.
    pub fn is_empty(&self) -> bool {
        let asks = self.diffusion_seed_canvas.is_some()
            || self.diffusion_pinned.is_some()
            || self.diffusion_max_steps.is_some()
            || self.diffusion_canvas_length.is_some();
        let is_set = |flag: Option<bool>| flag == Some(true);
        !asks && !is_set(self.diffusion_read_only) && !is_set(self.diffusion_constrained)
    }

    /// Reads the field, and adds its settings to `spec`.
    ///
    /// # Errors
    /// Weights without canvases of noise; a seed of another length than the canvas; a pinned position
    /// outside of it or without a seed; a canvas longer than the model's.
    pub fn xargs(self, spec: &mut DecodingSpec, backend: &Backend) -> Result<Xargs, ApiError> {
        let limits = backend.engine.limits();
        let Attention::Canvas(length) = limits.attention else {
            let rest = "is for models with canvases of noise (DiffusionGemma)";
            return Err(ApiError::field(ErrorCode::UnsupportedParameter, FIELD, rest));
        };
        let length = match self.diffusion_canvas_length.map(Int::count) {
            Some(shorter) if shorter > length => {
                let rest = format!("must be at most {length}, the model's, got {shorter}");
                let param = format!("{FIELD}.diffusion_canvas_length");
                return Err(ApiError::field(ErrorCode::InvalidValue, param, rest));
            }
            Some(shorter) => {
                set(spec, "block_length", Value::Integer(shorter.into()))?;
                shorter
            }
            None => length,
        };
        let reads_only = self.diffusion_read_only == Some(true);
        if let Some(steps) = self.diffusion_max_steps {
            set(spec, "max_denoising_steps", Value::Integer(steps.get()))?;
        }
        if reads_only {
            for name in ["t_min", "t_max"] {
                set(spec, name, Value::Number(1.0))?;
            }
        }
        let seed = self.diffusion_seed_canvas.map(|List(seed)| seed);
        let pinned = self.diffusion_pinned.map_or(Vec::new(), |List(pinned)| pinned);
        let canvas = canvas(seed, &pinned, (length, limits.vocab_size))?;
        Ok(Xargs { canvas, reads_only, writes_listed: self.diffusion_constrained == Some(true) })
    }
}

fn set(spec: &mut DecodingSpec, name: &str, value: Value<'_>) -> Result<(), ApiError> {
    let done = spec.set(name, value);
    done.map_err(|error| ApiError::field(ErrorCode::InvalidValue, FIELD, error.message))
}

/// The pieces of a seed of `length` tokens of a vocabulary of this size.
fn canvas(
    seed: Option<Vec<TokenNumber>>,
    pinned: &[Int<0, 65_535>],
    (length, vocab_size): (u32, u32),
) -> Result<Option<Vec<Piece>>, ApiError> {
    let invalid = |member: &str, rest: String| {
        Err(ApiError::field(ErrorCode::InvalidValue, format!("{FIELD}.{member}"), rest))
    };
    let Some(seed) = seed else {
        return match pinned {
            [] => Ok(None),
            _ => invalid("diffusion_pinned", "needs diffusion_seed_canvas".to_owned()),
        };
    };
    if seed.len() != length as usize {
        let rest = format!("must have {length} tokens as the canvas does, got {}", seed.len());
        return invalid("diffusion_seed_canvas", rest);
    }
    let seed = token_ids(&seed, vocab_size, &format!("{FIELD}.diffusion_seed_canvas"))?;
    if let Some(index) = pinned.iter().position(|offset| offset.count() >= length) {
        let rest = format!("must be below {length}");
        return invalid(&format!("diffusion_pinned[{index}]"), rest);
    }
    let mut is_pinned = vec![false; seed.len()];
    pinned.iter().for_each(|offset| is_pinned[offset.count() as usize] = true);
    let mut pieces: Vec<Piece> = Vec::new();
    for (token, is_pinned) in seed.into_iter().zip(is_pinned) {
        match (pieces.last_mut(), is_pinned) {
            (Some(Piece::Tokens(run)), true) | (Some(Piece::Seed(run)), false) => run.push(token),
            (_, true) => pieces.push(Piece::Tokens(vec![token])),
            (_, false) => pieces.push(Piece::Seed(vec![token])),
        }
    }
    Ok(Some(pieces))
}
