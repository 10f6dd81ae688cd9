//! The configurations of families with experts.

use crate::LoadError;
use crate::config::transformer::{Defaults, blocks, transformer};
use crate::config::{ExpertSpec, Keys, MOST, RouterFunction, RouterSpec, Spec};
use crate::info::ExpertInfo;
use serde_json::{Value, json};

/// `<|mask|>` and `<|endoftext|>` of the Bailing tokenizer.
const MASK: u32 = 156_895;
const END_OF_TEXT: u32 = 156_892;

/// Default block length.
const LLADA2_BLOCK: usize = 32;

/// LLaDA2.0 and 2.1: Bailing-MoE-v2 with block-causal attention. As in the published code, the
/// weights of a row's experts are normalised to 1 and `norm_topk_prob` is ignored.
pub(crate) fn llada2(config: &Keys) -> Result<Spec, LoadError> {
    let defaults = Defaults {
        family: "llada2",
        mask: Some(MASK),
        end: END_OF_TEXT,
        head_width: None,
        norm_eps: 1e-5,
    };
    config.only("score_function", &json!("sigmoid"))?;
    config.only("norm_head", &json!(false))?;
    let mut spec = transformer(config, &defaults)?;
    spec.qkv_bias = config.flag("use_qkv_bias", false)?;
    spec.out_bias = config.flag("use_bias", true)?;
    spec.head_norms = config.flag("use_qk_norm", true)?;
    spec.rotary_width = rotary_width(config, spec.info.heads.head_width, 0.5)?;
    spec.info.rows.attention = blocks(config, &["block_size", "block_length"], LLADA2_BLOCK)?;
    let (count, chosen) = experts(config)?;
    let groups = config.optional_count("n_group")?.unwrap_or(8);
    let best = config.optional_count("topk_group")?.unwrap_or(4);
    if !count.is_multiple_of(groups) || count / groups < 2 {
        let expected = format!("groups of two or more of num_experts {count}");
        return Err(config.refuse("n_group", expected));
    }
    if best > groups || best * (count / groups) < chosen {
        let expected = format!("at most {groups}, with {chosen} experts or more");
        return Err(config.refuse("topk_group", expected));
    }
    let width = config.count("moe_intermediate_size")?;
    let scale = config.optional_number("routed_scaling_factor")?.unwrap_or(2.5);
    let dense = config.whole("first_k_dense_replace")?.unwrap_or(0);
    let layers: Vec<bool> = (0..spec.info.layers).map(|layer| layer >= dense).collect();
    let experts = ExpertSpec {
        count,
        width,
        shared: shared_width(config, width)?,
        layers,
        router: RouterSpec {
            chosen,
            function: RouterFunction::Sigmoid { groups, best, scale: scale as f32 },
            bias: true,
            block: None,
        },
    };
    set_experts(&mut spec, config, "intermediate_size", experts)?;
    Ok(spec)
}

/// LLaDA-MoE: OLMoE with full attention. As in the published code, the weights of a row's experts
/// are their probabilities; `norm_topk_prob` and the router's other keys are ignored.
pub(crate) fn llada_moe(config: &Keys) -> Result<Spec, LoadError> {
    let defaults = Defaults {
        family: "llada-moe",
        mask: Some(MASK),
        end: END_OF_TEXT,
        head_width: None,
        norm_eps: 1e-5,
    };
    config.only("moe_router_score_function", &json!("softmax"))?;
    if config.get("clip_qkv").is_some() {
        return Err(config.refuse("clip_qkv", "nothing"));
    }
    let mut spec = transformer(config, &defaults)?;
    spec.set_attention_bias(config)?;
    spec.head_norms = config.flag("qk_layernorm", false)?;
    spec.rotary_width = rotary_width(config, spec.info.heads.head_width, 1.0)?;
    let (count, chosen) = experts(config)?;
    let width = config.count("expert_intermediate_size")?;
    let layers = frequency(config, spec.info.layers)?;
    let experts = ExpertSpec {
        count,
        width,
        shared: config.optional_count("shared_expert_intermediate_size")?,
        layers,
        router: RouterSpec {
            chosen,
            function: RouterFunction::Softmax { normalised: false },
            bias: config.flag("moe_router_enable_expert_bias", false)?,
            block: None,
        },
    };
    set_experts(&mut spec, config, "dense_intermediate_size", experts)?;
    Ok(spec)
}

