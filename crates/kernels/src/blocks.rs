//! Types of quantized blocks in GGUF files.

use crate::simd::blocks::Form;
use half::f16;

/// A type of blocks. A block has codes of a few bits for consecutive weights of a row, with scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "the names of the file format")]
pub enum BlockType {
    /// 32 codes of 4 bits, a scale.
    Q4_0,
    /// 32 codes of 4 bits, a scale and a minimum.
    Q4_1,
    /// 32 codes of 5 bits, a scale.
    Q5_0,
    /// 32 codes of 5 bits, a scale and a minimum.
    Q5_1,
    /// 32 codes of 8 bits, a scale.
    Q8_0,
    /// 256 codes of 4 bits, a scale and a minimum for each 32.
    Q4_K,
    /// 256 codes of 5 bits, a scale and a minimum for each 32.
    Q5_K,
    /// 256 codes of 6 bits, a scale for each 16.
    Q6_K,
}

impl BlockType {
    /// All types.
    pub const ALL: [Self; 8] = [
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
    ];

    /// The name in files and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q4_K => "Q4_K",
            Self::Q5_K => "Q5_K",
            Self::Q6_K => "Q6_K",
        }
    }

    /// Weights of a block.
    pub fn weights(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q4_K | Self::Q5_K | Self::Q6_K => 256,
        }
    }

    /// Bytes of a block.
    pub fn bytes(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q4_K => 144,
            Self::Q5_K => 176,
            Self::Q6_K => 210,
        }
    }

    /// Bytes of a row of `k` weights, `None` if it is not a number of blocks.
    pub fn row_bytes(self, k: usize) -> Option<usize> {
        let is_whole = k.is_multiple_of(self.weights());
        is_whole.then(|| k / self.weights() * self.bytes())
    }

    /// The offsets of a block's scale and minimum, numbers of 16 bits.
    fn halves(self) -> &'static [usize] {
        match self {
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 => &[0],
            Self::Q4_1 | Self::Q5_1 | Self::Q4_K | Self::Q5_K => &[0, 2],
            Self::Q6_K => &[208],
        }
    }

    /// True if a scale or minimum can be kept: it is finite, and its product with a constant of the type
    /// has 16 bits.
    pub fn holds(self, scale: f16) -> bool {
        // The largest finite number of 16 bits, divided by the constant.
        let most = match self {
            Self::Q4_0 => 0x6FFF,
            Self::Q5_0 => 0x6BFF,
            Self::Q8_0 => 0x5FFF,
            _ => 0x7BFF,
        };
        scale.to_bits() & 0x7FFF <= most
    }

    /// The first block in `bytes` with a scale or minimum that it does not hold.
    pub fn unfit(self, bytes: &[u8]) -> Option<usize> {
        bytes.chunks_exact(self.bytes()).position(|block| {
            let half = |index: usize| f16::from_le_bytes([block[index], block[index + 1]]);
            self.halves().iter().any(|&index| !self.holds(half(index)))
        })
    }

    /// The form in which packed products store it.
    pub fn form(self) -> Form {
        match self {
            Self::Q4_0 | Self::Q4_1 => Form::Four,
            Self::Q5_0 | Self::Q5_1 => Form::Five,
            Self::Q8_0 => Form::Eight,
            Self::Q4_K => Form::FineFour,
            Self::Q5_K => Form::FineFive,
            Self::Q6_K => Form::FineSix,
        }
    }
}

/// Rows of one block type.
#[derive(Clone, Copy, Debug)]
pub struct BlockRows<'a> {
    /// The type.
    pub kind: BlockType,
    /// Number of rows.
    pub rows: usize,
    /// The blocks of all rows, row-major; empty if weights are only counted.
    pub bytes: &'a [u8],
}
