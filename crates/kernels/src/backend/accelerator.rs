//! The kernels of [`crate::device`] as a backend.

use super::{
    ArrayKind, Attention, Backend, Experts, Head, Mixture, Norm, Numbers, Pass, Projection,
    Residual, RopeSpec, ScoredRange, Selection, Storage, Stored, StoredVector, Table,
};
use crate::blocks::BlockType;
use crate::cache::KvSizes;
use crate::device::*;
use crate::linear::Matrix;
use crate::rope::RopeTable;
use crate::routing::Routing;
use crate::simd::blocks::Form;
use crate::simd::unit::WeightDtype;
use candle_core::{Error, Result, bail};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Elements of an embedding table copied at a time.
const PIECE: usize = 1 << 22;

/// A device, and the number format of its matrices.
pub struct Accelerator {
    device: Device,
    format: MatrixFormat,
}

/// Keys and values on a device, and the scratch memory of layers.
pub struct DeviceKv {
    /// One pool for the layers of each size.
    pools: Vec<DevicePool>,
    /// The mean embeddings of a canvas model.
    means: Option<Means>,
    /// One pass runs at a time; the locks are never contended.
    attention: Mutex<AttentionScratch>,
    experts: Mutex<ExpertScratch>,
}

/// The scratch memory of layers, reused between passes.
#[derive(Default)]
pub struct LayerScratch {
    /// The partial results of attention.
    pub attention: AttentionScratch,
    /// The rows that are grouped by expert.
    pub experts: ExpertScratch,
}

impl DeviceKv {
    /// The keys and values, of the layers of one size after another.
    pub fn pools(&self) -> &[DevicePool] {
        &self.pools
    }

    /// Bytes of the keys and values, and of a canvas model's mean embeddings.
    pub fn bytes(&self) -> usize {
        let pools = self.pools.iter().map(|pool| pool.buffer().bytes());
        pools.sum::<usize>() + self.means.as_ref().map_or(0, Means::bytes)
    }

    /// The same with the mean embeddings of a canvas model of `width` numbers.
    pub fn with_means(mut self, width: usize) -> Result<Self> {
        if let Some(pool) = self.pools.first() {
            let sizes = pool.sizes();
            let pages = [sizes.kv.pages, sizes.kv.page];
            self.means = Some(Means::new(pool.device(), pages, width)?);
        }
        Ok(self)
    }

    fn means(&self) -> Result<&Means> {
        match &self.means {
            Some(means) => Ok(means),
            None => bail!("no memory for mean embeddings"),
        }
    }

    /// Maximum rows of an attention tile for a model with this many query heads.
    pub fn tile(&self, heads: usize) -> Result<usize> {
        let tiles = self.pools.iter().map(|pool| pool.tile(heads));
        let tiles = tiles.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(tiles.into_iter().min().unwrap_or(1))
    }

    /// The keys and values of a layer. `windows`: the batch says what rows see in layers with a window.
    fn layer<B: Backend>(
        &self,
        attention: &Attention<'_, B>,
        windows: bool,
    ) -> Result<PoolLayer<'_>> {
        let (layer, windowed) = (attention.layer, attention.windowed && windows);
        let mut left = layer;
        for pool in &self.pools {
            let layers = pool.sizes().kv.layers;
            if left < layers {
                return Ok(PoolLayer { pool, layer: left, windowed });
            }
            left -= layers;
        }
        bail!("no keys and values for layer {layer}")
    }
}

/// Locks a mutex, also a poisoned one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::Msg(error.0)
    }
}

impl Accelerator {
    /// A backend on a device.
    pub fn new(device: &Device, dtype: WeightDtype) -> Self {
        Self { device: device.clone(), format: Self::format_of(dtype) }
    }

    /// The number format of queries for a dtype, and of keys and values unless they are in int8: bf16 for every
    /// dtype but f32.
    pub fn precision_of(dtype: WeightDtype) -> Precision {
        Self::attention(Self::format_of(dtype))
    }

