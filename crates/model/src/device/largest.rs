//! The sizes of the largest step.

use super::DeviceConfig;
use crate::ModelInfo;
use kernels::device::{AttentionSizes, BatchShape, BatchSizes};

/// Row counts are padded to multiples of this, see [`BatchShape::rows`].
pub(super) const ROWS: usize = 64;
/// Logit biases per sequence to allocate for, in addition to a penalty for every token of its text.
const BIASES: usize = 512;

/// The sizes of the largest step of a configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct LargestStep {
    /// Rows of the arrays.
    pub(super) rows: usize,
    /// Maximum slots that a row sees.
    positions: usize,
    sequences: usize,
    /// Entries of all page tables.
    pages: usize,
}

impl LargestStep {
    /// The largest step of a model with this configuration.
    pub(super) fn new(info: &ModelInfo, config: &DeviceConfig) -> Self {
        let positions = (config.positions as usize).min(info.max_positions);
        let rows = positions.max(config.rows as usize).max(1);
        let sequences = (config.sequences as usize).clamp(1, rows);
        Self {
            rows: BatchShape::rows(rows, ROWS),
            positions,
            sequences,
            pages: sequences.saturating_mul(config.least_pages() as usize),
        }
    }

    /// The largest step's rows of open blocks, none of which has more than [`ROWS`] rows.
    pub(super) fn drafting(self, config: &DeviceConfig) -> Self {
        let rows = BatchShape::rows(config.rows as usize, ROWS).max(ROWS);
        Self { rows: rows.min(self.rows), ..self }
    }

    /// The sizes of attention's scratch memory, of the layers of each size.
    pub(super) fn attention(&self, info: &ModelInfo) -> Vec<AttentionSizes> {
        let sizes = info.kv_sizes(info.formats.kv, 1, 1);
        let attention = sizes.iter().map(|layer| AttentionSizes {
            rows: self.rows,
            heads: info.heads.num_heads,
            num_kv_heads: layer.num_kv_heads,
            head_width: layer.head_width,
            reach: BatchShape::context(self.positions),
        });
        attention.collect()
    }

    pub(super) fn batch(&self, info: &ModelInfo) -> BatchSizes {
        let texts = self.positions.min(info.vocabulary.size) + BIASES;
        let sets = info.vocabulary.size.div_ceil(32);
        BatchSizes {
            rows: self.rows,
            pages: self.pages,
            biases: self.sequences.saturating_mul(texts),
            allowed: self.sequences.saturating_mul(sets),
            canvas: info.canvas.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::device::DeviceLimits;

    /// The figures in `crates/kernels/cuda/README.md`.
    #[test]
    fn attention_over_long_contexts() {
        let keys = |length| {
            let sizes = AttentionSizes {
                rows: length,
                heads: 32,
                num_kv_heads: 32,
                head_width: 128,
                reach: length,
            };
            sizes.bytes(DeviceLimits::default()).iter().sum::<usize>() >> 20
        };
        assert_eq!(keys(2048), 136);
        assert_eq!([4096, 40_960].map(keys), [512, 516]);
    }
}
