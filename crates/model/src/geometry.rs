//! Sizes of models with random weights.

use crate::{Checkpoint, LoadError};

/// Maximum number of positions of these models.
const POSITIONS: usize = 4096;

/// Sizes of a model with LLaDA's architecture and random weights, for measuring speed only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Name on the command line.
    pub name: &'static str,
    width: usize,
    heads: usize,
    layers: usize,
    mlp: usize,
    vocab: usize,
}

impl Geometry {
    /// Every geometry, from the smallest to the largest.
    pub const ALL: [Self; 3] = [
        Self { name: "demo", width: 192, heads: 6, layers: 6, mlp: 512, vocab: 1024 },
        Self { name: "llada-300m", width: 1024, heads: 16, layers: 24, mlp: 2816, vocab: 32_000 },
        Self { name: "llada-8b", width: 4096, heads: 32, layers: 32, mlp: 12_288, vocab: 126_464 },
    ];

    /// The geometry with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|geometry| geometry.name == name)
    }

    /// A checkpoint of these sizes with random weights, the mask token `mask` and the end-of-text
    /// token `end`.
    ///
    /// # Errors
    /// As [`Checkpoint::synthetic`].
    pub fn checkpoint(&self, mask: u32, end: u32) -> Result<Checkpoint, LoadError> {
        let Self { width, heads, layers, mlp, vocab, .. } = self;
        let config = format!(
            r#"{{"architectures": ["LLaDAModelLM"], "d_model": {width}, "n_heads": {heads},
            "n_layers": {layers}, "mlp_hidden_size": {mlp}, "vocab_size": {vocab},
            "max_sequence_length": {POSITIONS}, "mask_token_id": {mask}, "eos_token_id": {end}}}"#
        );
        Checkpoint::synthetic(&config, 1)
    }

    /// Rows and columns of the matrices of a layer: queries, keys and values; output; gate and up; down.
    pub fn matrices(&self) -> [(usize, usize); 4] {
        let Self { width, mlp, .. } = *self;
        [(3 * width, width), (width, width), (2 * mlp, width), (width, mlp)]
    }

    /// Bytes that a step reads at least: the multiplied weights of `bits` bits each, and keys and values of
    /// `positions` positions in bf16.
    pub fn read_bytes(&self, bits: usize, positions: u64) -> u64 {
        let weights = self.operations() / 2.0 * bits as f64 / 8.0;
        weights as u64 + positions * (2 * self.layers * self.width * 2) as u64
    }

    /// Floating-point operations of the matrix products of one row, including the LM head.
    pub fn operations(&self) -> f64 {
        let layer = 4 * self.width * self.width + 3 * self.width * self.mlp;
        2.0 * (self.layers * layer + self.vocab * self.width) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    #[test]
    fn a_geometry_is_a_model_of_its_sizes() {
        let geometry = Geometry::named("demo").unwrap();
        let model = Model::load(geometry.checkpoint(5, 1).unwrap()).unwrap();
        let info = model.info();
        assert_eq!((info.width, info.layers, info.mlp_width), (192, 6, 512));
        assert_eq!((info.vocabulary.mask, info.vocabulary.end.as_slice()), (Some(5), &[1][..]));
        // All parameters except the embedding table and the norms are multiplied once per row.
        let others = info.vocabulary.size * info.width + (2 * info.layers + 1) * info.width;
        let multiplied = (info.parameters - others) as f64;
        assert_eq!(geometry.operations(), 2.0 * multiplied);
        let of_layer: usize = geometry.matrices().iter().map(|(n, k)| n * k).sum();
        let head = info.vocabulary.size * info.width;
        assert_eq!(info.layers * of_layer + head, info.parameters - others);
        let kv = 10 * 2 * 6 * 192 * 2;
        assert_eq!(geometry.read_bytes(16, 10), 2 * multiplied as u64 + kv);
        assert!(Geometry::named("tiny").is_none());
    }
}
