//! Multipliers of x86-64.

use super::{DotKernel, Unit};
use crate::simd::InstructionSet;
use crate::simd::avx2::Avx2;
use crate::simd::avx512::Avx512;
use crate::simd::bf16::Avx512Bf16;
use crate::simd::bytes::{Avx2Bytes, Avx512Bytes};
use crate::simd::dot::{F32, WidenedBf16};

/// Runs `kernel` with a unit of this architecture, or gives it back.
///
/// # Safety
/// The processor supports `unit`.
pub(super) unsafe fn run<K: DotKernel>(unit: Unit, kernel: K) -> Result<K::Output, K> {
    let (avx512, avx2) = (InstructionSet::Avx512, InstructionSet::Avx2);
    // SAFETY: the caller's promise.
    unsafe {
        match unit {
            Unit::F32(set) if set == avx512 => Ok(f32_avx512(kernel)),
            Unit::F32(set) if set == avx2 => Ok(f32_avx2(kernel)),
            Unit::WidenedBf16(set) if set == avx512 => Ok(widened_avx512(kernel)),
            Unit::WidenedBf16(set) if set == avx2 => Ok(widened_avx2(kernel)),
            Unit::Avx512Bf16 => Ok(bf16_avx512(kernel)),
            Unit::Avx512Bytes => Ok(bytes_avx512(kernel)),
            Unit::Avx2Bytes => Ok(bytes_avx2(kernel)),
            _ => Err(kernel),
        }
    }
}

#[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
fn f32_avx512<K: DotKernel>(kernel: K) -> K::Output {
    kernel.run(F32(Avx512::here()))
}

#[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
fn widened_avx512<K: DotKernel>(kernel: K) -> K::Output {
    kernel.run(WidenedBf16(Avx512::here()))
}

#[target_feature(enable = "avx512f,avx512dq,avx512bf16,avx2,fma")]
fn bf16_avx512<K: DotKernel>(kernel: K) -> K::Output {
    kernel.run(Avx512Bf16::here())
}

#[target_feature(enable = "avx512f,avx512dq,avx512vnni,avx2,fma")]
fn bytes_avx512<K: DotKernel>(kernel: K) -> K::Output {
    kernel.run(Avx512Bytes::here())
}

#[target_feature(enable = "avx2,fma")]
fn f32_avx2<K: DotKernel>(kernel: K) -> K::Output {
    kernel.run(F32(Avx2::here()))
}

#[target_feature(enable = "avx2,fma")]
fn widened_avx2<K: DotKernel>(kernel: K) -> K::Output {
    kernel.run(WidenedBf16(Avx2::here()))
}

#[target_feature(enable = "avx2,fma")]
fn bytes_avx2<K: DotKernel>(kernel: K) -> K::Output {
    kernel.run(Avx2Bytes(Avx2::here()))
}
