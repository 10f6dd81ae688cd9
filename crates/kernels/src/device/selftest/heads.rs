//! The product of queries, keys and values that also splits them, compared with the separate kernels bit by bit.

use super::super::{
    Array, BatchArrays, BatchLimits, Buffer, Device, DeviceBatch, DeviceMatrix, DevicePool,
    DeviceRope, Division, HeadColumns, HeadRows, HeadTransform, MatrixFormat, PoolLayer, PoolSizes,
    Precision, ProductLaunch, ProductSizes, ProductTile, Result, RowNorm, split,
};
use super::{Check, random};
use crate::attention::Visible;
use crate::blocks::{BlockRows, BlockType};
use crate::cache::{KvDtype, KvSizes};
use crate::linear::{Epilogue, Matrix};
use crate::rope::{RopeSpec, RopeTable};
use crate::simd::blocks::Form;
use step::{PageId, Sampling, Segment};

/// Positions of the rotary table, and slots of a page.
const POSITIONS: usize = 64;
const PAGE: usize = 16;

/// A batch without rows, and limits for one token.
pub(super) const EMPTY: BatchArrays<'_> = BatchArrays {
    tokens: &[],
    positions: &[],
    slots: &[],
    visible: &[],
    segments: &[],
    pages: &[],
    scored: &[],
    scorers: &[],
    biases: &[],
    allowed: &[],
    copies: &[],
    canvas: None,
};
pub(super) const LIMITS: BatchLimits =
    BatchLimits { tokens: 1, positions: 1, vocab: 1, pages: 1, page: 1, tile: 16, pad: 1 };

/// The heads of a layer and the batch that they are computed for.
#[derive(Clone, Copy, Debug)]
pub struct HeadCase {
    /// Weights.
    pub format: MatrixFormat,
    /// Keys and values.
    pub kv: KvDtype,
    /// Query heads, and key heads.
    pub heads: [usize; 2],
    /// Head width, and rotated columns of a head.
    pub widths: [usize; 2],
    /// Heads that are normalised: none, those that are rotated, or all.
    pub normed: [bool; 2],
    /// Rows without padding.
    pub rows: usize,
    /// Inner elements.
    pub k: usize,
}

/// The arrays of a case on a device.
struct Arrays {
    matrix: DeviceMatrix,
    x: Array,
    batch: DeviceBatch,
    pool: DevicePool,
    rope: DeviceRope,
    weights: Buffer,
    normed: bool,
    columns: HeadColumns,
    q: Array,
}

impl HeadCase {
    /// The numbers of a row.
    fn width(&self) -> usize {
        (self.heads[0] + 2 * self.heads[1]) * self.widths[0]
    }

    /// A check for every tile and division that the device can run: the number of bytes of queries, keys and
    /// values that differ from those of the separate kernels.
    pub fn checks(&self, device: &Device) -> Result<Vec<Check>> {
        let arrays = self.arrays(device)?;
        let rows = arrays.batch.rows();
        let want = arrays.written(|arrays, heads| {
            let qkv = Array::new(device, Precision::F32, rows, self.width())?;
            arrays.matrix.product(&arrays.x, rows, &qkv)?;
            split(&qkv, heads, &arrays.q)
        })?;
        let sizes = arrays.matrix.launch(rows, Division::Divided).sizes;
        let mut checks = Vec::new();
        for launch in launches(sizes, device, arrays.columns) {
            let got = arrays.written(|a, heads| a.matrix.project_as(&launch, &a.x, heads, &a.q))?;
            let differ = got.iter().zip(&want).filter(|(got, want)| got != want).count();
            let (tile, parts) = (launch.tile.names.qkv.unwrap_or_default(), launch.lead);
            checks.push(Check {
                name: format!("{tile}, {parts} segments, of {self:?}: bytes"),
                error: differ as f64,
                tolerance: 0.0,
            });
        }
        Ok(checks)
    }

