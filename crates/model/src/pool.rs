//! The physical KV pool: one key and one value tensor per layer, allocated once.

use candle_core::{DType, Device, Result, Tensor};
use kernels::{CopyPages, Pool, WriteRows};

/// The sizes of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolShape {
    pub(crate) layers: usize,
    /// Key/value heads `g`.
    pub(crate) groups: usize,
    /// Head width `c`.
    pub(crate) head_width: usize,
    pub(crate) page_size: usize,
    pub(crate) pages: usize,
}

/// Keys and values of all layers.
pub(crate) struct KvPool {
    /// Keys and values of each layer, in the layouts of [`Pool`].
    layers: Vec<(Tensor, Tensor)>,
}

impl KvPool {
    /// Allocates a pool of zeros.
    pub(crate) fn new(shape: PoolShape, device: &Device) -> Result<Self> {
        let zeros = |pool: Pool| {
            let PoolShape {
                pages,
                groups,
                head_width,
                page_size,
                ..
            } = shape;
            let dims = pool.shape(pages, groups, head_width, page_size);
            Tensor::zeros(dims.as_slice(), DType::F32, device)
        };
        let layers = (0..shape.layers)
            .map(|_| Ok((zeros(Pool::Keys)?, zeros(Pool::Values)?)))
            .collect::<Result<_>>()?;
        Ok(Self { layers })
    }

    /// Keys and values of a layer.
    pub(crate) fn layer(&self, layer: usize) -> (&Tensor, &Tensor) {
        let (k, v) = &self.layers[layer];
        (k, v)
    }

    /// Copies pages in every layer, in order.
    pub(crate) fn copy(&self, pages: &[(u32, u32)]) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        let op = CopyPages { pages };
        self.layers.iter().try_for_each(|(k, v)| {
            k.inplace_op1(&op)?;
            v.inplace_op1(&op)
        })
    }

    /// Writes the keys and values of every row to its slot. In `rows [r, w]`, the keys start at
    /// column `at.0` and the values at column `at.1`.
    pub(crate) fn write(
        &self,
        layer: usize,
        rows: &Tensor,
        slots: &[u32],
        at: (usize, usize),
    ) -> Result<()> {
        let (k, v) = &self.layers[layer];
        let keys = WriteRows {
            pool: Pool::Keys,
            slots,
            column: at.0,
        };
        let values = WriteRows {
            pool: Pool::Values,
            column: at.1,
            ..keys
        };
        k.inplace_op2(rows, &keys)?;
        v.inplace_op2(rows, &values)
    }
}
