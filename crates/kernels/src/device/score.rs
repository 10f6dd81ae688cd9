//! From rows of logits on a device to one record per row.

use super::array::{Array, Buffer, Precision};
use super::batch::{DeviceBatch, Of, SCORER_WORDS};
use super::{Device, Kernel, Result, args, refuse};
use crate::score::Scored;
use std::ops::Range;

const SCORE: Kernel = Kernel {
    name: "score",
    threads: 256,
    // Two ranked tokens of sixteen bytes per thread.
    shared: 2 * 256 * 16,
};
#[cfg_attr(
    not(feature = "cuda"),
    expect(dead_code, reason = "a driver looks them up")
)]
pub(super) const KERNELS: &[Kernel] = &[SCORE];

/// Numbers of a record.
const FIELDS: usize = 7;

/// Records of the scored rows of a batch. Their memory is used again.
#[derive(Default)]
pub struct DeviceScores {
    records: Option<Buffer>,
    bytes: Vec<u8>,
}

impl DeviceScores {
    /// Makes room for as many records.
    ///
    /// # Errors
    /// If the device has no room.
    pub fn reserve(&mut self, device: &Device, rows: usize) -> Result<()> {
        let bytes = rows * FIELDS * size_of::<f64>();
        if self
            .records
            .as_ref()
            .is_none_or(|records| records.bytes() < bytes)
        {
            self.records = None;
            self.records = Some(Buffer::new(device, bytes.next_power_of_two())?);
        }
        Ok(())
    }

    /// The first `rows` records, once everything before is done; none for a row whose logits are
    /// not numbers.
    ///
    /// # Errors
    /// If there are fewer, or the device fails.
    pub fn read(&mut self, rows: usize, to: &mut Vec<Option<Scored>>) -> Result<()> {
        let Some(records) = &self.records else {
            return refuse("no room for records");
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
}

/// Writes the records of a range of the batch's scored rows, whose logits are the first rows of
/// `logits [., v]`, f32; their biases are applied in place. Tops and filters of a row's draw are
/// left out.
///
/// # Errors
/// If an array has another shape, or the device fails.
pub fn score_rows(
    logits: &Array,
    batch: &DeviceBatch,
    range: Range<usize>,
    mask: u32,
    scores: &DeviceScores,
) -> Result<()> {
    let (rows, vocab) = (range.len(), logits.width());
    if range.end > batch.scored() || vocab < 3 || logits.stride() != vocab {
        return refuse(format!("scored rows {range:?} of {}", batch.scored()));
    }
    let Some(records) = &scores.records else {
        return refuse("no room for records");
    };
    let record = FIELDS * size_of::<f64>();
    let args = args::Score {
        logits: logits.checked(rows, vocab, Precision::F32)?,
        rows: batch.address(Of::Scorers, range.start * SCORER_WORDS)?,
        biases: batch.address(Of::Biases, 0)?,
        allowed: batch.allowed()?,
        out: records.range(range.start * record, rows * record)?,
        vocab: vocab as u32,
        mask,
    };
    // SAFETY: sizes are those of the arrays; biases and sets of the batch were checked against a
    // vocabulary that is the logits'.
    unsafe { logits.device().launch(SCORE, [rows as u32, 1, 1], &args) }
}
