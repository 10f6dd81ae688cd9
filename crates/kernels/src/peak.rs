//! What the processor can multiply at most, measured.

use crate::parallel;
use crate::simd::{InstructionSet, Kernel, MAX_LANES, Simd, dispatch};
use std::hint::black_box;
use std::time::Instant;

/// Independent chains of multiply-adds: more than latency times throughput of any processor
/// with these instructions, and few enough for sixteen registers.
const CHAINS: usize = 12;
/// Steps of all chains, a millisecond or two.
const STEPS: usize = 1 << 18;

/// Floating-point operations per second, in 10^9, of multiply-adds on registers on all threads of
/// the current pool, at this moment: what [`crate::Linear`] is measured against. It takes a
/// millisecond or two; where the processor has other work or changes its clock, measure it in
/// turn with what is compared.
#[must_use]
pub fn peak() -> f64 {
    let threads = parallel::threads();
    let lanes = InstructionSet::detect().panel() / 2;
    let operations = (2 * lanes * CHAINS * STEPS * threads) as f64;
    let start = Instant::now();
    parallel::for_each(threads, |_| {
        black_box(dispatch(Chains));
    });
    1e-9 * operations / start.elapsed().as_secs_f64()
}

/// One thread's share.
struct Chains;

impl Kernel for Chains {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let values = black_box([[0.999f32; MAX_LANES], [1e-3; MAX_LANES]]);
        // SAFETY: LANES <= MAX_LANES.
        let [x, y] = values.map(|values| unsafe { s.load(values.as_ptr()) });
        let mut chains = [y; CHAINS];
        for _ in 0..STEPS {
            for chain in &mut chains {
                *chain = s.fma(*chain, x, y);
            }
        }
        chains.into_iter().map(|chain| s.sum(chain)).sum()
    }
}
