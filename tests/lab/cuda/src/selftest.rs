//! Compares a device's kernels with those of the processor: random ragged batches, odd sizes, one
//! and many rows, boundaries of pages and partitions, poisoned outputs.

mod attention;
mod canvas;
mod data;
mod experts;
mod large;
mod products;
mod rows;
mod score;
#[cfg(test)]
mod tests;

use crate::Result;
use attention::Formats;
use data::Random;
use kernels::Form;
#[cfg(test)]
use kernels::device::ProductTile;
use kernels::device::{Check, Device, DeviceError, MatrixFormat, Precision};

/// Every number format of matrices.
const FORMATS: [MatrixFormat; 14] = [
    MatrixFormat::F32,
    MatrixFormat::Bf16,
    MatrixFormat::Int8,
    MatrixFormat::Int8w,
    MatrixFormat::Packed(Form::Four),
    MatrixFormat::Packed(Form::Five),
    MatrixFormat::Packed(Form::Eight),
    MatrixFormat::Packed(Form::FineFour),
    MatrixFormat::Packed(Form::FineFive),
    MatrixFormat::Packed(Form::FineSix),
    MatrixFormat::Packed(Form::Nvfp4),
    MatrixFormat::Packed(Form::Fp8),
    MatrixFormat::Packed(Form::FineTwo),
    MatrixFormat::Packed(Form::Iq4),
];

/// The tiles of a format that tests run. Packed formats differ only in how they widen codes: [`Form::Four`] runs in
/// all tiles, the others in the first tile of warps and the first of warpgroups.
#[cfg(test)]
fn tiles_of(format: MatrixFormat) -> impl Iterator<Item = &'static ProductTile> {
    let all = ProductTile::all(format);
    let first = |groups| all.iter().position(|tile| tile.warpgroups == groups);
    let some = [first(false), first(true)];
    let few = matches!(format, MatrixFormat::Packed(form) if form != Form::Four);
    let tested = move |number| !few || some.contains(&Some(number));
    all.iter().enumerate().filter(move |(number, _)| tested(*number)).map(|(_, tile)| tile)
}

/// The formats of large products.
const LARGE: [MatrixFormat; 4] =
    [MatrixFormat::Bf16, MatrixFormat::Int8, MatrixFormat::Int8w, MatrixFormat::Packed(Form::Four)];

/// The relative error of one rounding, and of sums in another order.
fn rounding(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 5e-6,
        // A sum in another order may round an input of the next product to the next integer.
        Precision::Bf16 | Precision::Int8 => 4e-3,
    }
}

/// Converts an error of the CPU computation.
fn cpu<T>(result: candle_core::Result<T>) -> Result<T> {
    result.map_err(|error| DeviceError(format!("on the CPU: {error}")))
}

/// Takes the checks as they are made.
struct Tell<'a>(&'a mut dyn FnMut(Check));

impl Tell<'_> {
    /// The checks of a case. A case that fails is a check that does not hold, and the next one goes on.
    fn case(&mut self, what: &str, checks: Result<impl IntoIterator<Item = Check>>) {
        match checks {
            Ok(checks) => checks.into_iter().for_each(&mut self.0),
            Err(reason) => (self.0)(Check::failed(what, reason)),
        }
    }
}

/// The sizes of a self-test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelftestSizes {
    /// Rows of the largest batches.
    pub rows: usize,
    /// Matrices of the size of LLaDA-8B's have at most these rows, and attention these slots;
    /// `usize::MAX` for the whole ones, which take 2 GiB of the device and 6 GiB of the host.
    pub columns: usize,
}

/// Compares every kernel in f32, bf16 and int8 with the CPU, and gives each check to `tell` when it is made.
pub fn selftest(device: &Device, sizes: SelftestSizes, tell: &mut dyn FnMut(Check)) {
    let (mut random, rows) = (Random(1), sizes.rows.max(1));
    let mut tell = Tell(tell);
    for precision in [Precision::F32, Precision::Bf16] {
        let target = (device, precision);
        rows::checks(&mut random, target, rows, &mut tell);
        products::checks(&mut random, target, rows, &mut tell);
        score::checks(&mut random, target, &mut tell);
        experts::checks(&mut random, target, rows, &mut tell);
        canvas::checks(&mut random, target, rows, &mut tell);
    }
    for formats in Formats::ALL {
        attention::checks(&mut random, (device, formats), rows, &mut tell);
    }
    let target = (device, Precision::Int8);
    rows::integers(&mut random, device, rows, &mut tell);
    products::checks(&mut random, target, rows, &mut tell);
    score::checks(&mut random, target, &mut tell);
    experts::checks(&mut random, target, rows, &mut tell);
    for format in LARGE {
        large::checks(&mut random, (device, format), sizes.columns, &mut tell);
    }
}
