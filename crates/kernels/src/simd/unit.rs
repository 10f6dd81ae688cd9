//! Selects the multiplier of a dtype for the processor.

#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::amx::{self, TileSupport, Tiles};
use super::blocks::{ByteSet, Form, GROUP};
use super::bytes::PortableBytes;
use super::dot::{Bf16, Dot, F16, F32, Floats, MultiplyKernel};
use super::portable::Portable;
use super::{InstructionSet, has_dotprod, has_i8mm, has_vnni, is_avx2, is_neon};

/// The number format in which weights are stored and multiplied. Activations between layers, norms,
/// attention and the embedding table are always f32; sums always have 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightDtype {
    /// f32 everywhere. Matrices of 16-bit numbers (IEEE 754) are widened when they are multiplied.
    #[default]
    F32,
    /// Weights and inputs of products rounded to bf16 (to nearest even), sums in f32.
    Bf16,
    /// Weights as 8-bit integers with one scale per output, inputs of products as 8-bit integers with
    /// one scale per row, exact sums. Except for epilogues, the bits are the same on every instruction
    /// set.
    Int8,
    /// Weights as in [`Self::Int8`], inputs of products in bf16; on CUDA devices only.
    Int8w,
    /// Weights as 4-bit codes with a scale and a minimum for each 32 inputs, inputs of products as
    /// 8-bit integers with one scale per row and 32 inputs. The bits are the same on every instruction
    /// set, except for epilogues.
    Int4,
    /// Matrices in the block types of a GGUF file or of a publisher's codes, multiplied as [`Self::Int4`], 8-bit
    /// floats as [`Self::Bf16`]; other matrices in f32, or bf16 beside a publisher's codes.
    Blocks,
}

impl WeightDtype {
    /// All dtypes of the processor that weights of any file can be stored in, the most exact one first.
    pub const ALL: [Self; 4] = [Self::F32, Self::Bf16, Self::Int8, Self::Int4];

    /// The name in settings and labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Int8w => "int8w",
            Self::Int4 => "int4",
            Self::Blocks => "blocks",
        }
    }

    /// The dtype that weights of any file can be stored in with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().chain([Self::Int8w]).find(|dtype| dtype.name() == name)
    }

    /// Rows of matrices in this dtype are a multiple of this number of weights.
    pub fn group(self) -> usize {
        match self {
            Self::Int4 => GROUP,
            _ => 1,
        }
    }

    /// The name of the instructions that multiply this dtype on this processor.
    pub fn instructions(self) -> &'static str {
        Unit::detect(self).name()
    }
}

/// A multiplier: a dtype on an instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    F32(InstructionSet),
    WidenedBf16(InstructionSet),
    /// Numbers of 16 bits (IEEE 754), for rows in f32.
    WidenedF16(InstructionSet),
    Avx512Bf16,
    AmxBf16(Tiles),
    AmxBytes(Tiles),
    Avx512Bytes,
    Avx2Bytes,
    /// `bfmmla`: two rows and two columns.
    NeonBf16,
    /// `usmmla`, the same.
    NeonPairBytes,
    /// `sdot`.
    NeonDotBytes,
    NeonBytes,
    PortableBytes,
    Blocks(ByteSet, Form),
}

impl Unit {
    /// The fastest multiplier of this processor.
    pub(crate) fn detect(dtype: WeightDtype) -> Self {
        let widest = InstructionSet::detect();
        match dtype {
            WeightDtype::F32 => Self::F32(widest),
            WeightDtype::Bf16 if has_tiles() => Self::AmxBf16(Tiles::Processor),
            WeightDtype::Int8 if has_tiles() => Self::AmxBytes(Tiles::Processor),
            WeightDtype::Bf16 if has_bf16() => Self::Avx512Bf16,
            WeightDtype::Bf16 if has_neon_bf16() => Self::NeonBf16,
            WeightDtype::Bf16 => Self::WidenedBf16(widest),
            WeightDtype::Int8 if has_vnni() => Self::Avx512Bytes,
            WeightDtype::Int8 if is_avx2() => Self::Avx2Bytes,
            WeightDtype::Int8 if has_i8mm() => Self::NeonPairBytes,
            WeightDtype::Int8 if has_dotprod() => Self::NeonDotBytes,
            WeightDtype::Int8 if is_neon() => Self::NeonBytes,
            WeightDtype::Int8 => Self::PortableBytes,
            WeightDtype::Int8w => Self::detect(WeightDtype::Int8),
            WeightDtype::Int4 | WeightDtype::Blocks => Self::detect_for(Form::Four),
        }
    }

