//! Results of rows in addition to their candidates: a token that passes filters, and the most probable
//! tokens.

use super::array::{Buffer, grow};
use super::batch::{MOST_TOPS, SCORER_WORDS, ScoredRows, Section};
use super::{Device, DeviceLimits, Kernel, Result, args, kernel, refuse};
use step::TopToken;

const LIST: Kernel = kernel("list_tops", 256, 256 * (8 + 4));
const FILTER: Kernel = kernel("filter_rows", 256, 2 * 256 * 16);
pub(super) const KERNELS: &[Kernel] = &[LIST, FILTER];

/// Bytes of a most probable token; `Top` of the kernels.
const TOP_BYTES: usize = 16;
/// Rows whose logits are kept at a time at least.
const FEWEST: usize = 64;
/// The logits of some rows, and the lists of most probable tokens. The memory is reused.
#[derive(Default)]
pub(super) struct RowExtras {
    logits: Option<Buffer>,
    tops: Option<Buffer>,
    bytes: Vec<u8>,
}

impl RowExtras {
    /// Rows whose logits are kept at a time.
    pub(super) fn rows(limits: DeviceLimits, vocab: usize, most: usize) -> usize {
        let rows = limits.logit_bytes / size_of::<f32>() / vocab.max(1);
        (rows / FEWEST * FEWEST).max(FEWEST).min(most)
    }

    /// Allocates memory for batches with `rows` scored rows, `most` of which are scored at a time,
    /// unless there is more.
    pub(super) fn reserve(
        &mut self,
        device: &Device,
        vocab: usize,
        rows: usize,
        most: usize,
    ) -> Result<()> {
        let logits = Self::rows(device.limits(), vocab, rows.min(most)).saturating_mul(vocab);
        let logits = logits.saturating_mul(size_of::<f32>());
        let tops = rows.saturating_mul(MOST_TOPS * TOP_BYTES);
        grow(&mut self.logits, device, logits)?;
        grow(&mut self.tops, device, tops)
    }

    /// The address of the logits of `rows` rows.
    pub(super) fn logits(&self, rows: usize, vocab: usize) -> Result<u64> {
        match &self.logits {
            Some(logits) => logits.range(0, rows * vocab * size_of::<f32>()),
            None => refuse("no memory was reserved for logits"),
        }
    }

    /// Completes the records at `out` of a range of scored rows, whose logits were kept.
    pub(super) fn complete(
        &self,
        ScoredRows { batch, range }: ScoredRows<'_>,
        vocab: usize,
        mask: u32,
        out: u64,
    ) -> Result<()> {
        let Some(tops) = &self.tops else {
            return refuse("no memory was reserved for most probable tokens");
        };
        let device = tops.device();
        let args = args::Filters {
            pad: 0,
            logits: self.logits(range.len(), vocab)?,
            rows: batch.address(Section::Scorers, range.start * SCORER_WORDS)?,
            out,
            tops: tops.range(0, batch.scored() * MOST_TOPS * TOP_BYTES)?,
            words: batch.address(Section::Words, 0)?,
            vocab: vocab as u32,
            mask,
            digits: usize::BITS - (vocab - 1).leading_zeros(),
        };
        // SAFETY: the buffers have these sizes; a row lists at most `MOST_TOPS` tokens, which was
        // checked.
        unsafe {
            let grid = [range.len() as u32, 1, 1];
            device.launch(LIST, grid, &args)?;
            device.launch(FILTER, grid, &args)
        }
    }

    /// Waits for all earlier work and appends the first `count` most probable tokens of a pass.
    pub(super) fn read(&mut self, count: usize, found: &mut Vec<TopToken>) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let Some(tops) = &self.tops else {
            return refuse("no memory was reserved for most probable tokens");
        };
        self.bytes.resize(count * TOP_BYTES, 0);
        tops.download(0, &mut self.bytes)?;
        for top in self.bytes.as_chunks::<TOP_BYTES>().0 {
            let [token, _, low, high] = [0, 4, 8, 12]
                .map(|i| u32::from_le_bytes([top[i], top[i + 1], top[i + 2], top[i + 3]]));
            found.push(TopToken {
                token,
                logprob: f64::from_bits(u64::from(high) << 32 | u64::from(low)) as f32,
            });
        }
        Ok(())
    }
}
