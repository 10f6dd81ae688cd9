//! The names of a family's tensors.

use crate::gguf;

/// The tensor names of a family, without `.weight`; names in a layer are without the prefix
/// `{layers}.{layer}.`.
pub(super) struct Names {
    pub(super) embedding: &'static str,
    pub(super) layers: &'static str,
    pub(super) attention_norm: &'static str,
    /// Query, key and value, or one matrix with all three.
    pub(super) qkv: &'static [&'static str],
    /// Norms of the query heads and of the key heads, if the family has them.
    pub(super) head_norms: [&'static str; 2],
    pub(super) attention_out: &'static str,
    pub(super) mlp_norm: &'static str,
    /// Prefix of a dense MLP.
    pub(super) mlp: &'static str,
    /// Gate, up and down matrices of an MLP.
    pub(super) gated: [&'static str; 3],
    pub(super) experts: ExpertNames,
    pub(super) norm: &'static str,
    pub(super) head: &'static str,
}

/// Names of a layer with experts.
pub(super) struct ExpertNames {
    pub(super) router: &'static str,
    /// The correction of the router's scores; the complete name, without `.weight`.
    pub(super) bias: &'static str,
    /// Prefix of the numbered experts.
    pub(super) experts: &'static str,
    /// Prefix of the shared expert.
    pub(super) shared: &'static str,
}

/// The names in GGUF files, the same for all families but DiffusionGemma.
pub(super) const GGUF: Names = Names {
    embedding: "token_embd",
    layers: "blk",
    attention_norm: "attn_norm",
    qkv: &["attn_q", "attn_k", "attn_v"],
    head_norms: ["attn_q_norm", "attn_k_norm"],
    attention_out: "attn_output",
    mlp_norm: "ffn_norm",
    mlp: "",
    gated: ["ffn_gate", "ffn_up", "ffn_down"],
    experts: ExpertNames {
        router: "ffn_gate_inp",
        bias: "exp_probs_b.bias",
        experts: gguf::EXPERTS,
        shared: gguf::SHARED,
    },
    norm: "output_norm",
    head: "output",
};

/// The same with query, key and value in one matrix.
pub(super) const GGUF_FUSED: Names = Names { qkv: &["attn_qkv"], ..GGUF };
