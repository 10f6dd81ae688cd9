//! The types of tensors in GGUF files (of ggml), and how each is read.

use super::{listed, q3_k};
use candle_core::quantized::GgmlDType;
use kernels::BlockType;

/// A type of tensors.
pub(super) struct TensorType {
    /// Its number in files.
    pub(super) number: u32,
    pub(super) name: &'static str,
    /// Numbers of a block.
    pub(super) numbers: usize,
    /// Bytes of a block.
    pub(super) bytes: usize,
    pub(super) read: Read,
}

/// The entry of a tensor.
pub(super) struct TensorInfo {
    /// The sizes of its dimensions, that of a row's numbers last.
    pub(super) dims: Vec<usize>,
    pub(super) kind: &'static TensorType,
    /// Its first byte behind that of all tensors.
    pub(super) offset: u64,
}

impl TensorInfo {
    /// Numbers.
    pub(super) fn count(&self) -> usize {
        self.dims.iter().product()
    }

    /// Bytes in the file.
    pub(super) fn bytes(&self) -> usize {
        self.count() / self.kind.numbers * self.kind.bytes
    }
}

/// The way in which a type is read.
pub(super) enum Read {
    /// As numbers by candle.
    Numbers(GgmlDType),
    /// As blocks of the same bytes.
    Same(BlockType),
    /// As blocks that have exactly its numbers.
    As(BlockType, Convert),
}

/// Makes other blocks of whole blocks. An error is the number of a block that has none.
type Convert = fn(&[u8]) -> Result<Vec<u8>, usize>;

impl TensorType {
    const fn numbers(number: u32, name: &'static str, dtype: GgmlDType, bytes: usize) -> Self {
        Self { number, name, numbers: 1, bytes, read: Read::Numbers(dtype) }
    }

    const fn same(number: u32, kind: BlockType) -> Self {
        let (numbers, bytes) = (kind.weights(), kind.bytes());
        Self { number, name: kind.name(), numbers, bytes, read: Read::Same(kind) }
    }

    const fn read_as(
        number: u32,
        name: &'static str,
        (numbers, bytes): (usize, usize),
        kind: BlockType,
        convert: Convert,
    ) -> Self {
        Self { number, name, numbers, bytes, read: Read::As(kind, convert) }
    }

    /// The type of a number in files.
    pub(super) fn of(number: u32) -> Option<&'static Self> {
        TYPES.iter().find(|kind| kind.number == number)
    }

    /// The type of blocks that matrices are kept in.
    pub(super) fn kept(&self) -> Option<BlockType> {
        match self.read {
            Read::Numbers(_) => None,
            Read::Same(kind) | Read::As(kind, _) => Some(kind),
        }
    }
}

impl std::fmt::Debug for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The types that are read.
pub(super) const TYPES: [TensorType; 25] = [
    TensorType::numbers(0, "F32", GgmlDType::F32, 4),
    TensorType::numbers(1, "F16", GgmlDType::F16, 2),
    TensorType::numbers(30, "BF16", GgmlDType::BF16, 2),
    TensorType::same(2, BlockType::Q4_0),
    TensorType::same(3, BlockType::Q4_1),
    TensorType::same(6, BlockType::Q5_0),
    TensorType::same(7, BlockType::Q5_1),
    TensorType::same(8, BlockType::Q8_0),
    TensorType::same(10, BlockType::Q2_K),
    TensorType::read_as(11, "Q3_K", (256, 110), BlockType::Q6_K, q3_k::as_q6_k),
    TensorType::same(12, BlockType::Q4_K),
    TensorType::same(13, BlockType::Q5_K),
    TensorType::same(14, BlockType::Q6_K),
    TensorType::read_as(16, "IQ2_XXS", (256, 66), BlockType::IQ2, listed::iq2_xxs),
    TensorType::read_as(17, "IQ2_XS", (256, 74), BlockType::IQ2, listed::iq2_xs),
    TensorType::read_as(18, "IQ3_XXS", (256, 98), BlockType::IQ3_XXS, listed::iq3_xxs),
    TensorType::read_as(19, "IQ1_S", (256, 50), BlockType::IQ2, listed::iq1_s),
    TensorType::read_as(20, "IQ4_NL", (32, 18), BlockType::Q8_0, listed::iq4_nl),
    TensorType::read_as(21, "IQ3_S", (256, 110), BlockType::IQ3_S, listed::iq3_s),
    TensorType::read_as(22, "IQ2_S", (256, 82), BlockType::IQ2, listed::iq2_s),
    TensorType::read_as(23, "IQ4_XS", (256, 136), BlockType::IQ4, listed::iq4_xs),
    TensorType::read_as(29, "IQ1_M", (256, 56), BlockType::IQ2, listed::iq1_m),
    TensorType::read_as(34, "TQ1_0", (256, 54), BlockType::IQ2, listed::tq1_0),
    TensorType::read_as(35, "TQ2_0", (256, 66), BlockType::IQ2, listed::tq2_0),
    TensorType::read_as(39, "MXFP4", (32, 17), BlockType::NVFP4, listed::mxfp4),
];

/// The names of other types by their numbers.
pub(super) const OTHER: [(u32, &str); 8] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (40, "NVFP4"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::expand;
    use safetensors::SafeTensors;

    #[test]
    fn numbers_are_those_of_the_format_s_library() {
        let file =
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/fixtures/gguf_types.safetensors");
        let file = std::fs::read(file).unwrap();
        let file = SafeTensors::deserialize(&file).unwrap();
        let mut read = 0;
        for kind in &TYPES {
            let tensor = |part: &str| file.tensor(&format!("{}.{part}", kind.name));
            let Ok(blocks) = tensor("blocks") else {
                continue;
            };
            read += 1;
            let weights = tensor("weights").unwrap();
            let words = weights.data().as_chunks().0.iter();
            let want: Vec<f32> = words.map(|word| f32::from_le_bytes(*word)).collect();
            let mut got = Vec::new();
            expand(blocks.data(), kind, weights.shape(), 1, &mut got).unwrap();
            assert_eq!(got, want, "{kind:?}");
            assert!(want.iter().any(|x| *x > 0.0), "{kind:?}");
            // Whole blocks become whole blocks.
            assert_eq!(want.len() * kind.bytes, blocks.data().len() * kind.numbers, "{kind:?}");
        }
        assert_eq!(read, 14);
    }

    #[test]
    fn powers_of_two_beyond_those_of_eight_bits_are_found() {
        let block = |exponent: u8, code: u8| [&[exponent][..], &[code; 16]].concat();
        let blocks = |second: Vec<u8>| [block(120, 0x11), second].concat();
        for exponent in [108, 125] {
            assert!(listed::mxfp4(&blocks(block(exponent, 0x33))).is_ok());
        }
        for exponent in [0, 107, 126, 255] {
            assert_eq!(listed::mxfp4(&blocks(block(exponent, 0x33))), Err(1));
            // Zeros have any scale.
            assert!(listed::mxfp4(&blocks(block(exponent, 0x80))).is_ok());
        }
    }
}
