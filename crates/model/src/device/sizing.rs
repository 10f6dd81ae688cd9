//! What a model takes of a device's memory: its weights, the arrays of the largest step, and keys
//! and values in what is left.
//!
//! Everything that a step works in is taken before the KV pool is, for the largest step there can
//! be: the row budget, or the longest sequence in one forward pass where that has more rows. Later
//! steps allocate nothing and so cannot run out of memory. A sequence whose forward tries several
//! branches over all of its positions (`draft_verify` without a cache) may have more rows than
//! that; its arrays then come out of what the pool leaves.

use super::DeviceModel;
use crate::arch::weigh;
use crate::{Checkpoint, LoadError, ModelInfo, WeightDtype};
use kernels::device::{
    AttentionSizes, BatchArrays, BatchLimits, BatchShape, Device, DeviceBatch, DeviceError,
    DeviceScores, Precision,
};
use kernels::{AttentionSegment, Draw, LogitBias, ScorerRow};

/// Numbers that a row of a padded array is a multiple of.
const PAD: usize = 64;
/// What rows are padded to a multiple of: the height of a product's tile, which is computed anyway.
pub(super) const ROWS: usize = 64;
/// Bytes of logits that exist at a time, of rows whose logits the host wants.
const LOGIT_BYTES: usize = 32 << 20;
/// Changes of logits per sequence that there is room for, beside a penalty for every token of its
/// text.
const BIASES: usize = 512;
/// A driver rounds allocations up: so small a part of what is free is left.
const SLACK: u64 = 100;

/// Memory for keys and values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KvMemory {
    /// So many bytes.
    Bytes(u64),
    /// What weights and the largest step leave of a share, in 0..=1, of the device's memory.
    Share(f64),
}

/// Sizes of an executor on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceConfig {
    /// Slots per KV page, at least 1.
    pub page_size: u32,
    /// Row budget of a step. A sequence alone may have as many rows as it has positions.
    pub rows: u32,
    /// Most positions of a sequence.
    pub positions: u32,
    /// Most sequences of a step.
    pub sequences: u32,
    /// Memory for keys and values.
    pub kv: KvMemory,
}

impl DeviceConfig {
    /// Pages of the longest sequence.
    fn least_pages(&self) -> u32 {
        self.positions.div_ceil(self.page_size.max(1))
    }

    /// Bytes that a model may take of a device with so many free and in all: those that are free,
    /// and no more than its share.
    #[must_use]
    pub fn allowance(&self, (free, total): (u64, u64)) -> u64 {
        match self.kv {
            KvMemory::Bytes(_) => free,
            KvMemory::Share(share) => free.min(part(total, share)),
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
    /// What a checkpoint needs with matrices kept as `dtype`, from its configuration alone: the
    /// bytes that loading and [`super::DeviceExecutor::new`] allocate. Keys and values are as many
    /// as were asked for; where they get what is left, those of one sequence.
    ///
    /// # Errors
    /// A configuration that cannot be read, or a model without kernels on a device.
    pub fn needed(
        checkpoint: &mut Checkpoint,
        dtype: WeightDtype,
        config: &DeviceConfig,
    ) -> Result<Self, LoadError> {
        let chosen = std::mem::replace(&mut checkpoint.weights.dtype, dtype);
        let weighed = weigh(&checkpoint.config, &checkpoint.weights);
        checkpoint.weights.dtype = chosen;
        let (weights, info) = weighed?;
        let precision = DeviceModel::precision(&info).map_err(LoadError::Setup)?;
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

    /// All of it.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.weights
            .saturating_add(self.step)
            .saturating_add(self.kv)
    }
}

/// The largest step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Rows of its arrays.
    pub(super) rows: usize,
    /// Most slots that a row sees.
    positions: usize,
    sequences: usize,
    /// Entries of all page tables.
    pages: usize,
}

impl Step {
    /// Of a model and a configuration.
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

    /// What attention takes.
    pub(super) fn attention(&self, info: &ModelInfo) -> AttentionSizes {
        AttentionSizes {
            rows: self.rows,
            heads: info.heads,
            groups: info.groups,
            head_width: info.head_width,
            visible: BatchShape::context(self.positions),
        }
    }

    /// Rows that are scored at a time.
    pub(super) fn chunk(&self) -> usize {
        self.rows.min(DeviceScores::CHUNK)
    }

    /// Of these, rows whose logits exist at a time if the host wants them.
    pub(super) fn hosted(&self, info: &ModelInfo) -> usize {
        let rows = LOGIT_BYTES / (4 * info.vocab_size.max(1));
        rows.max(16).min(self.chunk())
    }

