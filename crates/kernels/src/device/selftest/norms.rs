//! Products that leave the factors of a norm to the next product: their bits whatever the tile, and the error of the
//! next product beside that of separate kernels.

use super::super::{
    Array, BatchArrays, Buffer, Device, DeviceBatch, DeviceMatrix, Division, MatrixFormat,
    NormedSum, Precision, ProductLaunch, ProductTile, Result, RowNorm, RowSet, Store, norm,
};
use super::heads::{EMPTY, LIMITS};
use super::{Check, on_cpu, random, round};
use crate::linear::{Epilogue, Matrix};
use crate::simd::unit::WeightDtype;

/// A layer's product `[d, k]` that is added to the residual stream, and the next one `[n, d]`.
#[derive(Clone, Copy, Debug)]
pub struct NormCase {
    /// Weights, whose inputs are in bf16.
    pub format: MatrixFormat,
    /// Rows.
    pub rows: usize,
    /// The width of the residual stream.
    pub d: usize,
    /// Inner elements of the first product.
    pub k: usize,
    /// Columns of the second one.
    pub n: usize,
}

/// Added to the mean of the squares.
const EPS: f32 = 1e-5;
/// The error of a norm in bf16 beside the processor's f32, for either way.
const TOLERANCE: f64 = 8e-3;
/// The error of a norm whose factor is applied to the product, in parts of that of separate kernels: both round
/// once.
const RATIO: f64 = 1.5;

/// The arrays of a case on a device.
struct Arrays {
    first: DeviceMatrix,
    x: Array,
    before: Vec<f32>,
    sum: Array,
    weights: Buffer,
}

impl NormCase {
    /// The checks of every tile that the device can run.
    pub fn checks(&self, device: &Device) -> Result<Vec<Check>> {
        let Self { format, rows, d, n, .. } = *self;
        let arrays = self.arrays(device)?;
        let mut numbers = random(5, n * d);
        let matrix = Matrix { weight: &numbers, k: d, bias: None };
        let second = DeviceMatrix::new(device, format, matrix, Epilogue::None)?;
        numbers.chunks_mut(d).for_each(|row| round(row, format));
        arrays.restore()?;
        arrays.first.add_product(&arrays.x, rows, &arrays.sum)?;
        let sum = arrays.sum.read(rows)?;
        let want = self.on_cpu(&sum, &numbers)?;
        let separate = arrays.separate(rows, &second)?;
        let mut next = arrays.next()?;
        let (mut checks, mut bits) = (Vec::new(), None);
        for launch in self.launches(&arrays.first, Division::Residual) {
            arrays.restore()?;
            let stream = NormedSum { sum: &arrays.sum, norm: arrays.norm() };
            arrays.first.add_normed_as(&launch, &arrays.x, stream, &mut next)?;
            let got = [arrays.sum.read(rows)?, next.read(rows)?];
            let name = launch.tile.names.residual.unwrap_or_default();
            checks.push(equal(format!("{name} of {self:?}"), &got[0], &sum));
            let first = bits.get_or_insert_with(|| got[1].clone());
            checks.push(equal(format!("{name} of {self:?}: next"), &got[1], first));
        }
        let mut results = None;
        for launch in self.launches(&second, Division::Divided) {
            let out = Array::new(device, Precision::F32, rows, n)?;
            second.run_as(&launch, &next, &out, Store::Overwrite)?;
            let got = out.read(rows)?;
            let name = format!("{} after a norm of {self:?}", launch.tile.names.gemm);
            let first = results.get_or_insert_with(|| got.clone());
            checks.push(equal(name, &got, first));
        }
        let fused = results.unwrap_or_default();
        let error = |got: &[f32]| Check::new(String::new(), got, &want, TOLERANCE).error;
        checks.push(Check {
            name: format!("product after a norm of {self:?}"),
            error: error(&fused),
            tolerance: TOLERANCE,
        });
        checks.push(Check {
            name: format!("the same in parts of the error of separate kernels, of {self:?}"),
            error: spread(&fused, &want) / spread(&separate, &want),
            tolerance: RATIO,
        });
        Ok(checks)
    }

