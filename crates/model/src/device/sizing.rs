//! The memory of a model on a device: its weights, the arrays of the largest step, and the KV pool
//! in the rest.
//!
//! The arrays of a step are allocated before the KV pool, for the largest possible step: the row
//! budget, or the longest sequence in one forward pass if that has more rows. Later steps allocate
//! nothing and so cannot run out of memory. Exception: a sequence whose forward tries several
//! branches over all of its positions (`draft_verify` without a cache) may have more rows than
//! that; its arrays are then allocated from the memory that the pool leaves free.

use super::{DeviceModel, padded, precision};
use crate::arch::device_bytes;
use crate::{Checkpoint, LoadError, ModelInfo, WeightDtype};
use kernels::device::{
    AttentionSizes, BatchArrays, BatchLimits, BatchShape, Device, DeviceBatch, DeviceError,
    DeviceScores, Precision,
};
use kernels::{AttentionSegment, Draw, LogitBias, ScorerRow, Visible};

/// Row counts are padded to a multiple of this: the height of a matrix product's tile, which is
/// computed anyway.
pub(super) const ROWS: usize = 64;
/// Maximum bytes of logits at a time, for rows that the host scores.
const LOGIT_BYTES: usize = 32 << 20;
/// Logit biases per sequence to allocate for, in addition to a penalty for every token of its text.
const BIASES: usize = 512;
/// One part in `SLACK` of the free memory stays unused, because drivers round allocations up.
const SLACK: u64 = 100;

/// Memory for keys and values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KvMemory {
    /// A fixed number of bytes.
    Bytes(u64),
    /// A share of the device's memory, in 0..=1, minus weights and the arrays of the largest step.
    Share(f64),
}

/// Sizes of an executor on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceConfig {
    /// Slots per KV page, at least 1.
    pub page_size: u32,
    /// Row budget of a step. A single sequence may have as many rows as it has positions.
    pub rows: u32,
    /// Maximum positions of a sequence.
    pub positions: u32,
    /// Maximum sequences of a step.
    pub sequences: u32,
    /// Memory for keys and values.
    pub kv: KvMemory,
}

impl DeviceConfig {
    /// Pages of the longest sequence.
    fn least_pages(&self) -> u32 {
        self.positions.div_ceil(self.page_size.max(1))
    }

    /// Maximum bytes that a model may take of a device with `free` of `total` bytes: the free
    /// bytes, limited by the configured share.
    #[must_use]
    pub fn allowance(&self, (free, total): (u64, u64)) -> u64 {
        match self.kv {
            KvMemory::Bytes(_) => free,
            KvMemory::Share(share) => free.min(share_of(total, share)),
        }
    }
}

/// Bytes of a device's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Matrices, embedding table, norms, rotary angles.
    pub weights: u64,
    /// Arrays of the largest step.
    pub step: u64,
    /// Keys and values.
    pub kv: u64,
}

impl DeviceMemory {
    /// The bytes that loading a checkpoint with matrices in `dtype` and
    /// [`super::DeviceExecutor::new`] allocate, computed from the configuration. `kv` is the
    /// configured number of bytes, rounded down to pages; with [`KvMemory::Share`] it is the
    /// minimum, one sequence of maximum length.
    ///
    /// # Errors
    /// If the configuration is invalid, or the model has no device kernels.
    pub fn needed(
        checkpoint: &mut Checkpoint,
        dtype: WeightDtype,
        config: &DeviceConfig,
    ) -> Result<Self, LoadError> {
        let chosen = std::mem::replace(&mut checkpoint.weights.dtype, dtype);
        let computed = device_bytes(&checkpoint.config, &checkpoint.weights);
        checkpoint.weights.dtype = chosen;
        let (weights, info) = computed?;
        let precision = precision(&info).map_err(LoadError::Setup)?;
        let page = u64::from(config.page_size) * position(&info, precision);
        Ok(Self {
            weights,
            step: Step::new(&info, config).bytes(&info, precision),
            kv: match config.kv {
                KvMemory::Bytes(bytes) => bytes / page.max(1) * page,
                KvMemory::Share(_) => u64::from(config.least_pages()).saturating_mul(page),
            },
        })
    }

