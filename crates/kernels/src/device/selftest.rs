//! Checks of a device's kernels: large products against the processor's. Small models with every other
//! operation are compared where models are loaded.

mod heads;
mod norms;
mod rings;

pub use heads::HeadCase;
pub use norms::NormCase;
pub use rings::RingCase;

use super::{Array, Device, DeviceError, DeviceMatrix, MatrixFormat, Precision, Result};
use crate::cache::KvDtype;
use crate::gemm::{row_in_codes, row_to_bytes};
use crate::linear::{Epilogue, Linear, Matrix};
use crate::simd::blocks::Form;
use crate::simd::unit::WeightDtype;
use candle_core::{Device as Cpu, Tensor};

/// One comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The compared results.
    pub name: String,
    /// The measured error.
    pub error: f64,
    /// The maximum accepted error.
    pub tolerance: f64,
}

impl Check {
    /// The largest difference of two lists relative to the largest expected number; infinite if a number
    /// is NaN or missing.
    pub fn new(name: String, got: &[f32], want: &[f32], tolerance: f64) -> Self {
        let most = want.iter().fold(1e-6_f32, |most, x| most.max(x.abs()));
        let differences = got.iter().zip(want);
        let error = differences.fold(0.0, |error: f64, (got, want)| {
            match f64::from((got - want).abs() / most) {
                one if one.is_nan() => f64::INFINITY,
                one => error.max(one),
            }
        });
        Self {
            name,
            error: match got.len() == want.len() {
                true => error,
                false => f64::INFINITY,
            },
            tolerance,
        }
    }

    /// A check that could not be made: its error is infinite.
    pub fn failed(what: &str, reason: impl std::fmt::Display) -> Self {
        Self { name: format!("{what}: {reason}"), error: f64::INFINITY, tolerance: 0.0 }
    }

    /// True if the error is within the tolerance.
    pub fn holds(&self) -> bool {
        self.error <= self.tolerance
    }
}

/// Inner elements and rows of LLaDA-8B's matrices: q/k/v, o, gate and up, down.
const MATRICES: [(usize, usize); 4] =
    [(4096, 12_288), (4096, 4096), (4096, 24_576), (12_288, 4096)];
/// Rows of gate and up.
const GATED: usize = 24_576;
/// Rows of the products: a step of two sequences, and of several, which other tiles compute.
const ROWS: [usize; 2] = [64, 200];

/// Compares products with matrices of LLaDA-8B's sizes, of at most `columns` columns each, in bf16,
/// int8 and int4 with those of the processor, fused kernels with the separate ones, products whose operands bulk
/// copies load with the others, and gives each check to `tell` when it is made.
pub fn selftest(device: &Device, columns: usize, tell: &mut dyn FnMut(Check)) {
    fused(device, tell);
    normed(device, tell);
    rings(device, columns, tell);
    let int4 = MatrixFormat::Packed(Form::Four);
    for format in [MatrixFormat::Bf16, MatrixFormat::Int8, int4] {
        for (k, rows) in MATRICES {
            let epilogue = match rows {
                GATED => Epilogue::SiluGate,
                _ => Epilogue::None,
            };
            let n = rows.min(columns) / 2 * 2;
            match products(device, format, [k, n], epilogue) {
                Ok(checks) => checks.into_iter().for_each(&mut *tell),
                Err(reason) => tell(Check::failed("large product", reason)),
            }
        }
    }
}

/// Compares kernels that do the work of several with the separate ones, whose bits they have, for heads as
/// in LLaDA-8B and others.
fn fused(device: &Device, tell: &mut dyn FnMut(Check)) {
    let (int4, int8) = (MatrixFormat::Packed(Form::Four), KvDtype::Int8);
    for format in [MatrixFormat::Bf16, MatrixFormat::Int8, MatrixFormat::Int8w, int4] {
        for (heads, widths, normed, kv) in [
            ([3, 3], [128, 128], [false, false], KvDtype::Bf16),
            ([6, 2], [64, 32], [true, false], int8),
            ([4, 2], [256, 64], [true, true], KvDtype::Bf16),
        ] {
            for rows in ROWS {
                let case = HeadCase { format, kv, heads, widths, normed, rows, k: 640 };
                match case.checks(device) {
                    Ok(checks) => checks.into_iter().for_each(&mut *tell),
                    Err(reason) => tell(Check::failed("split of a product", reason)),
                }
            }
        }
    }
}

/// Compares products that leave a norm to the next product with separate kernels.
fn normed(device: &Device, tell: &mut dyn FnMut(Check)) {
    for format in [MatrixFormat::Bf16, MatrixFormat::Int8w, MatrixFormat::Packed(Form::Four)] {
        for rows in ROWS {
            let case = NormCase { format, rows, d: 512, k: 640, n: 264 };
            match case.checks(device) {
                Ok(checks) => checks.into_iter().for_each(&mut *tell),
                Err(reason) => tell(Check::failed("norm in products", reason)),
            }
        }
    }
}