    /// The number format of queries beside matrices in a format.
    fn attention(format: MatrixFormat) -> Precision {
        match format {
            MatrixFormat::F32 => Precision::F32,
            _ => Precision::Bf16,
        }
    }

    /// The number format of matrices of numbers for a dtype.
    fn format_of(dtype: WeightDtype) -> MatrixFormat {
        match dtype {
            WeightDtype::F32 => MatrixFormat::F32,
            // Numbers beside blocks.
            WeightDtype::Bf16 | WeightDtype::Blocks => MatrixFormat::Bf16,
            WeightDtype::Int8 => MatrixFormat::Int8,
            WeightDtype::Int8w => MatrixFormat::Int8w,
            WeightDtype::Int4 => MatrixFormat::Packed(Form::Four),
        }
    }

    /// Allocates keys and values, zeroed, with the scratch memory of layers.
    ///
    /// # Errors
    /// As [`Backend::kv`].
    pub fn kv_with(&self, sizes: &[KvSizes], scratch: LayerScratch) -> Result<DeviceKv> {
        let precision = self.precision();
        let pools = sizes.iter().map(|kv| {
            let sizes = PoolSizes { precision, kv: *kv };
            DevicePool::new(&self.device, sizes)
        });
        Ok(DeviceKv {
            pools: pools.collect::<std::result::Result<_, _>>()?,
            means: None,
            attention: Mutex::new(scratch.attention),
            experts: Mutex::new(scratch.experts),
        })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The number format of queries.
    pub fn precision(&self) -> Precision {
        Self::attention(self.format)
    }
}

impl Storage for Accelerator {
    type Table = Array;
    type Vector = Buffer;
    type Matrix = DeviceMatrix;
    type RopeTable = DeviceRope;
    type Grouped = DeviceExperts;

    fn keeps(&self, kind: BlockType) -> bool {
        // No kernels multiply numbers of 16 bits with those of f32.
        kind != BlockType::F16
    }

    fn table(&self, table: Table) -> Result<Array> {
        let (rows, width) = (table.rows, table.width);
        let numbers = table.floats()?;
        let stored = Array::new(&self.device, self.precision(), rows, width)?;
        let step = (PIECE / width.max(1)).max(1);
        for (piece, numbers) in numbers.chunks(step * width.max(1)).enumerate() {
            stored.write(piece * step, numbers)?;
        }
        Ok(stored)
    }

    fn vector(&self, vector: StoredVector<'_>) -> Result<Buffer> {
        let bytes = vector.count.saturating_mul(size_of::<f32>());
        Ok(match self.device.is_counting() {
            true => Buffer::new(&self.device, bytes)?,
            false => Buffer::floats(&self.device, vector.numbers)?,
        })
    }

    fn matrix(&self, matrix: Stored<'_>) -> Result<DeviceMatrix> {
        let Stored { shape: [rows, k], numbers, bias, dtype, epilogue } = matrix;
        let (device, format) = (&self.device, Self::format_of(dtype));
        let weight = match numbers {
            Numbers::Floats(weight) => weight,
            Numbers::Blocks(blocks) => {
                let shape = [rows, k];
                return Ok(DeviceMatrix::of_blocks(device, shape, blocks, bias, epilogue)?);
            }
        };
        if device.is_counting() {
            let sizes = MatrixSizes { rows, k, biased: bias.is_some(), epilogue };
            return Ok(DeviceMatrix::reserve(device, format, sizes)?);
        }
        let matrix = Matrix { weight, k, bias };
        Ok(DeviceMatrix::new(device, format, matrix, epilogue)?)
    }

    fn rope_table(&self, spec: RopeSpec) -> Result<DeviceRope> {
        Ok(match self.device.is_counting() {
            true => DeviceRope::reserve(&self.device, &spec)?,
            false => DeviceRope::new(&self.device, &RopeTable::new(&spec))?,
        })
    }

