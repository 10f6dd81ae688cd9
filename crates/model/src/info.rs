//! The properties of a model: its geometry, its special tokens, its attention.

use kernels::{KvDtype, KvSizes, WeightDtype};
use step::{Attention, Readout, as_index};

/// The properties of a model other than its weights.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInfo {
    /// Name of the architecture family.
    pub family: &'static str,
    /// Transformer blocks.
    pub layers: usize,
    /// Model width `d`.
    pub width: usize,
    /// Query heads `h`.
    pub heads: usize,
    /// Key/value heads `g`.
    pub num_kv_heads: usize,
    /// Head width `c`.
    pub head_width: usize,
    /// MLP width `m`: of layers without experts, or of an expert if every layer has experts.
    pub mlp_width: usize,
    /// The experts, if any layer has them.
    pub experts: Option<ExpertInfo>,
    /// The additional properties of a canvas model.
    pub canvas: Option<CanvasInfo>,
    /// Number of tokens with a logit, `v`.
    pub vocab_size: usize,
    /// Rows of the embedding table, at least `vocab_size`.
    pub embedding_size: usize,
    /// Maximum number of positions.
    pub max_positions: usize,
    /// The mask token; `None` for autoregressive weights.
    pub mask: Option<u32>,
    /// Tokens that end a text. The tokenizer adds the token that ends a chat turn.
    pub end: Vec<u32>,
    /// True if the LM head shares the embedding table.
    pub tied: bool,
    /// Number of parameters; tied matrices count once.
    pub parameters: usize,
    /// Dtype in which matrices are stored and multiplied.
    pub dtype: WeightDtype,
    /// Number format of keys and values.
    pub kv_dtype: KvDtype,
    /// The attention mask.
    pub attention: Attention,
    /// The row at which the prediction of a position is read.
    pub readout: Readout,
}

/// A canvas model's layers: some have full attention, the others a window. Heads of the layers with
/// a window are those of [`ModelInfo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanvasInfo {
    /// Tokens that a final token sees in layers with a window, itself included. A row of a canvas
    /// sees the canvas and what the token before it would see.
    pub window: usize,
    /// Number of layers with full attention.
    pub full_layers: usize,
    /// Key/value heads of layers with full attention.
    pub full_num_kv_heads: usize,
    /// Head width of layers with full attention.
    pub full_head_width: usize,
}

/// The experts of a model's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertInfo {
    /// Number of experts in a layer.
    pub count: usize,
    /// Number of experts chosen for each row.
    pub chosen: usize,
    /// Parameters of one expert per layer, summed over all layers with experts.
    pub parameters: usize,
    /// Width of the expert that processes every row, if there is one.
    pub shared_width: Option<usize>,
}

impl ModelInfo {
    /// Leaves out the ids beyond a tokenizer's number of tokens; mask and end tokens stay.
    pub(crate) fn leave_out_padding(&mut self, tokens: usize) {
        let ids = self.end.iter().chain(&self.mask);
        let named = ids.map(|id| as_index(*id) + 1).max().unwrap_or(0);
        if self.canvas.is_none() {
            self.vocab_size = self.vocab_size.min(tokens.max(named).max(3));
        }
    }

    /// Bytes of keys and values per position, all layers together with scales, and of a canvas model's
    /// mean embedding, which is f32.
    #[must_use]
    pub fn kv_bytes_per_position(&self) -> usize {
        self.kv_bytes_in(self.kv_dtype)
    }

    /// Numbers in keys and values per position, and in a canvas model's mean embedding.
    #[must_use]
    pub fn kv_numbers_per_position(&self) -> usize {
        self.kv_bytes_in(KvDtype::F32) / size_of::<f32>()
    }

    fn kv_bytes_in(&self, dtype: KvDtype) -> usize {
        let sizes = self.kv_sizes(dtype, 1, 1);
        let kept: usize = sizes.iter().map(KvSizes::slot_bytes).sum();
        let soft = self.canvas.map_or(0, |_| self.width * size_of::<f32>());
        kept + soft
    }

    /// The sizes of `pages` KV pages of `page` slots: of the layers with a window, if there are such,
    /// then of those with full attention.
    pub(crate) fn kv_sizes(&self, dtype: KvDtype, page: usize, pages: usize) -> Vec<KvSizes> {
        let of = |(layers, num_kv_heads, head_width)| KvSizes {
            dtype,
            layers,
            num_kv_heads,
            head_width,
            page,
            pages,
        };
        let own = |layers| of((layers, self.num_kv_heads, self.head_width));
        match self.canvas {
            None => vec![own(self.layers)],
            Some(canvas) => {
                let full = (
                    canvas.full_layers,
                    canvas.full_num_kv_heads,
                    canvas.full_head_width,
                );
                vec![own(self.layers - canvas.full_layers), of(full)]
            }
        }
    }

    /// A one-line description: family, parameters, geometry, KV bytes, token ids.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "{}, {:.2} M parameters: {} layers of width {}, {} heads ({} key/value) of {}, \
             MLP {}; vocabulary {}, {} positions, {} KV bytes each; {}, end {:?}",
            self.family,
            self.parameters as f64 / 1e6,
            self.layers,
            self.width,
            self.heads,
            self.num_kv_heads,
            self.head_width,
            self.mlp_width,
            self.vocab_size,
            self.max_positions,
            self.kv_bytes_per_position(),
            self.mask
                .map_or_else(|| "no mask".to_owned(), |mask| format!("mask {mask}")),
            self.end
        )
    }
}
