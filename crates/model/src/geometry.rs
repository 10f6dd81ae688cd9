//! Sizes of models with random weights.

use crate::{Checkpoint, LoadError, ModelInfo, WeightDtype};

/// Maximum number of positions of these models.
const POSITIONS: usize = 4096;

/// Sizes of a model with random weights, for measuring speed only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Name on the command line.
    pub name: &'static str,
    /// The keys of its configuration, without positions and tokens.
    config: &'static str,
}

impl Geometry {
    /// Every geometry: LLaDA's architecture, from the smallest to the largest, then mixtures of experts.
    pub const ALL: [Self; 6] = [
        Self {
            name: "demo",
            config: r#""architectures": ["LLaDAModelLM"], "d_model": 192, "n_heads": 6,
            "n_layers": 6, "mlp_hidden_size": 512, "vocab_size": 1024"#,
        },
        Self {
            name: "llada-300m",
            config: r#""architectures": ["LLaDAModelLM"], "d_model": 1024, "n_heads": 16,
            "n_layers": 24, "mlp_hidden_size": 2816, "vocab_size": 32000"#,
        },
        Self {
            name: "llada-8b",
            config: r#""architectures": ["LLaDAModelLM"], "d_model": 4096, "n_heads": 32,
            "n_layers": 32, "mlp_hidden_size": 12288, "vocab_size": 126464"#,
        },
        Self {
            name: "llada2-mini",
            config: r#""architectures": ["LLaDA2MoeModelLM"], "hidden_size": 2048,
            "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
            "num_hidden_layers": 20, "first_k_dense_replace": 1, "intermediate_size": 5120,
            "moe_intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8,
            "num_shared_experts": 1, "use_bias": false, "vocab_size": 157184, "rope_theta": 600000"#,
        },
        // The text model of 26 billion parameters.
        Self {
            name: "diffusion-gemma",
            config: r#""architectures": ["DiffusionGemmaForBlockDiffusion"], "canvas_length": 256,
            "text_config": {"hidden_size": 2816, "num_hidden_layers": 30, "num_attention_heads": 16,
            "num_key_value_heads": 8, "num_global_key_value_heads": 2, "head_dim": 256,
            "global_head_dim": 512, "intermediate_size": 2112, "moe_intermediate_size": 704,
            "num_experts": 128, "top_k_experts": 8, "vocab_size": 262144, "sliding_window": 1024,
            "max_position_embeddings": 4096}"#,
        },
        // SDAR-30B-A3B, which has the sizes of Qwen3-30B-A3B.
        Self {
            name: "qwen3-30b-a3b",
            config: r#""architectures": ["SDARMoeForCausalLM"], "hidden_size": 2048,
            "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
            "num_hidden_layers": 48, "intermediate_size": 6144, "moe_intermediate_size": 768,
            "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
            "vocab_size": 151936, "rope_theta": 1000000"#,
        },
    ];

    /// The geometry with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|geometry| geometry.name == name)
    }

    /// A checkpoint of these sizes with random weights, the mask token `mask` and the end-of-text
    /// token `end`.
    ///
    /// # Errors
    /// As [`Checkpoint::synthetic`].
    pub fn checkpoint(&self, mask: u32, end: u32) -> Result<Checkpoint, LoadError> {
        let Self { config, .. } = self;
        let config = format!(
            r#"{{{config}, "max_sequence_length": {POSITIONS}, "max_position_embeddings": {POSITIONS},
            "mask_token_id": {mask}, "eos_token_id": {end}}}"#
        );
        Checkpoint::synthetic(&config, 1)
    }

    /// The properties of the model.
    ///
    /// # Errors
    /// As [`Checkpoint::survey`].
    pub fn info(&self) -> Result<ModelInfo, LoadError> {
        Ok(self.checkpoint(0, 1)?.survey(WeightDtype::F32)?.info)
    }
}

/// The least work of a step.
impl ModelInfo {
    /// The expected number of experts of a layer that a step of this many rows touches, if a row chooses
    /// its experts at random; 0 without experts.
    pub fn touched_experts(&self, rows: u32) -> f64 {
        self.experts.map_or(0.0, |experts| {
            let others = 1.0 - experts.chosen as f64 / experts.count as f64;
            experts.count as f64 * (1.0 - others.powf(rows.into()))
        })
    }

