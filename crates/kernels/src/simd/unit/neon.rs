//! Multipliers of aarch64.

use super::{DotKernel, Unit};
use crate::simd::InstructionSet;
use crate::simd::dot::{Bf16, F16, F32, Floats, MultiplyKernel, Number};
use crate::simd::neon::{Bf16Pairs, BytePairs, DotBytes, Neon, NeonBytes, Paired, Pairs};

/// Runs `kernel` with a unit of this architecture, or gives it back.
///
/// # Safety
/// The processor supports `unit`.
pub(super) unsafe fn run<K: DotKernel>(unit: Unit, kernel: K) -> Result<K::Output, K> {
    let neon = InstructionSet::Neon;
    // SAFETY: the caller's promise.
    unsafe {
        match unit {
            Unit::F32(set) if set == neon => Ok(of_floats(kernel, F32)),
            Unit::WidenedBf16(set) if set == neon => Ok(of_floats(kernel, Bf16)),
            Unit::WidenedF16(set) if set == neon => Ok(of_floats(kernel, F16)),
            Unit::NeonDotBytes => Ok(of_dots(kernel)),
            Unit::NeonBytes => Ok(of_bytes(kernel)),
            _ => Err(kernel),
        }
    }
}

/// A computation compiled once per instruction for two rows and two columns.
pub(crate) trait PairKernel {
    /// The result.
    type Output;
    /// Runs the kernel; must be `#[inline(always)]` so that the caller's instruction set applies.
    fn run<P: Pairs>(self, pairs: P) -> Self::Output;
}

/// Runs `kernel` with `unit`, which this processor must support and which multiplies pairs.
pub(crate) fn dispatch_pairs<K: PairKernel>(unit: Unit, kernel: K) -> K::Output {
    assert!(unit.is_paired() && unit.is_supported(), "{unit:?}");
    // SAFETY: the processor has the instructions, checked above.
    unsafe {
        match unit {
            Unit::NeonBf16 => of_bf16_pairs(kernel),
            _ => of_byte_pairs(kernel),
        }
    }
}

/// A kernel over panels as one over pairs.
pub(crate) struct OfPanels<K>(pub(crate) K);

impl<K: MultiplyKernel> PairKernel for OfPanels<K> {
    type Output = ();
    #[inline(always)]
    fn run<P: Pairs>(self, pairs: P) {
        self.0.run(Paired(pairs));
    }
}

#[target_feature(enable = "neon")]
fn of_floats<K: DotKernel, N: Number>(kernel: K, numbers: N) -> K::Output {
    kernel.run(Floats(Neon::here(), numbers))
}

#[target_feature(enable = "neon,dotprod")]
fn of_dots<K: DotKernel>(kernel: K) -> K::Output {
    kernel.run(DotBytes::here())
}

#[target_feature(enable = "neon")]
fn of_bytes<K: DotKernel>(kernel: K) -> K::Output {
    kernel.run(NeonBytes(Neon::here()))
}

#[target_feature(enable = "neon,bf16")]
fn of_bf16_pairs<K: PairKernel>(kernel: K) -> K::Output {
    kernel.run(Bf16Pairs::here())
}

#[target_feature(enable = "neon,dotprod,i8mm")]
fn of_byte_pairs<K: PairKernel>(kernel: K) -> K::Output {
    kernel.run(BytePairs::here())
}
