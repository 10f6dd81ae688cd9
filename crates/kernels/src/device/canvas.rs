//! Operations for canvas models (DiffusionGemma): norms of sums and of some rows, factors by the kind
//! of a row, and the mean embeddings of scored rows, which are kept by slot.

use super::array::{Array, Buffer, Precision, select};
use super::batch::{DeviceBatch, SCORER_WORDS, ScoredRows, Section};
use super::filters::RowExtras;
use super::matrix::DeviceMatrix;
use super::rows::{RowNorm, copy_in};
use super::{Device, Kernel, Result, args, kernel, refuse};

const NORM_ADD: Kernel = kernel("norm_add", 256, 128);
const NORM_DENOISED: Kernel = kernel("norm_denoised", 256, 128);
const SCALE: Kernel = kernel("scale_rows", 256, 0);
const CLEAR: Kernel = kernel("clear_rows", 256, 0);
const READ: Kernel = kernel("read_means", 256, 0);
const KEEP: Kernel = kernel("keep_means", 256, 0);
const SOFTMAX: [Kernel; 2] = [kernel("softmax_f32", 256, 128), kernel("softmax_bf16", 256, 128)];
pub(super) const KERNELS: &[Kernel] =
    &[NORM_ADD, NORM_DENOISED, SCALE, CLEAR, READ, KEEP, SOFTMAX[0], SOFTMAX[1]];

/// The arguments of an operation on the first rows of an array `[r, d]`, f32.
fn rowwise(x: &Array, rows: usize) -> Result<args::Rowwise> {
    let d = x.width();
    if x.stride() != d {
        return refuse("expected rows without padding");
    }
    Ok(args::Rowwise {
        x: 0,
        weight: 0,
        kinds: 0,
        out: x.checked(rows, d, Precision::F32)?,
        d: d as u32,
        eps: 0.0,
        encoded: 1.0,
        denoised: 1.0,
    })
}

/// The kinds of the batch's rows.
fn kinds(batch: &DeviceBatch) -> Result<u64> {
    match batch.count(Section::Kinds) == batch.rows() {
        true => batch.address(Section::Kinds, 0),
        false => refuse("expected the rows of a canvas model"),
    }
}

/// Adds the norms of the first rows of `x [r, d]`, f32, to those of `sum`.
pub fn norm_add(x: &Array, rows: usize, norm: RowNorm<'_>, sum: &Array) -> Result<()> {
    let rowwise = rowwise(sum, rows)?;
    let args = args::Rowwise {
        x: x.checked(rows, sum.width(), Precision::F32)?,
        weight: norm.weight.range(0, sum.width() * size_of::<f32>())?,
        eps: norm.eps,
        ..rowwise
    };
    // SAFETY: the arrays have these sizes.
    unsafe { sum.device().launch(NORM_ADD, [rows as u32, 1, 1], &args) }
}

/// Replaces the batch's denoised rows of `x [r, d]`, f32, by their norms.
pub fn norm_denoised(batch: &DeviceBatch, norm: RowNorm<'_>, x: &Array) -> Result<()> {
    let rows = batch.rows();
    let rowwise = rowwise(x, rows)?;
    let args = args::Rowwise {
        x: rowwise.out,
        weight: norm.weight.range(0, x.width() * size_of::<f32>())?,
        kinds: kinds(batch)?,
        eps: norm.eps,
        ..rowwise
    };
    // SAFETY: the array and the batch have these sizes.
    unsafe { x.device().launch(NORM_DENOISED, [rows as u32, 1, 1], &args) }
}

/// Multiplies the batch's rows of `x [r, d]`, f32: encoded rows by the first factor, denoised rows by
/// the second.
pub fn scale_rows(batch: &DeviceBatch, [encoded, denoised]: [f32; 2], x: &Array) -> Result<()> {
    let rows = batch.rows();
    let rowwise = rowwise(x, rows)?;
    let args = args::Rowwise { kinds: kinds(batch)?, encoded, denoised, ..rowwise };
    // SAFETY: the array and the batch have these sizes.
    unsafe { x.device().launch(SCALE, [rows as u32, 1, 1], &args) }
}

/// Makes the first rows of `x [r, d]`, f32, zero.
pub fn clear_rows(x: &Array, rows: usize) -> Result<()> {
    let args = rowwise(x, rows)?;
    // SAFETY: the array has these sizes.
    unsafe { x.device().launch(CLEAR, [rows as u32, 1, 1], &args) }
}

/// The mean embedding of what stands in each slot under its last distribution, `[pages, p, d]`, f32.
pub struct Means {
    kept: Buffer,
    page: usize,
    pages: usize,
    width: usize,
}

impl Means {
    /// Allocates zeroed embeddings of `width` numbers for `pages` pages of `page` slots.
    pub fn new(device: &Device, [pages, page]: [usize; 2], width: usize) -> Result<Self> {
        let bytes = width.saturating_mul(size_of::<f32>());
        let bytes = bytes.saturating_mul(page).saturating_mul(pages);
        Ok(Self { kept: Buffer::new(device, bytes)?, page, pages, width })
    }

