//! Sums of products of packed words: how the numbers of one dtype are multiplied.
//!
//! A word is 32 bits of one row or one column: one `f32`, two `bf16` or four bytes, ascending
//! inner indices from the low bits up.

use super::Simd;

/// The multiplier of one dtype on one instruction set. A value proves that the processor has
/// the instructions.
pub(crate) trait Dot: Copy {
    /// The vectors that sums end as.
    type S: Simd;
    /// Running sums of `LANES` columns, 32 bits each.
    type Sum: Copy;
    /// A row's word in every lane, ready to be multiplied.
    type Row: Copy;
    /// One word of each of `LANES` columns, ready to be multiplied.
    type Columns: Copy;
    /// Inner indices in a word.
    const NUMBERS: usize;
    /// Multiplications that a word takes, each of `NUMBERS / PARTS` inner indices.
    const PARTS: usize;
    /// Rows of a register tile of `2 * LANES` columns.
    const TILE_ROWS: usize;
    /// Whether panels begin with the values that sums start at.
    const STARTS: bool = false;

    fn simd(self) -> Self::S;
    fn zero(self) -> Self::Sum;
    /// # Safety
    /// `LANES` words from `p` on are readable.
    unsafe fn load(self, p: *const u32) -> Self::Sum;
    /// # Safety
    /// `LANES` words from `p` on are writable.
    unsafe fn store(self, p: *mut u32, sum: Self::Sum);
    fn row(self, word: u32, part: usize) -> Self::Row;
    /// # Safety
    /// `LANES` words from `p` on are readable.
    unsafe fn columns(self, p: *const u32, part: usize) -> Self::Columns;
    /// `sum + row * columns`.
    fn multiply(self, row: Self::Row, columns: Self::Columns, sum: Self::Sum) -> Self::Sum;
    /// What finished sums are worth, given the scales of the row and of the columns if the dtype
    /// has scales.
    fn value(self, sum: Self::Sum, row: f32, columns: <Self::S as Simd>::F)
    -> <Self::S as Simd>::F;
}

/// Words of two vectors of columns.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    /// First word of the first vector.
    pub(crate) low: *const u32,
    /// First word of the second vector.
    pub(crate) high: *const u32,
    /// From one word of a column to its next.
    pub(crate) stride: usize,
    /// What will be read later, asked for along the way: where it begins, and how far it goes on
    /// with every word. Nothing if there are no words between.
    pub(crate) ahead: (*const u32, usize),
}

impl Columns {
    /// No reading ahead.
    pub(crate) const NOTHING: (*const u32, usize) = (std::ptr::null(), 0);

    /// Two vectors side by side, word after word.
    pub(crate) fn panel(from: *const u32, lanes: usize) -> Self {
        Self {
            low: from,
            high: from.wrapping_add(lanes),
            stride: 2 * lanes,
            ahead: Self::NOTHING,
        }
    }
}

/// Adds `a` (`R` rows of `words`, `stride` apart) times `b` (`words` of two vectors of columns) to
/// a tile, ascending; reads ahead if `AHEAD`.
///
/// # Safety
/// All of that is readable.
#[inline(always)]
pub(crate) unsafe fn accumulate<D: Dot, const R: usize, const AHEAD: bool>(
    d: D,
    tile: &mut [[D::Sum; 2]; R],
    words: usize,
    (a, stride): (*const u32, usize),
    b: Columns,
) {
    let mut sums = *tile;
    // SAFETY: the first word of each row is readable.
    let rows: [*const u32; R] = std::array::from_fn(|r| unsafe { a.add(r * stride) });
    let (ahead, step) = b.ahead;
    for p in 0..words {
        if AHEAD {
            d.simd().prefetch(ahead.wrapping_add(p * step));
        }
        for part in 0..D::PARTS {
            // SAFETY: p < words.
            unsafe {
                let low = d.columns(b.low.add(p * b.stride), part);
                let high = d.columns(b.high.add(p * b.stride), part);
                for r in 0..R {
                    let x = d.row(*rows[r].add(p), part);
                    sums[r][0] = d.multiply(x, low, sums[r][0]);
                    sums[r][1] = d.multiply(x, high, sums[r][1]);
                }
            }
        }
    }
    *tile = sums;
}

/// `f32`: one fused multiply-add per inner index.
#[derive(Clone, Copy)]
pub(crate) struct F32<S>(pub(crate) S);

impl<S: Simd> Dot for F32<S> {
    type S = S;
    type Sum = S::F;
    type Row = S::F;
    type Columns = S::F;
    const NUMBERS: usize = 1;
    const PARTS: usize = 1;
    const TILE_ROWS: usize = S::TILE_ROWS;

    #[inline(always)]
    fn simd(self) -> S {
        self.0
    }
    #[inline(always)]
    fn zero(self) -> S::F {
        self.0.splat(0.0)
    }
    #[inline(always)]
    unsafe fn load(self, p: *const u32) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { self.0.load(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut u32, sum: S::F) {
        // SAFETY: the caller's promise.
        unsafe { self.0.store(p.cast(), sum) }
    }
    #[inline(always)]
    fn row(self, word: u32, _: usize) -> S::F {
        self.0.splat(f32::from_bits(word))
    }
    #[inline(always)]
    unsafe fn columns(self, p: *const u32, _: usize) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { self.0.load(p.cast()) }
    }
    #[inline(always)]
    fn multiply(self, row: S::F, columns: S::F, sum: S::F) -> S::F {
        self.0.fma(row, columns, sum)
    }
    #[inline(always)]
    fn value(self, sum: S::F, _: f32, _: S::F) -> S::F {
        sum
    }
}

/// `bf16` where no instruction multiplies it: widened, which is exact, then as [`F32`].
#[derive(Clone, Copy)]
pub(crate) struct WidenedBf16<S>(pub(crate) S);

impl<S: Simd> Dot for WidenedBf16<S> {
    type S = S;
    type Sum = S::F;
    type Row = S::F;
    type Columns = S::F;
    const NUMBERS: usize = 2;
    const PARTS: usize = 2;
    const TILE_ROWS: usize = S::TILE_ROWS;

    #[inline(always)]
    fn simd(self) -> S {
        self.0
    }
    #[inline(always)]
    fn zero(self) -> S::F {
        self.0.splat(0.0)
    }
    #[inline(always)]
    unsafe fn load(self, p: *const u32) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { self.0.load(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut u32, sum: S::F) {
        // SAFETY: the caller's promise.
        unsafe { self.0.store(p.cast(), sum) }
    }
    #[inline(always)]
    fn row(self, word: u32, part: usize) -> S::F {
        let bits = if part == 0 {
            word << 16
        } else {
            word & 0xFFFF_0000
        };
        self.0.splat(f32::from_bits(bits))
    }
    #[inline(always)]
    unsafe fn columns(self, p: *const u32, part: usize) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { self.0.load_bf16(p, part == 1) }
    }
    #[inline(always)]
    fn multiply(self, row: S::F, columns: S::F, sum: S::F) -> S::F {
        self.0.fma(row, columns, sum)
    }
    #[inline(always)]
    fn value(self, sum: S::F, _: f32, _: S::F) -> S::F {
        sum
    }
}
