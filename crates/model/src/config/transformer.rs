//! The keys common to configurations of Hugging Face `transformers`.

use crate::config::rope::rope;
use crate::config::{Keys, MOST_POSITIONS, Spec};
use crate::info::{FormatInfo, HeadSizes, RowInfo, VocabularyInfo};
use crate::{LoadError, ModelInfo};
use kernels::Epilogue;
use serde_json::{Value, json};
use step::{Attention, LogitShift};

/// A family's default values of absent keys.
pub(crate) struct Defaults {
    /// [`ModelInfo::family`].
    pub(crate) family: &'static str,
    /// `None` for autoregressive weights, which know no mask.
    pub(crate) mask: Option<u32>,
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
    let rope = rope(config)?;
    let info = geometry(config, defaults)?;
    let mut spec = Spec {
        norm_eps: config.optional_number("rms_norm_eps")?.unwrap_or(defaults.norm_eps) as f32,
        rope,
        rotary_width: info.heads.head_width,
        qkv_bias: false,
        out_bias: false,
        bias: false,
        head_norms: false,
        head_if_stored: false,
        gate: Epilogue::SiluGate,
        experts: None,
        canvas: None,
        info,
    };
    spec.info.max_positions = spec.reach();
    Ok(spec)
}

pub(super) fn geometry(config: &Keys, defaults: &Defaults) -> Result<ModelInfo, LoadError> {
    let width = config.count("hidden_size")?;
    let heads = config.count("num_attention_heads")?;
    let num_kv_heads = config.optional_count("num_key_value_heads")?.unwrap_or(heads);
    if !heads.is_multiple_of(num_kv_heads) {
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
        heads: HeadSizes { num_heads: heads, num_kv_heads, head_width },
        mlp_width: 0,
        vocabulary: VocabularyInfo {
            size: vocab_size,
            embedding_size: vocab_size,
            mask: match defaults.mask {
                Some(mask) => Some(config.token("mask_token_id", mask, vocab_size)?),
                None => None,
            },
            end: config.tokens("eos_token_id", defaults.end, vocab_size)?,
            tied: config.flag("tie_word_embeddings", false)?,
        },
        max_positions,
        experts: None,
        canvas: None,
        parameters: 0,
        formats: FormatInfo::default(),
        rows: RowInfo {
            attention: Attention::Full,
            logit_shift: LogitShift::None,
            gate: None,
            drafter: None,
        },
    })
}

/// Block-causal attention; the block length is the value of the first present key of `keys`.
pub(crate) fn blocks(config: &Keys, keys: &[&str], default: usize) -> Result<Attention, LoadError> {
    for key in keys {
        if let Some(length) = config.optional_count(key)? {
            return Ok(Attention::Blocks(length as u32));
        }
    }
    Ok(Attention::Blocks(default as u32))
}
