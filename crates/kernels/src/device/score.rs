//! Scoring on a device: reduces the last hidden states of scored rows to one record per row.

use super::array::{Array, Buffer, Precision};
use super::batch::{DeviceBatch, SCORER_WORDS, Section};
use super::matrix::{DeviceMatrix, Tile, tile};
use super::{Device, Kernel, Result, args, refuse};
use crate::linear::Epilogue;
use crate::score::Scored;
use std::ops::Range;

const EXACT: Tile = Tile {
    kernel: Kernel {
        name: "head_f32",
        threads: 256,
        // A tile of logits; the operands take less.
        shared: 64 * (64 + 4) * 4,
    },
    sizes: [TALL, 64],
    warps: [2, 4],
};
const HEAD: Tile = tile("head_bf16", [TALL, 128], [2, 4], 4);
const FOLD: Kernel = Kernel {
    name: "fold_partials",
    threads: 128,
    // Two ranked tokens of sixteen bytes per thread.
    shared: 2 * 128 * 16,
};
pub(super) const KERNELS: &[Kernel] = &[EXACT.kernel, HEAD.kernel, FOLD];
/// The tiles of the LM head's kernels.
pub(super) const TILES: &[Tile] = &[EXACT, HEAD];

/// Rows of a tile of the LM head.
const TALL: usize = 64;
/// Bytes of a partial record: one row and one tile of the vocabulary; `Partial` of the kernels.
pub(super) const PARTIAL_BYTES: usize = 48;
/// Numbers of a record.
pub(super) const FIELDS: usize = 7;

/// The tile of a precision.
fn head(precision: Precision) -> Tile {
    match precision {
        Precision::F32 => EXACT,
        Precision::Bf16 => HEAD,
    }
}

/// Records of the scored rows of a batch, and their partial records. The memory is reused.
#[derive(Default)]
pub struct DeviceScores {
    records: Option<Buffer>,
    partials: Option<Buffer>,
    present: Option<Buffer>,
    bytes: Vec<u8>,
}

/// A range of a batch's scored rows.
#[derive(Clone)]
pub struct ScoredRows<'a> {
    /// The batch.
    pub batch: &'a DeviceBatch,
    /// Numbers of the rows among the scored ones.
    pub range: Range<usize>,
}

impl DeviceScores {
    /// Maximum rows scored at a time; partial records exist for this many rows.
    pub const CHUNK: usize = 1024;

    /// Allocates memory for `rows` records with this LM head.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn reserve(&mut self, head: &DeviceMatrix, rows: usize) -> Result<()> {
        let [records, present, partials] = Self::bytes(head.precision(), head.width(), rows);
        let device = head.device();
        grow(&mut self.records, device, records)?;
        grow(&mut self.present, device, present)?;
        grow(&mut self.partials, device, partials)
    }

    /// Bytes that [`Self::reserve`] allocates for `rows` rows of `vocab` logits: records, logits of
    /// input tokens, partial records.
    #[must_use]
    pub fn bytes(precision: Precision, vocab: usize, rows: usize) -> [usize; 3] {
        let chunk = rows.min(Self::CHUNK);
        let tiles = vocab.div_ceil(head(precision).sizes[1]);
        let record = FIELDS * size_of::<f64>();
        [
            rows.saturating_mul(record),
            chunk * size_of::<f32>(),
            chunk.saturating_mul(tiles).saturating_mul(PARTIAL_BYTES),
        ]
        .map(|bytes| bytes.checked_next_power_of_two().unwrap_or(usize::MAX))
    }

    /// Waits for all earlier work and reads the first `rows` records. The record of a row with a NaN
    /// or infinite logit is `None`.
    ///
    /// # Errors
    /// If fewer records were reserved, or the device fails.
    pub fn read(&mut self, rows: usize, to: &mut Vec<Option<Scored>>) -> Result<()> {
        let Some(records) = &self.records else {
            return refuse("no memory was reserved for records");
        };
        self.bytes.resize(rows * FIELDS * size_of::<f64>(), 0);
        records.download(0, &mut self.bytes)?;
        let fields = self.bytes.as_chunks::<8>().0;
        for record in fields.as_chunks::<FIELDS>().0 {
            let [
                token,
                probability,
                runner_up,
                runner_up_probability,
                entropy,
                gap,
                present,
            ] = record.map(f64::from_le_bytes);
            let odd = token.is_nan() || probability.is_nan() || entropy.is_nan();
            to.push((!odd).then_some(Scored {
                token: token as u32,
                probability,
                runner_up: runner_up as u32,
                runner_up_probability,
                entropy,
                gap,
                present,
            }));
        }
        Ok(())
    }

    /// Writes the records of a range of at most [`Self::CHUNK`] of the batch's scored rows. Their
    /// normalised hidden states are the first rows of `x [., d]`, padded. Computes the product with
    /// the LM head `[v, d]`, applies biases and sets of allowed tokens, and reduces each row without
    /// storing its logits. Ignores tops and sampling filters.
    ///
    /// # Errors
    /// If an array has another shape, or the device fails.
    pub fn score(
        &self,
        lm_head: &DeviceMatrix,
        x: &Array,
        scored: ScoredRows<'_>,
        mask: u32,
    ) -> Result<()> {
        let ScoredRows { batch, range } = scored;
        let (rows, vocab) = (range.len(), lm_head.width());
        if range.end > batch.scored() || rows > Self::CHUNK || vocab < 3 {
            return refuse(format!("scored rows {range:?} of {}", batch.scored()));
        }
        if lm_head.epilogue() != Epilogue::None {
            return refuse("expected an LM head without a gate");
        }
        let (Some(records), Some(partials), Some(present)) =
            (&self.records, &self.partials, &self.present)
        else {
            return refuse("no memory was reserved for records");
        };
        let tile = head(lm_head.precision());
        let columns = tile.sizes[1];
        let count = vocab.div_ceil(columns);
        let record = FIELDS * size_of::<f64>();
        let args = args::Head {
            of: lm_head.operands(x, rows)?,
            bias: lm_head.bias()?,
            rows: batch.address(Section::Scorers, range.start * SCORER_WORDS)?,
            words: batch.address(Section::Words, 0)?,
            partials: partials.range(0, rows * count * PARTIAL_BYTES)?,
            present: present.range(0, rows * size_of::<f32>())?,
            mask,
        };
        let fold = args::Fold {
            partials: args.partials,
            present: args.present,
            rows: args.rows,
            out: records.range(range.start * record, rows * record)?,
            count: count as u32,
            columns: columns as u32,
            vocab: vocab as u32,
        };
        let device = x.device();
        // SAFETY: sizes are those of the arrays; biases and sets of the batch were checked against a
        // vocabulary that is the head's.
        unsafe {
            device.launch(tile.kernel, lm_head.grid(rows, tile.sizes)?, &args)?;
            device.launch(FOLD, [rows as u32, 1, 1], &fold)
        }
    }
}

fn grow(buffer: &mut Option<Buffer>, device: &Device, bytes: usize) -> Result<()> {
    if buffer.as_ref().is_none_or(|buffer| buffer.bytes() < bytes) {
        *buffer = None;
        *buffer = Some(Buffer::new(device, bytes)?);
    }
    Ok(())
}