    /// The fastest multiplier of this processor for a form of codes or numbers.
    pub(crate) fn detect_for(form: Form) -> Self {
        match form {
            Form::F16 => Self::WidenedF16(InstructionSet::detect()),
            form => Self::Blocks(ByteSet::detect(), form),
        }
    }

    /// All multipliers of this processor, and the software model of the tile unit.
    #[cfg(test)]
    pub(crate) fn available(dtype: WeightDtype) -> Vec<Self> {
        let sets = InstructionSet::available().into_iter();
        let tiles = has_tiles().then_some(Tiles::Processor).into_iter();
        let tiles = tiles.chain([Tiles::Model]);
        match dtype {
            WeightDtype::F32 => sets.map(Self::F32).collect(),
            WeightDtype::Bf16 => has_bf16()
                .then_some(Self::Avx512Bf16)
                .into_iter()
                .chain(has_neon_bf16().then_some(Self::NeonBf16))
                .chain(sets.map(Self::WidenedBf16))
                .chain(tiles.map(Self::AmxBf16))
                .collect(),
            WeightDtype::Int8 | WeightDtype::Int8w => [
                has_vnni().then_some(Self::Avx512Bytes),
                is_avx2().then_some(Self::Avx2Bytes),
                has_i8mm().then_some(Self::NeonPairBytes),
                has_dotprod().then_some(Self::NeonDotBytes),
                is_neon().then_some(Self::NeonBytes),
                Some(Self::PortableBytes),
            ]
            .into_iter()
            .flatten()
            .chain(tiles.map(Self::AmxBytes))
            .collect(),
            WeightDtype::Int4 | WeightDtype::Blocks => {
                ByteSet::available().map(|set| Self::Blocks(set, Form::Four)).collect()
            }
        }
    }

    pub(crate) fn dtype(self) -> WeightDtype {
        match self {
            Self::F32(_) | Self::WidenedF16(_) => WeightDtype::F32,
            Self::WidenedBf16(_) | Self::Avx512Bf16 | Self::AmxBf16(_) | Self::NeonBf16 => {
                WeightDtype::Bf16
            }
            Self::Avx512Bytes | Self::Avx2Bytes | Self::PortableBytes | Self::AmxBytes(_) => {
                WeightDtype::Int8
            }
            Self::NeonPairBytes | Self::NeonDotBytes | Self::NeonBytes => WeightDtype::Int8,
            Self::Blocks(..) => WeightDtype::Blocks,
        }
    }

    /// The form of codes in groups, if it multiplies them.
    pub(crate) fn form(self) -> Option<Form> {
        match self {
            Self::Blocks(_, form) => Some(form),
            _ => None,
        }
    }

    /// The name of the instructions in logs and benchmark labels.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32(set) | Self::WidenedBf16(set) | Self::WidenedF16(set) => set.name(),
            Self::Avx512Bf16 => "avx512-bf16",
            Self::AmxBf16(_) => "amx-bf16",
            Self::AmxBytes(_) => "amx-int8",
            Self::Avx512Bytes => "avx512-vnni",
            Self::Avx2Bytes => InstructionSet::Avx2.name(),
            Self::NeonBf16 => "neon-bf16",
            Self::NeonPairBytes => "neon-i8mm",
            Self::NeonDotBytes => "neon-dotprod",
            Self::NeonBytes => InstructionSet::Neon.name(),
            Self::PortableBytes => InstructionSet::Portable.name(),
            Self::Blocks(set, _) => set.name(),
        }
    }

    /// The instruction set of all operations other than products.
    pub(crate) fn set(self) -> InstructionSet {
        match self {
            Self::F32(set) | Self::WidenedBf16(set) | Self::WidenedF16(set) => set,
            Self::Avx512Bf16 | Self::Avx512Bytes => InstructionSet::Avx512,
            Self::Avx2Bytes => InstructionSet::Avx2,
            Self::NeonBf16 | Self::NeonPairBytes | Self::NeonDotBytes | Self::NeonBytes => {
                InstructionSet::Neon
            }
            Self::PortableBytes => InstructionSet::Portable,
            Self::AmxBf16(_) | Self::AmxBytes(_) => InstructionSet::detect(),
            Self::Blocks(set, _) => set.set(),
        }
    }

    /// The tile unit, if it is one.
    pub(crate) fn tiles(self) -> Option<Tiles> {
        match self {
            Self::AmxBf16(tiles) | Self::AmxBytes(tiles) => Some(tiles),
            _ => None,
        }
    }

    /// True if one instruction multiplies two rows and two columns.
    pub(crate) fn is_paired(self) -> bool {
        matches!(self, Self::NeonBf16 | Self::NeonPairBytes)
    }

    /// Words of a row for each word of a column: several if each part of a row's word is a word of its
    /// own (`Dot::SPLIT`). With codes, words for each four integers (`Integers::BYTE_PARTS`).
    pub(crate) fn parts(self) -> usize {
        match self {
            Self::WidenedBf16(_) | Self::WidenedF16(_) | Self::Avx2Bytes => 2,
            Self::Blocks(ByteSet::Avx2, form) if form.is_wide() => 2,
            _ => 1,
        }
    }

    /// True if this processor has the instructions of words.
    fn is_supported(self) -> bool {
        match self {
            Self::Avx512Bf16 => has_bf16(),
            Self::Avx512Bytes => has_vnni(),
            Self::NeonBf16 => has_neon_bf16(),
            Self::NeonPairBytes => has_i8mm(),
            Self::NeonDotBytes => has_dotprod(),
            _ => self.set().is_supported(),
        }
    }

    /// Columns of a packed weight panel: two vectors, or two tiles.
    pub(crate) fn panel(self) -> usize {
        match self.tiles() {
            Some(_) => 2 * amx::WORDS,
            None => self.set().panel(),
        }
    }
}

