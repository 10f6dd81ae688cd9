//! Row-wise operations between the matrix products.

use super::array::{Array, Buffer, Precision, select};
use super::attention::{DevicePool, PoolLayer};
use super::batch::{DeviceBatch, Section};
use super::{Device, Kernel, Result, args, kernel, refuse};
use crate::cache::KvSizes;
use crate::rope::{RopeSpec, RopeTable};
use std::ops::Range;

const EMBED: [Kernel; 2] = [kernel("embed_f32", 256, 0), kernel("embed_bf16", 256, 0)];
const NORM: [Kernel; 2] = [kernel("norm_f32", 256, 128), kernel("norm_bf16", 256, 128)];
const NORM_INT8: Kernel = kernel("norm_int8", 256, 128);
const SPLIT: [Kernel; 2] = [kernel("split_f32", 128, 0), kernel("split_bf16", 128, 0)];
/// The same with keys and values in int8; the shared memory holds four heads of 512 numbers.
const SPLIT_BYTES: [Kernel; 2] =
    [kernel("split_int8_f32", 128, 8 << 10), kernel("split_int8_bf16", 128, 8 << 10)];
const COPY: Kernel = kernel("copy_pages", 256, 0);
pub(super) const KERNELS: &[Kernel] = &[
    EMBED[0],
    EMBED[1],
    NORM[0],
    NORM[1],
    NORM_INT8,
    SPLIT[0],
    SPLIT[1],
    SPLIT_BYTES[0],
    SPLIT_BYTES[1],
    COPY,
];

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

/// The rotary angles on a device.
pub struct DeviceRope {
    /// `[positions, 2, half]`.
    angles: Buffer,
    /// `[positions]`: factors of queries, if they are not all 1.
    query_factors: Option<Buffer>,
    half: usize,
    positions: usize,
}

impl DeviceRope {
    /// Copies the angles of a table.
    pub fn new(device: &Device, table: &RopeTable) -> Result<Self> {
        let (half, positions) = (table.half(), table.positions());
        let factors = table.query_factors();
        let rope = Self::zeroed(device, [half, positions], !factors.is_empty())?;
        rope.angles.write(table.numbers())?;
        if let Some(buffer) = &rope.query_factors {
            buffer.write(factors)?;
        }
        Ok(rope)
    }

    /// Allocates what the table of some angles needs, zeroed.
    pub fn reserve(device: &Device, spec: &RopeSpec) -> Result<Self> {
        let grows = !spec.query_factors().is_empty();
        Self::zeroed(device, [spec.width / 2, spec.positions], grows)
    }

    fn zeroed(device: &Device, [half, positions]: [usize; 2], grows: bool) -> Result<Self> {
        let floats = |numbers: usize| Buffer::new(device, numbers.saturating_mul(size_of::<f32>()));
        Ok(Self {
            angles: floats(half.saturating_mul(2).saturating_mul(positions))?,
            query_factors: grows.then(|| floats(positions)).transpose()?,
            half,
            positions,
        })
    }

    /// Number of positions.
    pub fn positions(&self) -> usize {
        self.positions
    }
}

/// The norm and the rotation of a row's heads.
#[derive(Clone, Copy)]
pub struct HeadTransform<'a> {
    /// The rotation at the row's position.
    pub rope: &'a DeviceRope,
    /// The norm before the rotation, with weights `[h + g, c]`; with weights `[h + 2 g, c]` value heads
    /// are normalised too.
    pub norm: Option<RowNorm<'a>>,
}

/// Splits `qkv [r, (h + 2 g) c]`, f32. Normalises and rotates the query and key heads, and writes
/// queries to `q [r, h c]`, keys and values to the row's slot in a layer of the pool.
pub fn split(
    qkv: &Array,
    HeadTransform { rope, norm }: HeadTransform<'_>,
    batch: &DeviceBatch,
    q: &Array,
    PoolLayer { pool, layer, .. }: PoolLayer<'_>,
) -> Result<()> {
    let (rows, sizes) = (batch.rows(), pool.sizes());
    let KvSizes { num_kv_heads, head_width: c, page, .. } = sizes.kv;
    if c == 0 || !q.width().is_multiple_of(c) || 2 * rope.half > c || q.stride() != q.width() {
        return refuse(format!("heads of {c} in rows of {}", q.width()));
    }
    let count = q.width() / c;
    let width = (count + 2 * num_kv_heads) * c;
    if qkv.stride() != width {
        return refuse(format!("expected rows of {width}, found {}", qkv.stride()));
    }
    let all = norm.is_some_and(|norm| norm.weight.bytes() >= width * size_of::<f32>());
    let normed = count + if all { 2 * num_kv_heads } else { num_kv_heads };
    let weights = norm.map(|norm| norm.weight.range(0, normed * c * size_of::<f32>()));
    let factors = rope.query_factors.as_ref().map(|factors| factors.range(0, rope.positions * 4));
    let args = args::Split {
        pad: 0,
        qkv: qkv.checked(rows, width, Precision::F32)?,
        head_norms: weights.transpose()?.unwrap_or(0),
        angles: rope.angles.range(0, rope.positions * 2 * rope.half * 4)?,
        query_factors: factors.transpose()?.unwrap_or(0),
        positions: batch.address(Section::Positions, 0)?,
        slots: batch.address(Section::Slots, 0)?,
        q: q.checked(rows, count * c, sizes.precision)?,
        layer: pool.layer(layer)?,
        heads: args::Heads {
            heads: count as u32,
            num_kv_heads: num_kv_heads as u32,
            c: c as u32,
            page: page as u32,
        },
        half: rope.half as u32,
        normed: norm.map_or(0, |_| normed as u32),
        eps: norm.map_or(0.0, |norm| norm.eps),
    };
    let grid = [rows as u32, (count + 2 * num_kv_heads).div_ceil(4) as u32, 1];
    let kernels = if sizes.in_bytes() { SPLIT_BYTES } else { SPLIT };
    let kernel = select(kernels, sizes.precision)?;
    // SAFETY: the arrays have these sizes; positions and slots of the batch were checked against
    // limits that are the table's and the pool's.
    unsafe { q.device().launch(kernel, grid, &args) }
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
