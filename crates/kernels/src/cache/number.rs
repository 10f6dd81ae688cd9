//! One number of a key or a value, in each format.

use crate::gemm::row_scale;
use crate::simd::Simd;
use crate::storage::TensorNumber;
use half::bf16;

/// A number as it is stored in pages. A page of a head is all its numbers, then one scale per slot if
/// the format has scales.
pub(crate) trait KvNumber: TensorNumber + Copy + Default + Send + Sync {
    /// Numbers that take as many bytes as the scale of a slot; 0 without scales.
    const SCALE: usize;

    /// True if bf16 holds the numbers, so that pairs of them can be multiplied.
    const NARROW: bool;

    /// Stores the scale of a slot's numbers in `bytes`, [`Self::SCALE`] long, and returns its inverse.
    fn put_scale(_numbers: &[f32], _to: &mut [Self]) -> f32 {
        1.0
    }

    /// A stored scale.
    fn scale(_of: &[Self]) -> f32 {
        1.0
    }

    /// Rounds a number; `inverse` is the inverse of its slot's scale.
    fn encode(x: f32, inverse: f32) -> Self;

    /// Reads a vector of numbers, without their scales.
    ///
    /// # Safety
    /// `LANES` numbers from `p` on are readable.
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F;

    /// Reads a vector of numbers from each of two places and pairs them, if [`Self::NARROW`].
    ///
    /// # Safety
    /// `LANES` numbers from both places on are readable.
    unsafe fn zip<S: Simd>(s: S, low: *const Self, high: *const Self) -> S::F;
}

impl KvNumber for f32 {
    const SCALE: usize = 0;
    const NARROW: bool = false;

    #[inline(always)]
    fn encode(x: f32, _: f32) -> Self {
        x
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { s.load(p) }
    }

    #[inline(always)]
    unsafe fn zip<S: Simd>(s: S, _: *const Self, _: *const Self) -> S::F {
        s.splat(0.0)
    }
}

impl KvNumber for bf16 {
    const SCALE: usize = 0;
    const NARROW: bool = true;

    #[inline(always)]
    fn encode(x: f32, _: f32) -> Self {
        Self::from_f32(x)
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F {
        // SAFETY: the caller's promise; a `bf16` is its 16 bits.
        unsafe { s.load_halves(p.cast()) }
    }

    #[inline(always)]
    unsafe fn zip<S: Simd>(s: S, low: *const Self, high: *const Self) -> S::F {
        // SAFETY: as above.
        unsafe { s.zip_halves(low.cast(), high.cast()) }
    }
}

/// The bytes are signed.
impl KvNumber for u8 {
    const SCALE: usize = size_of::<f32>();
    const NARROW: bool = true;

    fn put_scale(numbers: &[f32], bytes: &mut [Self]) -> f32 {
        let (scale, inverse) = row_scale(numbers);
        bytes.copy_from_slice(&scale.to_ne_bytes());
        inverse
    }

    #[inline(always)]
    fn scale(numbers: &[Self]) -> f32 {
        numbers.first_chunk().map_or(0.0, |bytes| f32::from_ne_bytes(*bytes))
    }

    #[inline(always)]
    fn encode(x: f32, inverse: f32) -> Self {
        (x * inverse).round_ties_even() as i8 as Self
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { s.load_bytes(p.cast()) }
    }

    #[inline(always)]
    unsafe fn zip<S: Simd>(s: S, low: *const Self, high: *const Self) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { s.zip_bytes(low.cast(), high.cast()) }
    }
}
