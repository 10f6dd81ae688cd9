//! The kernels of [`crate::device`]: a CUDA device, or its emulation on the host.

use super::{
    AngleSpec, ArrayKind, Attention, Backend, ExpertRows, Head, Norm, Numbers, Pass, ScoredRange,
    Selection, Storage, Stored, Table,
};
use crate::cache::KvSizes;
use crate::device::{
    Array, AttentionScratch, BatchArrays, BatchLimits, Buffer, Device, DeviceBatch, DeviceError,
    DeviceMatrix, DevicePool, DeviceRope, DeviceScores, HeadTransform, MatrixFormat, MatrixSizes,
    PoolLayer, PoolSizes, Precision, RowNorm, ScoredRows, copy_pages, embed, norm, split,
};
use crate::linear::Matrix;
use crate::rope::RopeTable;
use crate::simd::unit::WeightDtype;
use candle_core::{Error, Result, bail};
use std::sync::{Mutex, PoisonError};

/// Elements of an embedding table copied at a time.
const PIECE: usize = 1 << 22;
/// Why a canvas model is refused.
const NO_CANVAS: &str = "no CUDA kernels for canvas models";

/// A device, and the number format of the inputs of its products, its keys and values.
pub struct Accelerator {
    device: Device,
    precision: Precision,
}

/// Keys and values on a device, and the memory that attention needs besides.
pub struct DeviceKv {
    pool: DevicePool,
    /// One pass runs at a time; the lock is never contended.
    scratch: Mutex<AttentionScratch>,
}

impl DeviceKv {
    /// The keys and values.
    #[must_use]
    pub fn pool(&self) -> &DevicePool {
        &self.pool
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::Msg(error.0)
    }
}

impl Accelerator {
    /// A backend on a device.
    ///
    /// # Errors
    /// If the device has no kernels for this dtype.
    pub fn new(device: &Device, dtype: WeightDtype) -> Result<Self> {
        Ok(Self {
            device: device.clone(),
            precision: Self::precision_of(dtype)?,
        })
    }

    /// The number format of the inputs of products for a dtype; in int8 only matrices are rounded.
    ///
    /// # Errors
    /// If devices have no kernels for it.
    pub fn precision_of(dtype: WeightDtype) -> Result<Precision> {
        Self::format_of(dtype).map(MatrixFormat::inputs)
    }

    fn format_of(dtype: WeightDtype) -> Result<MatrixFormat> {
        match dtype {
            // Blocks are widened before.
            WeightDtype::F32 | WeightDtype::Blocks => Ok(MatrixFormat::F32),
            WeightDtype::Bf16 => Ok(MatrixFormat::Bf16),
            WeightDtype::Int8 => Ok(MatrixFormat::Int8),
            WeightDtype::Int4 => bail!("no CUDA kernels for {}", dtype.name()),
        }
    }

    /// Allocates keys and values, zeroed, with the memory that attention needs besides.
    ///
    /// # Errors
    /// As [`Backend::kv`].
    pub fn kv_with(&self, sizes: PoolSizes, scratch: AttentionScratch) -> Result<DeviceKv> {
        Ok(DeviceKv {
            pool: DevicePool::new(&self.device, sizes)?,
            scratch: Mutex::new(scratch),
        })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The number format of the inputs of products, of keys and values.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.precision
    }
}

impl Storage for Accelerator {
    type Table = Array;
    type Vector = Buffer;
    type Matrix = DeviceMatrix;
    type Angles = DeviceRope;

    fn table(&self, table: Table) -> Result<Array> {
        let Table {
            rows,
            width,
            numbers,
        } = table;
        let stored = Array::new(&self.device, self.precision, rows, width)?;
        let step = (PIECE / width.max(1)).max(1);
        for (piece, numbers) in numbers.chunks(step * width.max(1)).enumerate() {
            stored.write(piece * step, numbers)?;
        }
        Ok(stored)
    }

    fn vector(&self, count: usize, numbers: &[f32]) -> Result<Buffer> {
        Ok(match self.device.is_counting() {
            true => Buffer::new(&self.device, count.saturating_mul(size_of::<f32>()))?,
            false => Buffer::floats(&self.device, numbers)?,
        })
    }

    fn matrix(&self, matrix: Stored<'_>) -> Result<DeviceMatrix> {
        let Stored {
            shape: (rows, k),
            numbers,
            bias,
            dtype,
            epilogue,
        } = matrix;
        let Numbers::Floats(weight) = numbers else {
            bail!("no CUDA kernels for blocks");
        };
        let (device, format) = (&self.device, Self::format_of(dtype)?);
        if device.is_counting() {
            let sizes = MatrixSizes {
                rows,
                k,
                biased: bias.is_some(),
                epilogue,
            };
            return Ok(DeviceMatrix::reserve(device, format, sizes)?);
        }
        let matrix = Matrix { weight, k, bias };
        Ok(DeviceMatrix::new(device, format, matrix, epilogue)?)
    }

    fn angles(&self, spec: AngleSpec) -> Result<DeviceRope> {
        Ok(match self.device.is_counting() {
            true => DeviceRope::reserve(&self.device, spec.width / 2, spec.positions)?,
            false => DeviceRope::new(&self.device, &RopeTable::new(&spec))?,
        })
    }

