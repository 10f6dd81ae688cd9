//! Row-wise operations between the matrix products.

use super::array::{Array, Buffer, Precision, select};
use super::attention::DevicePool;
use super::batch::{DeviceBatch, Section};
use super::{Kernel, Result, args, kernel, refuse};
use std::ops::Range;

const EMBED: [Kernel; 2] = [kernel("embed_f32", 256, 0), kernel("embed_bf16", 256, 0)];
const NORM: [Kernel; 2] = [kernel("norm_f32", 256, 128), kernel("norm_bf16", 256, 128)];
const NORM_INT8: Kernel = kernel("norm_int8", 256, 128);
const COPY: Kernel = kernel("copy_pages", 256, 0);
pub(super) const KERNELS: &[Kernel] = &[EMBED[0], EMBED[1], NORM[0], NORM[1], NORM_INT8, COPY];

/// Overwrites `out [r, d]`, f32, with the rows of `table` for the batch's tokens.
pub fn embed(table: &Array, batch: &DeviceBatch, out: &Array) -> Result<()> {
    let (rows, d) = (batch.rows(), table.width());
    if table.stride() != d {
        return refuse("expected an embedding table without padding");
    }
    let args = args::Embed {
        pad: 0,
        table: table.checked(table.rows(), d, table.precision())?,
        tokens: batch.address(Section::Tokens, 0)?,
        out: out.checked(rows, d, Precision::F32)?,
        d: d as u32,
    };
    let kernel = select(EMBED, table.precision())?;
    // SAFETY: the arrays have these sizes; the batch's tokens were checked against the table.
    unsafe { out.device().launch(kernel, [rows as u32, 1, 1], &args) }
}

/// The rows of an array that an operation reads.
#[derive(Clone, Debug)]
pub enum RowSet {
    /// The first n rows.
    First(usize),
    /// A range of the batch's scored rows.
    Scored(Range<usize>),
}

impl RowSet {
    /// Number of rows.
    pub fn count(&self) -> usize {
        match self {
            Self::First(rows) => *rows,
            Self::Scored(range) => range.len(),
        }
    }
}

/// An RMS norm over rows.
#[derive(Clone, Copy)]
pub struct RowNorm<'a> {
    /// Weights `[d]`.
    pub weight: &'a Buffer,
    /// Added to the mean of the squares.
    pub eps: f32,
}

/// Overwrites the first rows of `out`, padded, with `x / sqrt(mean(x^2) + eps) * weight` of rows of
/// `x [., d]`, f32.
pub fn norm(
    x: &Array,
    row_set: &RowSet,
    batch: &DeviceBatch,
    norm: RowNorm<'_>,
    out: &Array,
) -> Result<()> {
    let d = x.width();
    let (rows, gather) = match row_set {
        RowSet::First(rows) => (*rows, 0),
        RowSet::Scored(range) => gathered(x, batch, range)?,
    };
    if x.stride() != d || (gather == 0 && rows > x.rows()) {
        return refuse(format!("{rows} rows of an array of {}", x.rows()));
    }
    let args = args::Norm {
        pad: 0,
        x: x.checked(x.rows(), d, Precision::F32)?,
        weight: norm.weight.range(0, d * 4)?,
        gather,
        out: out.checked(rows, d, out.precision())?,
        scales: out.row_scales(0)?,
        d: d as u32,
        stride: out.stride() as u32,
        eps: norm.eps,
    };
    let kernel = match out.precision() {
        Precision::Int8 => NORM_INT8,
        precision => select(NORM, precision)?,
    };
    // SAFETY: the arrays have these sizes; scored rows were checked against the batch's rows.
    unsafe { out.device().launch(kernel, [rows as u32, 1, 1], &args) }
}

/// The number of rows in a range of the scored rows, and the address of their indices.
fn gathered(x: &Array, batch: &DeviceBatch, range: &Range<usize>) -> Result<(usize, u64)> {
    let count = batch.count(Section::Scored);
    if range.start > range.end || range.end > count || batch.rows() > x.rows() {
        return refuse(format!("rows {range:?} of {count} listed rows"));
    }
    Ok((range.len(), batch.address(Section::Scored, range.start)?))
}

/// Makes the batch's page copies in every layer, in order.
pub fn copy_pages(pool: &DevicePool, batch: &DeviceBatch) -> Result<()> {
    let sizes = pool.sizes();
    copy_in(pool.buffer(), [2 * sizes.kv.layers, sizes.kv.pages, sizes.page_bytes()], batch)
}

/// Makes the batch's page copies in a buffer `[layers, pages]` of pages of `bytes` bytes.
pub(super) fn copy_in(
    buffer: &Buffer,
    [layers, pages, bytes]: [usize; 3],
    batch: &DeviceBatch,
) -> Result<()> {
    let count = batch.count(Section::Copies) / 2;
    if count == 0 {
        return Ok(());
    }
    if !bytes.is_multiple_of(4) {
        return refuse(format!("expected pages of a multiple of 4 bytes, found {bytes}"));
    }
    let args = args::CopyPages {
        pad: 0,
        pool: buffer.range(0, layers * pages * bytes)?,
        copies: batch.address(Section::Copies, 0)?,
        count: count as u32,
        pages: pages as u32,
        words: (bytes / 4) as u32,
    };
    let grid = [(bytes / 4).div_ceil(256) as u32, layers as u32, 1];
    // SAFETY: the buffer has this layout; pages were checked against it.
    unsafe { buffer.device().launch(COPY, grid, &args) }
}
