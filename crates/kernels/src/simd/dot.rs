//! Dot products of packed words, for each dtype.
//!
//! A word is 32 bits of one row or one column: one `f32`, two numbers of 16 bits or four bytes. The lowest inner
//! index is in the lowest bits.

use super::Simd;

/// Words of a row or column that an instruction for two rows and two columns takes.
pub(crate) const PAIR_WORDS: usize = 2;

/// The multiplier of one dtype on one instruction set. A value proves that the processor has the
/// instructions.
pub(crate) trait Dot: Copy {
    /// The vectors of finished sums.
    type S: Simd;
    /// Running sums of `LANES` columns, 32 bits each.
    type Sum: Copy;
    /// A row's word broadcast to all lanes, in the form that `multiply` takes.
    type Row: Copy;
    /// One word of each of `LANES` columns, in the form that `multiply` takes.
    type Columns: Copy;
    /// Multiplications per word; each has an equal share of the inner indices of the word.
    const PARTS: usize;
    /// True if each part of a row's word is a word of its own, which needs no instruction to take apart
    /// (`Unit::parts`).
    const SPLIT: bool = false;
    /// Rows of a register tile of `2 * LANES` columns.
    const TILE_ROWS: usize;
    /// True if panels begin with start values of the sums.
    const STARTS: bool = false;

    fn simd(self) -> Self::S;
    fn zero(self) -> Self::Sum;
    /// # Safety
    /// `LANES` words from `p` on are readable.
    unsafe fn load(self, p: *const u32) -> Self::Sum;
    /// # Safety
    /// `LANES` words from `p` on are writable.
    unsafe fn store(self, p: *mut u32, sum: Self::Sum);
    /// Part `part` of a row's word; the word of a part if [`Self::SPLIT`].
    fn row(self, word: u32, part: usize) -> Self::Row;
    /// # Safety
    /// `LANES` words from `p` on are readable.
    unsafe fn columns(self, p: *const u32, part: usize) -> Self::Columns;
    /// `sum + row * columns`.
    fn multiply(self, row: Self::Row, columns: Self::Columns, sum: Self::Sum) -> Self::Sum;
    /// Adds a part of a row's word times two vectors of columns to two sums.
    ///
    /// # Safety
    /// The word is readable.
    #[inline(always)]
    unsafe fn add_products(
        self,
        x_part: RowPart,
        columns: [Self::Columns; 2],
        sums: &mut [Self::Sum; 2],
    ) {
        // SAFETY: the caller's promise.
        let x = self.row(unsafe { *x_part.row.add(x_part.word) }, x_part.part);
        sums[0] = self.multiply(x, columns[0], sums[0]);
        sums[1] = self.multiply(x, columns[1], sums[1]);
    }
    /// The values of finished sums, multiplied by the scales of the row and of the columns if the
    /// dtype has scales.
    fn value(self, sum: Self::Sum, row: f32, columns: <Self::S as Simd>::F)
    -> <Self::S as Simd>::F;
}

/// A part of a word of a row.
#[derive(Clone, Copy)]
pub(crate) struct RowPart {
    /// First word of the row.
    pub(crate) row: *const u32,
    /// The word; it counts parts if [`Dot::SPLIT`].
    pub(crate) word: usize,
    pub(crate) part: usize,
}

/// The multiplier of packed panels: of words, or of steps of several words.
pub(crate) trait Multiply: Copy {
    /// The vectors of finished sums.
    type S: Simd;
    /// Running sums of `LANES` columns, 32 bits each.
    type Sum: Copy;
    /// Rows of a register tile of `2 * LANES` columns.
    const TILE_ROWS: usize;
    /// True if panels begin with start values of the sums.
    const STARTS: bool;
    /// Words of a row in a step.
    const ROW: usize;
    /// Words of a column in a step.
    const COLUMN: usize;

