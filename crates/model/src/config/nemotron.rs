//! The configuration of Nemotron-Labs-Diffusion: Ministral 3 that is causal over final tokens and sees
//! the whole of an open block.

use crate::LoadError;
use crate::config::qwen::dense;
use crate::config::transformer::Defaults;
use crate::config::{Keys, Spec};
use kernels::QueryGrowth;
use serde_json::{Value, json};
use step::Attention;

const MASK: u32 = 100;
const END: u32 = 11;
const BLOCK: usize = 32;
/// The object of the rotation, and of the growth of queries.
const ROPE: &str = "rope_parameters";
/// The trainings that the published code knows. All checkpoints are decoded alike.
const PARADIGMS: [&str; 4] = ["bidirectional", "block_diff", "sbd_block_diff", "autoregressive"];

/// Nemotron-Labs-Diffusion.
pub(crate) fn nemotron(config: &Keys) -> Result<Spec, LoadError> {
    config.only("mlp_bias", &json!(false))?;
    config.only("sliding_window", &Value::Null)?;
    let paradigm = config.get("dlm_paradigm").and_then(Value::as_str);
    if config.get("dlm_paradigm").is_some()
        && !paradigm.is_some_and(|paradigm| PARADIGMS.contains(&paradigm))
    {
        return Err(config.refuse("dlm_paradigm", format!("one of {}", PARADIGMS.join(", "))));
    }
    let defaults = Defaults {
        family: "nemotron-labs",
        mask: Some(MASK),
        end: END,
        head_width: Some(128),
        norm_eps: 1e-5,
    };
    let mut spec = dense(config, &defaults)?;
    spec.set_attention_bias(config)?;
    spec.rope.growth = growth(config)?;
    let block = config.optional_count("block_size")?.unwrap_or(BLOCK);
    spec.info.rows.attention = Attention::OpenBlock(block as u32);
    Ok(spec)
}

/// The growth of queries beyond the original context.
fn growth(config: &Keys) -> Result<Option<QueryGrowth>, LoadError> {
    let rope = config.nested(ROPE)?;
    if rope.get("rope_theta").or_else(|| config.get("rope_theta")).is_none() {
        return Err(rope.refuse("rope_theta", "a positive number"));
    }
    let Some(beta) = rope.get("llama_4_scaling_beta") else {
        return Ok(None);
    };
    match beta.as_f64() {
        Some(beta) if (0.0..1e6).contains(&beta) => {
            let original = rope.count("original_max_position_embeddings")?;
            Ok(Some(QueryGrowth { beta, original }))
        }
        _ => Err(rope.refuse("llama_4_scaling_beta", "a number from 0 to 1000000")),
    }
}