    fn experts(
        &self,
        gate: DeviceMatrix,
        experts: Vec<[DeviceMatrix; 2]>,
        routing: Routing<'_>,
    ) -> Result<Experts<Self>> {
        if routing.shared {
            bail!("no CUDA kernels for expert sharing");
        }
        let grouped = DeviceExperts::new(gate, experts, routing)?;
        Ok(Experts::Grouped(grouped))
    }

    fn bytes(&self) -> u64 {
        0
    }
}

impl<'a> Norm<'a, Accelerator> {
    fn row_norm(self) -> RowNorm<'a> {
        RowNorm { weight: self.weight, eps: self.eps }
    }
}

/// Where the heads of a layer go.
fn head_rows<'a>(
    attention: &Attention<'a, Accelerator>,
    pass: &Pass<'a, Accelerator>,
) -> Result<HeadRows<'a>> {
    Ok(HeadRows {
        transform: HeadTransform {
            rope: attention.rope_table,
            norm: attention.norm.map(Norm::row_norm),
        },
        batch: pass.batch,
        layer: pass.kv.layer(attention, pass.arrays.canvas.is_some())?,
    })
}

impl Backend for Accelerator {
    type Array = Array;
    type Batch = DeviceBatch;
    type Kv = DeviceKv;
    type Scores = DeviceScores;

    const CHUNK: usize = DeviceScores::CHUNK;

    fn array(&self, kind: ArrayKind, rows: usize, width: usize) -> Result<Array> {
        let (device, read) = (&self.device, self.format.inputs());
        let inputs = |written| Array::inputs_of(device, [written, read], rows, width);
        Ok(match kind {
            ArrayKind::Sums => Array::new(device, Precision::F32, rows, width)?,
            ArrayKind::Queries => Array::new(device, self.precision(), rows, width)?,
            ArrayKind::Inputs => inputs(read)?.with_squares()?,
            ArrayKind::Routed | ArrayKind::Gated => inputs(self.format.gated())?,
            ArrayKind::Attended => inputs(self.precision())?,
        })
    }

    fn kv(&self, sizes: &[KvSizes]) -> Result<DeviceKv> {
        self.kv_with(sizes, LayerScratch::default())
    }

    fn upload(
        &self,
        arrays: &BatchArrays<'_>,
        limits: &BatchLimits,
        batch: &mut DeviceBatch,
    ) -> Result<()> {
        Ok(batch.upload(&self.device, arrays, limits)?)
    }

    fn rows(&self, pass: &Pass<'_, Self>) -> usize {
        pass.batch.rows()
    }

    fn scored(&self, pass: &Pass<'_, Self>) -> usize {
        pass.batch.scored()
    }

    fn copy_pages(&self, pass: &Pass<'_, Self>) -> Result<()> {
        for pool in &pass.kv.pools {
            copy_pages(pool, pass.batch)?;
        }
        match &pass.kv.means {
            Some(means) => Ok(means.copy_pages(pass.batch)?),
            None => Ok(()),
        }
    }

    fn embed(&self, table: &Array, pass: &Pass<'_, Self>, out: &mut Array) -> Result<()> {
        Ok(embed(table, pass.batch, out)?)
    }

    fn norm(
        &self,
        input: Selection<'_, Self>,
        pass: &Pass<'_, Self>,
        scale: Norm<'_, Self>,
        out: &mut Array,
    ) -> Result<()> {
        out.set_lacking(None);
        norm(input.array, input.rows, pass.batch, scale.row_norm(), out)?;
        Ok(out.round(input.rows.count())?)
    }

    fn linear(&self, matrix: &DeviceMatrix, x: &Array, rows: usize, out: &mut Array) -> Result<()> {
        Ok(matrix.product(x, rows, out)?)
    }

    fn linear_add(
        &self,
        matrix: &DeviceMatrix,
        x: &Array,
        rows: usize,
        sum: &mut Array,
    ) -> Result<()> {
        Ok(matrix.add_product(x, rows, sum)?)
    }