    fn bytes(&self) -> u64 {
        0
    }
}

impl<'a> Norm<'a, Accelerator> {
    fn row_norm(self) -> RowNorm<'a> {
        RowNorm {
            weight: self.weight,
            eps: self.eps,
        }
    }
}

impl Backend for Accelerator {
    type Array = Array;
    type Batch = DeviceBatch;
    type Kv = DeviceKv;
    type Scores = DeviceScores;

    const CHUNK: usize = DeviceScores::CHUNK;

    fn array(&self, kind: ArrayKind, rows: usize, width: usize) -> Result<Array> {
        let (device, precision) = (&self.device, self.precision);
        Ok(match kind {
            ArrayKind::Sums => Array::new(device, Precision::F32, rows, width)?,
            ArrayKind::Inputs => Array::padded(device, precision, rows, width)?,
            ArrayKind::Queries => Array::new(device, precision, rows, width)?,
        })
    }

    fn kv(&self, sizes: &[KvSizes]) -> Result<DeviceKv> {
        match sizes {
            [sizes] if sizes.dtype != self.precision.kv_dtype() => bail!(
                "no CUDA kernels for keys and values in {} beside matrices in {}",
                sizes.dtype.name(),
                self.precision.kv_dtype().name()
            ),
            [sizes] => {
                let sizes = PoolSizes::of(sizes, self.precision);
                self.kv_with(sizes, AttentionScratch::default())
            }
            _ => bail!("no CUDA kernels for layers with heads of several sizes"),
        }
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
        Ok(copy_pages(&pass.kv.pool, pass.batch)?)
    }

    fn embed(&self, table: &Array, pass: &Pass<'_, Self>, out: &mut Array) -> Result<()> {
        Ok(embed(table, pass.batch, out)?)
    }

    fn norm(
        &self,
        from: Selection<'_, Self>,
        pass: &Pass<'_, Self>,
        of: Norm<'_, Self>,
        out: &mut Array,
    ) -> Result<()> {
        Ok(norm((from.of, from.rows), pass.batch, of.row_norm(), out)?)
    }

    fn linear(
        &self,
        matrix: &DeviceMatrix,
        (x, rows): (&Array, usize),
        out: &mut Array,
    ) -> Result<()> {
        Ok(matrix.product(x, rows, out)?)
    }

    fn linear_add(
        &self,
        matrix: &DeviceMatrix,
        (x, rows): (&Array, usize),
        sum: &mut Array,
    ) -> Result<()> {
        Ok(matrix.add_product(x, rows, sum)?)
    }

    fn split(
        &self,
        attention: &Attention<'_, Self>,
        pass: &Pass<'_, Self>,
        qkv: &mut Array,
        q: &mut Array,
    ) -> Result<()> {
        let heads = HeadTransform {
            rope: attention.angles,
            norm: attention.norm.map(Norm::row_norm),
        };
        Ok(split(qkv, heads, pass.batch, q, layer(attention, pass))?)
    }

    fn attend(
        &self,
        attention: &Attention<'_, Self>,
        pass: &Pass<'_, Self>,
        q: &mut Array,
        out: &mut Array,
    ) -> Result<()> {
        let scratch = pass.kv.scratch.lock();
        let mut scratch = scratch.unwrap_or_else(PoisonError::into_inner);
        Ok(scratch.attend(q, layer(attention, pass), pass.batch, out)?)
    }

    fn route(&self, _: &DeviceMatrix, _: (&Array, usize)) -> Result<Vec<f32>> {
        bail!("no CUDA kernels for experts")
    }

    fn expert(
        &self,
        _: &[DeviceMatrix; 2],
        _: &Array,
        _: ExpertRows<'_>,
        _: &mut Array,
    ) -> Result<()> {
        bail!("no CUDA kernels for experts")
    }

    fn fill(&self, _: &[f32], _: usize, _: &mut Array) -> Result<()> {
        bail!("{NO_CANVAS}")
    }

    fn norm_add(&self, _: &Array, _: Norm<'_, Self>, _: &mut Array) -> Result<()> {
        bail!("{NO_CANVAS}")
    }

    fn norm_rows(&self, _: &[u32], _: Norm<'_, Self>, _: &mut Array) -> Result<()> {
        bail!("{NO_CANVAS}")
    }

    fn scale(&self, _: &[f32], _: &mut Array) -> Result<()> {
        bail!("{NO_CANVAS}")
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
        if head.cap.is_some() || head.soft.is_some() {
            bail!("{NO_CANVAS}");
        }
        Ok(scores.score(head.matrix, x, ScoredRows { batch, range }, pass.mask)?)
    }

    fn download(&self, x: &Array, rows: usize) -> Result<Vec<f32>> {
        Ok(x.read(rows)?)
    }
}

/// The keys and values of a layer.
fn layer<'a>(
    attention: &Attention<'_, Accelerator>,
    pass: &Pass<'a, Accelerator>,
) -> PoolLayer<'a> {
    PoolLayer {
        pool: &pass.kv.pool,
        layer: attention.layer,
    }
}
