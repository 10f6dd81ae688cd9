//! The configurations of autoregressive models, from which diffusion models were adapted.

use crate::LoadError;
use crate::config::moe::{experts, info, mlp_width};
use crate::config::qwen::dense;
use crate::config::transformer::{Defaults, transformer};
use crate::config::{ExpertSpec, Keys, RouterScore, RouterSpec, Spec};
use serde_json::{Value, json};
use step::{Attention, Readout};

/// `<|endoftext|>` of the Qwen tokenizers.
const QWEN_END: u32 = 151_643;
/// `</s>` of the Llama tokenizers.
const LLAMA_END: u32 = 2;

fn defaults(family: &'static str, end: u32) -> Defaults {
    Defaults {
        family,
        mask: None,
        end,
        head_width: None,
        norm_eps: 1e-6,
    }
}

/// A row sees the rows up to itself, and its logits are those of the next position.
fn autoregressive(mut spec: Spec) -> Spec {
    spec.info.attention = Attention::Causal;
    spec.info.readout = Readout::Previous;
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
    Defaults {
        head_width: Some(128),
        ..defaults(family, QWEN_END)
    }
}

/// Llama and what has its form: SmolLM2, Llama 3.1 with its longer rotations.
pub(crate) fn llama(config: &Keys) -> Result<Spec, LoadError> {
    config.only("mlp_bias", &json!(false))?;
    let mut spec = dense(config, &defaults("llama", LLAMA_END))?;
    spec.set_attention_bias(config)?;
    Ok(autoregressive(spec))
}

/// Qwen3-MoE: experts in every layer of a given stride, except in listed ones.
pub(crate) fn qwen3_moe(config: &Keys) -> Result<Spec, LoadError> {
    let mut spec = transformer(config, &qwen3_defaults("qwen3-moe"))?;
    spec.set_attention_bias(config)?;
    spec.head_norms = true;
    let (count, chosen) = experts(config)?;
    let width = config.count("moe_intermediate_size")?;
    let layers = expert_layers(config, spec.info.layers)?;
    spec.info.experts = Some(info(&spec.info, (count, chosen), (&layers, width)));
    spec.info.mlp_width = mlp_width(config, "intermediate_size", (&layers, width))?;
    spec.experts = Some(ExpertSpec {
        count,
        width,
        shared: None,
        layers,
        router: RouterSpec {
            chosen,
            score: RouterScore::Softmax {
                normalised: config.flag("norm_topk_prob", false)?,
            },
            bias: false,
            block: None,
        },
    });
    Ok(autoregressive(spec))
}

/// Which layers have experts.
fn expert_layers(config: &Keys, layers: usize) -> Result<Vec<bool>, LoadError> {
    let stride = config.optional_count("decoder_sparse_step")?.unwrap_or(1);
    let dense = match config.get("mlp_only_layers") {
        None => &[][..],
        Some(Value::Array(list)) => list,
        Some(_) => return Err(config.refuse("mlp_only_layers", "a list of layers")),
    };
    let is_dense = |layer: usize| dense.iter().any(|of| of.as_u64() == Some(layer as u64));
    let has = |layer: usize| (layer + 1).is_multiple_of(stride) && !is_dense(layer);
    Ok((0..layers).map(has).collect())
}
