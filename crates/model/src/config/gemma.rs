//! The configuration of DiffusionGemma.

use crate::LoadError;
use crate::config::transformer::{Defaults, geometry};
use crate::config::{CanvasSpec, ExpertSpec, Keys, RopeSpec, RouterFunction, RouterSpec, Spec};
use crate::info::{CanvasInfo, ExpertInfo, HeadSizes};
use kernels::Epilogue;
use serde_json::{Value, json};
use step::Attention;

/// `<eos>` of the Gemma tokenizer.
const END: u32 = 1;
/// Positions of a canvas.
const CANVAS: usize = 256;
/// One layer of this number has full attention.
const PATTERN: usize = 6;
/// Head width of layers with full attention.
const FULL_HEAD: usize = 512;
const LONGEST_CANVAS: usize = 1024;

/// DiffusionGemma: the text model in `text_config`, with a causal encoder and a canvas decoder that
/// share their matrices.
pub(crate) fn diffusion_gemma(config: &Keys) -> Result<Spec, LoadError> {
    let text = config.nested("text_config")?;
    text.only("hidden_activation", &json!("gelu_pytorch_tanh"))?;
    text.only("attention_bias", &json!(false))?;
    text.only("tie_word_embeddings", &json!(true))?;
    config.only("tie_word_embeddings", &json!(true))?;
    if text.get("use_bidirectional_attention") == Some(&json!("all")) {
        return Err(text.refuse("use_bidirectional_attention", "null or \"vision\""));
    }
    let defaults = Defaults {
        family: "diffusion-gemma",
        mask: None,
        end: END,
        head_width: Some(256),
        norm_eps: 1e-6,
    };
    let mut info = geometry(&text, &defaults)?;
    let full = full_layers(&text, info.layers)?;
    let full_heads = full_heads(&text, info.heads, &full)?;
    let length = config.optional_count("canvas_length")?.unwrap_or(CANVAS);
    if length > LONGEST_CANVAS {
        let expected = format!("at most {LONGEST_CANVAS}");
        return Err(config.refuse("canvas_length", expected));
    }
    info.vocabulary.tied = true;
    info.rows.attention = Attention::Canvas(length as u32);
    info.mlp_width = text.count("intermediate_size")?;
    info.canvas = Some(CanvasInfo {
        window: text.optional_count("sliding_window")?.unwrap_or(512),
        full_layers: full.iter().filter(|full| **full).count(),
        full_heads,
    });
    let experts = experts(&text, info.layers)?;
    info.experts = Some(ExpertInfo {
        count: experts.count,
        chosen: experts.router.chosen,
        parameters: (3 * info.width * experts.width).saturating_mul(info.layers),
        shared_width: None,
    });
    let norm_eps = text.optional_number("rms_norm_eps")?;
    Ok(Spec {
        norm_eps: norm_eps.unwrap_or(defaults.norm_eps) as f32,
        rope: rope(&text, "sliding_attention", "default", 1e4)?,
        rotary_width: info.heads.head_width,
        qkv_bias: false,
        out_bias: false,
        bias: false,
        head_norms: true,
        head_if_stored: false,
        gate: Epilogue::GeluGate,
        experts: Some(experts),
        canvas: Some(CanvasSpec {
            rope: rope(&text, "full_attention", "proportional", 1e6)?,
            turning: turning(&text, full_heads.head_width)?,
            cap: match text.get("final_logit_softcapping") {
                None => Some(30.0),
                Some(_) => text.optional_number("final_logit_softcapping")?.map(|cap| cap as f32),
            },
            full,
        }),
        info,
    })
}

/// True for each layer with full attention.
fn full_layers(text: &Keys, layers: usize) -> Result<Vec<bool>, LoadError> {
    let key = "layer_types";
    let mut full: Vec<bool> = match text.get(key) {
        None => (1..=layers).map(|n| n.is_multiple_of(PATTERN)).collect(),
        Some(Value::Array(kinds)) if kinds.len() == layers => {
            let full = |kind: &Value| match kind.as_str() {
                Some("full_attention") => Ok(true),
                Some("sliding_attention") => Ok(false),
                _ => Err(text.refuse(key, "\"sliding_attention\" or \"full_attention\"")),
            };
            kinds.iter().map(full).collect::<Result<_, _>>()?
        }
        Some(_) => return Err(text.refuse(key, format!("a kind for each of {layers} layers"))),
    };
    // As the published code does.
    if let Some(last) = full.last_mut() {
        *last = true;
    }
    Ok(full)
}