    fn arrays(&self, device: &Device) -> Result<Arrays> {
        let Self { format, rows, d, k, .. } = *self;
        let (numbers, bias) = (random(1, d * k), random(2, d));
        let matrix = Matrix { weight: &numbers, k, bias: Some(&bias) };
        let x = Array::padded(device, Precision::Bf16, rows, k)?;
        x.write(0, &random(3, rows * k))?;
        // A few columns are large, as in trained models, and rows differ.
        let mut before = random(4, rows * d);
        for (i, x) in before.iter_mut().enumerate() {
            let column = if i % d % 97 == 5 { 60.0 } else { 1.0 };
            *x *= column * [0.01, 1.0, 30.0][i / d % 3];
        }
        Ok(Arrays {
            first: DeviceMatrix::new(device, format, matrix, Epilogue::None)?,
            x,
            before,
            sum: Array::new(device, Precision::F32, rows, d)?,
            weights: Buffer::floats(device, &random(6, d))?,
        })
    }

    /// The launches of a product with every tile that the device can run, whole and divided.
    fn launches(&self, matrix: &DeviceMatrix, division: Division) -> Vec<ProductLaunch> {
        let limits = matrix.device().limits();
        let sizes = matrix.launch(self.rows, Division::Divided).sizes;
        let runs = |tile: &&'static ProductTile| {
            let kernel = match division {
                Division::Residual => tile.residual_kernel(),
                _ => Some(tile.gemm_kernel()),
            };
            kernel.is_some_and(|kernel| kernel.runs_on(limits))
        };
        let all = ProductTile::all(self.format).iter().filter(runs);
        all.flat_map(|tile| ProductLaunch::ways(tile, sizes)).collect()
    }

    /// The product of the norm in f32.
    fn on_cpu(&self, sum: &[f32], numbers: &[f32]) -> Result<Vec<f32>> {
        let weights = random(6, self.d);
        let rows = sum.chunks_exact(self.d).flat_map(|row| {
            let squares: f64 = row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
            let factor = 1.0 / (squares / self.d as f64 + f64::from(EPS)).sqrt();
            let numbers = row.iter().zip(&weights);
            numbers.map(move |(x, weight)| (f64::from(*x) * factor * f64::from(*weight)) as f32)
        });
        let rows: Vec<f32> = rows.collect();
        let matrix = Matrix { weight: numbers, k: self.d, bias: None };
        on_cpu(&rows, matrix, WeightDtype::F32, Epilogue::None)
    }
}

impl Arrays {
    fn norm(&self) -> RowNorm<'_> {
        RowNorm { weight: &self.weights, eps: EPS }
    }

    /// The residual stream before the product.
    fn restore(&self) -> Result<()> {
        self.sum.write(0, &self.before)
    }

    /// An array for the norm.
    fn next(&self) -> Result<Array> {
        let (rows, d) = (self.sum.rows(), self.sum.width());
        Array::padded(self.sum.device(), Precision::Bf16, rows, d)?.with_squares()
    }

    /// The next product after separate kernels.
    fn separate(&self, rows: usize, second: &DeviceMatrix) -> Result<Vec<f32>> {
        let (next, device) = (self.next()?, self.sum.device());
        let mut batch = DeviceBatch::default();
        batch.upload(device, &BatchArrays { ..EMPTY }, &LIMITS)?;
        norm(&self.sum, &RowSet::First(rows), &batch, self.norm(), &next)?;
        let out = Array::new(device, Precision::F32, rows, second.width())?;
        second.product(&next, rows, &out)?;
        out.read(rows)
    }
}

/// The number of results whose bits differ.
fn equal(name: String, got: &[f32], want: &[f32]) -> Check {
    let differ = got.iter().zip(want).filter(|(got, want)| got.to_bits() != want.to_bits()).count();
    let missing = got.len().abs_diff(want.len());
    Check { name, error: (differ + missing) as f64, tolerance: 0.0 }
}

/// The root of the mean square of the errors.
fn spread(got: &[f32], want: &[f32]) -> f64 {
    let squares = got.iter().zip(want).map(|(got, want)| f64::from(got - want).powi(2));
    (squares.sum::<f64>() / want.len().max(1) as f64).sqrt()
}
