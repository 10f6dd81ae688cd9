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

/// Where the keys and the values begin in a row.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    pub(crate) keys: usize,
    pub(crate) values: usize,
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

    /// Writes the keys and values of every row of `rows [r, w]` to its slot.
    pub(crate) fn write(
        &self,
        layer: usize,
        rows: &Tensor,
        slots: &[u32],
        columns: Columns,
    ) -> Result<()> {
        let (k, v) = &self.layers[layer];
        let keys = WriteRows {
            pool: Pool::Keys,
            slots,
            column: columns.keys,
        };
        let values = WriteRows {
            pool: Pool::Values,
            column: columns.values,
            ..keys
        };
        k.inplace_op2(rows, &keys)?;
        v.inplace_op2(rows, &values)
    }
}
