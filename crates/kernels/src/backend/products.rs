//! Products with what follows them.

use super::{Attention, Backend, Norm};

/// A product whose results are the heads of attention.
pub struct Projection<'a, B: Backend + ?Sized> {
    /// The matrix `[(h + 2 g) c, k]`.
    pub matrix: &'a B::Matrix,
    /// The inputs `[r, k]`.
    pub x: &'a B::Array,
    /// The heads.
    pub attention: &'a Attention<'a, B>,
}

/// A product that is added to the residual stream, and the norm after it.
pub struct Residual<'a, B: Backend + ?Sized> {
    /// The matrix `[d, k]`.
    pub matrix: &'a B::Matrix,
    /// The inputs `[r, k]`.
    pub x: &'a B::Array,
    /// The norm.
    pub norm: Norm<'a, B>,
}
