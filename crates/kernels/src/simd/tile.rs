//! The register tile: a few rows times two vectors of columns.

use super::Simd;

/// Sums of `R` rows by `2 * LANES` columns, held in registers.
#[derive(Clone, Copy)]
pub(crate) struct Tile<S: Simd, const R: usize> {
    /// Two vectors per row.
    pub(crate) sums: [[S::F; 2]; R],
}

impl<S: Simd, const R: usize> Tile<S, R> {
    /// A tile of zeros.
    #[inline(always)]
    pub(crate) fn zero(s: S) -> Self {
        Self { sums: [[s.splat(0.0); 2]; R] }
    }

    /// Reads `R` contiguous rows of `2 * LANES` values.
    #[inline(always)]
    pub(crate) fn load(&mut self, s: S, numbers: &[f32]) {
        assert!(numbers.len() >= R * 2 * S::LANES, "a slice shorter than a tile");
        for r in 0..R {
            for half in 0..2 {
                // SAFETY: in bounds, checked above.
                self.sums[r][half] =
                    unsafe { s.load(numbers.as_ptr().add((2 * r + half) * S::LANES)) };
            }
        }
    }

    /// Writes `R` contiguous rows of `2 * LANES` values.
    #[inline(always)]
    pub(crate) fn store(&self, s: S, numbers: &mut [f32]) {
        assert!(numbers.len() >= R * 2 * S::LANES, "a slice shorter than a tile");
        for r in 0..R {
            for half in 0..2 {
                // SAFETY: in bounds, checked above.
                unsafe {
                    s.store(numbers.as_mut_ptr().add((2 * r + half) * S::LANES), self.sums[r][half])
                };
            }
        }
    }
}

/// Rows of the highest tile.
pub(crate) const MAX_TILE_ROWS: usize = 12;

/// Calls a method generic over the tile height with `$height` (1 to [`MAX_TILE_ROWS`]) as its last
/// parameter.
macro_rules! by_height {
    ($height:expr, $this:ident.$f:ident::<$s:ident, _>($($arg:expr),*)) => {
        match $height {
            1 => $this.$f::<$s, 1>($($arg),*),
            2 => $this.$f::<$s, 2>($($arg),*),
            3 => $this.$f::<$s, 3>($($arg),*),
            4 => $this.$f::<$s, 4>($($arg),*),
            5 => $this.$f::<$s, 5>($($arg),*),
            6 => $this.$f::<$s, 6>($($arg),*),
            7 => $this.$f::<$s, 7>($($arg),*),
            8 => $this.$f::<$s, 8>($($arg),*),
            9 => $this.$f::<$s, 9>($($arg),*),
            10 => $this.$f::<$s, 10>($($arg),*),
            11 => $this.$f::<$s, 11>($($arg),*),
            _ => $this.$f::<$s, 12>($($arg),*),
        }
    };
}
pub(crate) use by_height;