    /// The total.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.weights
            .saturating_add(self.step)
            .saturating_add(self.kv)
    }
}

/// The sizes of the largest step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Rows of the arrays.
    pub(super) rows: usize,
    /// Maximum slots that a row sees.
    positions: usize,
    sequences: usize,
    /// Entries of all page tables.
    pages: usize,
}

impl Step {
    /// The largest step of a model with this configuration.
    pub(super) fn new(info: &ModelInfo, config: &DeviceConfig) -> Self {
        let positions = (config.positions as usize).min(info.max_positions);
        let rows = positions.max(config.rows as usize).max(1);
        let sequences = (config.sequences as usize).clamp(1, rows);
        Self {
            rows: rows.next_multiple_of(ROWS),
            positions,
            sequences,
            pages: sequences.saturating_mul(config.least_pages() as usize),
        }
    }

    /// The sizes of attention's scratch memory.
    pub(super) fn attention(&self, info: &ModelInfo) -> AttentionSizes {
        AttentionSizes {
            rows: self.rows,
            heads: info.heads,
            groups: info.groups,
            head_width: info.head_width,
            reach: BatchShape::context(self.positions),
        }
    }

    /// Rows that are scored at a time.
    pub(super) fn chunk(&self) -> usize {
        self.rows.min(DeviceScores::CHUNK)
    }

    /// Rows whose logits are computed at a time for the host; at most [`Self::chunk`].
    pub(super) fn hosted(&self, info: &ModelInfo) -> usize {
        let rows = LOGIT_BYTES / (4 * info.vocab_size.max(1));
        rows.max(16).min(self.chunk())
    }

    /// Bytes of all arrays of an executor, without its KV pool.
    fn bytes(&self, info: &ModelInfo, precision: Precision) -> u64 {
        let (d, inner) = (info.width, info.heads * info.head_width);
        let all = inner + 2 * info.groups * info.head_width;
        let plain = |rows: usize, width: usize, bytes: usize| {
            rows.saturating_mul(width).saturating_mul(bytes)
        };
        let [records, present, tiles] = DeviceScores::bytes(precision, info.vocab_size, self.rows);
        let [partial, sums] = self.attention(info).bytes();
        let rows = self.rows;
        let arrays = [
            plain(rows, d, 4),
            padded(precision, rows, d),
            plain(rows, all, 4),
            plain(rows, inner, precision.bytes()),
            padded(precision, rows, inner),
            padded(precision, rows, info.mlp_width),
            partial,
            sums,
            padded(precision, self.chunk(), d),
            plain(self.hosted(info), info.vocab_size, 4),
            records,
            present,
            tiles,
            grown(self.words(info).saturating_mul(4)),
        ];
        arrays
            .iter()
            .fold(0, |sum: u64, bytes| sum.saturating_add(*bytes as u64))
    }

    /// Number of biases of all sequences, and words of their sets of allowed tokens.
    fn lists(&self, info: &ModelInfo) -> (usize, usize) {
        let texts = self.positions.min(info.vocab_size) + BIASES;
        let sets = info.vocab_size.div_ceil(32);
        (
            self.sequences.saturating_mul(texts),
            self.sequences.saturating_mul(sets),
        )
    }

    /// Words of the largest batch: per row eight for the row, one if it is scored, nine for
    /// its scorer, one if the host scores it, and five for its tile.
    fn words(&self, info: &ModelInfo) -> usize {
        let (biases, allowed) = self.lists(info);
        let rows = self.rows.saturating_mul(8 + 1 + 9 + 1);
        rows.saturating_add(grown(self.rows).saturating_mul(5))
            .saturating_add(self.pages)
            .saturating_add(biases.saturating_mul(3))
            .saturating_add(allowed)
    }

