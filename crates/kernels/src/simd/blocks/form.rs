//! Forms of codes, and the instruction sets that multiply them.

use super::{FINE_GROUPS, FINE_HEAD};
use crate::simd::{InstructionSet, has_dotprod, has_i8mm, has_vnni, is_avx2, is_neon};

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
    /// Numbers of 16 bits without scales; of products on the CPU.
    F16,
}

impl Form {
    /// All forms of codes.
    pub const ALL: [Self; 8] = [
        Self::Four,
        Self::Five,
        Self::Eight,
        Self::FineFour,
        Self::FineFive,
        Self::FineSix,
        Self::Nvfp4,
        Self::Fp8,
    ];

    /// Bits of a code.
    pub const fn bits(self) -> usize {
        match self {
            Self::Four | Self::FineFour | Self::Nvfp4 => 4,
            Self::Five | Self::FineFive => 5,
            Self::FineSix => 6,
            Self::Eight | Self::Fp8 => 8,
            Self::F16 => 16,
        }
    }

    /// True if scales are products with factors.
    pub(crate) const fn is_fine(self) -> bool {
        matches!(self, Self::FineFour | Self::FineFive | Self::FineSix)
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
