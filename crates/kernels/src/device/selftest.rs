//! Whether a device's kernels compute what this crate's kernels for the CPU do: random ragged
//! batches, odd sizes, one row and many, borders of pages and parts, outputs poisoned before.

mod attention;
mod data;
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
    /// How far it was off.
    pub error: f64,
    /// How far it may be off.
    pub tolerance: f64,
}

impl Check {
    /// Whether the device may be used.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.error <= self.tolerance
    }

    /// The largest difference of two lists as a share of the largest number wanted.
    fn new(name: String, got: &[f32], want: &[f32], tolerance: f64) -> Self {
        Self {
            name,
            error: distance(got, want),
            tolerance,
        }
    }
}

/// Infinite if a number is none or missing.
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

/// What a precision may lose of the largest number in one rounding, and in sums in another order.
fn rounding(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 5e-6,
        Precision::Bf16 => 4e-3,
    }
}

/// A failure of the CPU's side.
fn cpu<T>(result: candle_core::Result<T>) -> Result<T> {
    result.map_err(|error| DeviceError(format!("on the CPU: {error}")))
}

/// Compares every kernel, in f32 and in bf16, in batches of up to `rows` rows.
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
    }
    Ok(checks)
}
