//! Eight-bit integers: rows are stored as `value + 128` in unsigned bytes, columns as signed bytes.
//!
//! Sums are exact in 32 bits and start at minus 128 times the column's sum, so every instruction set
//! yields the same bits.

use super::Simd;
use super::dot::Dot;
use super::portable::Portable;

/// Eight-bit integers with the target's baseline instructions.
#[derive(Clone, Copy)]
pub(super) struct PortableBytes;

impl Dot for PortableBytes {
    type S = Portable;
    type Sum = [i32; Portable::LANES];
    type Row = i32;
    type Columns = [i32; Portable::LANES];
    const PARTS: usize = 4;
    const TILE_ROWS: usize = Portable::TILE_ROWS;
    const STARTS: bool = true;

    #[inline(always)]
    fn simd(self) -> Portable {
        Portable
    }
    #[inline(always)]
    fn zero(self) -> Self::Sum {
        [0; Portable::LANES]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const u32) -> Self::Sum {
        // SAFETY: the caller's promise; any bits are integers.
        unsafe { *p.cast() }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut u32, sum: Self::Sum) {
        // SAFETY: the caller's promise.
        unsafe { *p.cast() = sum }
    }
    #[inline(always)]
    fn row(self, word: u32, part: usize) -> i32 {
        i32::from(word.to_le_bytes()[part])
    }
    #[inline(always)]
    unsafe fn columns(self, p: *const u32, part: usize) -> Self::Columns {
        // SAFETY: the caller's promise.
        let words: [u32; Portable::LANES] = unsafe { *p.cast() };
        words.map(|word| i32::from(word.to_le_bytes()[part] as i8))
    }
    #[inline(always)]
    fn multiply(self, row: i32, columns: Self::Columns, sum: Self::Sum) -> Self::Sum {
        std::array::from_fn(|i| sum[i].wrapping_add(row * columns[i]))
    }
    #[inline(always)]
    fn value(
        self,
        sum: Self::Sum,
        row: f32,
        columns: [f32; Portable::LANES],
    ) -> [f32; Portable::LANES] {
        let s = Portable;
        let scales = s.mul(s.splat(row), columns);
        s.mul(sum.map(|sum| sum as f32), scales)
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2Bytes, Avx512Bytes, add_pair_products};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Dot, Simd};
    use crate::simd::avx2::{Avx2, define_add_products, load_again};
    use crate::simd::avx512::Avx512;
    use crate::simd::dot::{RowPart, tile_rows};
    use std::arch::x86_64::*;

    /// Eight-bit integers with AVX2: multiplies pairs of every second index as 16-bit integers, which
    /// cannot overflow. A row's word is two: the bytes 0 and 2, and the bytes 1 and 3, as 16-bit integers.
    #[derive(Clone, Copy)]
    pub(in crate::simd) struct Avx2Bytes(pub(in crate::simd) Avx2);

    impl Dot for Avx2Bytes {
        type S = Avx2;
        type Sum = __m256i;
        type Row = __m256i;
        type Columns = __m256i;
        const PARTS: usize = 2;
        const SPLIT: bool = true;
        const TILE_ROWS: usize = 6;
        const STARTS: bool = true;

        #[inline(always)]
        fn simd(self) -> Avx2 {
            self.0
        }
        #[inline(always)]
        fn zero(self) -> __m256i {
            safe!(_mm256_setzero_si256())
        }
        #[inline(always)]
        unsafe fn load(self, p: *const u32) -> __m256i {
            safe!(_mm256_loadu_si256(p.cast()))
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut u32, sum: __m256i) {
            safe!(_mm256_storeu_si256(p.cast(), sum));
        }
        #[inline(always)]
        fn row(self, word: u32, _: usize) -> __m256i {
            safe!(_mm256_set1_epi32(word.cast_signed()))
        }
        #[inline(always)]
        unsafe fn columns(self, p: *const u32, part: usize) -> __m256i {
            safe!({
                let words = load_again(p);
                let high = if part == 0 { _mm256_slli_epi16::<8>(words) } else { words };
                _mm256_srai_epi16::<8>(high)
            })
        }
        #[inline(always)]
        fn multiply(self, row: __m256i, columns: __m256i, sum: __m256i) -> __m256i {
            safe!(_mm256_add_epi32(sum, _mm256_madd_epi16(row, columns)))
        }
        #[inline(always)]
        unsafe fn add_products(
            self,
            part: RowPart,
            columns: [__m256i; 2],
            sums: &mut [__m256i; 2],
        ) {
            // SAFETY: `self` proves the instruction set; the rest is the caller's promise.
            unsafe { add_pair_products(part.row, part.word, columns, sums) };
        }
        #[inline(always)]
        fn value(self, sum: __m256i, row: f32, columns: __m256) -> __m256 {
            let s = self.0;
            let scales = s.mul(s.splat(row), columns);
            s.mul(safe!(_mm256_cvtepi32_ps(sum)), scales)
        }
    }

    define_add_products!(
        /// Sums of two products of 16-bit integers, in 32 bits.
        pub(in crate::simd) add_pair_products,
        __m256i,
        u32,
        [
            "vpmaddwd {products}, {x}, {first}",
            "vpaddd {low}, {low}, {products}",
            "vpmaddwd {x}, {x}, {second}",
            "vpaddd {high}, {high}, {x}"
        ],
        products
    );

    /// Eight-bit integers with AVX-512 VNNI: four products per lane and instruction.
    #[derive(Clone, Copy)]
    pub(in crate::simd) struct Avx512Bytes(Avx512);

    impl Avx512Bytes {
        /// The token; only callable where the instructions are enabled.
        #[target_feature(enable = "avx512f,avx512dq,avx512vnni")]
        pub(in crate::simd) fn here() -> Self {
            Self(Avx512::here())
        }
    }

    impl Dot for Avx512Bytes {
        type S = Avx512;
        type Sum = __m512i;
        type Row = __m512i;
        type Columns = __m512i;
        const PARTS: usize = 1;
        const TILE_ROWS: usize = tile_rows::<Avx512>();
        const STARTS: bool = true;

        #[inline(always)]
        fn simd(self) -> Avx512 {
            self.0
        }
        #[inline(always)]
        fn zero(self) -> __m512i {
            safe!(_mm512_setzero_si512())
        }
        #[inline(always)]
        unsafe fn load(self, p: *const u32) -> __m512i {
            safe!(_mm512_loadu_si512(p.cast()))
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut u32, sum: __m512i) {
            safe!(_mm512_storeu_si512(p.cast(), sum));
        }
        #[inline(always)]
        fn row(self, word: u32, _: usize) -> __m512i {
            safe!(_mm512_set1_epi32(word.cast_signed()))
        }
        #[inline(always)]
        unsafe fn columns(self, p: *const u32, _: usize) -> __m512i {
            safe!(_mm512_loadu_si512(p.cast()))
        }
        #[inline(always)]
        fn multiply(self, row: __m512i, columns: __m512i, sum: __m512i) -> __m512i {
            safe!(_mm512_dpbusd_epi32(sum, row, columns))
        }
        #[inline(always)]
        fn value(self, sum: __m512i, row: f32, columns: __m512) -> __m512 {
            let s = self.0;
            let scales = s.mul(s.splat(row), columns);
            s.mul(safe!(_mm512_cvtepi32_ps(sum)), scales)
        }
    }
}
