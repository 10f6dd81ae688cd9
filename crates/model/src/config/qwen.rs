//! The configurations of dense families based on Qwen2 and Qwen3.

use crate::LoadError;
use crate::config::moe::set_qwen3_experts;
use crate::config::transformer::{Defaults, blocks, transformer};
use crate::config::{Keys, Spec};
use serde_json::json;
use step::{Attention, LogitShift};

/// `<|endoftext|>` and `<|im_end|>` of the Qwen tokenizers.
const END_OF_TEXT: u32 = 151_643;
const END_OF_TURN: u32 = 151_645;

/// Mask and end of Stable-DiffCoder.
const DIFFCODER_MASK: u32 = 5;
const DIFFCODER_END: u32 = 2;

/// Default block lengths.
const SDAR_BLOCK: usize = 4;
const DIFFCODER_BLOCK: usize = 4;
const FAST_DLLM_BLOCK: usize = 32;

/// Defaults that all these families share.
fn defaults(family: &'static str, mask: u32, end: u32) -> Defaults {
    Defaults { family, mask: Some(mask), end, head_width: None, norm_eps: 1e-6 }
}

/// A transformer with a dense MLP in every layer.
pub(super) fn dense(config: &Keys, defaults: &Defaults) -> Result<Spec, LoadError> {
    let mut spec = transformer(config, defaults)?;
    spec.info.mlp_width = config.count("intermediate_size")?;
    Ok(spec)
}

/// Dream: Qwen2.5 with full attention.
pub(crate) fn dream(config: &Keys) -> Result<Spec, LoadError> {
    let defaults = defaults("dream", 151_666, END_OF_TEXT);
    let mut spec = dense(config, &defaults)?;
    spec.qkv_bias = true;
    spec.info.rows.logit_shift = LogitShift::One;
    Ok(spec)
}

/// WeDLM: Qwen2.5 (biases) or Qwen3 (head norms) with causal attention.
pub(crate) fn wedlm(config: &Keys) -> Result<Spec, LoadError> {
    let defaults = defaults("wedlm", 151_665, END_OF_TEXT);
    let mut spec = dense(config, &defaults)?;
    spec.qkv_bias = config.flag("attention_bias", true)?;
    spec.head_norms = config.flag("qk_norm", false)?;
    spec.info.rows.attention = Attention::Causal;
    Ok(spec)
}

/// SDAR: Qwen3 or Qwen3-MoE with block-causal attention. The block length is `block_size` if present.
pub(crate) fn sdar(config: &Keys) -> Result<Spec, LoadError> {
    let defaults = Defaults { head_width: Some(128), ..defaults("sdar", 151_669, END_OF_TEXT) };
    let mut spec = transformer(config, &defaults)?;
    match config.get("num_experts_per_tok") {
        Some(_) => set_qwen3_experts(&mut spec, config, false)?,
        None => spec.info.mlp_width = config.count("intermediate_size")?,
    }
    spec.set_attention_bias(config)?;
    spec.head_norms = true;
    spec.info.rows.attention = blocks(config, &["block_size", "block_length"], SDAR_BLOCK)?;
    // I-DLM, where the configuration says it.
    if config.flag("use_regular_causal", false)? {
        spec.info.rows.attention = Attention::Causal;
        spec.info.rows.logit_shift = LogitShift::One;
    }
    Ok(spec)
}

/// CoDA: Qwen3 with full attention. Its class has a head of its own, and its configuration does not say so.
pub(crate) fn coda(config: &Keys) -> Result<Spec, LoadError> {
    let defaults = Defaults { head_width: Some(128), ..defaults("coda", 151_669, END_OF_TURN) };
    let mut spec = dense(config, &defaults)?;
    spec.set_attention_bias(config)?;
    spec.head_norms = true;
    spec.head_if_stored = true;
    spec.info.rows.logit_shift = LogitShift::One;
    Ok(spec)
}

/// RND1: Qwen3-MoE with full attention.
pub(crate) fn rnd1(config: &Keys) -> Result<Spec, LoadError> {
    let defaults = Defaults { head_width: Some(128), ..defaults("rnd1", 151_669, END_OF_TURN) };
    let mut spec = transformer(config, &defaults)?;
    set_qwen3_experts(&mut spec, config, true)?;
    spec.set_attention_bias(config)?;
    spec.head_norms = true;
    spec.info.rows.logit_shift = LogitShift::One;
    Ok(spec)
}

/// Tiny-A2D: Qwen3 with full attention.
pub(crate) fn a2d(config: &Keys) -> Result<Spec, LoadError> {
    let defaults = defaults("a2d", 151_669, END_OF_TURN);
    let mut spec = dense(config, &defaults)?;
    spec.set_attention_bias(config)?;
    spec.head_norms = true;
    Ok(spec)
}

/// Stable-DiffCoder: Llama with block-causal attention.
pub(crate) fn stable_diffcoder(config: &Keys) -> Result<Spec, LoadError> {
    config.only("mlp_bias", &json!(false))?;
    let defaults = defaults("stable-diffcoder", DIFFCODER_MASK, DIFFCODER_END);
    let mut spec = dense(config, &defaults)?;
    spec.set_attention_bias(config)?;
    spec.info.rows.attention = blocks(config, &["block_size", "block_length"], DIFFCODER_BLOCK)?;
    Ok(spec)
}

/// Fast-dLLM v2: Qwen2.5 with block-causal attention.
pub(crate) fn fast_dllm(config: &Keys) -> Result<Spec, LoadError> {
    let defaults = defaults("fast-dllm-v2", 151_665, END_OF_TURN);
    let mut spec = dense(config, &defaults)?;
    spec.qkv_bias = true;
    spec.info.rows.attention = blocks(config, &["bd_size"], FAST_DLLM_BLOCK)?;
    spec.info.rows.logit_shift = LogitShift::One;
    Ok(spec)
}
