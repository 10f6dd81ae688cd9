//! The keys common to configurations of Hugging Face `transformers`.

use crate::config::{Keys, MOST_POSITIONS, Spec};
use crate::{LoadError, ModelInfo};
use serde_json::{Value, json};
use step::{Attention, Readout};

/// A family's default values of absent keys.
pub(crate) struct Defaults {
    /// [`ModelInfo::family`].
    pub(crate) family: &'static str,
    pub(crate) mask: u32,
    pub(crate) end: u32,
    /// `head_dim`; `None`: the model width divided by the number of heads.
    pub(crate) head_width: Option<usize>,
    pub(crate) norm_eps: f64,
}

/// A specification without biases and head norms, with full attention and each prediction read at
/// its own row. The family changes it and sets the MLP width.
pub(crate) fn transformer(config: &Keys, defaults: &Defaults) -> Result<Spec, LoadError> {
    config.only("hidden_act", &json!("silu"))?;
    config.only("use_sliding_window", &json!(false))?;
    let full = |kind: &Value| kind.as_str() == Some("full_attention");
    if let Some(kinds) = config.get("layer_types")
        && !kinds.as_array().is_some_and(|kinds| kinds.iter().all(full))
    {
        return Err(config.refuse("layer_types", "\"full_attention\" in every layer"));
    }
    let rope_theta = rope_theta(config)?;
    let info = geometry(config, defaults)?;
    Ok(Spec {
        norm_eps: config
            .optional_number("rms_norm_eps")?
            .unwrap_or(defaults.norm_eps) as f32,
        rope_theta,
        rotary_width: info.head_width,
        qkv_bias: false,
        out_bias: false,
        bias: false,
        head_norms: false,
        experts: None,
        info,
    })
}

/// The base of the rotary angles; newer configurations store it in `rope_parameters`.
fn rope_theta(config: &Keys) -> Result<f64, LoadError> {
    let mut theta = config.optional_number("rope_theta")?;
    for key in ["rope_scaling", "rope_parameters"] {
        let Some(value) = config.get(key) else {
            continue;
        };
        let kind = value.get("rope_type").or_else(|| value.get("type"));
        if !value.is_object() || kind.is_some_and(|kind| kind != "default") {
            return Err(config.refuse(key, "nothing or the type \"default\""));
        }
        theta = theta.or_else(|| value.get("rope_theta").and_then(Value::as_f64));
    }
    match theta {
        None => Ok(10_000.0),
        Some(theta) if theta > 0.0 => Ok(theta),
        Some(_) => Err(config.refuse("rope_parameters", "a positive rope_theta")),
    }
}

fn geometry(config: &Keys, defaults: &Defaults) -> Result<ModelInfo, LoadError> {
    let width = config.count("hidden_size")?;
    let heads = config.count("num_attention_heads")?;
    let groups = config
        .optional_count("num_key_value_heads")?
        .unwrap_or(heads);
    if !heads.is_multiple_of(groups) {
        let expected = format!("a divisor of num_attention_heads {heads}");
        return Err(config.refuse("num_key_value_heads", expected));
    }
    let head_width = match config.optional_count("head_dim")?.or(defaults.head_width) {
        Some(head) if head.is_multiple_of(2) => head,
        Some(_) => return Err(config.refuse("head_dim", "an even number")),
        None if width.is_multiple_of(heads) && (width / heads).is_multiple_of(2) => width / heads,
        None => {
            let expected = format!("a divisor of hidden_size {width}, even heads");
            return Err(config.refuse("num_attention_heads", expected));
        }
    };
    let max_positions = config.count("max_position_embeddings")?;
    if max_positions > MOST_POSITIONS {
        let expected = format!("at most {MOST_POSITIONS}");
        return Err(config.refuse("max_position_embeddings", expected));
    }
    let vocab_size = config.count("vocab_size")?;
    if vocab_size < 3 {
        return Err(config.refuse("vocab_size", "at least 3"));
    }
    Ok(ModelInfo {
        family: defaults.family,
        layers: config.count("num_hidden_layers")?,
        width,
        heads,
        groups,
        head_width,
        mlp_width: 0,
        vocab_size,
        embedding_size: vocab_size,
        max_positions,
        mask: config.token("mask_token_id", defaults.mask, vocab_size)?,
        end: config.tokens("eos_token_id", defaults.end, vocab_size)?,
        experts: None,
        tied: config.flag("tie_word_embeddings", false)?,
        parameters: 0,
        dtype: kernels::WeightDtype::F32,
        attention: Attention::Full,
        readout: Readout::Own,
    })
}
