//! The number formats of matrices.

use super::super::array::Precision;
use crate::simd::blocks::Form;

/// The number format of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixFormat {
    /// f32, for parity with the CPU; no tensor cores, no TF32.
    F32,
    /// bf16.
    Bf16,
    /// int8 with a factor per row and products with inputs in int8, as on the CPU.
    Int8,
    /// The same weights, widened exactly to bf16 for products with inputs in bf16.
    Int8w,
    /// Codes in groups, as on the CPU, widened to bf16 for products with inputs in bf16
    /// (`cuda/packed.cuh`).
    Packed(Form),
}

impl From<Precision> for MatrixFormat {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::F32,
            Precision::Bf16 => Self::Bf16,
            Precision::Int8 => Self::Int8,
        }
    }
}

impl MatrixFormat {
    /// A format of each kind that has kernels of its own.
    pub const KERNELS: [Self; 5] =
        [Self::F32, Self::Bf16, Self::Int8, Self::Int8w, Self::Packed(Form::Eight)];

    /// The number format of a product's inputs.
    pub fn inputs(self) -> Precision {
        match self {
            Self::F32 => Precision::F32,
            Self::Int8 => Precision::Int8,
            Self::Bf16 | Self::Int8w | Self::Packed(_) => Precision::Bf16,
        }
    }

    /// The number format of the results of gated products. Integers are rounded from f32, as on the CPU.
    pub fn gated(self) -> Precision {
        match self {
            Self::F32 | Self::Int8 => Precision::F32,
            Self::Bf16 | Self::Int8w | Self::Packed(_) => Precision::Bf16,
        }
    }

    /// Bytes of an input of a product.
    pub(super) const fn input_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Int8 => 1,
            Self::Bf16 | Self::Int8w | Self::Packed(_) => 2,
        }
    }

    /// True if rows of the matrix have factors.
    pub const fn is_scaled(self) -> bool {
        matches!(self, Self::Int8 | Self::Int8w)
    }

    /// Bits per element, without the factors of rows of integers. Packed codes have a scale and a minimum,
    /// or factors of them, of 32 bits for each 32.
    pub const fn bits(self) -> usize {
        match self {
            Self::F32 => 32,
            Self::Bf16 => 16,
            Self::Int8 | Self::Int8w => 8,
            Self::Packed(form) => form.bits() + 1,
        }
    }

    /// Bytes of `count` elements, a multiple of 8.
    pub const fn bytes(self, count: usize) -> usize {
        count / 8 * self.bits()
    }
}
