//! The parts of a pass's arrays.

use crate::{HeadSizes, ModelInfo};
use candle_core::Result;
use kernels::{ArrayKind, Backend};

/// The arrays of attention, of the layers of one size.
pub(super) struct HeadArrays<B: Backend> {
    pub(super) qkv: B::Array,
    pub(super) q: B::Array,
    pub(super) attended: B::Array,
}

impl<B: Backend> HeadArrays<B> {
    /// Arrays of `rows` rows.
    pub(super) fn new(backend: &B, rows: usize, heads: HeadSizes) -> Result<Self> {
        let inner = heads.num_heads * heads.head_width;
        let all = inner + 2 * heads.num_kv_heads * heads.head_width;
        Ok(Self {
            qkv: backend.array(ArrayKind::Sums, rows, all)?,
            q: backend.array(ArrayKind::Queries, rows, inner)?,
            attended: backend.array(ArrayKind::Attended, rows, inner)?,
        })
    }
}

/// Arrays for the keys and values of a drafter.
pub(super) struct ContextArrays<B: Backend> {
    /// The projected states of the target's layers `[r, d]`.
    pub(super) states: B::Array,
    pub(super) heads: HeadArrays<B>,
}

impl<B: Backend> ContextArrays<B> {
    /// Arrays of `rows` rows for the drafter of a model, if it has one.
    pub(super) fn new(backend: &B, info: &ModelInfo, rows: usize) -> Result<Option<Self>> {
        let Some(drafter) = info.rows.drafter else {
            return Ok(None);
        };
        Ok(Some(Self {
            states: backend.array(ArrayKind::Sums, rows, info.width)?,
            heads: HeadArrays::new(backend, rows, drafter.heads)?,
        }))
    }
}

/// Arrays of a canvas model's passes.
pub(super) struct Branches<B: Backend> {
    /// A branch before its norm.
    pub(super) one: B::Array,
    /// The sum of two branches.
    pub(super) both: B::Array,
}