    fn add_norm(
        &self,
        pass: &Pass<'_, Self>,
        Residual { matrix, x, norm }: Residual<'_, Self>,
        sum: &mut Array,
        out: &mut Array,
    ) -> Result<()> {
        let rows = pass.batch.rows();
        let stream = NormedSum { sum, norm: norm.row_norm() };
        if add_normed(matrix, x, rows, stream, out)? {
            return Ok(());
        }
        self.linear_add(matrix, x, rows, sum)?;
        let input = Selection { array: &*sum, rows: &RowSet::First(rows) };
        self.norm(input, pass, norm, out)
    }

    fn split(
        &self,
        attention: &Attention<'_, Self>,
        pass: &Pass<'_, Self>,
        qkv: &mut Array,
        q: &mut Array,
    ) -> Result<()> {
        Ok(split(qkv, head_rows(attention, pass)?, q)?)
    }

    fn project(
        &self,
        pass: &Pass<'_, Self>,
        Projection { matrix, x, attention }: Projection<'_, Self>,
        qkv: &mut Array,
        q: &mut Array,
    ) -> Result<()> {
        Ok(project(matrix, x, head_rows(attention, pass)?, qkv, q)?)
    }

    fn attend(
        &self,
        attention: &Attention<'_, Self>,
        pass: &Pass<'_, Self>,
        q: &mut Array,
        out: &mut Array,
    ) -> Result<()> {
        let layer = pass.kv.layer(attention, pass.arrays.canvas.is_some())?;
        lock(&pass.kv.attention).attend(q, layer, pass.batch, out)?;
        Ok(out.round(pass.batch.rows())?)
    }

    fn choose(
        &self,
        experts: &DeviceExperts,
        pass: &Pass<'_, Self>,
        x: &Array,
        rows: usize,
    ) -> Result<()> {
        Ok(experts.choose(x, rows, pass.batch, &mut lock(&pass.kv.experts))?)
    }

    fn add_chosen(
        &self,
        mixture: Mixture<'_, '_, Self>,
        x: &Array,
        rows: usize,
        sum: &mut Array,
    ) -> Result<()> {
        Ok(mixture.experts.add(x, rows, &lock(&mixture.pass.kv.experts), sum)?)
    }

    fn clear(&self, x: &mut Array, rows: usize, _: usize) -> Result<()> {
        Ok(clear_rows(x, rows)?)
    }

    fn soft(&self, pass: &Pass<'_, Self>, out: &mut Array, _: usize) -> Result<()> {
        Ok(pass.kv.means()?.read(pass.batch, out)?)
    }

    fn norm_add(
        &self,
        x: &Array,
        rows: usize,
        norm: Norm<'_, Self>,
        sum: &mut Array,
    ) -> Result<()> {
        Ok(norm_add(x, rows, norm.row_norm(), sum)?)
    }

    fn norm_denoised(
        &self,
        pass: &Pass<'_, Self>,
        norm: Norm<'_, Self>,
        x: &mut Array,
    ) -> Result<()> {
        Ok(norm_denoised(pass.batch, norm.row_norm(), x)?)
    }

    fn scale(&self, pass: &Pass<'_, Self>, factors: [f32; 2], x: &mut Array) -> Result<()> {
        Ok(scale_rows(pass.batch, factors, x)?)
    }

    fn score(
        &self,
        head: &Head<'_, Self>,
        x: &Array,
        rows: ScoredRange<'_, Self>,
        scores: &mut DeviceScores,
    ) -> Result<()> {
        let ScoredRange { pass, range } = rows;
        let batch = pass.batch;
        let soft = head.soft.map(|table| {
            let means = pass.kv.means()?;
            Ok::<_, Error>(SoftHead { table, means })
        });
        let head = ScoringHead { matrix: head.matrix, cap: head.cap, soft: soft.transpose()? };
        Ok(scores.score(&head, x, ScoredRows { batch, range }, pass.mask)?)
    }

    fn download(&self, x: &Array, rows: usize) -> Result<Vec<f32>> {
        Ok(x.read(rows)?)
    }
}
