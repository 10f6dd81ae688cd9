//! The architectures of GGUF files, and their metadata as configurations.

use super::facts::Facts;
use super::volumes::plain;
use super::{canvas, frequencies};
use crate::LoadError;
use crate::config::Keys;
use serde_json::{Map, Value, json};

/// The map from the GGUF metadata of one architecture to the keys of its `config.json`.
pub(super) struct Dialect {
    name: &'static str,
    architecture: &'static str,
    keys: &'static [(&'static str, &'static str)],
    vocabulary: &'static str,
    tied: &'static str,
    biased: &'static str,
    /// Rows of q and k are interleaved for llama.cpp, which rotates adjacent elements.
    pub(super) interleaved: bool,
    /// Adds the keys that follow from more than one field, or from the tensors.
    complete: fn(&Facts<'_>, &mut Map<String, Value>) -> Result<(), LoadError>,
}

/// The keys of a Hugging Face decoder: `$width` of its feed-forward layer, which is required, those of
/// every decoder, and `$own`.
macro_rules! keys {
    ($width:expr $(, $own:expr)*) => {
        &[
            ("embedding_length", "hidden_size"),
            ("attention.head_count", "num_attention_heads"),
            ("attention.head_count_kv", "num_key_value_heads"),
            ("block_count", "num_hidden_layers"),
            $width,
            ("context_length", "max_position_embeddings"),
            ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
            ("rope.freq_base", "rope_theta"),
            ("attention.key_length", "head_dim"),
            $($own,)*
        ]
    };
}

const LLADA: Dialect = Dialect {
    name: "llada",
    architecture: "LLaDAModelLM",
    keys: &[
        ("embedding_length", "d_model"),
        ("attention.head_count", "n_heads"),
        ("attention.head_count_kv", "n_kv_heads"),
        ("block_count", "n_layers"),
        ("feed_forward_length", "mlp_hidden_size"),
        ("context_length", "max_sequence_length"),
        ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
        ("rope.freq_base", "rope_theta"),
    ],
    vocabulary: "embedding_size",
    tied: "weight_tying",
    biased: "include_qkv_bias",
    interleaved: true,
    complete: |_, _| Ok(()),
};

const DREAM: Dialect = Dialect {
    name: "dream",
    architecture: "DreamModel",
    keys: keys![("feed_forward_length", "intermediate_size")],
    vocabulary: "vocab_size",
    tied: "tie_word_embeddings",
    biased: "attention_bias",
    interleaved: false,
    complete: |_, _| Ok(()),
};

const QWEN2: Dialect = Dialect { name: "qwen2", architecture: "Qwen2ForCausalLM", ..DREAM };

const QWEN3: Dialect = Dialect { name: "qwen3", architecture: "Qwen3ForCausalLM", ..DREAM };

/// llama.cpp always divides the weights of a row's experts by their sum.
const QWEN3_MOE: Dialect = Dialect {
    name: "qwen3moe",
    architecture: "Qwen3MoeForCausalLM",
    keys: keys![
        ("expert_feed_forward_length", "moe_intermediate_size"),
        ("expert_count", "num_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("feed_forward_length", "intermediate_size")
    ],
    complete: |_, map| {
        map.insert("norm_topk_prob".to_owned(), json!(true));
        Ok(())
    },
    ..DREAM
};

const RND1: Dialect = Dialect { name: "rnd1", architecture: "RND1LM", ..QWEN3_MOE };

const LLAMA: Dialect =
    Dialect { name: "llama", architecture: "LlamaForCausalLM", interleaved: true, ..DREAM };

const LLADA_MOE: Dialect = Dialect {
    name: "llada-moe",
    architecture: "LLaDAMoEModelLM",
    keys: keys![
        ("expert_feed_forward_length", "expert_intermediate_size"),
        ("expert_count", "num_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("feed_forward_length", "dense_intermediate_size"),
        ("expert_shared_feed_forward_length", "shared_expert_intermediate_size")
    ],
    complete: |facts, map| {
        let layers = facts.layers("llada-moe.block_count", map)?;
        let has = |layer: usize| facts.has(&format!("blk.{layer}.ffn_gate_inp.weight"));
        let frequency: Vec<u32> = (0..layers).map(|layer| u32::from(has(layer))).collect();
        map.insert("moe_layer_freq".to_owned(), json!(frequency));
        let norms = facts.has("blk.0.attn_q_norm.weight");
        map.insert("qk_layernorm".to_owned(), json!(norms));
        Ok(())
    },
    ..DREAM
};

const LLADA2: Dialect = Dialect {
    name: "llada2",
    architecture: "LLaDA2MoeModelLM",
    keys: keys![
        ("expert_feed_forward_length", "moe_intermediate_size"),
        ("expert_count", "num_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("feed_forward_length", "intermediate_size"),
        ("expert_group_count", "n_group"),
        ("expert_group_used_count", "topk_group"),
        ("expert_weights_scale", "routed_scaling_factor"),
        ("expert_shared_count", "num_shared_experts"),
        ("leading_dense_block_count", "first_k_dense_replace")
    ],
    biased: "use_qkv_bias",
    complete: |facts, map| {
        facts.only("llada2.expert_gating_func", &json!(2))?;
        facts.only("llada2.expert_weights_norm", &json!(true))?;
        let [rotated, head] = ["rope.dimension_count", "attention.key_length"]
            .map(|key| facts.field(&format!("llada2.{key}")).and_then(|value| value.as_f64()));
        let factor = rotated.zip(head).map(|(rotated, head)| json!(rotated / head));
        map.extend(factor.map(|factor| ("partial_rotary_factor".to_owned(), factor)));
        map.insert("use_bias".to_owned(), json!(facts.has("blk.0.attn_output.bias")));
        map.insert("use_qk_norm".to_owned(), json!(facts.has("blk.0.attn_q_norm.weight")));
        Ok(())
    },
    ..DREAM
};

/// The keys are those of its `text_config`.
const DIFFUSION_GEMMA: Dialect = Dialect {
    name: canvas::NAME,
    architecture: "DiffusionGemmaForBlockDiffusion",
    keys: &[
        ("embedding_length", "hidden_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.key_length_swa", "head_dim"),
        ("block_count", "num_hidden_layers"),
        ("feed_forward_length", "intermediate_size"),
        ("context_length", "max_position_embeddings"),
        ("attention.key_length", "global_head_dim"),
        ("attention.sliding_window", "sliding_window"),
        ("expert_count", "num_experts"),
        ("expert_used_count", "top_k_experts"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
        ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
        ("final_logit_softcapping", "final_logit_softcapping"),
    ],
    complete: canvas::complete,
    ..DREAM
};

const ALL: [Dialect; 10] =
    [LLADA, DREAM, QWEN2, QWEN3, QWEN3_MOE, RND1, LLAMA, LLADA_MOE, LLADA2, DIFFUSION_GEMMA];

/// The first `NEEDED` keys of a dialect are required; without the number of heads for keys and values it is
/// the number of heads.
const NEEDED: usize = 6;
const HEADS: &str = "attention.head_count";
const GROUPS: &str = "attention.head_count_kv";
const TABLE: &str = "token_embd.weight";

impl Dialect {
    /// The dialect that a file names.
    ///
    /// # Errors
    /// An unknown architecture, with those that are read.
    pub(super) fn find(facts: &Facts<'_>) -> Result<Self, LoadError> {
        let key = "general.architecture";
        let found = facts.fields.get(key).and_then(|field| field.to_string().ok());
        let known = |dialect: &Self| Some(dialect.name) == found.map(String::as_str);
        ALL.into_iter().find(known).ok_or_else(|| {
            facts.refuse(key, format!("one of {}", ALL.map(|dialect| dialect.name).join(", ")))
        })
    }

    /// The width of a head in the configuration.
    pub(super) fn head_width(&self, keys: &Keys) -> Result<usize, LoadError> {
        let count = |key: &str| keys.count(key).map(|count| count.max(1));
        match keys.optional_count("head_dim")? {
            Some(width) => Ok(width),
            None => Ok(count(self.keys[0].1)? / count(self.keys[1].1)?),
        }
    }

    /// Converts the metadata to the family's configuration.
    pub(super) fn configuration(&self, facts: &Facts<'_>) -> Result<Keys, LoadError> {
        let mut map = Map::new();
        let (file, fields) = (facts.file, facts.fields);
        let scaling = frequencies::scaling(file, self.name, fields)?;
        map.extend(scaling.map(|scaling| ("rope_scaling".to_owned(), scaling)));
        for (number, (gguf_key, config_key)) in self.keys.iter().enumerate() {
            let own = |key: &str| format!("{}.{key}", self.name);
            let field = fields.get(&own(gguf_key));
            // As in llama.cpp, heads without groups have keys and values of their own.
            let default = || fields.get(&own(HEADS)).filter(|_| *gguf_key == GROUPS);
            let (key, value) = (own(gguf_key), field.or_else(default).and_then(plain));
            if value.is_none() && number < NEEDED {
                return Err(facts.refuse(&key, "a positive whole number"));
            }
            map.extend(value.map(|value| ((*config_key).to_owned(), value)));
        }
        for id in ["mask_token_id", "eos_token_id"] {
            let value = facts.field(&format!("tokenizer.ggml.{id}"));
            map.extend(value.map(|value| (id.to_owned(), value)));
        }
        let rows = facts.volumes.info(TABLE).and_then(|info| info.dims.first());
        let rows = *rows.ok_or_else(|| LoadError::MissingTensor {
            file: file.to_owned(),
            tensor: TABLE.to_owned(),
            expected: Vec::new(),
        })?;
        map.insert("vocab_size".to_owned(), json!(rows));
        map.insert(self.vocabulary.to_owned(), json!(rows));
        if self.vocabulary != "vocab_size" {
            let value = facts.field(&format!("{}.vocab_size", self.name));
            map.extend(value.map(|value| ("vocab_size".to_owned(), value)));
        }
        map.insert(self.tied.to_owned(), json!(!facts.has("output.weight")));
        let biases = ["blk.0.attn_q.bias", "blk.0.attn_qkv.bias"];
        let is_biased = biases.into_iter().any(|bias| facts.has(bias));
        map.insert(self.biased.to_owned(), json!(is_biased));
        (self.complete)(facts, &mut map)?;
        map.insert("architectures".to_owned(), json!([self.architecture]));
        Ok(Keys::new(file, map))
    }
}