    fn simd(self) -> Self::S;
    fn zero(self) -> Self::Sum;
    /// # Safety
    /// `LANES` words from `p` on are readable.
    unsafe fn load(self, p: *const u32) -> Self::Sum;
    /// # Safety
    /// `LANES` words from `p` on are writable.
    unsafe fn store(self, p: *mut u32, sum: Self::Sum);
    /// As [`Dot::value`].
    fn value(self, sum: Self::Sum, row: f32, columns: <Self::S as Simd>::F)
    -> <Self::S as Simd>::F;
    /// Adds `a` (`R` rows of `steps` steps) times `b` (`steps` steps of two vectors of columns) to a
    /// tile, in ascending order. `b.ahead` counts its words per step.
    ///
    /// # Safety
    /// All of that is readable.
    unsafe fn accumulate<const R: usize>(
        self,
        tile: &mut [[Self::Sum; 2]; R],
        steps: usize,
        a: RowPointer,
        b: Columns,
    );
}

/// A computation compiled once per multiplier of panels.
pub(crate) trait MultiplyKernel {
    /// Runs the kernel; must be `#[inline(always)]` so that the caller's instruction set applies.
    fn run<M: Multiply>(self, multiply: M);
}

impl<D: Dot> Multiply for D {
    type S = D::S;
    type Sum = D::Sum;
    const TILE_ROWS: usize = D::TILE_ROWS;
    const STARTS: bool = D::STARTS;
    const ROW: usize = if D::SPLIT { D::PARTS } else { 1 };
    const COLUMN: usize = 1;

    #[inline(always)]
    fn simd(self) -> Self::S {
        Dot::simd(self)
    }
    #[inline(always)]
    fn zero(self) -> Self::Sum {
        Dot::zero(self)
    }
    #[inline(always)]
    unsafe fn load(self, p: *const u32) -> Self::Sum {
        // SAFETY: the caller's promise.
        unsafe { Dot::load(self, p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut u32, sum: Self::Sum) {
        // SAFETY: the caller's promise.
        unsafe { Dot::store(self, p, sum) }
    }
    #[inline(always)]
    fn value(
        self,
        sum: Self::Sum,
        row: f32,
        columns: <Self::S as Simd>::F,
    ) -> <Self::S as Simd>::F {
        Dot::value(self, sum, row, columns)
    }
    #[inline(always)]
    unsafe fn accumulate<const R: usize>(
        self,
        tile: &mut [[Self::Sum; 2]; R],
        steps: usize,
        a: RowPointer,
        b: Columns,
    ) {
        // SAFETY: the caller's promise.
        unsafe { accumulate::<D, R, true>(self, tile, steps, a, b) };
    }
}

/// Pointers to the words of two vectors of columns.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    /// First word of the first vector.
    pub(crate) low: *const u32,
    /// First word of the second vector.
    pub(crate) high: *const u32,
    /// Words from one word of a column to its next.
    pub(crate) stride: usize,
    /// Memory to prefetch: its start, and its words per processed word; step 0 means none.
    pub(crate) ahead: (*const u32, usize),
}

/// Rows of words in memory.
#[derive(Clone, Copy)]
pub(crate) struct RowPointer {
    /// First word of the first row.
    pub(crate) first: *const u32,
    /// Words from one row to the next.
    pub(crate) stride: usize,
}

impl Columns {
    /// No prefetching.
    pub(crate) const NOTHING: (*const u32, usize) = (std::ptr::null(), 0);