/// The experts of Qwen3-MoE: in every layer of a given stride, except in listed ones. `normalised` is the default
/// of `norm_topk_prob`.
pub(super) fn set_qwen3_experts(
    spec: &mut Spec,
    config: &Keys,
    normalised: bool,
) -> Result<(), LoadError> {
    let (count, chosen) = experts(config)?;
    let width = config.count("moe_intermediate_size")?;
    let layers = sparse_layers(config, spec.info.layers)?;
    let normalised = config.flag("norm_topk_prob", normalised)?;
    let experts = ExpertSpec {
        count,
        width,
        shared: None,
        layers,
        router: RouterSpec {
            chosen,
            function: RouterFunction::Softmax { normalised },
            bias: false,
            block: None,
        },
    };
    set_experts(spec, config, "intermediate_size", experts)
}

/// True for each layer with experts, by the keys of Qwen3-MoE.
fn sparse_layers(config: &Keys, layers: usize) -> Result<Vec<bool>, LoadError> {
    let stride = config.optional_count("decoder_sparse_step")?.unwrap_or(1);
    let dense = match config.get("mlp_only_layers") {
        None => &[][..],
        Some(Value::Array(list)) => list,
        Some(_) => return Err(config.refuse("mlp_only_layers", "a list of layers")),
    };
    let is_dense = |layer: usize| dense.iter().any(|dense| dense.as_u64() == Some(layer as u64));
    let has = |layer: usize| (layer + 1).is_multiple_of(stride) && !is_dense(layer);
    Ok((0..layers).map(has).collect())
}

/// The width of all shared experts together, each of `width`; `None` if there is none.
fn shared_width(config: &Keys, width: usize) -> Result<Option<usize>, LoadError> {
    let key = "num_shared_experts";
    match config.whole(key)? {
        None | Some(0) => Ok(None),
        Some(shared) if shared <= MOST / width => Ok(Some(shared * width)),
        Some(_) => Err(config.refuse(key, format!("at most {} of width {width}", MOST / width))),
    }
}

/// Sets the experts of a model. MLPs are as wide as an expert if all layers have experts; otherwise
/// the key `dense` says the width.
fn set_experts(
    spec: &mut Spec,
    config: &Keys,
    dense: &str,
    experts: ExpertSpec,
) -> Result<(), LoadError> {
    let layers = experts.layers.iter().filter(|&&experts| experts).count();
    spec.info.mlp_width = match layers == experts.layers.len() {
        true => experts.width,
        false => config.count(dense)?,
    };
    spec.info.experts = Some(ExpertInfo {
        count: experts.count,
        chosen: experts.router.chosen,
        parameters: (3 * spec.info.width * experts.width).saturating_mul(layers),
        shared_width: None,
    });
    spec.experts = Some(experts);
    Ok(())
}

/// The number of experts of a layer, and the number chosen for a row.
fn experts(config: &Keys) -> Result<(usize, usize), LoadError> {
    // transformers writes `num_local_experts` since version 5.
    let count = match config.optional_count("num_local_experts")? {
        Some(count) if config.get("num_experts").is_none() => count,
        _ => config.count("num_experts")?,
    };
    let chosen = config.count("num_experts_per_tok")?;
    if chosen > count {
        let expected = format!("at most num_experts {count}");
        return Err(config.refuse("num_experts_per_tok", expected));
    }
    Ok((count, chosen))
}

/// The width of a head's rotated part.
fn rotary_width(config: &Keys, head: usize, default: f64) -> Result<usize, LoadError> {
    let factor = config.optional_number("partial_rotary_factor")?;
    let width = (head as f64 * factor.unwrap_or(default)) as usize;
    if width == 0 || width > head || !width.is_multiple_of(2) {
        let expected = format!("an even part of heads of {head}");
        return Err(config.refuse("partial_rotary_factor", expected));
    }
    Ok(width)
}

/// True for each layer with experts; the key holds 1 or 0 for each layer.
fn frequency(config: &Keys, layers: usize) -> Result<Vec<bool>, LoadError> {
    let refuse = || config.refuse("moe_layer_freq", format!("0 or 1 for each of {layers} layers"));
    let list = config.get("moe_layer_freq").and_then(Value::as_array);
    let list = list.filter(|list| list.len() == layers).ok_or_else(refuse)?;
    let experts = |value: &Value| match value.as_u64() {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        _ => Err(refuse()),
    };
    list.iter().map(experts).collect()
}
