//! The configurations of autoregressive models, from which diffusion models were adapted.

use crate::LoadError;
use crate::config::moe::set_qwen3_experts;
use crate::config::qwen::dense;
use crate::config::transformer::{Defaults, transformer};
use crate::config::{Keys, Spec};
use serde_json::json;
use step::{Attention, LogitShift};

/// `<|endoftext|>` of the Qwen tokenizers.
const QWEN_END: u32 = 151_643;
/// `</s>` of the Llama tokenizers.
const LLAMA_END: u32 = 2;

fn defaults(family: &'static str, end: u32) -> Defaults {
    Defaults { family, mask: None, end, head_width: None, norm_eps: 1e-6 }
}

/// A row sees the rows up to itself, and its logits are those of the next position.
fn autoregressive(mut spec: Spec) -> Spec {
    spec.info.rows.attention = Attention::Causal;
    spec.info.rows.logit_shift = LogitShift::One;
    spec
}

/// Qwen2 and Qwen2.5.
pub(crate) fn qwen2(config: &Keys) -> Result<Spec, LoadError> {
    let mut spec = dense(config, &defaults("qwen2", QWEN_END))?;
    spec.qkv_bias = true;
    Ok(autoregressive(spec))
}

/// Qwen3.
pub(crate) fn qwen3(config: &Keys) -> Result<Spec, LoadError> {
    let mut spec = dense(config, &qwen3_defaults("qwen3"))?;
    spec.set_attention_bias(config)?;
    spec.head_norms = true;
    Ok(autoregressive(spec))
}

fn qwen3_defaults(family: &'static str) -> Defaults {
    Defaults { head_width: Some(128), ..defaults(family, QWEN_END) }
}

/// Llama and what has its form: SmolLM2, Llama 3.1 with its longer rotations.
pub(crate) fn llama(config: &Keys) -> Result<Spec, LoadError> {
    config.only("mlp_bias", &json!(false))?;
    let mut spec = dense(config, &defaults("llama", LLAMA_END))?;
    spec.set_attention_bias(config)?;
    Ok(autoregressive(spec))
}

/// Qwen3-MoE.
pub(crate) fn qwen3_moe(config: &Keys) -> Result<Spec, LoadError> {
    let mut spec = transformer(config, &qwen3_defaults("qwen3-moe"))?;
    spec.set_attention_bias(config)?;
    spec.head_norms = true;
    set_qwen3_experts(&mut spec, config, false)?;
    Ok(autoregressive(spec))
}