    fn arrays(&self, device: &Device) -> Result<Arrays> {
        let Self { format, heads: [heads, groups], widths: [c, rotated], rows, k, .. } = *self;
        let (width, pages) = (self.width(), rows.div_ceil(PAGE) + 1);
        let batch = batch(device, rows, pages)?;
        let x = Array::padded(device, format.inputs(), batch.rows(), k)?;
        x.write(0, &random(1, rows * k))?;
        let bias = random(4, width);
        let spec = RopeSpec::plain(1e4, rotated, POSITIONS);
        let precision = Precision::Bf16;
        let kv = KvSizes {
            dtype: self.kv,
            layers: 2,
            num_kv_heads: groups,
            head_width: c,
            page: PAGE,
            pages,
        };
        let count = heads + if self.normed[1] { 2 * groups } else { groups };
        Ok(Arrays {
            matrix: matrix(device, format, &bias, k)?,
            x,
            pool: DevicePool::new(device, PoolSizes { precision, kv })?,
            rope: DeviceRope::new(device, &RopeTable::new(&spec))?,
            weights: Buffer::floats(device, &random(3, count * c))?,
            normed: self.normed[0],
            columns: HeadColumns {
                width: c,
                cut: 2 * (rotated / 2) == c && !self.normed[0] && self.kv != KvDtype::Int8,
            },
            q: Array::new(device, precision, batch.rows(), heads * c)?,
            batch,
        })
    }
}

impl Arrays {
    /// The bytes of queries, keys and values after `write`.
    fn written(&self, write: impl FnOnce(&Self, HeadRows<'_>) -> Result<()>) -> Result<Vec<u8>> {
        self.q.buffer().fill(0xFF)?;
        self.pool.buffer().fill(0xFF)?;
        let norm = self.normed.then_some(RowNorm { weight: &self.weights, eps: 1e-6 });
        let heads = HeadRows {
            transform: HeadTransform { rope: &self.rope, norm },
            batch: &self.batch,
            layer: PoolLayer { pool: &self.pool, layer: 1, windowed: false },
        };
        write(self, heads)?;
        let mut all = Vec::new();
        for buffer in [self.q.buffer(), self.pool.buffer()] {
            let mut bytes = vec![0; buffer.bytes()];
            buffer.download(0, &mut bytes)?;
            all.extend(bytes);
        }
        Ok(all)
    }
}

/// The launches of a product of heads, each tile whole and with every segment in a block of its own.
fn launches(
    sizes: ProductSizes,
    device: &Device,
    heads: HeadColumns,
) -> impl Iterator<Item = ProductLaunch> {
    let limits = device.limits();
    let tiles = ProductTile::all(sizes.format).iter().filter(move |tile| {
        let runs = tile.qkv_kernel().is_some_and(|kernel| kernel.runs_on(limits));
        runs && tile.splits(heads)
    });
    tiles.flat_map(move |tile| ProductLaunch::ways(tile, sizes))
}

/// A matrix of random numbers; in blocks where a format has no others.
fn matrix(device: &Device, format: MatrixFormat, bias: &[f32], k: usize) -> Result<DeviceMatrix> {
    let n = bias.len();
    let numbers = random(2, n * k);
    let form = match format {
        MatrixFormat::Packed(form) => form,
        _ => Form::Four,
    };
    if form == Form::Four {
        let matrix = Matrix { weight: &numbers, k, bias: Some(bias) };
        return DeviceMatrix::new(device, format, matrix, Epilogue::None);
    }
    // A scale of 2^-6 and codes.
    let blocks = numbers.chunks(32).flat_map(|block| {
        let codes = block.iter().map(|x| ((x * 127.0) as i8).cast_unsigned());
        [0x00, 0x24].into_iter().chain(codes)
    });
    let bytes: Vec<u8> = blocks.collect();
    let rows = [BlockRows { kind: BlockType::Q8_0, rows: n, bytes: &bytes }];
    DeviceMatrix::of_blocks(device, [n, k], &rows, Some(bias), Epilogue::None)
}

/// A batch of rows at slots in another order, with padding.
fn batch(device: &Device, rows: usize, pages: usize) -> Result<DeviceBatch> {
    let count = rows as u32;
    let positions: Vec<u32> = (0..count).map(|row| row * 7 % POSITIONS as u32).collect();
    let slots: Vec<u32> = (0..count).map(|row| count - row).collect();
    let zeros = vec![0; rows];
    let tables: Vec<PageId> = (0..pages as u32).map(PageId).collect();
    let segment = Segment { rows: 0..count, pages: 0..pages as u32, sampling: Sampling::GREEDY };
    let arrays = BatchArrays {
        tokens: &zeros,
        positions: &positions,
        slots: &slots,
        visible: &vec![Visible::default(); rows],
        segments: &[segment],
        pages: &tables,
        ..EMPTY
    };
    let limits = BatchLimits { positions: POSITIONS, pages, page: PAGE, pad: 32, ..LIMITS };
    let mut batch = DeviceBatch::default();
    batch.upload(device, &arrays, &limits)?;
    Ok(batch)
}
