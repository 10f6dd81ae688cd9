//! Types of quantized blocks, in GGUF files and of published formats.

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
    /// 256 codes of 2 bits, a scale and a minimum for each 16.
    Q2_K,
    /// 256 codes of 4 bits, a scale and a minimum for each 32.
    Q4_K,
    /// 256 codes of 5 bits, a scale and a minimum for each 32.
    Q5_K,
    /// 256 codes of 6 bits, a scale for each 16.
    Q6_K,
    /// 32 floats of 4 bits (E2M1), the first of two in the low bits, behind a factor in f32, which all blocks of a
    /// row have, and two scales of 8 bits (E4M3) for 16 each; no type of GGUF files.
    NVFP4,
    /// 32 floats of 8 bits (E4M3), no NaN, behind a scale in f32 below [`FP8_SCALES`]; a weight is their product,
    /// rounded to bf16. No type of GGUF files.
    FP8,
    /// 32 codes of 8 bits without a sign, behind a scale and a minimum of 16 bits each; no type of GGUF files.
    AFFINE8,
    /// 256 codes of 4 bits that stand for the numbers of a list, the first of two in the low bits, behind two numbers
    /// of 16 bits and a signed factor of 8 bits for each 16 codes; a weight is the product of all four. The list
    /// is that of IQ4_NL and IQ4_XS; no file has these blocks.
    IQ4,
    /// As [`Self::IQ4`], with the list of IQ3_S.
    IQ3_S,
    /// As [`Self::IQ4`], with the list of IQ3_XXS.
    IQ3_XXS,
    /// As [`Self::IQ4`], with the list of IQ2_XXS, IQ2_XS and IQ2_S, of IQ1_S and IQ1_M (in eighths), and of TQ1_0
    /// and TQ2_0.
    IQ2,
    /// 32 finite numbers of 16 bits (IEEE 754, binary16), which are multiplied as those of f32.
    F16,
}

/// Scales of [`BlockType::FP8`] are below this magnitude.
pub const FP8_SCALES: f32 = 128.0;

/// The 4-bit float with 2 bits of exponent and 1 of mantissa (OCP MX, E2M1) in the low bits of a byte.
pub const fn float4(code: u8) -> f32 {
    let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][code as usize & 7];
    if code & 8 == 0 { size } else { -size }
}

/// The 8-bit float with 4 bits of exponent and 3 of mantissa (OCP FP8, E4M3) of a byte.
pub const fn float8(byte: u8) -> f32 {
    let (exponent, mantissa) = (byte as u32 >> 3 & 15, byte as u32 & 7);
    let size = match (exponent, mantissa) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa as f32 / 512.0,
        _ => f32::from_bits((exponent + 120) << 23 | mantissa << 20),
    };
    if byte < 128 { size } else { -size }
}

impl BlockType {
    /// The types of GGUF files whose blocks are kept as they are.
    pub const ALL: [Self; 9] = [
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2_K,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
    ];

    /// The types whose codes stand for the numbers of a list.
    pub const LISTED: [Self; 4] = [Self::IQ4, Self::IQ3_S, Self::IQ3_XXS, Self::IQ2];

    /// The name in files and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q2_K => "Q2_K",
            Self::Q4_K => "Q4_K",
            Self::Q5_K => "Q5_K",
            Self::Q6_K => "Q6_K",
            Self::NVFP4 => "NVFP4",
            Self::FP8 => "FP8",
            Self::AFFINE8 => "AFFINE8",
            Self::IQ4 => "IQ4",
            Self::IQ3_S => "IQ3_S",
            Self::IQ3_XXS => "IQ3_XXS",
            Self::IQ2 => "IQ2",
            Self::F16 => "F16",
        }
    }

    /// Weights of a block.
    pub const fn weights(self) -> usize {
        if self.form().is_fine() { 256 } else { 32 }
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 | Self::NVFP4 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::FP8 | Self::AFFINE8 => 36,
            Self::F16 => 64,
            Self::Q2_K => 84,
            Self::Q4_K => 144,
            Self::IQ4 | Self::IQ3_S | Self::IQ3_XXS | Self::IQ2 => 148,
            Self::Q5_K => 176,
            Self::Q6_K => 210,
        }
    }

    /// Bytes of a row of `k` weights, `None` if it is not a number of blocks.
    pub fn row_bytes(self, k: usize) -> Option<usize> {
        let is_whole = k.is_multiple_of(self.weights());
        is_whole.then(|| k / self.weights() * self.bytes())
    }

    /// The offsets of a block's scale and minimum, or of all its numbers, of 16 bits each.
    fn halves(self) -> &'static [usize] {
        const ALL: [usize; 32] = {
            let mut offsets = [0; 32];
            let mut index = 0;
            while index < 32 {
                offsets[index] = 2 * index;
                index += 1;
            }
            offsets
        };
        match self {
            Self::F16 => &ALL,
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 => &[0],
            Self::Q2_K => &[80, 82],
            Self::Q6_K => &[208],
            Self::NVFP4 | Self::FP8 => &[],
            _ => &[0, 2],
        }
    }

    /// The factor of a row's weights, 1 if the type has none.
    pub(crate) fn factor(self, row: &[u8]) -> f32 {
        match (self, row.first_chunk()) {
            (Self::NVFP4, Some(bytes)) => f32::from_le_bytes(*bytes),
            _ => 1.0,
        }
    }

    /// True if a number of 16 bits can be kept: it is finite, and its product with a constant of the type
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

    /// The first block in `bytes` with a number of 16 bits that it does not hold.
    pub fn unfit(self, bytes: &[u8]) -> Option<usize> {
        bytes.chunks_exact(self.bytes()).position(|block| {
            let half = |index: usize| f16::from_le_bytes([block[index], block[index + 1]]);
            self.halves().iter().any(|&index| !self.holds(half(index)))
        })
    }

    /// The bytes of the numbers of its list, each plus 128 ([`Self::LISTED`]).
    pub const fn list(self) -> Option<&'static [u8; 16]> {
        self.form().list()
    }

    /// The form in which packed products store it.
    pub const fn form(self) -> Form {
        match self {
            Self::Q4_0 | Self::Q4_1 => Form::Four,
            Self::Q5_0 | Self::Q5_1 => Form::Five,
            Self::Q8_0 | Self::AFFINE8 => Form::Eight,
            Self::Q4_K => Form::FineFour,
            Self::Q5_K => Form::FineFive,
            Self::Q6_K => Form::FineSix,
            Self::Q2_K => Form::FineTwo,
            Self::IQ4 => Form::Iq4,
            Self::IQ3_S => Form::Iq3S,
            Self::IQ3_XXS => Form::Iq3Xxs,
            Self::IQ2 => Form::Iq2,
            Self::NVFP4 => Form::Nvfp4,
            Self::FP8 => Form::Fp8,
            Self::F16 => Form::F16,
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