    /// Bytes of all arrays of an executor but its KV pool.
    fn bytes(&self, info: &ModelInfo, precision: Precision) -> u64 {
        let (d, inner) = (info.width, info.heads * info.head_width);
        let all = inner + 2 * info.groups * info.head_width;
        let plain = |rows: usize, width: usize, bytes: usize| {
            rows.saturating_mul(width).saturating_mul(bytes)
        };
        let [records, present, parts] = DeviceScores::bytes(precision, info.vocab_size, self.rows);
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
            parts,
            grown(self.words(info).saturating_mul(4)),
        ];
        arrays
            .iter()
            .fold(0, |sum: u64, bytes| sum.saturating_add(*bytes as u64))
    }

    /// Biases of all sequences, and words of a set of allowed tokens for each.
    fn lists(&self, info: &ModelInfo) -> (usize, usize) {
        let texts = self.positions.min(info.vocab_size) + BIASES;
        let sets = info.vocab_size.div_ceil(32);
        (
            self.sequences.saturating_mul(texts),
            self.sequences.saturating_mul(sets),
        )
    }

    /// Words of the largest batch: per row four of its own, one where it is scored, nine of its
    /// scorer, one where the host wants its logits and four of its tile.
    fn words(&self, info: &ModelInfo) -> usize {
        let (biases, allowed) = self.lists(info);
        let rows = self.rows.saturating_mul(4 + 1 + 9 + 1);
        rows.saturating_add(grown(self.rows).saturating_mul(4))
            .saturating_add(self.pages)
            .saturating_add(biases.saturating_mul(3))
            .saturating_add(allowed)
    }

    /// Room on the device for the largest batch: uploads one.
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
            visible: &rows,
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
        // A tile for every row is the most there can be.
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

/// Bytes that are free now.
pub(super) fn free(device: &Device) -> Result<u64, LoadError> {
    Ok(device.memory().map_err(failed)?.0)
}

/// The pages of a KV pool, once weights and step have their memory.
///
/// # Errors
/// If there is no room for the longest sequence, or not for what was asked for.
pub(super) fn pages(model: &DeviceModel, config: &DeviceConfig) -> Result<u32, LoadError> {
    let (free, total) = model.device.memory().map_err(failed)?;
    let page = model.kv_bytes_per_position() as u64 * u64::from(config.page_size);
    let needed = u64::from(config.least_pages()).saturating_mul(page);
    let bytes = match config.kv {
        KvMemory::Bytes(bytes) => bytes,
        KvMemory::Share(share) => {
            let taken = model.free.saturating_sub(free);
            let left = part(total, share).saturating_sub(taken);
            left.min((free - free / SLACK).max(needed))
        }
    };
    let most = u32::MAX / config.page_size.max(1);
    let pages = u32::try_from(bytes / page.max(1)).unwrap_or(u32::MAX);
    if pages < config.least_pages() {
        return Err(LoadError::Setup(format!(
            "KV pages: expected room for {needed} bytes, one sequence of {} positions, found \
             {bytes}",
            config.positions,
        )));
    }
    if u64::from(pages).saturating_mul(page) > free {
        return Err(LoadError::Setup(format!(
            "KV pages: expected at most {free} bytes, which are free, found {bytes}"
        )));
    }
    Ok(pages.min(most))
}

/// Bytes of a padded array.
pub(crate) fn padded(precision: Precision, rows: usize, width: usize) -> usize {
    let stride = width.next_multiple_of(PAD);
    rows.saturating_mul(stride)
        .saturating_mul(precision.bytes())
}

/// Bytes of an array that grows with its batches.
fn grown(bytes: usize) -> usize {
    bytes.checked_next_power_of_two().unwrap_or(usize::MAX)
}

/// Bytes of keys and values of a position.
fn position(info: &ModelInfo, precision: Precision) -> u64 {
    (2 * info.layers * info.groups * info.head_width * precision.bytes()) as u64
}

/// A share of some bytes.
fn part(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share.clamp(0.0, 1.0)) as u64
}

fn failed(error: DeviceError) -> LoadError {
    LoadError::Setup(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `crates/kernels/cuda/README.md` says.
    #[test]
    fn attention_over_long_contexts() {
        let of = |length| {
            let sizes = AttentionSizes {
                rows: length,
                heads: 32,
                groups: 32,
                head_width: 128,
                visible: length,
            };
            sizes.bytes().iter().sum::<usize>() >> 20
        };
        assert_eq!(of(2048), 130);
        assert_eq!([4096, 40_960].map(of), [511; 2]);
    }

    #[test]
    fn sizes_beyond_all_bounds_are_no_panic() {
        assert_eq!(grown(usize::MAX), usize::MAX);
        assert_eq!(padded(Precision::F32, usize::MAX, 1), usize::MAX);
        assert_eq!(part(u64::MAX, f64::NAN), 0);
        assert_eq!(part(1000, 7.0), 1000);
    }
}