    /// Two contiguous vectors per word.
    pub(crate) fn panel(words: *const u32, lanes: usize) -> Self {
        Self {
            low: words,
            high: words.wrapping_add(lanes),
            stride: 2 * lanes,
            ahead: Self::NOTHING,
        }
    }
}

/// Rows of a register tile of words: pointers to more rows than these do not fit in the registers.
pub(super) const fn tile_rows<S: Simd>() -> usize {
    if S::TILE_ROWS > 10 { 10 } else { S::TILE_ROWS }
}

/// Prefetches a cache line of the columns that `R` rows are multiplied by.
#[inline(always)]
pub(super) fn prefetch<S: Simd, const R: usize>(s: S, p: *const u32) {
    if R == 1 {
        s.prefetch_once(p);
    } else {
        s.prefetch(p);
    }
}

/// Adds `a` (`R` rows of `words` words) times `b` (`words` words of two vectors of columns) to a
/// tile, in ascending order. Prefetches `b.ahead` if `AHEAD`.
///
/// # Safety
/// All of that is readable.
#[inline(always)]
pub(crate) unsafe fn accumulate<D: Dot, const R: usize, const AHEAD: bool>(
    d: D,
    tile: &mut [[D::Sum; 2]; R],
    words: usize,
    a: RowPointer,
    b: Columns,
) {
    let mut sums = *tile;
    // SAFETY: the first word of each row is readable.
    let rows: [*const u32; R] = std::array::from_fn(|r| unsafe { a.first.add(r * a.stride) });
    let (ahead, step) = b.ahead;
    for p in 0..words {
        if AHEAD {
            prefetch::<D::S, R>(d.simd(), ahead.wrapping_add(p * step));
        }
        for part in 0..D::PARTS {
            // SAFETY: p < words.
            unsafe {
                let low = d.columns(b.low.add(p * b.stride), part);
                let high = d.columns(b.high.add(p * b.stride), part);
                let word = if D::SPLIT { p * D::PARTS + part } else { p };
                // Not `zip`, which is a call in development builds (`lto` in Cargo.toml).
                for r in 0..R {
                    let row = rows[r];
                    d.add_products(RowPart { row, word, part }, [low, high], &mut sums[r]);
                }
            }
        }
    }
    *tile = sums;
}

/// The numbers of columns that are multiplied in f32, as they are stored.
pub(crate) trait Number: Copy {
    /// Numbers in a word of a column.
    const PARTS: usize;

    /// Number `part` of each of `LANES` words.
    ///
    /// # Safety
    /// `LANES` words from `p` on are readable.
    unsafe fn load<S: Simd>(simd: S, p: *const u32, part: usize) -> S::F;
}

/// A word each.
#[derive(Clone, Copy)]
pub(crate) struct F32;

impl Number for F32 {
    const PARTS: usize = 1;

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, p: *const u32, _: usize) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { simd.load(p.cast()) }
    }
}

/// Two `bf16` in a word.
#[derive(Clone, Copy)]
pub(crate) struct Bf16;

impl Number for Bf16 {
    const PARTS: usize = 2;

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, p: *const u32, part: usize) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { simd.load_bf16(p, part == 1) }
    }
}

/// Two numbers of 16 bits (IEEE 754) in a word. Of a vector of words, the low halves come first, then the high ones.
#[derive(Clone, Copy)]
pub(crate) struct F16;

impl Number for F16 {
    const PARTS: usize = 2;

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, p: *const u32, part: usize) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { simd.load_f16(p.cast::<u16>().add(part * S::LANES)) }
    }
}

/// One fused multiply-add per inner index. Columns are widened exactly to f32 in every tile, rows are in f32.
#[derive(Clone, Copy)]
pub(crate) struct Floats<S, N>(pub(crate) S, pub(crate) N);

impl<S: Simd, N: Number> Dot for Floats<S, N> {
    type S = S;
    type Sum = S::F;
    type Row = S::F;
    type Columns = S::F;
    const PARTS: usize = N::PARTS;
    const SPLIT: bool = true;
    const TILE_ROWS: usize = tile_rows::<S>();

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
    unsafe fn columns(self, p: *const u32, part: usize) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { N::load(self.0, p, part) }
    }
    #[inline(always)]
    fn multiply(self, row: S::F, columns: S::F, sum: S::F) -> S::F {
        self.0.fma(row, columns, sum)
    }
    #[inline(always)]
    unsafe fn add_products(self, part: RowPart, columns: [S::F; 2], sums: &mut [S::F; 2]) {
        // SAFETY: the caller's promise.
        unsafe { self.0.add_products(part.row.cast(), part.word, columns, sums) };
    }
    #[inline(always)]
    fn value(self, sum: S::F, _: f32, _: S::F) -> S::F {
        sum
    }
}
