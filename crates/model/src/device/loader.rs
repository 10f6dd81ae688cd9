//! Copies tensors of a checkpoint to a device.

use crate::LoadError;
use crate::layers::{Matrix, stacked};
use crate::weights::Weights;
use kernels::device::{Array, Buffer, Device, DeviceError, DeviceMatrix, DeviceRope, Precision};
use kernels::{Epilogue, RopeTable};

/// Elements of an embedding table copied at a time.
const PIECE: usize = 1 << 22;

/// Source and destination of tensors.
pub(crate) struct Loader<'a> {
    pub(crate) device: &'a Device,
    pub(crate) precision: Precision,
    pub(crate) weights: &'a mut Weights,
}

impl Loader<'_> {
    /// Copies `{name}.weight [d]` as f32.
    pub(crate) fn floats(&mut self, name: &str, d: usize) -> Result<Buffer, LoadError> {
        let numbers = self.weights.tensor(&format!("{name}.weight"), &[d])?;
        self.numbers(&numbers)
    }

    /// Copies numbers as f32.
    pub(crate) fn numbers(&self, numbers: &[f32]) -> Result<Buffer, LoadError> {
        Buffer::floats(self.device, numbers).map_err(failed)
    }

    /// Copies a table of rotary angles.
    pub(crate) fn rope(&self, table: &RopeTable) -> Result<DeviceRope, LoadError> {
        DeviceRope::new(self.device, table).map_err(failed)
    }

    /// Copies rows of `d` numbers in the matrices' precision.
    pub(crate) fn table(&self, numbers: &[f32], d: usize) -> Result<Array, LoadError> {
        let rows = numbers.len() / d;
        let table = Array::new(self.device, self.precision, rows, d).map_err(failed)?;
        let step = (PIECE / d).max(1);
        for (piece, rows) in numbers.chunks(step * d).enumerate() {
            table.write(piece * step, rows).map_err(failed)?;
        }
        Ok(table)
    }

    /// Copies several stored matrices over the same input of width `k` as one matrix.
    pub(crate) fn fused(
        &mut self,
        k: usize,
        matrices: &[Matrix],
        epilogue: Epilogue,
    ) -> Result<DeviceMatrix, LoadError> {
        let (weight, bias) = stacked(self.weights, k, matrices)?;
        let matrix = kernels::Matrix {
            weight: &weight,
            k,
            bias: bias.as_deref(),
        };
        DeviceMatrix::new(self.device, self.precision, matrix, epilogue).map_err(failed)
    }

    /// Copies a matrix `[n, k]`.
    pub(crate) fn matrix(
        &self,
        weight: &[f32],
        k: usize,
        bias: Option<&[f32]>,
    ) -> Result<DeviceMatrix, LoadError> {
        let matrix = kernels::Matrix { weight, k, bias };
        DeviceMatrix::new(self.device, self.precision, matrix, Epilogue::None).map_err(failed)
    }
}

fn failed(error: DeviceError) -> LoadError {
    LoadError::Setup(error.to_string())
}
