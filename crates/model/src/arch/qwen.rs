//! Dense models with the tensor names of Qwen2 and Qwen3.

use super::Family;
use super::names::{ExpertNames, Names};
use crate::config;

/// Full attention; the prediction of a row is read from the row to its left.
pub(super) const DREAM: Family = Family {
    name: "dream",
    about: "Dream-v0-Base-7B, -Instruct-7B, Dream-Coder, DiffuCoder, d3LLM-Dream",
    architectures: &["DreamModel"],
    model_types: &["Dream"],
    read: config::dream,
    names: &NAMES,
};

/// Causal attention with reordered rows.
pub(super) const WEDLM: Family = Family {
    name: "wedlm",
    about: "WeDLM-7B-Base, -Instruct (Qwen2.5), WeDLM-8B-Base, -Instruct (Qwen3)",
    architectures: &["WeDLMForCausalLM"],
    model_types: &["wedlm"],
    read: config::wedlm,
    names: &NAMES,
};

/// Block-causal attention.
pub(super) const SDAR: Family = Family {
    name: "sdar",
    about: "SDAR-1.7B, -4B, -8B, -30B-A3B and their Chat models, TraDo-4B, -8B, I-DLM-8B",
    architectures: &["SDARForCausalLM", "SDARMoeForCausalLM"],
    model_types: &["sdar", "sdar_moe"],
    read: config::sdar,
    names: &NAMES,
};

/// Full attention.
pub(super) const A2D: Family = Family {
    name: "a2d",
    about: "Tiny-A2D: Qwen3-0.6B-diffusion-mdlm-v0.1, -bd3lm-v0.1",
    architectures: &["A2DQwen3LMHeadModel"],
    model_types: &["a2d-qwen3"],
    read: config::a2d,
    names: &NAMES,
};

/// Full attention; the prediction of a row is read from the row to its left.
pub(super) const CODA: Family = Family {
    name: "coda",
    about: "CoDA-v0-Base, -Instruct",
    architectures: &["CoDALanguageModel"],
    model_types: &["CoDA"],
    read: config::coda,
    names: &NAMES,
};

/// Experts, full attention; the prediction of a row is read from the row to its left.
pub(super) const RND1: Family = Family {
    name: "rnd1",
    about: "RND1-Base-0910",
    architectures: &["RND1LM"],
    model_types: &["rnd1"],
    read: config::rnd1,
    names: &NAMES,
};

/// Llama with block-causal attention. Its published configuration has the type `llama`.
pub(super) const STABLE_DIFFCODER: Family = Family {
    name: "stable-diffcoder",
    about: "Stable-DiffCoder-8B-Base, -Instruct",
    architectures: &["StableDiffcoderForCausalLM"],
    model_types: &["stable_diffcoder"],
    read: config::stable_diffcoder,
    names: &NAMES,
};

/// Block-causal attention; the prediction of a row is read from the row to its left.
pub(super) const FAST_DLLM_V2: Family = Family {
    name: "fast-dllm-v2",
    about: "Fast_dLLM_v2_1.5B, Fast_dLLM_v2_7B",
    architectures: &["Fast_dLLM_QwenForCausalLM"],
    model_types: &["Fast_dLLM_Qwen"],
    read: config::fast_dllm,
    names: &NAMES,
};

/// The tensor names of Qwen2 and Qwen3.
pub(super) const NAMES: Names = Names {
    embedding: "model.embed_tokens",
    layers: "model.layers",
    attention_norm: "input_layernorm",
    qkv: &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    head_norms: ["self_attn.q_norm", "self_attn.k_norm"],
    attention_out: "self_attn.o_proj",
    mlp_norm: "post_attention_layernorm",
    mlp: "mlp",
    gated: ["gate_proj", "up_proj", "down_proj"],
    experts: ExpertNames {
        router: "mlp.gate",
        bias: "mlp.expert_bias",
        experts: "mlp.experts",
        shared: "shared_expert",
    },
    norm: "model.norm",
    head: "lm_head",
};