/// Compares products whose operands bulk copies load with the others, whose bits they have.
fn rings(device: &Device, columns: usize, tell: &mut dyn FnMut(Check)) {
    let cases = [MatrixFormat::Bf16, MatrixFormat::Int8].into_iter().flat_map(|format| {
        let products = MATRICES.into_iter().flat_map(|matrix| ROWS.map(|rows| (matrix, rows)));
        products.map(move |((k, n), rows)| RingCase { format, rows, k, n: n.min(columns) })
    });
    for case in cases {
        match case.checks(device) {
            Ok(checks) => checks.into_iter().for_each(&mut *tell),
            Err(reason) => tell(Check::failed("product of bulk copies", reason)),
        }
    }
}

/// The products of [`ROWS`] rows with one matrix.
fn products(
    device: &Device,
    format: MatrixFormat,
    [k, n]: [usize; 2],
    epilogue: Epilogue,
) -> Result<Vec<Check>> {
    let most = ROWS[1];
    let mut weight = random(1, n * k);
    // Numbers that the device rounds to integers are those of the processor.
    let written = format.gated();
    let given = Array::inputs_of(device, [written, format.inputs()], most, k)?;
    given.write(0, &random(2, most * k))?;
    given.round(most)?;
    // The device has rounded numbers.
    let x = given.read(most)?;
    let matrix = Matrix { weight: &weight, k, bias: None };
    let matrix = DeviceMatrix::new(device, format, matrix, epilogue)?;
    for row in weight.chunks_mut(k) {
        round(row, format);
    }
    let dtype = match format {
        MatrixFormat::Int8 => WeightDtype::Int8,
        _ => WeightDtype::F32,
    };
    let want = on_cpu(&x, Matrix { weight: &weight, k, bias: None }, dtype, epilogue)?;
    let tolerance = match (format, epilogue) {
        // Exact sums with the same factors.
        (MatrixFormat::Int8, Epilogue::None) => 0.0,
        (MatrixFormat::Int8, _) => 5e-6,
        (_, Epilogue::None) => sums(k),
        (_, Epilogue::SiluGate | Epilogue::GeluGate) => sums(k).max(4e-3),
    };
    let check = |rows: usize| {
        let out = match epilogue {
            Epilogue::None => Array::new(device, Precision::F32, rows, n)?,
            _ => Array::padded(device, written, rows, n / 2)?,
        };
        out.buffer().fill(0xFF)?;
        matrix.product(&given, rows, &out)?;
        let name = format!("{format:?} product of {rows}x{k}x{n}");
        let want = &want[..rows * matrix.width()];
        Ok(Check::new(name, &out.read(rows)?, want, tolerance))
    };
    ROWS.into_iter().map(check).collect()
}

/// The error of a tensor core's sum of `k` products, relative to the largest result: it cuts off what is
/// below the last fraction bit of the largest term, always toward zero. For each 16 products these are at
/// most 2 x (9 terms + 2 of the rounded result) x 2^-24 on compute capability 8, and less on 9.
fn sums(k: usize) -> f64 {
    5e-6 + k.div_ceil(16) as f64 * 22.0 * f64::from(-24).exp2()
}

/// Rounds a row of weights as a device does.
fn round(row: &mut [f32], format: MatrixFormat) {
    match format {
        // The processor rounds to the same integers.
        MatrixFormat::F32 | MatrixFormat::Int8 => {}
        MatrixFormat::Bf16 => to_bf16(row),
        MatrixFormat::Packed(_) => {
            row.copy_from_slice(&row_in_codes(row));
            to_bf16(row);
        }
        MatrixFormat::Int8w => {
            let (bytes, scale) = row_to_bytes(row);
            for (weight, byte) in row.iter_mut().zip(bytes) {
                *weight = scale * f32::from(byte);
            }
        }
    }
}

fn to_bf16(row: &mut [f32]) {
    row.iter_mut().for_each(|x| *x = half::bf16::from_f32(*x).to_f32());
}

fn on_cpu(
    x: &[f32],
    matrix: Matrix<'_>,
    dtype: WeightDtype,
    epilogue: Epilogue,
) -> Result<Vec<f32>> {
    let product = || {
        let linear = Linear::new(matrix, dtype, epilogue)?;
        let x = Tensor::from_slice(x, (x.len() / matrix.k, matrix.k), &Cpu::Cpu)?;
        linear.forward(&x)?.flatten_all()?.to_vec1()
    };
    product().map_err(|error: candle_core::Error| DeviceError(format!("on the CPU: {error}")))
}

/// Deterministic numbers in -1..1.
pub(super) fn random(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::Check;

    #[test]
    fn the_largest_error_counts_and_nan_fails() {
        let check = |got: &[f32]| Check::new(String::new(), got, &[1.0, -4.0], 0.1);
        assert!(check(&[1.2, -4.0]).holds());
        assert!((check(&[1.2, -5.0]).error - 0.25).abs() < 1e-6);
        for wrong in [&[1.0, -5.0][..], &[f32::NAN, -4.0], &[1.0], &[1.0, f32::INFINITY]] {
            assert!(!check(wrong).holds(), "{wrong:?}");
        }
    }
}
