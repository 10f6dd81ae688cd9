//! Products with keys and values as they are stored.

use crate::cache::KvNumber;
use crate::simd::Simd;
use crate::simd::tile::Tile;

/// Two vectors of columns of keys or values, for each step of a product.
#[derive(Clone, Copy)]
pub(super) struct Vectors<N> {
    /// First number of the first vector.
    pub(super) low: *const N,
    /// First number of the second vector.
    pub(super) high: *const N,
    /// Numbers from one step to the next.
    pub(super) stride: usize,
}

impl<N> Vectors<N> {
    /// The vectors from a later step on.
    ///
    /// # Safety
    /// `steps` counts the steps of the product.
    #[inline(always)]
    pub(super) unsafe fn after(self, steps: usize) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Self {
                low: self.low.add(steps * self.stride),
                high: self.high.add(steps * self.stride),
                ..self
            }
        }
    }
}

/// Rows of f32 numbers, or of words of two bf16 numbers, in memory.
#[derive(Clone, Copy)]
pub(super) struct Factors<T> {
    /// First of the first row.
    pub(super) first: *const T,
    /// From one row to the next.
    pub(super) stride: usize,
}

/// Adds `a` (`R` rows of `steps` numbers) times `b` (`steps` pairs of vectors) to a tile, in ascending
/// order.
///
/// # Safety
/// All of that is readable.
#[inline(always)]
pub(super) unsafe fn accumulate<S: Simd, N: KvNumber, const R: usize>(
    s: S,
    tile: &mut Tile<S, R>,
    steps: usize,
    a: Factors<f32>,
    b: Vectors<N>,
) {
    let mut sums = tile.sums;
    // SAFETY: the first number of each row is readable.
    let rows: [*const f32; R] = std::array::from_fn(|r| unsafe { a.first.add(r * a.stride) });
    for step in 0..steps {
        // SAFETY: step < steps.
        unsafe {
            let low = N::load(s, b.low.add(step * b.stride));
            let high = N::load(s, b.high.add(step * b.stride));
            // Not `zip`, which is a call in development builds (`lto` in Cargo.toml).
            for r in 0..R {
                s.add_products(rows[r], step, [low, high], &mut sums[r]);
            }
        }
    }
    tile.sums = sums;
}

/// The same in pairs of steps: `a` has `R` rows of `pairs` words of two bf16 numbers, `b` two steps for
/// each.
///
/// # Safety
/// All of that is readable.
#[inline(always)]
pub(super) unsafe fn accumulate_pairs<S: Simd, N: KvNumber, const R: usize>(
    s: S,
    tile: &mut Tile<S, R>,
    pairs: usize,
    a: Factors<u32>,
    b: Vectors<N>,
) {
    let mut sums = tile.sums;
    // SAFETY: the first word of each row is readable.
    let rows: [*const u32; R] = std::array::from_fn(|r| unsafe { a.first.add(r * a.stride) });
    for pair in 0..pairs {
        let offset = 2 * pair * b.stride;
        // SAFETY: pair < pairs.
        unsafe {
            let low = N::zip(s, b.low.add(offset), b.low.add(offset + b.stride));
            let high = N::zip(s, b.high.add(offset), b.high.add(offset + b.stride));
            for r in 0..R {
                let word = *rows[r].add(pair);
                sums[r][0] = s.multiply_pairs(word, low, sums[r][0]);
                sums[r][1] = s.multiply_pairs(word, high, sums[r][1]);
            }
        }
    }
    tile.sums = sums;
}
