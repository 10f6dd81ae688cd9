//! Families with experts.

use super::Family;
use super::names::{ExpertNames, Names};
use super::qwen;
use crate::config;

/// Block-causal attention, grouped experts.
pub(super) const LLADA2: Family = Family {
    name: "llada2",
    about: "LLaDA2.0-mini, -flash, LLaDA2.1-mini, -flash",
    architectures: &["LLaDA2MoeModelLM"],
    model_types: &["llada2_moe"],
    read: config::llada2,
    names: &BAILING,
};

/// Full attention. Published with `model_type` "llada" like LLaDA; only `architectures` differs.
pub(super) const LLADA_MOE: Family = Family {
    name: "llada-moe",
    about: "LLaDA-MoE-7B-A1B-Base, -Instruct",
    architectures: &["LLaDAMoEModelLM", "LLaDAMoEModel"],
    model_types: &["lladamoe"],
    read: config::llada_moe,
    names: &qwen::NAMES,
};

/// Tensor names of Bailing-MoE-v2.
const BAILING: Names = Names {
    embedding: "model.word_embeddings",
    qkv: &["attention.query_key_value"],
    head_norms: ["attention.query_layernorm", "attention.key_layernorm"],
    attention_out: "attention.dense",
    experts: ExpertNames {
        router: "mlp.gate",
        bias: "mlp.gate.expert_bias",
        experts: "mlp.experts",
        shared: "mlp.shared_experts",
    },
    ..qwen::NAMES
};
