//! Products whose operands bulk copies load, compared with the others bit by bit.

use super::super::{
    Array, Device, DeviceLimits, DeviceMatrix, Division, MatrixFormat, Precision, ProductLaunch,
    ProductTile, Result, Store,
};
use super::{Check, random};
use crate::linear::{Epilogue, Matrix};

/// A product in bf16 or int8.
#[derive(Clone, Copy, Debug)]
pub struct RingCase {
    /// The number format of inputs and weights.
    pub format: MatrixFormat,
    /// Rows.
    pub rows: usize,
    /// Inner elements.
    pub k: usize,
    /// Columns of the result.
    pub n: usize,
}

impl RingCase {
    /// A check for every tile that the device can run, whole and divided: the number of results whose bits differ
    /// from those of the launch that is chosen without them.
    pub fn checks(&self, device: &Device) -> Result<Vec<Check>> {
        let Self { format, rows, k, n } = *self;
        let (weight, bias) = (random(1, n * k), random(3, n));
        let x = Array::padded(device, format.inputs(), rows, k)?;
        x.write(0, &random(2, rows * k))?;
        let matrix = Matrix { weight: &weight, k, bias: Some(&bias) };
        let matrix = DeviceMatrix::new(device, format, matrix, Epilogue::None)?;
        let run = |launch: &ProductLaunch| {
            let out = Array::new(device, Precision::F32, rows, n)?;
            out.buffer().fill(0xFF)?;
            matrix.run_as(launch, &x, &out, Store::Overwrite)?;
            out.read(rows)
        };
        let limits = DeviceLimits { ring: false, ..device.limits() };
        let sizes = matrix.sizes(rows);
        let want = run(&ProductLaunch::choose(sizes, limits, Division::Divided))?;
        let tiles = ProductTile::all(format).iter();
        let rings = tiles.filter(|tile| tile.cluster > 0 && tile.gemm_kernel().runs_on(limits));
        let mut checks = Vec::new();
        for launch in rings.flat_map(|tile| ProductLaunch::ways(tile, sizes)) {
            let got = run(&launch)?;
            let pairs = got.iter().zip(&want);
            let differ = pairs.filter(|(got, want)| got.to_bits() != want.to_bits()).count();
            checks.push(Check {
                name: format!(
                    "{}, {} parts, of {self:?}: bits",
                    launch.tile.names.gemm,
                    launch.pieces()
                ),
                error: differ as f64,
                tolerance: 0.0,
            });
        }
        Ok(checks)
    }
}