    /// The length in bytes.
    pub fn bytes(&self) -> usize {
        self.kept.bytes()
    }

    /// Makes the batch's page copies, in order.
    pub fn copy_pages(&self, batch: &DeviceBatch) -> Result<()> {
        let page = self.page * self.width * size_of::<f32>();
        copy_in(&self.kept, [1, self.pages, page], batch)
    }

    /// The arguments of an operation on an array `[r, d]`, f32.
    fn args(&self, batch: &DeviceBatch, x: &Array, rows: usize) -> Result<args::Means> {
        let slots = self.pages * self.page;
        let rowwise = rowwise(x, rows)?;
        if x.width() != self.width {
            return refuse(format!("embeddings of {} numbers", self.width));
        }
        Ok(args::Means {
            pad: 0,
            kept: self.kept.range(0, slots * self.width * size_of::<f32>())?,
            slots: batch.address(Section::Slots, 0)?,
            kinds: kinds(batch)?,
            scored: 0,
            rows: 0,
            x: rowwise.out,
            d: rowwise.d,
        })
    }

    /// Overwrites `out [r, d]`, f32, with the mean embeddings of the batch's rows; with zeros for rows
    /// without one.
    pub fn read(&self, batch: &DeviceBatch, out: &Array) -> Result<()> {
        let rows = batch.rows();
        let args = self.args(batch, out, rows)?;
        // SAFETY: the array and the batch have these sizes, whose slots were checked against
        // limits that are these pages.
        unsafe { out.device().launch(READ, [rows as u32, 1, 1], &args) }
    }

    /// Keeps the first rows of `x [r, d]`, f32, as the mean embeddings of a range of scored rows.
    fn keep(&self, ScoredRows { batch, range }: ScoredRows<'_>, x: &Array) -> Result<()> {
        let args = args::Means {
            pad: 0,
            scored: batch.address(Section::Scored, range.start)?,
            rows: batch.address(Section::Scorers, range.start * SCORER_WORDS)?,
            ..self.args(batch, x, range.len())?
        };
        let grid = [range.len() as u32, 1, 1];
        // SAFETY: as above; scored rows were checked against the batch's rows.
        unsafe { x.device().launch(KEEP, grid, &args) }
    }
}

/// The embedding table that mean embeddings of scored rows are computed with, and the memory that keeps them.
#[derive(Clone, Copy)]
pub struct SoftHead<'a> {
    /// The embedding table transposed, `[d, v]`.
    pub table: &'a DeviceMatrix,
    /// Where they are kept.
    pub means: &'a Means,
}

/// The arrays between logits and mean embeddings, of the rows that are processed at a time.
pub(super) struct SoftArrays {
    logits: Buffer,
    probabilities: Array,
    means: Array,
}

impl SoftArrays {
    /// Arrays for a table `[d, v]`, when at most `most` rows are scored at a time.
    pub(super) fn new(table: &DeviceMatrix, most: usize) -> Result<Self> {
        let (device, vocab) = (table.device(), table.k());
        let rows = RowExtras::rows(device.limits(), vocab, most);
        let bytes = rows.saturating_mul(vocab).saturating_mul(size_of::<f32>());
        Ok(Self {
            logits: Buffer::new(device, bytes)?,
            probabilities: Array::padded(device, table.precision(), rows, vocab)?,
            means: Array::new(device, Precision::F32, rows, table.width())?,
        })
    }

    /// True if there is room for `rows` rows.
    pub(super) fn has_room(&self, rows: usize) -> bool {
        rows <= self.means.rows()
    }

    /// The address of the logits of `rows` rows.
    pub(super) fn logits(&self, rows: usize) -> Result<u64> {
        let numbers = rows * self.probabilities.width();
        self.logits.range(0, numbers * size_of::<f32>())
    }

    /// Keeps the mean embeddings of a range of scored rows, whose logits are the first ones.
    pub(super) fn keep(&self, head: SoftHead<'_>, scored: ScoredRows<'_>) -> Result<()> {
        let (rows, vocab) = (scored.range.len(), self.probabilities.width());
        let precision = self.probabilities.precision();
        let args = args::Softmax {
            logits: self.logits(rows)?,
            rows: scored.batch.address(Section::Scorers, scored.range.start * SCORER_WORDS)?,
            words: scored.batch.address(Section::Words, 0)?,
            out: self.probabilities.checked(rows, vocab, precision)?,
            vocab: vocab as u32,
            stride: self.probabilities.stride() as u32,
        };
        let device = self.means.device();
        // SAFETY: the arrays have these sizes.
        unsafe { device.launch(select(SOFTMAX, precision)?, [rows as u32, 1, 1], &args) }?;
        head.table.product(&self.probabilities, rows, &self.means)?;
        head.means.keep(scored, &self.means)
    }
}
