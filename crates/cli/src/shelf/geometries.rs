//! The parts of published `config.json` files that memory and decoders depend on.

/// LLaDA-8B-Instruct and LLaDA-1.5.
pub(super) const LLADA_8B: &str = r#"{"architectures": ["LLaDAModelLM"], "torch_dtype": "bfloat16",
    "d_model": 4096, "n_heads": 32, "n_layers": 32, "mlp_hidden_size": 12288, "vocab_size": 126464,
    "max_sequence_length": 4096, "rope_theta": 500000}"#;

/// Dream-v0 and Dream-Coder-v0, of Qwen2.5-7B.
pub(super) const DREAM_7B: &str = r#"{"architectures": ["DreamModel"], "torch_dtype": "bfloat16",
    "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4, "num_hidden_layers": 28,
    "intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 131072}"#;

/// CoDA-v0, of Qwen3-1.7B, counted with an LM head of its own.
pub(super) const CODA_1_7B: &str = r#"{"architectures": ["CoDALanguageModel"], "torch_dtype": "bfloat16",
    "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 28,
    "intermediate_size": 6144, "vocab_size": 151936, "max_position_embeddings": 40960,
    "rope_theta": 1000000}"#;

/// RND1-Base-0910, of Qwen3-30B-A3B.
pub(super) const RND1_30B: &str = r#"{"architectures": ["RND1LM"], "torch_dtype": "bfloat16",
    "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4, "num_hidden_layers": 48,
    "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "vocab_size": 151936, "max_position_embeddings": 40960,
    "rope_theta": 1000000}"#;

/// SDAR-1.7B, of Qwen3-1.7B with an LM head of its own.
pub(super) const SDAR_1_7B: &str = r#"{"architectures": ["SDARForCausalLM"], "torch_dtype": "bfloat16",
    "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 28,
    "intermediate_size": 6144, "vocab_size": 151936, "max_position_embeddings": 32768}"#;

/// SDAR-4B and TraDo-4B, of Qwen3-4B with an LM head of their own.
pub(super) const SDAR_4B: &str = r#"{"architectures": ["SDARForCausalLM"], "torch_dtype": "bfloat16",
    "hidden_size": 2560, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 36,
    "intermediate_size": 9728, "vocab_size": 151936, "max_position_embeddings": 32768}"#;

/// SDAR-8B, of Qwen3-8B.
pub(super) const SDAR_8B: &str = r#"{"architectures": ["SDARForCausalLM"], "torch_dtype": "bfloat16",
    "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 36,
    "intermediate_size": 12288, "vocab_size": 151936, "max_position_embeddings": 32768}"#;

/// I-DLM-8B, of Qwen3-8B, strictly causal.
pub(super) const I_DLM_8B: &str = r#"{"architectures": ["SDARForCausalLM"], "torch_dtype": "bfloat16",
    "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 36,
    "intermediate_size": 12288, "vocab_size": 151936, "max_position_embeddings": 32768,
    "use_regular_causal": true}"#;

/// WeDLM-8B, of Qwen3-8B.
pub(super) const WEDLM_8B: &str = r#"{"architectures": ["WeDLMForCausalLM"], "torch_dtype": "bfloat16",
    "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 36,
    "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936, "attention_bias": false,
    "qk_norm": true, "max_position_embeddings": 16384}"#;

/// Fast-dLLM-v2-1.5B, of Qwen2.5-1.5B.
pub(super) const FAST_DLLM_1_5B: &str = r#"{"architectures": ["Fast_dLLM_QwenForCausalLM"],
    "torch_dtype": "bfloat16", "hidden_size": 1536, "num_attention_heads": 12,
    "num_key_value_heads": 2, "num_hidden_layers": 28, "intermediate_size": 8960,
    "vocab_size": 151936, "tie_word_embeddings": true, "max_position_embeddings": 32768}"#;

/// Fast-dLLM-v2-7B, of Qwen2.5-7B.
pub(super) const FAST_DLLM_7B: &str = r#"{"architectures": ["Fast_dLLM_QwenForCausalLM"],
    "torch_dtype": "bfloat16", "hidden_size": 3584, "num_attention_heads": 28,
    "num_key_value_heads": 4, "num_hidden_layers": 28, "intermediate_size": 18944,
    "vocab_size": 152064, "max_position_embeddings": 32768}"#;

/// Nemotron-Labs-Diffusion-3B.
pub(super) const NEMOTRON_3B: &str = r#"{"architectures": ["NemotronLabsDiffusionModel"],
    "torch_dtype": "bfloat16", "hidden_size": 3072, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 26, "intermediate_size": 9216,
    "vocab_size": 131072, "max_position_embeddings": 262144,
    "rope_parameters": {"rope_theta": 1000000}}"#;

/// Nemotron-Labs-Diffusion-8B.
pub(super) const NEMOTRON_8B: &str = r#"{"architectures": ["NemotronLabsDiffusionModel"],
    "torch_dtype": "bfloat16", "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 34, "intermediate_size": 14336,
    "vocab_size": 131072, "max_position_embeddings": 262144,
    "rope_parameters": {"rope_theta": 1000000}}"#;

/// Nemotron-Labs-Diffusion-14B.
pub(super) const NEMOTRON_14B: &str = r#"{"architectures": ["NemotronLabsDiffusionModel"],
    "torch_dtype": "bfloat16", "hidden_size": 5120, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 40, "intermediate_size": 16384,
    "vocab_size": 131072, "max_position_embeddings": 262144,
    "rope_parameters": {"rope_theta": 1000000000}}"#;

/// Stable-DiffCoder-8B, of Seed-Coder-8B.
pub(super) const STABLE_DIFFCODER: &str = r#"{"architectures": ["StableDiffcoderForCausalLM"],
    "torch_dtype": "bfloat16", "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 32, "intermediate_size": 14336,
    "vocab_size": 155136, "max_position_embeddings": 8192}"#;

/// LLaDA2.0-mini and LLaDA2.1-mini.
pub(super) const LLADA2_MINI: &str = r#"{"architectures": ["LLaDA2MoeModelLM"], "torch_dtype": "bfloat16",
    "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
    "num_hidden_layers": 20, "first_k_dense_replace": 1, "intermediate_size": 5120,
    "moe_intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8,
    "num_shared_experts": 1, "use_bias": false, "vocab_size": 157184,
    "max_position_embeddings": 32768, "rope_theta": 600000}"#;

/// DiffusionGemma without its vision tower.
pub(super) const DIFFUSION_GEMMA: &str = include_str!("diffusiongemma-26b.json");

/// SmolLM2-135M-Instruct.
pub(super) const SMOLLM2_135M: &str = r#"{"architectures": ["LlamaForCausalLM"],
    "torch_dtype": "bfloat16", "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3,
    "num_hidden_layers": 30, "intermediate_size": 1536, "vocab_size": 49152, "eos_token_id": 2,
    "tie_word_embeddings": true, "max_position_embeddings": 8192, "rope_theta": 100000}"#;