    /// Allocates memory on the device for the largest batch by uploading one.
    pub(super) fn batch(
        &self,
        device: &Device,
        info: &ModelInfo,
    ) -> Result<DeviceBatch, DeviceError> {
        let (rows, (biases, allowed)) = (vec![0; self.rows], self.lists(info));
        let scorer = ScorerRow {
            input: 0,
            position: 0,
            biases: 0..0,
            allowed: None,
            tops: 0,
            draw: 0,
        };
        let draw = Draw {
            temperature: 0.0,
            top_p: 1.0,
            min_p: 0.0,
            top_k: 0,
            seed: 0,
            clock: 0,
        };
        let bias = LogitBias {
            token: 0,
            repetition: 1.0,
            amount: 0.0,
        };
        let arrays = BatchArrays {
            tokens: &rows,
            positions: &rows,
            slots: &rows,
            visible: &vec![Visible::default(); self.rows],
            segments: &[AttentionSegment {
                rows: 0..self.rows as u32,
                pages: 0..0,
            }],
            pages: &vec![0; self.pages],
            scored: &rows,
            scorers: &vec![scorer; self.rows],
            biases: &vec![bias; biases],
            allowed: &vec![0; allowed],
            set_words: info.vocab_size.div_ceil(32),
            hosted: &rows,
            draws: &[draw],
            copies: &[],
        };
        // A tile per row is the maximum.
        let limits = BatchLimits {
            tokens: 1,
            positions: 1,
            vocab: info.vocab_size,
            pages: 1,
            page: 1,
            tile: 1,
            pad: ROWS,
        };
        let mut batch = DeviceBatch::default();
        batch.upload(device, &arrays, &limits)?;
        Ok(batch)
    }
}

/// Bytes of the device that are free now.
pub(super) fn free(device: &Device) -> Result<u64, LoadError> {
    Ok(device.memory().map_err(failed)?.0)
}

/// The number of pages of the KV pool, after weights and step arrays were allocated.
///
/// # Errors
/// If the longest sequence or the configured number of bytes does not fit.
pub(super) fn pages(model: &DeviceModel, config: &DeviceConfig) -> Result<u32, LoadError> {
    let (free, total) = model.device.memory().map_err(failed)?;
    let page = model.kv_bytes_per_position() as u64 * u64::from(config.page_size);
    let needed = u64::from(config.least_pages()).saturating_mul(page);
    let bytes = match config.kv {
        KvMemory::Bytes(bytes) => bytes,
        KvMemory::Share(share) => {
            let taken = model.free.saturating_sub(free);
            let left = share_of(total, share).saturating_sub(taken);
            left.min((free - free / SLACK).max(needed))
        }
    };
    let most = u32::MAX / config.page_size.max(1);
    let pages = u32::try_from(bytes / page.max(1)).unwrap_or(u32::MAX);
    if pages < config.least_pages() {
        return Err(LoadError::Setup(format!(
            "KV pages: expected at least {needed} bytes for one sequence of {} positions, found \
             {bytes}",
            config.positions,
        )));
    }
    if u64::from(pages).saturating_mul(page) > free {
        return Err(LoadError::Setup(format!(
            "KV pages: expected at most the {free} free bytes, found {bytes}"
        )));
    }
    Ok(pages.min(most))
}

/// Bytes allocated for an array that grows by powers of two.
fn grown(bytes: usize) -> usize {
    bytes.checked_next_power_of_two().unwrap_or(usize::MAX)
}

/// Bytes of the keys and values of one position.
fn position(info: &ModelInfo, precision: Precision) -> u64 {
    (2 * info.layers * info.groups * info.head_width * precision.bytes()) as u64
}

/// A share of `bytes`, rounded down.
fn share_of(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share.clamp(0.0, 1.0)) as u64
}

fn failed(error: DeviceError) -> LoadError {
    LoadError::Setup(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures in `crates/kernels/cuda/README.md`.
    #[test]
    fn attention_over_long_contexts() {
        let of = |length| {
            let sizes = AttentionSizes {
                rows: length,
                heads: 32,
                groups: 32,
                head_width: 128,
                reach: length,
            };
            sizes.bytes().iter().sum::<usize>() >> 20
        };
        assert_eq!(of(2048), 130);
        assert_eq!([4096, 40_960].map(of), [511; 2]);
    }

    #[test]
    fn huge_sizes_do_not_panic() {
        assert_eq!(grown(usize::MAX), usize::MAX);
        assert_eq!(padded(Precision::F32, usize::MAX, 1), usize::MAX);
        assert_eq!(share_of(u64::MAX, f64::NAN), 0);
        assert_eq!(share_of(1000, 7.0), 1000);
    }
}
