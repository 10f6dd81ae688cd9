//! Forms of codes, and the instruction sets that multiply them.

use super::{FINE_GROUPS, FINE_HEAD};
use crate::simd::{InstructionSet, has_dotprod, has_i8mm, has_vnni, is_avx2, is_neon};

/// Twice each of the 4-bit floats, plus 12.
const E2M1: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];
/// The numbers of ggml's types plus 128.
const IQ4: [u8; 16] = [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];
const IQ3_S: [u8; 16] = signed([1, 3, 5, 7, 9, 11, 13, 15]);
const IQ3_XXS: [u8; 16] = signed([4, 12, 20, 28, 36, 44, 52, 62]);
/// The numbers of IQ1 are eighths; the last three are the numbers of TQ.
const IQ2: [u8; 16] = signed([8, 25, 43, 7, 9, 1, 0, 2]);

/// Numbers and then their negatives, plus 128.
const fn signed(sizes: [u8; 8]) -> [u8; 16] {
    let (mut all, mut i) = ([0; 16], 0);
    while i < 8 {
        all[i] = 128 + sizes[i];
        all[8 + i] = 128 - sizes[i];
        i += 1;
    }
    all
}

/// The form in which codes and scales are stored; `Form` of the CUDA kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Four bits.
    Four,
    /// Five bits.
    Five,
    /// Eight bits.
    Eight,
    /// Four bits, with factors.
    FineFour,
    /// Five bits, with factors.
    FineFive,
    /// Six bits, with factors for each 16 codes.
    FineSix,
    /// Four bits that are 4-bit floats, with a scale for each 16 and a factor of the column.
    Nvfp4,
    /// Eight bits that are 8-bit floats, with a scale in f32.
    Fp8,
    /// Two bits, stored in four, with factors of four bits for each 16 codes.
    FineTwo,
    /// Four bits that stand for the numbers of IQ4_NL and IQ4_XS, with factors for each 16 codes.
    Iq4,
    /// The numbers of IQ3_S.
    Iq3S,
    /// The numbers of IQ3_XXS.
    Iq3Xxs,
    /// The numbers of IQ2_XXS, IQ2_XS, IQ2_S, IQ1_S, IQ1_M, TQ1_0 and TQ2_0.
    Iq2,
    /// Numbers of 16 bits without scales; of products on the CPU.
    F16,
}

impl Form {
    /// All forms of codes.
    pub const ALL: [Self; 13] = [
        Self::Four,
        Self::Five,
        Self::Eight,
        Self::FineFour,
        Self::FineFive,
        Self::FineSix,
        Self::Nvfp4,
        Self::Fp8,
        Self::FineTwo,
        Self::Iq4,
        Self::Iq3S,
        Self::Iq3Xxs,
        Self::Iq2,
    ];

    /// Bits of a code in memory.
    pub const fn bits(self) -> usize {
        match self {
            Self::Five | Self::FineFive => 5,
            Self::FineSix => 6,
            Self::Eight | Self::Fp8 => 8,
            Self::F16 => 16,
            _ => 4,
        }
    }

    /// True if scales are products with factors.
    pub const fn is_fine(self) -> bool {
        matches!(self, Self::FineFour | Self::FineFive | Self::FineSix | Self::FineTwo)
            || self.is_listed()
    }

    /// True if 16 codes have a scale.
    pub(super) const fn is_split(self) -> bool {
        matches!(self, Self::FineSix | Self::FineTwo | Self::Nvfp4) || self.is_listed()
    }

    /// True if codes stand for the numbers of a list of bytes.
    pub(crate) const fn is_listed(self) -> bool {
        matches!(self, Self::Iq4 | Self::Iq3S | Self::Iq3Xxs | Self::Iq2)
    }

    /// True if products take unsigned bytes instead of codes of at most six bits.
    pub(crate) const fn is_wide(self) -> bool {
        self.bits() == 8 || self.is_listed()
    }

    /// The numbers that codes stand for, if they are listed; each is that of a byte minus [`Self::offset`].
    pub(crate) const fn list(self) -> Option<&'static [u8; 16]> {
        match self {
            Self::Nvfp4 => Some(&E2M1),
            Self::Iq4 => Some(&IQ4),
            Self::Iq3S => Some(&IQ3_S),
            Self::Iq3Xxs => Some(&IQ3_XXS),
            Self::Iq2 => Some(&IQ2),
            _ => None,
        }
    }

    /// The number subtracted from a code, or from the byte of the list in its place, where no minimum is stored.
    pub(crate) const fn offset(self) -> f32 {
        match self {
            Self::Nvfp4 => 12.0,
            Self::FineSix => 32.0,
            _ if self.is_listed() => 128.0,
            _ => 0.0,
        }
    }

    /// Groups of a step.
    pub(crate) const fn groups(self) -> usize {
        if self.is_fine() { FINE_GROUPS } else { 1 }
    }

    /// Words of a column in a step.
    pub(crate) const fn column(self) -> usize {
        match self {
            Self::F16 => self.bits(),
            _ if self.is_fine() => FINE_HEAD + FINE_GROUPS * self.bits(),
            _ => 1 + self.bits(),
        }
    }
}

/// An instruction set for these products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteSet {
    /// AVX-512 with VNNI.
    Avx512,
    /// AVX2.
    Avx2,
    /// NEON with the products of unsigned and signed bytes of `i8mm`.
    NeonMixed,
    /// NEON with `dotprod`.
    NeonDot,
    /// NEON.
    Neon,
    /// The target's baseline instructions.
    Portable,
}

impl ByteSet {
    /// The instruction sets of this processor, widest first.
    pub(crate) fn available() -> impl Iterator<Item = Self> {
        let sets = [
            has_vnni().then_some(Self::Avx512),
            is_avx2().then_some(Self::Avx2),
            has_i8mm().then_some(Self::NeonMixed),
            has_dotprod().then_some(Self::NeonDot),
            is_neon().then_some(Self::Neon),
            Some(Self::Portable),
        ];
        sets.into_iter().flatten()
    }

    /// The widest instruction set of this processor.
    pub(crate) fn detect() -> Self {
        Self::available().next().unwrap_or(Self::Portable)
    }

    /// The instruction set of other operations.
    pub(crate) fn set(self) -> InstructionSet {
        match self {
            Self::Avx512 => InstructionSet::Avx512,
            Self::Avx2 => InstructionSet::Avx2,
            Self::NeonMixed | Self::NeonDot | Self::Neon => InstructionSet::Neon,
            Self::Portable => InstructionSet::Portable,
        }
    }

    /// The name in logs and labels.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Avx512 => "avx512-vnni",
            Self::NeonMixed => "neon-i8mm",
            Self::NeonDot => "neon-dotprod",
            other => other.set().name(),
        }
    }
}
