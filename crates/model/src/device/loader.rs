//! Tensors on their way to a device.

use crate::LoadError;
use crate::layers::{Matrix, stacked};
use crate::weights::Weights;
use kernels::device::{Array, Buffer, Device, DeviceError, DeviceMatrix, Heads, Precision};
use kernels::{Epilogue, RopeTable};

/// Numbers of an embedding table on their way at a time.
const PIECE: usize = 1 << 22;

/// Where tensors come from and go to.
pub(crate) struct Loader<'a> {
    pub(crate) device: &'a Device,
    pub(crate) precision: Precision,
    pub(crate) weights: &'a mut Weights,
}

impl Loader<'_> {
    /// `{name}.weight [d]`.
    pub(crate) fn floats(&mut self, name: &str, d: usize) -> Result<Buffer, LoadError> {
        let numbers = self.weights.tensor(&format!("{name}.weight"), &[d])?;
        self.numbers(&numbers)
    }

    /// Numbers in f32.
    pub(crate) fn numbers(&self, numbers: &[f32]) -> Result<Buffer, LoadError> {
        Buffer::floats(self.device, numbers).map_err(failed)
    }

    /// The angles of a table.
    pub(crate) fn heads(&self, table: &RopeTable) -> Result<Heads, LoadError> {
        Heads::new(self.device, table).map_err(failed)
    }

    /// Rows of `d` numbers.
    pub(crate) fn table(&self, numbers: &[f32], d: usize) -> Result<Array, LoadError> {
        let rows = numbers.len() / d;
        let table = Array::new(self.device, self.precision, rows, d).map_err(failed)?;
        let step = (PIECE / d).max(1);
        for (piece, part) in numbers.chunks(step * d).enumerate() {
            table.write(piece * step, part).map_err(failed)?;
        }
        Ok(table)
    }

    /// Several stored matrices over an input of width `k` as one.
    pub(crate) fn fused(
        &mut self,
        k: usize,
        parts: &[Matrix],
        epilogue: Epilogue,
    ) -> Result<DeviceMatrix, LoadError> {
        let (weight, bias) = stacked(self.weights, k, parts)?;
        let matrix = kernels::Matrix {
            weight: &weight,
            k,
            bias: bias.as_deref(),
        };
        DeviceMatrix::new(self.device, self.precision, matrix, epilogue).map_err(failed)
    }

    /// A matrix `[n, k]`.
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
