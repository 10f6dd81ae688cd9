//! Multipliers of x86-64.

use super::{DotKernel, Unit};
use crate::simd::InstructionSet;
use crate::simd::avx2::Avx2;
use crate::simd::avx512::Avx512;
use crate::simd::bf16::Avx512Bf16;
use crate::simd::bytes::{Avx2Bytes, Avx512Bytes};
use crate::simd::dot::{Bf16, F16, F32, Floats, Number};

/// Runs `kernel` with a unit of this architecture, or gives it back.
///
/// # Safety
/// The processor supports `unit`.
pub(super) unsafe fn run<K: DotKernel>(unit: Unit, kernel: K) -> Result<K::Output, K> {
    let (avx512, avx2) = (InstructionSet::Avx512, InstructionSet::Avx2);
    // SAFETY: the caller's promise.
    unsafe {
        match unit {
            Unit::F32(set) if set == avx512 => Ok(floats_avx512(kernel, F32)),
            Unit::F32(set) if set == avx2 => Ok(floats_avx2(kernel, F32)),
            Unit::WidenedBf16(set) if set == avx512 => Ok(floats_avx512(kernel, Bf16)),
            Unit::WidenedBf16(set) if set == avx2 => Ok(floats_avx2(kernel, Bf16)),
            Unit::WidenedF16(set) if set == avx512 => Ok(floats_avx512(kernel, F16)),
            Unit::WidenedF16(set) if set == avx2 => Ok(floats_avx2(kernel, F16)),
            Unit::Avx512Bf16 => Ok(bf16_avx512(kernel)),
            Unit::Avx512Bytes => Ok(bytes_avx512(kernel)),
            Unit::Avx2Bytes => Ok(bytes_avx2(kernel)),
            _ => Err(kernel),
        }
    }
}

#[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
fn floats_avx512<K: DotKernel, N: Number>(kernel: K, numbers: N) -> K::Output {
    kernel.run(Floats(Avx512::here(), numbers))
}

#[target_feature(enable = "avx512f,avx512dq,avx512bf16,avx2,fma")]
fn bf16_avx512<K: DotKernel>(kernel: K) -> K::Output {
    kernel.run(Avx512Bf16::here())
}

#[target_feature(enable = "avx512f,avx512dq,avx512vnni,avx2,fma")]
fn bytes_avx512<K: DotKernel>(kernel: K) -> K::Output {
    kernel.run(Avx512Bytes::here())
}

#[target_feature(enable = "avx2,fma,f16c")]
fn floats_avx2<K: DotKernel, N: Number>(kernel: K, numbers: N) -> K::Output {
    kernel.run(Floats(Avx2::here(), numbers))
}

#[target_feature(enable = "avx2,fma")]
fn bytes_avx2<K: DotKernel>(kernel: K) -> K::Output {
    kernel.run(Avx2Bytes(Avx2::here()))
}
