//! Measures the processor's peak rate of multiply-adds.

use crate::parallel;
use crate::simd::amx::{ROWS, TileKernel, TileUnit, WORDS, dispatch_tiles};
use crate::simd::dot::{Dot, RowPart};
use crate::simd::unit::{DotKernel, Unit, WeightDtype, dispatch_unit};
use crate::simd::{MAX_LANES, Simd};
use std::hint::black_box;
use std::time::Instant;

/// Number of independent chains of multiply-adds: more than latency times throughput of any processor
/// with these instructions, and few enough for sixteen registers.
const CHAINS: usize = 12;
/// Steps of each chain; together one or two milliseconds.
const STEPS: usize = 1 << 18;

/// Steps of the chains of a tile unit, four sums of 16 rows each.
const TILE_STEPS: usize = 1 << 14;

/// Measures the peak rate of multiply-adds of `dtype` on registers, on all threads of the current
/// team, in 10^9 operations per second. The efficiency of [`crate::Linear`] is relative to it. A
/// multiply-add counts as two operations. A measurement takes one or two milliseconds. If the
/// processor has other load or changes its clock, alternate it with the measurements it is compared
/// to. Codes in groups are measured as 8-bit integers on vectors; on AVX2, their products can exceed that
/// rate, because codes are summed in 16 bits.
#[must_use]
pub fn peak(dtype: WeightDtype) -> f64 {
    let (threads, unit) = (parallel::threads(), Unit::of_peak(dtype));
    let start = Instant::now();
    let mut counts = vec![0; threads];
    let shared = parallel::Shared::new(&mut counts);
    parallel::for_each(threads, |thread| {
        // SAFETY: each task has its own count.
        let count = unsafe { shared.part(thread, 1) };
        count[0] = match unit.tiles() {
            Some(tiles) => dispatch_tiles(tiles, ROWS, TileChains(dtype)),
            #[cfg(target_arch = "aarch64")]
            None if unit.is_paired() => pairs::count(unit),
            None => dispatch_unit(unit, Chains),
        };
    });
    1e-9 * counts.iter().sum::<usize>() as f64 / start.elapsed().as_secs_f64()
}

/// The work of one thread; returns the number of operations.
struct Chains;

impl DotKernel for Chains {
    type Output = usize;

    #[inline(always)]
    fn run<D: Dot>(self, d: D) -> usize {
        // Small numbers in every dtype.
        let words = black_box([0x3F01_3F01u32; MAX_LANES]);
        // SAFETY: LANES <= MAX_LANES.
        let columns = [unsafe { d.columns(words.as_ptr(), 0) }; 2];
        let of = RowPart {
            row: words.as_ptr(),
            at: 0,
            part: 0,
        };
        let mut chains = [[d.zero(); 2]; CHAINS / 2];
        for _ in 0..STEPS {
            for pair in &mut chains {
                // SAFETY: a word.
                unsafe { d.add_products(of, columns, pair) };
            }
        }
        for chain in chains.into_iter().flatten() {
            let mut sums = [0u32; MAX_LANES];
            // SAFETY: LANES <= MAX_LANES.
            unsafe { d.store(sums.as_mut_ptr(), chain) };
            black_box(sums);
        }
        2 * STEPS * CHAINS * D::S::LANES * D::NUMBERS / D::PARTS
    }
}

/// The work of one thread on a tile unit; returns the number of operations.
struct TileChains(WeightDtype);

impl TileKernel for TileChains {
    type Output = usize;

    fn run<U: TileUnit>(self, unit: &mut U) -> usize {
        let words = black_box([0x3F01_3F01u32; WORDS]);
        // SAFETY: every row of a register reads the same 16 words.
        unsafe {
            unit.load::<4>(words.as_ptr(), 0);
            unit.load::<6>(words.as_ptr(), 0);
        }
        for _ in 0..TILE_STEPS {
            match self.0 {
                WeightDtype::Int8 => {
                    unit.multiply_bytes::<0, 6, 4>();
                    unit.multiply_bytes::<1, 6, 4>();
                    unit.multiply_bytes::<2, 6, 4>();
                    unit.multiply_bytes::<3, 6, 4>();
                }
                _ => {
                    unit.multiply_bf16::<0, 6, 4>();
                    unit.multiply_bf16::<1, 6, 4>();
                    unit.multiply_bf16::<2, 6, 4>();
                    unit.multiply_bf16::<3, 6, 4>();
                }
            }
        }
        let numbers = if self.0 == WeightDtype::Int8 { 4 } else { 2 };
        2 * TILE_STEPS * 4 * ROWS * WORDS * WORDS * numbers
    }
}

/// Instructions for two rows and two columns.
#[cfg(target_arch = "aarch64")]
mod pairs {
    use super::{STEPS, black_box};
    use crate::simd::neon::Pairs;
    use crate::simd::unit::Unit;
    use crate::simd::unit::neon::{PairKernel, dispatch_pairs};

    /// As many as twelve vectors of eight lanes.
    const CHAINS: usize = 24;

    /// The work of one thread; returns the number of operations.
    pub(super) fn count(unit: Unit) -> usize {
        dispatch_pairs(unit, PairChains)
    }

    struct PairChains;

    impl PairKernel for PairChains {
        type Output = usize;

        #[inline(always)]
        fn run<P: Pairs>(self, pairs: P) -> usize {
            let words = black_box(pairs.splat(0x3F01_3F01));
            let mut chains = [pairs.splat(0); CHAINS];
            for _ in 0..STEPS {
                for chain in &mut chains {
                    *chain = pairs.multiply(words, words, *chain);
                }
            }
            black_box(chains);
            // Four sums.
            2 * STEPS * CHAINS * 4 * P::NUMBERS
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_has_a_peak() {
        for dtype in WeightDtype::ALL {
            let peak = peak(dtype);
            assert!(peak.is_finite() && peak > 0.0, "{}: {peak}", dtype.name());
        }
    }
}
