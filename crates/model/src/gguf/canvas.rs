//! DiffusionGemma in a GGUF file: its configuration, and its tensors by the names of the published
//! checkpoints.

use super::facts::Facts;
use crate::LoadError;
use serde_json::{Map, Value, json};

/// The architecture's name.
pub(super) const NAME: &str = "diffusion-gemma";

/// Prefixes of a layer's tensors in published checkpoints.
const LAYERS: &str = "model.decoder.layers.";
const ENCODER_LAYERS: &str = "model.encoder.language_model.layers.";
/// The divisors of the rotary frequencies in layers with full attention.
const DIVISORS: &str = "rope_freqs.weight";
/// The divisor of a frequency that does not turn is at least this number.
const STILL: f32 = 1e20;

/// Published names of tensors outside of layers, and the names in files.
const OUTSIDE: [(&str, &str); 6] = [
    ("model.decoder.embed_tokens.weight", "token_embd.weight"),
    ("model.decoder.norm.weight", "output_norm.weight"),
    ("model.decoder.self_conditioning.pre_norm.weight", "self_cond_pre_norm.weight"),
    ("model.decoder.self_conditioning.gate_proj.weight", "self_cond_gate.weight"),
    ("model.decoder.self_conditioning.up_proj.weight", "self_cond_up.weight"),
    ("model.decoder.self_conditioning.down_proj.weight", "self_cond_down.weight"),
];
/// The same in a layer.
const INSIDE: [(&str, &str); 19] = [
    ("input_layernorm.weight", "attn_norm.weight"),
    ("self_attn.q_proj.weight", "attn_q.weight"),
    ("self_attn.k_proj.weight", "attn_k.weight"),
    ("self_attn.v_proj.weight", "attn_v.weight"),
    ("self_attn.o_proj.weight", "attn_output.weight"),
    ("self_attn.q_norm.weight", "attn_q_norm.weight"),
    ("self_attn.k_norm.weight", "attn_k_norm.weight"),
    ("post_attention_layernorm.weight", "post_attention_norm.weight"),
    ("pre_feedforward_layernorm.weight", "ffn_norm.weight"),
    ("mlp.gate_proj.weight", "ffn_gate.weight"),
    ("mlp.up_proj.weight", "ffn_up.weight"),
    ("mlp.down_proj.weight", "ffn_down.weight"),
    ("post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight"),
    ("pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight"),
    ("post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight"),
    ("post_feedforward_layernorm.weight", "post_ffw_norm.weight"),
    ("router.proj.weight", "ffn_gate_inp.weight"),
    ("router.scale", "ffn_gate_inp.scale"),
    ("router.per_expert_scale", "ffn_down_exps.scale"),
];

/// The name in a file of a tensor with this published name; `None` for other names.
pub(super) fn stored_name(name: &str) -> Option<String> {
    let find = |table: &[(&str, &'static str)], name: &str| {
        table.iter().find(|(published, _)| *published == name).map(|(_, stored)| *stored)
    };
    if let Some(rest) = name.strip_prefix(ENCODER_LAYERS) {
        let (layer, inside) = rest.split_once('.')?;
        let is_scalar = inside == "layer_scalar";
        return is_scalar.then(|| format!("blk.{layer}.enc_layer_output_scale.weight"));
    }
    let Some(rest) = name.strip_prefix(LAYERS) else {
        return find(&OUTSIDE, name).map(str::to_owned);
    };
    let (layer, inside) = rest.split_once('.')?;
    match inside {
        "layer_scalar" => Some(format!("blk.{layer}.layer_output_scale.weight")),
        inside => Some(format!("blk.{layer}.{}", find(&INSIDE, inside)?)),
    }
}

/// Moves the keys to `text_config`, and adds those of layers of two kinds.
pub(super) fn complete(facts: &Facts<'_>, map: &mut Map<String, Value>) -> Result<(), LoadError> {
    let key = |key: &str| format!("{NAME}.{key}");
    let layers = facts.layers(&key("block_count"), map)?;
    let pattern = key("attention.sliding_window_pattern");
    let list = facts.list(&pattern, layers).filter(|list| list.len() == layers);
    let sliding = list.and_then(|list| list.iter().map(Value::as_bool).collect::<Option<Vec<_>>>());
    let expected = || format!("true or false for each of {layers} layers");
    let sliding = sliding.ok_or_else(|| facts.refuse(&pattern, expected()))?;
    let groups = key("attention.head_count_kv");
    let heads = facts.list(&groups, layers).filter(|list| list.len() == layers);
    let heads = heads
        .ok_or_else(|| facts.refuse(&groups, format!("a number for each of {layers} layers")))?;
    for (config_key, windowed) in
        [("num_key_value_heads", true), ("num_global_key_value_heads", false)]
    {
        let mut counts = heads.iter().zip(&sliding).filter(|(_, own)| **own == windowed);
        let first = counts.next().map(|(heads, _)| heads);
        if counts.any(|(heads, _)| Some(heads) != first) {
            return Err(facts.refuse(&groups, "the same number in all layers of a kind"));
        }
        map.extend(first.map(|first| (config_key.to_owned(), first.clone())));
    }
    let kind = |sliding: &bool| match sliding {
        true => "sliding_attention",
        false => "full_attention",
    };
    let kinds: Vec<&str> = sliding.iter().map(kind).collect();
    map.insert("layer_types".to_owned(), json!(kinds));
    let mut rotations = json!({"full_attention": {"rope_type": "proportional"}});
    rotations["full_attention"]["partial_rotary_factor"] = json!(turning(facts)?);
    for (field, kind) in [("freq_base", "full_attention"), ("freq_base_swa", "sliding_attention")] {
        if let Some(theta) = facts.field(&key(&format!("rope.{field}"))) {
            rotations[kind]["rope_theta"] = theta;
        }
    }
    map.insert("rope_parameters".to_owned(), rotations);
    map.remove("attention_bias");
    let text = std::mem::take(map);
    let canvas = facts.field("diffusion.canvas_length");
    let canvas = canvas.or_else(|| facts.field(&key("diffusion.canvas_length")));
    map.extend(canvas.map(|length| ("canvas_length".to_owned(), length)));
    map.insert("text_config".to_owned(), Value::Object(text));
    Ok(())
}

/// The share of a head's elements that turns in layers with full attention. The file has a divisor for
/// each frequency: 1, or so much that it does not turn.
fn turning(facts: &Facts<'_>) -> Result<f64, LoadError> {
    let refuse = |found: String| LoadError::Key {
        file: facts.file.to_owned(),
        key: DIVISORS.to_owned(),
        expected: format!("f32 numbers 1, then numbers from {STILL} on"),
        found,
    };
    let Some(info) = facts.volumes.info(DIVISORS) else {
        return Ok(1.0);
    };
    if info.kind.name != "F32" {
        return Err(refuse(info.kind.name.to_owned()));
    }
    let count = info.count();
    let bytes = facts.volumes.data(DIVISORS, DIVISORS, 0, 4 * count)?;
    let words = bytes.as_chunks::<4>().0.iter();
    let divisors: Vec<f32> = words.map(|word| f32::from_le_bytes(*word)).collect();
    let turning = divisors.iter().take_while(|divisor| **divisor == 1.0).count();
    match divisors[turning..].iter().find(|divisor| divisor.is_nan() || **divisor < STILL) {
        Some(other) => Err(refuse(other.to_string())),
        None => Ok(turning as f64 / count.max(1) as f64),
    }
}
