//! The physical KV memory: one key and one value tensor per layer, allocated once.

use candle_core::{DType, Device, Result, Tensor};
use kernels::{CopyPages, WriteRows};

/// What decides a pool's size.
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
    /// Per layer keys and values, `[s, g, c]` each.
    layers: Vec<(Tensor, Tensor)>,
    page_size: usize,
}

impl KvPool {
    /// Allocates a pool of zeros.
    pub(crate) fn new(shape: PoolShape, device: &Device) -> Result<Self> {
        let dims = (
            shape.pages * shape.page_size,
            shape.groups,
            shape.head_width,
        );
        let zeros = || Tensor::zeros(dims, DType::F32, device);
        let layers = (0..shape.layers)
            .map(|_| Ok((zeros()?, zeros()?)))
            .collect::<Result<_>>()?;
        Ok(Self {
            layers,
            page_size: shape.page_size,
        })
    }

    pub(crate) fn page_size(&self) -> usize {
        self.page_size
    }

    /// Keys and values of a layer, `[s, g, c]` each.
    pub(crate) fn layer(&self, layer: usize) -> (&Tensor, &Tensor) {
        let (k, v) = &self.layers[layer];
        (k, v)
    }

    /// Copies pages in every layer, in order.
    pub(crate) fn copy(&self, pages: &[(u32, u32)]) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        let op = CopyPages {
            pages,
            page_size: self.page_size,
        };
        self.layers.iter().try_for_each(|(k, v)| {
            k.inplace_op1(&op)?;
            v.inplace_op1(&op)
        })
    }

    /// Writes the keys and values of every row to its slot: columns from `at.0` and from `at.1`
    /// on of `rows [r, w]`.
    pub(crate) fn write(
        &self,
        layer: usize,
        rows: &Tensor,
        slots: &[u32],
        at: (usize, usize),
    ) -> Result<()> {
        let (k, v) = &self.layers[layer];
        k.inplace_op2(
            rows,
            &WriteRows {
                slots,
                column: at.0,
            },
        )?;
        v.inplace_op2(
            rows,
            &WriteRows {
                slots,
                column: at.1,
            },
        )
    }
}