/// True if this processor multiplies pairs of bf16 numbers.
pub(crate) fn has_bf16() -> bool {
    #[cfg(target_arch = "x86_64")]
    return super::is_avx512()
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

fn has_tiles() -> bool {
    TileSupport::detect() == TileSupport::Ready
}

/// True if the processor has the extension `bf16` of NEON.
fn has_neon_bf16() -> bool {
    #[cfg(target_arch = "aarch64")]
    return is_neon() && std::arch::is_aarch64_feature_detected!("bf16");
    #[cfg(not(target_arch = "aarch64"))]
    false
}

/// A computation compiled once per multiplier.
pub(crate) trait DotKernel {
    /// The result.
    type Output;
    /// Runs the kernel; must be `#[inline(always)]` so that the caller's instruction set applies.
    fn run<D: Dot>(self, dot: D) -> Self::Output;
}

/// Runs `kernel` with `unit`, which this processor must support and which multiplies words.
pub(crate) fn dispatch_unit<K: DotKernel>(unit: Unit, kernel: K) -> K::Output {
    let is_plain = unit.tiles().is_none() && unit.form().is_none() && !unit.is_paired();
    assert!(is_plain, "{unit:?} has kernels of its own");
    let has = unit.is_supported();
    assert!(has, "this processor does not support {unit:?}");
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the processor has the instructions, checked above.
    let kernel = match unsafe { x86::run(unit, kernel) } {
        Ok(done) => return done,
        Err(kernel) => kernel,
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    let kernel = match unsafe { neon::run(unit, kernel) } {
        Ok(done) => return done,
        Err(kernel) => kernel,
    };
    match unit {
        Unit::F32(_) => kernel.run(Floats(Portable, F32)),
        Unit::WidenedF16(_) => kernel.run(Floats(Portable, F16)),
        Unit::WidenedBf16(_) => kernel.run(Floats(Portable, Bf16)),
        _ => kernel.run(PortableBytes),
    }
}

/// Runs `kernel` with `unit`, which this processor must support and which multiplies pairs.
pub(crate) fn dispatch_paired<K: MultiplyKernel>(unit: Unit, kernel: K) {
    #[cfg(target_arch = "aarch64")]
    return neon::dispatch_pairs(unit, neon::OfPanels(kernel));
    #[cfg(not(target_arch = "aarch64"))]
    {
        drop(kernel);
        unreachable!("{unit:?} is not of this architecture")
    }
}

#[cfg(test)]
mod tests {
    use super::{Unit, WeightDtype};

    #[test]
    fn the_detected_multiplier_is_under_test() {
        for dtype in WeightDtype::ALL {
            let units = Unit::available(dtype);
            let names: Vec<_> = units.iter().map(|unit| unit.name()).collect();
            println!("{} under test: {}", dtype.name(), names.join(" "));
            assert!(units.contains(&Unit::detect(dtype)), "{dtype:?}");
        }
    }
}
