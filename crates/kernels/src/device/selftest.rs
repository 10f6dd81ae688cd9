//! Compares a device's kernels with this crate's CPU kernels: random ragged batches, odd sizes, one
//! and many rows, boundaries of pages and partitions, poisoned outputs.

mod attention;
mod data;
mod experts;
mod products;
mod rows;
mod score;
#[cfg(all(test, feature = "emulation"))]
mod tests;

use super::{Device, DeviceError, Precision, Result};
use data::Random;

/// One comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What was compared.
    pub name: String,
    /// The measured error.
    pub error: f64,
    /// The maximum accepted error.
    pub tolerance: f64,
}

impl Check {
    /// Whether the error is within the tolerance.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.error <= self.tolerance
    }

    /// The largest difference of two lists relative to the largest expected number.
    fn new(name: String, got: &[f32], want: &[f32], tolerance: f64) -> Self {
        Self {
            name,
            error: distance(got, want),
            tolerance,
        }
    }
}

/// The largest relative difference; infinite if a number is NaN or missing.
fn distance(got: &[f32], want: &[f32]) -> f64 {
    if got.len() != want.len() {
        return f64::INFINITY;
    }
    let most = want.iter().fold(1e-6_f32, |most, x| most.max(x.abs()));
    got.iter().zip(want).fold(0.0, |error, (got, want)| {
        let one = f64::from((got - want).abs() / most);
        if one.is_nan() {
            f64::INFINITY
        } else {
            error.max(one)
        }
    })
}

/// The relative error of one rounding, and of sums in another order.
fn rounding(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 5e-6,
        Precision::Bf16 => 4e-3,
    }
}

/// Converts an error of the CPU computation.
fn cpu<T>(result: candle_core::Result<T>) -> Result<T> {
    result.map_err(|error| DeviceError(format!("on the CPU: {error}")))
}

/// Compares every kernel in f32 and bf16, with batches of up to `rows` rows.
///
/// # Errors
/// If an operation fails.
pub fn selftest(device: &Device, rows: usize) -> Result<Vec<Check>> {
    let (mut random, rows) = (Random(1), rows.max(1));
    let mut checks = Vec::new();
    for precision in [Precision::F32, Precision::Bf16] {
        let on = (device, precision);
        checks.extend(rows::checks(&mut random, on, rows)?);
        checks.extend(products::checks(&mut random, on, rows)?);
        checks.extend(attention::checks(&mut random, on, rows)?);
        checks.extend(score::checks(&mut random, on)?);
        checks.extend(experts::checks(&mut random, on, rows)?);
    }
    Ok(checks)
}
