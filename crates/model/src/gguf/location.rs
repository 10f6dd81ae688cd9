//! Tensors of which a file stores several as one: the matrices of all experts of a layer.

use super::canvas;
use super::types::TensorInfo;

/// Between the prefix of a layer and the number of an expert in a tensor's name.
pub(crate) const EXPERTS: &str = "exps";

/// Before the matrices of the shared expert in a tensor's name.
pub(crate) const SHARED: &str = "shexp";

/// A tensor, or one matrix of a tensor that holds one for every expert.
#[derive(Debug, PartialEq)]
pub(super) struct Location {
    /// The name in the file.
    pub(super) tensor: String,
    /// The number of the matrix.
    pub(super) number: Option<usize>,
}

impl Location {
    /// Where a tensor lies: `blk.0.exps.5.ffn_up.weight` is matrix 5 of `blk.0.ffn_up_exps.weight`, and
    /// `blk.0.shexp.ffn_up.weight` is `blk.0.ffn_up_shexp.weight`.
    pub(super) fn of(name: &str) -> Self {
        let parts: Vec<&str> = name.split('.').collect();
        if let [layers, layer, EXPERTS, number, matrix, kind] = parts[..]
            && let Ok(number) = number.parse()
        {
            return Self {
                tensor: format!("{layers}.{layer}.{matrix}_{EXPERTS}.{kind}"),
                number: Some(number),
            };
        }
        if let [layers, layer, SHARED, matrix, kind] = parts[..] {
            return Self {
                tensor: format!("{layers}.{layer}.{matrix}_{SHARED}.{kind}"),
                number: None,
            };
        }
        Self { tensor: canvas::stored_name(name).unwrap_or_else(|| name.to_owned()), number: None }
    }

    /// Its shape in a tensor of the shape `dims`; `None` if the tensor has no such matrix.
    pub(super) fn shape<'a>(&self, dims: &'a [usize]) -> Option<&'a [usize]> {
        match (self.number, dims) {
            (None, dims) => Some(dims),
            (Some(number), [count, matrix @ ..]) if number < *count => Some(matrix),
            _ => None,
        }
    }

    /// Its first byte and its bytes in the data of the tensor, which it is a whole share of.
    pub(super) fn range(&self, info: &TensorInfo) -> (u64, usize) {
        let all = info.bytes();
        match (self.number, info.dims.first()) {
            (Some(number), Some(count)) => {
                let size = all / count.max(&1);
                (size as u64 * number as u64, size)
            }
            _ => (0, all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrices_of_experts_lie_in_one_tensor() {
        let location = Location::of("blk.3.exps.17.ffn_down.weight");
        assert_eq!(location.tensor, "blk.3.ffn_down_exps.weight");
        assert_eq!(location.number, Some(17));
        assert_eq!(location.shape(&[18, 4, 6]), Some(&[4, 6][..]));
        assert_eq!(location.shape(&[17, 4, 6]), None);
        for name in ["blk.3.ffn_down.weight", "blk.3.exps.x.ffn_down.weight", "output.weight"] {
            let location = Location::of(name);
            assert_eq!((&*location.tensor, location.number), (name, None));
            assert_eq!(location.shape(&[4, 6]), Some(&[4, 6][..]));
        }
    }
}