    /// Number of parameters that a step reads which touches this many experts of every layer: all but an
    /// embedding table that is not the LM head too, and other experts.
    pub fn read_parameters(&self, touched: f64) -> f64 {
        let table =
            if self.vocabulary.tied { 0 } else { self.vocabulary.embedding_size * self.width };
        let idle = self.experts.map_or(0.0, |experts| {
            (experts.count as f64 - touched).max(0.0) * experts.parameters as f64
        });
        self.parameters.saturating_sub(table) as f64 - idle
    }

    /// Bytes that a step of this many rows reads at least: its parameters of `bits` bits each, and keys and
    /// values of `positions` positions in bf16.
    pub fn read_bytes(&self, bits: usize, rows: u32, positions: u64) -> u64 {
        let weights = self.read_parameters(self.touched_experts(rows)) * bits as f64 / 8.0;
        weights as u64 + positions * (2 * self.kv_numbers_per_position()) as u64
    }

    /// Floating-point operations of the matrix products of one row, including the LM head.
    pub fn operations(&self) -> f64 {
        let chosen = self.experts.map_or(0, |experts| experts.chosen);
        2.0 * self.read_parameters(chosen as f64)
    }

    /// Rows and columns of the matrices that all rows of a layer are multiplied with: queries, keys and
    /// values; output; and, unless all of its MLP are experts that rows choose, gate and up; down.
    pub fn matrices(&self) -> Vec<(usize, usize)> {
        let (width, inner) = (self.width, self.heads.num_heads * self.heads.head_width);
        let kv = self.heads.num_kv_heads * self.heads.head_width;
        let dense = match self.experts {
            Some(experts) if self.canvas.is_none() => experts.shared_width,
            _ => Some(self.mlp_width),
        };
        let mlp = dense.map(|mlp| [(2 * mlp, width), (width, mlp)]);
        let attention = [(inner + 2 * kv, width), (width, inner)];
        attention.into_iter().chain(mlp.into_iter().flatten()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    #[test]
    fn a_geometry_is_a_model_of_its_sizes() {
        let geometry = Geometry::named("demo").unwrap();
        let model = Model::load(geometry.checkpoint(5, 1).unwrap()).unwrap();
        let info = model.info();
        assert_eq!((info.width, info.layers, info.mlp_width), (192, 6, 512));
        assert_eq!((info.vocabulary.mask, info.vocabulary.end.as_slice()), (Some(5), &[1][..]));
        assert_eq!(geometry.info().unwrap().parameters, info.parameters);
        // All parameters except the embedding table are read, and but for norms multiplied once per row.
        let head = info.vocabulary.size * info.width;
        let norms = (2 * info.layers + 1) * info.width;
        let of_layer: usize = info.matrices().iter().map(|(n, k)| n * k).sum();
        let read = info.layers * of_layer + head + norms;
        assert_eq!(read, info.parameters - head);
        assert_eq!(info.operations(), 2.0 * read as f64);
        let kv = 10 * 2 * 6 * 192 * 2;
        assert_eq!(info.read_bytes(16, 3, 10), 2 * read as u64 + kv);
        assert!(Geometry::named("tiny").is_none());
    }

    /// Parameters in billions, all and those of a row with its embedding, and experts.
    #[test]
    fn mixtures_have_the_published_sizes() {
        for (name, [all, active], [chosen, count]) in [
            ("llada2-mini", [16.3, 1.4], [8, 256]),
            ("diffusion-gemma", [25.2, 3.8], [8, 128]),
            ("qwen3-30b-a3b", [30.5, 3.3], [8, 128]),
        ] {
            let info = Geometry::named(name).unwrap().info().unwrap();
            let experts = info.experts.unwrap();
            assert_eq!((experts.chosen, experts.count), (chosen, count), "{name}");
            let table = info.vocabulary.embedding_size * info.width;
            let table = if info.vocabulary.tied { 0.0 } else { table as f64 };
            let row = info.operations() / 2.0 + table;
            let billions = [info.parameters as f64, row].map(|n| n / 1e9);
            let near = |found: f64, want: f64| (found / want - 1.0).abs() < 0.05;
            assert!(near(billions[0], all) && near(billions[1], active), "{name}: {billions:?}");
            assert_eq!(info.max_positions, POSITIONS);
            // A row touches its own experts, and many rows all.
            assert!((info.touched_experts(1) - chosen as f64).abs() < 1e-9);
            assert!(info.touched_experts(1024) > 0.999 * count as f64);
            let [one, many] = [1, 1024].map(|rows| info.read_bytes(16, rows, 0) as f64);
            assert!(one < 0.25 * many && many < 2.001 * info.parameters as f64, "{name}");
            assert!(info.read_bytes(8, 32, 0) as f64 > one / 2.0);
        }
    }
}
