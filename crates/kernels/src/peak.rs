//! Measures the processor's peak rate of multiply-adds.

use crate::parallel;
use crate::simd::dot::Dot;
use crate::simd::unit::{DotKernel, Unit, WeightDtype, dispatch_unit};
use crate::simd::{MAX_LANES, Simd};
use std::hint::black_box;
use std::time::Instant;

/// Number of independent chains of multiply-adds: more than latency times throughput of any processor
/// with these instructions, and few enough for sixteen registers.
const CHAINS: usize = 12;
/// Steps of each chain; together one or two milliseconds.
const STEPS: usize = 1 << 18;

/// Measures the peak rate of multiply-adds of `dtype` on registers, on all threads of the current
/// team, in 10^9 operations per second. The efficiency of [`crate::Linear`] is relative to it. A
/// multiply-add counts as two operations. A measurement takes one or two milliseconds. If the
/// processor has other load or changes its clock, alternate it with the measurements it is compared
/// to.
#[must_use]
pub fn peak(dtype: WeightDtype) -> f64 {
    let (threads, unit) = (parallel::threads(), Unit::detect(dtype));
    let start = Instant::now();
    let mut counts = vec![0; threads];
    let shared = parallel::Shared::new(&mut counts);
    parallel::for_each(threads, |thread| {
        // SAFETY: each task has its own count.
        let count = unsafe { shared.part(thread, 1) };
        count[0] = dispatch_unit(unit, Chains);
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
        let (row, columns) = (d.row(words[0], 0), unsafe { d.columns(words.as_ptr(), 0) });
        let mut chains = [d.zero(); CHAINS];
        for _ in 0..STEPS {
            for chain in &mut chains {
                *chain = d.multiply(row, columns, *chain);
            }
        }
        for chain in chains {
            let mut sums = [0u32; MAX_LANES];
            // SAFETY: LANES <= MAX_LANES.
            unsafe { d.store(sums.as_mut_ptr(), chain) };
            black_box(sums);
        }
        2 * STEPS * CHAINS * D::S::LANES * D::NUMBERS / D::PARTS
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
