//! The names of a family's tensors.

/// What a family calls its tensors; those of a layer without `{layers}.{layer}.` in front, all
/// without `.weight` behind.
pub(super) struct Names {
    pub(super) embedding: &'static str,
    pub(super) layers: &'static str,
    pub(super) attention_norm: &'static str,
    /// Query, key and value, or one matrix of all three.
    pub(super) qkv: &'static [&'static str],
    /// Norms of the query heads and of the key heads, where a family has them.
    pub(super) head_norms: [&'static str; 2],
    pub(super) attention_out: &'static str,
    pub(super) mlp_norm: &'static str,
    /// Prefix of a dense MLP.
    pub(super) mlp: &'static str,
    /// Gate, up and down of an MLP.
    pub(super) parts: [&'static str; 3],
    pub(super) experts: ExpertNames,
    pub(super) norm: &'static str,
    pub(super) head: &'static str,
}

/// Names of a layer with experts.
pub(super) struct ExpertNames {
    pub(super) router: &'static str,
    /// The correction of the router's scores, a name in full.
    pub(super) bias: &'static str,
    /// Prefix of all experts, which are numbered.
    pub(super) experts: &'static str,
    /// Prefix of the expert that every row goes through.
    pub(super) shared: &'static str,
}

/// What llama.cpp calls them, in every family.
pub(super) const GGUF: Names = Names {
    embedding: "token_embd",
    layers: "blk",
    attention_norm: "attn_norm",
    qkv: &["attn_q", "attn_k", "attn_v"],
    head_norms: ["attn_q_norm", "attn_k_norm"],
    attention_out: "attn_output",
    mlp_norm: "ffn_norm",
    mlp: "",
    parts: ["ffn_gate", "ffn_up", "ffn_down"],
    experts: ExpertNames {
        router: "",
        bias: "",
        experts: "",
        shared: "",
    },
    norm: "output_norm",
    head: "output",
};
