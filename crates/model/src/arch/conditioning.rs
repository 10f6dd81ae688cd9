//! Loads what conditions a canvas on its last step.

use super::block::CanvasParts;
use super::embedding::SourceTable;
use super::load::Loader;
use super::source::Matrix;
use crate::LoadError;
use crate::config::CanvasSpec;
use crate::info::CanvasInfo;
use crate::memory::floats;
use kernels::{Epilogue, Numbers, RopeSpec, Storage, Stored, StoredVector, WeightDtype};

impl<S: Storage> Loader<'_, S> {
    /// The parts of a canvas model outside of its layers.
    pub(super) fn canvas_parts(
        &mut self,
        spec: &CanvasSpec,
        info: &CanvasInfo,
        table: &SourceTable,
    ) -> Result<CanvasParts<S>, LoadError> {
        let (d, vocab) = (self.spec.info.width, self.spec.info.vocabulary.size);
        let (width, positions) = (info.full_heads.head_width, self.spec.info.max_positions);
        let plain = RopeSpec::plain(spec.rope.theta, width, positions);
        let rope_table = self.rope_table_of(RopeSpec { turning: spec.turning, ..plain })?;
        let prefix = "model.decoder.self_conditioning";
        let pre_norm = self.norm(format!("{prefix}.pre_norm"))?;
        let mlp = self.gated_at(prefix, self.spec.info.mlp_width)?;
        let ones = self.ones(d)?;
        let transposed = table.transposed(vocab, d);
        // Probabilities have a wide range: 8 bits would not hold them. Blocks of rows are none of columns.
        let dtype = match self.weights.dtype {
            WeightDtype::Int8 | WeightDtype::Int8w | WeightDtype::Int4 => WeightDtype::Bf16,
            WeightDtype::Blocks if table.is_in_blocks() => WeightDtype::Bf16,
            _ => self.dtype_of(&[Matrix {
                name: self.names.embedding.to_owned(),
                rows: vocab,
                bias: false,
            }]),
        };
        let soft = Stored {
            shape: [d, vocab],
            numbers: Numbers::Floats(&transposed),
            bias: None,
            dtype,
            epilogue: Epilogue::None,
        };
        let rows = self.spec.info.vocabulary.embedding_size;
        let extra_bytes = floats(d.saturating_mul(vocab)).saturating_add(table.bytes(rows, d));
        let soft = self.stored(self.names.embedding, soft, extra_bytes)?;
        Ok(CanvasParts { rope_table, pre_norm, mlp, ones, soft, cap: spec.cap })
    }

    fn ones(&mut self, count: usize) -> Result<S::Vector, LoadError> {
        let numbers = vec![1.0; if self.weights.reads { count } else { 0 }];
        self.vector(StoredVector { count, numbers: &numbers })
    }
}