/// Key/value heads and head width of layers with full attention, which are the same in all of them.
fn full_heads(text: &Keys, heads: HeadSizes, full: &[bool]) -> Result<HeadSizes, LoadError> {
    let of_layers = text.get("per_layer_config");
    let mut sizes = None;
    for layer in (0..full.len()).filter(|layer| full[*layer]) {
        let own = of_layers.and_then(|all| all.get(layer.to_string()));
        let number = |key: &str| own.and_then(|own| own.get(key)).and_then(Value::as_u64);
        let number = |key| number(key).and_then(|n| usize::try_from(n).ok());
        let heads = (number("num_key_value_heads"), number("head_dim"));
        if *sizes.get_or_insert(heads) != heads {
            return Err(text.refuse("per_layer_config", "the same heads in all full layers"));
        }
    }
    let (own_kv_heads, own_head) = sizes.unwrap_or((None, None));
    let all = text.optional_count("num_global_key_value_heads")?;
    let num_kv_heads = own_kv_heads.or(all).unwrap_or(heads.num_kv_heads);
    let head = text.optional_count("global_head_dim")?;
    let head = own_head.or(head).unwrap_or(FULL_HEAD);
    let num_heads = heads.num_heads;
    if num_kv_heads == 0 || !num_heads.is_multiple_of(num_kv_heads) {
        let expected = format!("a divisor of num_attention_heads {num_heads}");
        return Err(text.refuse("num_global_key_value_heads", expected));
    }
    if head == 0 || !head.is_multiple_of(2) || head > 4096 {
        return Err(text.refuse("global_head_dim", "an even number of at most 4096"));
    }
    Ok(HeadSizes { num_heads, num_kv_heads, head_width: head })
}

/// The rotation of a kind of layers.
fn rope(text: &Keys, kind: &str, expected: &str, theta: f64) -> Result<RopeSpec, LoadError> {
    let key = "rope_parameters";
    let rope = text.get(key).and_then(|all| all.get(kind));
    let stated = rope.and_then(|rope| rope.get("rope_type")).map(Value::as_str);
    if stated.is_some_and(|stated| stated != Some(expected)) {
        return Err(text.refuse(key, format!("the type \"{expected}\" for {kind}")));
    }
    match rope.and_then(|rope| rope.get("rope_theta")).map(Value::as_f64) {
        None => Ok(RopeSpec::plain(theta)),
        Some(Some(theta)) if theta > 0.0 && theta.is_finite() => Ok(RopeSpec::plain(theta)),
        Some(_) => Err(text.refuse(key, format!("a positive rope_theta for {kind}"))),
    }
}

/// Number of frequencies that turn in layers with full attention.
fn turning(text: &Keys, head: usize) -> Result<usize, LoadError> {
    let key = "rope_parameters";
    let rope = text.get(key).and_then(|all| all.get("full_attention"));
    let factor = rope.and_then(|rope| rope.get("partial_rotary_factor"));
    let factor = factor.map_or(Some(0.25), Value::as_f64);
    match factor {
        Some(factor) if (0.0..=1.0).contains(&factor) => {
            Ok(((factor * head as f64) / 2.0).floor() as usize)
        }
        _ => Err(text.refuse(key, "a partial_rotary_factor of 0 to 1")),
    }
}

/// The experts beside the dense MLP of every layer.
fn experts(text: &Keys, layers: usize) -> Result<ExpertSpec, LoadError> {
    let count = text.count("num_experts")?;
    let chosen = text.count("top_k_experts")?;
    if chosen > count {
        let expected = format!("at most num_experts {count}");
        return Err(text.refuse("top_k_experts", expected));
    }
    Ok(ExpertSpec {
        count,
        width: text.count("moe_intermediate_size")?,
        shared: None,
        layers: vec![true; layers],
        router: RouterSpec {
            chosen,
            function: RouterFunction::Softmax { normalised: true },
            bias: false,
            block: None,
        },
    })
}
