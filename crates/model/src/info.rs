//! The properties of a model: its geometry, its special tokens, its attention.

use kernels::{KvDtype, KvSizes, WeightDtype};
use step::{Attention, LogitShift, as_index};

/// The properties of a model other than its weights.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInfo {
    /// Name of the architecture family.
    pub family: &'static str,
    /// Transformer blocks.
    pub layers: usize,
    /// Model width `d`.
    pub width: usize,
    /// The attention heads of a layer.
    pub heads: HeadSizes,
    /// MLP width `m`: of layers without experts, or of an expert if every layer has experts.
    pub mlp_width: usize,
    /// The experts, if any layer has them.
    pub experts: Option<ExpertInfo>,
    /// The additional properties of a canvas model.
    pub canvas: Option<CanvasInfo>,
    /// The tokens.
    pub vocabulary: VocabularyInfo,
    /// Maximum number of positions.
    pub max_positions: usize,
    /// Number of parameters; tied matrices count once.
    pub parameters: usize,
    /// The number formats in memory.
    pub formats: FormatInfo,
    /// The rows that a row sees, and the row of a prediction.
    pub rows: RowInfo,
}

/// The attention heads of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadSizes {
    /// Query heads `h`.
    pub num_heads: usize,
    /// Key/value heads `g`.
    pub num_kv_heads: usize,
    /// Head width `c`.
    pub head_width: usize,
}

/// The tokens of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VocabularyInfo {
    /// Number of tokens with a logit, `v`.
    pub size: usize,
    /// Rows of the embedding table, at least `size`.
    pub embedding_size: usize,
    /// The mask token; `None` for autoregressive weights.
    pub mask: Option<u32>,
    /// Tokens that end a text. The tokenizer adds the token that ends a chat turn.
    pub end: Vec<u32>,
    /// True if the LM head shares the embedding table.
    pub tied: bool,
}

/// The number formats of a model in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormatInfo {
    /// Dtype in which matrices are stored and multiplied.
    pub matrices: WeightDtype,
    /// Number format of keys and values.
    pub kv: KvDtype,
}

/// The rows that an adapter changes; all others are computed as without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowGate {
    /// Rows of this mask.
    Masks(u32),
    /// Rows of open blocks ([`step::Row::open`]).
    OpenBlocks,
}

/// The rows that a row sees, and the row of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowInfo {
    /// The attention mask.
    pub attention: Attention,
    /// The row at which the prediction of a position is read.
    pub logit_shift: LogitShift,
    /// The rows that an adapter changes, if it changes some alone.
    pub gate: Option<RowGate>,
    /// The drafter that reads the rows of open blocks, if there is one.
    pub drafter: Option<DrafterInfo>,
}

/// A DFlash drafter: layers behind those of its target, which propose the tokens of a block at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrafterInfo {
    /// Number of its layers.
    pub layers: usize,
    /// The heads of its layers.
    pub heads: HeadSizes,
    /// Positions of a block, `2..=64`: the last final token and the masks behind it.
    pub block: u32,
    /// The mask token, below the number of embeddings.
    pub mask: u32,
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
    /// The heads of layers with full attention.
    pub full_heads: HeadSizes,
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
        let ids = self.vocabulary.end.iter().chain(&self.vocabulary.mask);
        let named = ids.map(|id| as_index(*id) + 1).max().unwrap_or(0);
        if self.canvas.is_none() {
            self.vocabulary.size = self.vocabulary.size.min(tokens.max(named).max(3));
        }
    }

    /// Bytes of keys and values per position, all layers together with scales, and of a canvas model's
    /// mean embedding, which is f32.
    pub fn kv_bytes_per_position(&self) -> usize {
        self.kv_bytes_in(self.formats.kv)
    }

    /// Numbers in keys and values per position, and in a canvas model's mean embedding.
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
    /// then of those with full attention, then of a drafter's layers.
    pub(crate) fn kv_sizes(&self, dtype: KvDtype, page: usize, pages: usize) -> Vec<KvSizes> {
        let sizes = |layers: usize, heads: HeadSizes| KvSizes {
            dtype,
            layers,
            num_kv_heads: heads.num_kv_heads,
            head_width: heads.head_width,
            page,
            pages,
        };
        let own = sizes(self.layers, self.heads);
        match (self.canvas, self.rows.drafter) {
            (None, None) => vec![own],
            (None, Some(drafter)) => vec![own, sizes(drafter.layers, drafter.heads)],
            (Some(canvas), _) => vec![
                sizes(self.layers - canvas.full_layers, self.heads),
                sizes(canvas.full_layers, canvas.full_heads),
            ],
        }
    }

    /// A one-line description: family, parameters, geometry, KV bytes, token ids.
    pub fn describe(&self) -> String {
        format!(
            "{}, {:.2} M parameters: {} layers of width {}, {} heads ({} key/value) of {}, \
             MLP {}; vocabulary {}, {} positions, {} KV bytes each; {}, end {:?}{}",
            self.family,
            self.parameters as f64 / 1e6,
            self.layers,
            self.width,
            self.heads.num_heads,
            self.heads.num_kv_heads,
            self.heads.head_width,
            self.mlp_width,
            self.vocabulary.size,
            self.max_positions,
            self.kv_bytes_per_position(),
            self.vocabulary
                .mask
                .map_or_else(|| "no mask".to_owned(), |mask| format!("mask {mask}")),
            self.vocabulary.end,
            self.rows.drafter.map_or_else(String::new, |drafter| {
                format!(
                    "; DFlash drafter of {} layers for blocks of {}",
                    drafter.layers, drafter.block
                )
            })
        )
    }
}
