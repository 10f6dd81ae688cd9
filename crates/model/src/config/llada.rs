//! The configuration of the LLaDA family, with the keys of OLMo.

use crate::config::{Keys, MOST_POSITIONS, RopeSpec, Spec};
use crate::info::{FormatInfo, HeadSizes, RowInfo, VocabularyInfo};
use crate::{LoadError, ModelInfo};
use kernels::Epilogue;
use serde_json::json;
use step::{Attention, LogitShift};

/// Token ids of the published checkpoints, used if the configuration has none.
const MASK: u32 = 126_336;
const END_OF_TEXT: u32 = 126_081;

/// Reads and checks the configuration.
pub(crate) fn llada(config: &Keys) -> Result<Spec, LoadError> {
    check(config)?;
    let bias = config.flag("include_bias", false)?;
    if bias && config.get("bias_for_layer_norm").is_none() {
        return Err(config.refuse("bias_for_layer_norm", "false beside include_bias"));
    }
    let info = geometry(config)?;
    Ok(Spec {
        norm_eps: config.optional_number("rms_norm_eps")?.unwrap_or(1e-5) as f32,
        rope: RopeSpec::plain(config.optional_number("rope_theta")?.unwrap_or(10_000.0)),
        rotary_width: info.heads.head_width,
        qkv_bias: bias || config.flag("include_qkv_bias", false)?,
        out_bias: bias,
        bias,
        head_norms: false,
        head_if_stored: false,
        gate: Epilogue::SiluGate,
        experts: None,
        canvas: None,
        info,
    })
}

/// Refuses OLMo settings that no LLaDA checkpoint uses.
fn check(config: &Keys) -> Result<(), LoadError> {
    for (key, supported) in [
        ("block_type", json!("llama")),
        ("layer_norm_type", json!("rms")),
        ("activation_type", json!("silu")),
        ("rope", json!(true)),
        ("layer_norm_with_affine", json!(true)),
        ("attention_layer_norm", json!(false)),
        ("bias_for_layer_norm", json!(false)),
        ("input_emb_norm", json!(false)),
        ("scale_logits", json!(false)),
        ("alibi", json!(false)),
        ("block_group_size", json!(1)),
    ] {
        config.only(key, &supported)?;
    }
    if let Some(key) = ["clip_qkv", "rope_scaling"].into_iter().find(|k| config.get(k).is_some()) {
        return Err(config.refuse(key, "nothing"));
    }
    Ok(())
}

fn geometry(config: &Keys) -> Result<ModelInfo, LoadError> {
    let (width, heads) = (config.count("d_model")?, config.count("n_heads")?);
    if !width.is_multiple_of(heads) || !(width / heads).is_multiple_of(2) {
        return Err(config.refuse("n_heads", format!("a divisor of d_model {width}, even heads")));
    }
    let shared = if config.flag("multi_query_attention", false)? { 1 } else { heads };
    let num_kv_heads = config.optional_count("n_kv_heads")?.unwrap_or(shared);
    if !heads.is_multiple_of(num_kv_heads) {
        return Err(config.refuse("n_kv_heads", format!("a divisor of n_heads {heads}")));
    }
    let mlp_width = match config.optional_count("mlp_hidden_size")? {
        Some(width) => width,
        None => config.count("mlp_ratio")? * width,
    };
    let max_positions = config.count("max_sequence_length")?;
    if max_positions > MOST_POSITIONS {
        return Err(config.refuse("max_sequence_length", format!("at most {MOST_POSITIONS}")));
    }
    let vocab_size = config.count("vocab_size")?;
    let embedding_size = config.optional_count("embedding_size")?.unwrap_or(vocab_size);
    if embedding_size < vocab_size || vocab_size < 3 {
        let expected = format!("3 to embedding_size {embedding_size}");
        return Err(config.refuse("vocab_size", expected));
    }
    Ok(ModelInfo {
        family: "llada",
        layers: config.count("n_layers")?,
        width,
        heads: HeadSizes { num_heads: heads, num_kv_heads, head_width: width / heads },
        mlp_width,
        vocabulary: VocabularyInfo {
            size: vocab_size,
            embedding_size,
            mask: Some(config.token("mask_token_id", MASK, embedding_size)?),
            end: config.tokens("eos_token_id", END_OF_TEXT, embedding_size)?,
            tied: config.flag("weight_tying", false)?,
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
