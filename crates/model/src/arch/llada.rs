//! LLaDA: the tensor names of OLMo.

use super::Family;
use super::names::{ExpertNames, Names};
use crate::config;

/// LLaDA-8B and the models trained from it.
pub(super) const LLADA: Family = Family {
    name: "llada",
    about: "LLaDA-8B-Base, -Instruct, LLaDA-1.5, d3LLM-LLaDA, dParallel-LLaDA",
    architectures: &["LLaDAModelLM"],
    model_types: &["llada"],
    read: config::llada,
    names: &NAMES,
};

const NAMES: Names = Names {
    embedding: "model.transformer.wte",
    layers: "model.transformer.blocks",
    attention_norm: "attn_norm",
    qkv: &["q_proj", "k_proj", "v_proj"],
    head_norms: ["q_norm", "k_norm"],
    attention_out: "attn_out",
    mlp_norm: "ff_norm",
    mlp: "",
    gated: ["ff_proj", "up_proj", "ff_out"],
    experts: ExpertNames { router: "", bias: "", experts: "", shared: "" },
    norm: "model.transformer.ln_f",
    head: "model.transformer.ff_out",
};
