//! Products that are added to the residual stream before a norm, whose factors the next product computes.

use super::array::{Array, Precision, SQUARED};
use super::launch::{Division, ProductLaunch};
use super::matrix::DeviceMatrix;
use super::rows::RowNorm;
use super::{Result, args, refuse};
use crate::linear::Epilogue;

/// The residual stream `[r, d]`, f32, to which a product is added, and the norm after it.
#[derive(Clone, Copy)]
pub struct NormedSum<'a> {
    /// The residual stream.
    pub sum: &'a Array,
    /// The norm.
    pub norm: RowNorm<'a>,
}

/// Adds the product of the first `rows` rows of `x` and a matrix to the residual stream, and writes what
/// products read as its norm to `out`: the sums times the norm's weights, and the squares from which those
/// products compute the factors of rows. False if there are no kernels, which the number of rows does not
/// decide: then nothing is done.
pub fn add_normed(
    matrix: &DeviceMatrix,
    x: &Array,
    rows: usize,
    stream: NormedSum<'_>,
    out: &mut Array,
) -> Result<bool> {
    if !matrix.adds_normed(out)? {
        return Ok(false);
    }
    let launch = matrix.launch(rows, Division::Residual);
    matrix.add_normed_as(&launch, x, stream, out)?;
    Ok(true)
}

impl DeviceMatrix {
    /// True if the matrix has kernels that leave a norm's factors to the products that read `out`.
    fn adds_normed(&self, out: &Array) -> Result<bool> {
        let plain = self.is_alone() && matches!(self.epilogue(), Epilogue::None);
        let in_bf16 = self.precision() == Precision::Bf16 && out.precision() == Precision::Bf16;
        let fused = self.device().limits().fused && out.squares()?.is_some();
        Ok(plain && in_bf16 && fused && self.width() == out.width())
    }

    /// Runs a launch of [`add_normed`].
    ///
    /// # Errors
    /// If its tile has no such kernel, or an array has another shape.
    pub fn add_normed_as(
        &self,
        launch: &ProductLaunch,
        x: &Array,
        NormedSum { sum, norm }: NormedSum<'_>,
        out: &mut Array,
    ) -> Result<()> {
        let (rows, n) = (launch.sizes.rows, self.width());
        let (Some(kernel), Some(squares)) = (launch.tile.residual_kernel(), out.squares()?) else {
            return refuse(format!("{} leaves no norm", launch.tile.names.gemm));
        };
        if !n.is_multiple_of(SQUARED) || [sum.stride(), out.stride()] != [n; 2] {
            return refuse(format!("expected rows of {n}, a multiple of {SQUARED}"));
        }
        let args = args::Residual {
            operands: self.operands(x, 0..rows, None)?,
            share: self.share(launch)?,
            bias: self.bias()?,
            sum: sum.checked(rows, n, Precision::F32)?,
            weight: norm.weight.range(0, n * 4)?,
            next: out.checked(rows, n, Precision::Bf16)?,
            squares,
        };
        let grid = [launch.grid(x.device().limits())?, 1, 1];
        // SAFETY: the arrays have these sizes, which were checked, and of the partial sums.
        unsafe { self.launch_product(launch, (kernel, grid), (x, 0), &args) }?;
        out.set_lacking(Some(norm.eps));
        Ok(())
    }
}
