//! Eight `f32` lanes as plain arrays, vectorised by the compiler for the build target.

use super::Simd;

/// The target's baseline instructions.
#[derive(Clone, Copy)]
pub(super) struct Portable;

/// Lanes of a vector.
const N: usize = 8;
/// Lanes of a double-precision vector.
const H: usize = N / 2;

#[inline(always)]
fn zip<T: Copy, const L: usize>(a: [T; L], b: [T; L], f: impl Fn(T, T) -> T) -> [T; L] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Portable {
    type F = [f32; N];
    type D = [f64; H];
    const LANES: usize = N;
    const TILE_ROWS: usize = 3;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; N]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::F {
        // SAFETY: the caller promises N readable values; an array of f32 needs f32's alignment.
        unsafe { *p.cast() }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: Self::F) {
        // SAFETY: the caller promises N writable values.
        unsafe { *p.cast() = x }
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| x + y)
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| x - y)
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| x * y)
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| x / y)
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| if x > y { x } else { y })
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| if x < y { x } else { y })
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn sum(self, x: Self::F) -> f32 {
        let four: [f32; H] = std::array::from_fn(|i| x[i] + x[i + H]);
        (four[0] + four[2]) + (four[1] + four[3])
    }
    #[inline(always)]
    fn largest(self, x: Self::F) -> f32 {
        x.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
    #[inline(always)]
    fn exp2_biased(self, biased: Self::F) -> Self::F {
        biased.map(|x| f32::from_bits(x.to_bits().wrapping_add(127) << 23))
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> Self::F {
        // SAFETY: the caller's promise; an array of halves needs their alignment.
        let halves: [u16; N] = unsafe { *p.cast() };
        halves.map(half)
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u32, upper: bool) -> Self::F {
        // SAFETY: the caller promises N readable words.
        let words: [u32; N] = unsafe { *p.cast() };
        words.map(|word| f32::from_bits(if upper { word & 0xFFFF_0000 } else { word << 16 }))
    }

    #[inline(always)]
    fn splat_d(self, x: f64) -> Self::D {
        [x; H]
    }
    #[inline(always)]
    unsafe fn load_widen(self, p: *const f32) -> Self::D {
        // SAFETY: the caller promises H readable values.
        let narrow: [f32; H] = unsafe { *p.cast() };
        narrow.map(f64::from)
    }
    #[inline(always)]
    unsafe fn store_d(self, p: *mut f64, x: Self::D) {
        // SAFETY: the caller promises H writable values.
        unsafe { *p.cast() = x }
    }
    #[inline(always)]
    fn add_d(self, a: Self::D, b: Self::D) -> Self::D {
        zip(a, b, |x, y| x + y)
    }
    #[inline(always)]
    fn sub_d(self, a: Self::D, b: Self::D) -> Self::D {
        zip(a, b, |x, y| x - y)
    }
    #[inline(always)]
    fn mul_d(self, a: Self::D, b: Self::D) -> Self::D {
        zip(a, b, |x, y| x * y)
    }
    #[inline(always)]
    fn max_d(self, a: Self::D, b: Self::D) -> Self::D {
        zip(a, b, |x, y| if x > y { x } else { y })
    }
    #[inline(always)]
    fn fma_d(self, a: Self::D, b: Self::D, c: Self::D) -> Self::D {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn exp2_biased_d(self, biased: Self::D) -> Self::D {
        biased.map(|x| f64::from_bits(x.to_bits().wrapping_add(1023) << 52))
    }
}

/// The value of a finite number of 16 bits.
pub(crate) fn half(bits: u16) -> f32 {
    // The exponent has 15 less than in 16 bits; the product with a power of two is exact, also of
    // denormal numbers.
    let magnitude = f32::from_bits(u32::from(bits & 0x7FFF) << 13) * f32::from_bits(EXPAND);
    f32::from_bits(magnitude.to_bits() | u32::from(bits & 0x8000) << 16)
}

/// The bits of 2^112.
const EXPAND: u32 = 0x7780_0000;

#[cfg(test)]
mod tests {
    use super::half;

    #[test]
    fn numbers_of_16_bits_are_widened_exactly() {
        for bits in 0..=u16::MAX {
            let want = half::f16::from_bits(bits);
            if want.is_finite() {
                assert_eq!(half(bits).to_bits(), want.to_f32().to_bits(), "{bits:#x}");
            }
        }
    }
}
