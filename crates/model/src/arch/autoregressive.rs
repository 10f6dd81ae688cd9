//! Autoregressive models with the tensor names of Qwen2 and Qwen3: the parents of diffusion models.
//! Causal attention; the prediction of a row is read from the row to its left.

use super::Family;
use super::qwen::NAMES;
use crate::config;

/// Biases on query, key and value.
pub(super) const QWEN2: Family = Family {
    name: "qwen2",
    about: "Qwen2 and Qwen2.5 (autoregressive)",
    architectures: &["Qwen2ForCausalLM"],
    model_types: &["qwen2"],
    read: config::qwen2,
    names: &NAMES,
};

/// Norms of query and key heads.
pub(super) const QWEN3: Family = Family {
    name: "qwen3",
    about: "Qwen3, dense (autoregressive)",
    architectures: &["Qwen3ForCausalLM"],
    model_types: &["qwen3"],
    read: config::qwen3,
    names: &NAMES,
};

/// Experts chosen by softmax.
pub(super) const QWEN3_MOE: Family = Family {
    name: "qwen3-moe",
    about: "Qwen3-30B-A3B, -235B-A22B (autoregressive)",
    architectures: &["Qwen3MoeForCausalLM"],
    model_types: &["qwen3_moe"],
    read: config::qwen3_moe,
    names: &NAMES,
};

/// Neither biases nor norms of heads.
pub(super) const LLAMA: Family = Family {
    name: "llama",
    about: "Llama 2, Llama 3 to 3.3, SmolLM2 (autoregressive)",
    architectures: &["LlamaForCausalLM"],
    model_types: &["llama"],
    read: config::llama,
    names: &NAMES,
};
