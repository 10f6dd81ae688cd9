//! Loads attention whose layers have heads of two sizes, and where values may be the keys.

use super::load::Loader;
use super::source::Matrix;
use crate::LoadError;
use crate::config::CanvasSpec;
use crate::info::CanvasInfo;
use crate::{HeadSizes, ModelInfo};
use kernels::{Epilogue, Numbers, Storage, Stored, StoredVector};

/// The sizes that follow from the number and the kind of a layer.
#[derive(Clone, Copy)]
pub(super) struct LayerSizes {
    pub(super) heads: HeadSizes,
    pub(super) full: bool,
    /// The layer's number among the keys and values: layers with a window come first.
    pub(super) kv: usize,
}

impl<S: Storage> Loader<'_, S> {
    /// Query, key and value in one matrix; in full layers the values are the keys before their norm.
    pub(super) fn shared_qkv(
        &mut self,
        number: usize,
        sizes: LayerSizes,
    ) -> Result<S::Matrix, LoadError> {
        let (d, heads) = (self.spec.info.width, sizes.heads);
        let (q, kv) = (heads.num_heads * heads.head_width, heads.num_kv_heads * heads.head_width);
        let parts = self.names.qkv.iter().zip([q, kv, kv]).map(|(part, rows)| Matrix {
            name: format!("{}.{number}.{part}", self.names.layers),
            rows,
            bias: false,
        });
        let parts: Vec<Matrix> = parts.take(if sizes.full { 2 } else { 3 }).collect();
        let mut source = self.source_numbers(d, &parts, Epilogue::None)?;
        if sizes.full {
            source.repeat_last(kv, d);
        }
        let rows = q + 2 * kv;
        let extra_bytes = source.bytes(rows, d);
        let matrix = Stored {
            shape: [rows, d],
            numbers: Numbers::Floats(&[]),
            bias: None,
            dtype: self.dtype_of(&parts),
            epilogue: Epilogue::None,
        };
        self.whole(parts.first().map_or("", |query| &query.name), &source, matrix, extra_bytes)
    }

    /// The norms of query, key and value heads. Scores are not divided by the square root of the
    /// head width, which attention does: the queries' norm has the inverse. Values have no weights.
    pub(super) fn three_norms(
        &mut self,
        number: usize,
        sizes: LayerSizes,
    ) -> Result<S::Vector, LoadError> {
        let HeadSizes { num_heads, num_kv_heads, head_width } = sizes.heads;
        let mut all = Vec::new();
        let scale = (head_width as f32).sqrt();
        let names = self.names.head_norms.into_iter();
        for (name, (count, scale)) in names.zip([(num_heads, scale), (num_kv_heads, 1.0)]) {
            let name = format!("{}.{number}.{name}.weight", self.names.layers);
            let mut one = self.weights.tensor(&name, &[head_width])?;
            one.iter_mut().for_each(|x| *x *= scale);
            all.extend(one.repeat(count));
        }
        if self.weights.reads {
            all.resize(all.len() + num_kv_heads * head_width, 1.0);
        }
        self.vector(StoredVector {
            count: (num_heads + 2 * num_kv_heads) * head_width,
            numbers: &all,
        })
    }
}

/// Sizes and number of a layer.
pub(super) fn layer_sizes(
    number: usize,
    spec: &CanvasSpec,
    canvas: &CanvasInfo,
    info: &ModelInfo,
) -> LayerSizes {
    let full = spec.full[number];
    let before = spec.full[..number].iter().filter(|other| **other == full);
    let before = before.count();
    let (heads, first) = match full {
        true => (canvas.full_heads, info.layers - canvas.full_layers),
        false => (info.heads, 0),
    };
    LayerSizes { heads, full, kv: first + before }
}
