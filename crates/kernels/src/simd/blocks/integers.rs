//! The integer instructions of products with codes.

use crate::simd::Simd;

/// Vectors of 32-bit words, as many as lanes of `S`. A value proves that the processor has the
/// instructions.
pub(crate) trait Integers: Copy {
    /// The vectors of sums in f32.
    type S: Simd;
    /// A vector of words.
    type I: Copy;
    /// Rows of a tile of `2 * LANES` columns.
    const TILE_ROWS: usize;

    fn simd(self) -> Self::S;
    fn zero(self) -> Self::I;
    /// # Safety
    /// `LANES` words from `p` on are readable.
    unsafe fn load(self, p: *const u32) -> Self::I;
    fn and(self, x: Self::I, mask: u32) -> Self::I;
    fn or(self, x: Self::I, y: Self::I) -> Self::I;
    /// The numbers of a table in place of bytes below 16.
    fn bytes(self, table: &[u8; 16], x: Self::I) -> Self::I;
    /// Shifts each word left by fewer than 32 bits.
    fn left(self, x: Self::I, bits: u32) -> Self::I;
    /// Shifts each word right by fewer than 32 bits; zeros come in.
    fn right(self, x: Self::I, bits: u32) -> Self::I;
    /// True if [`Self::add_products`] has sums of 16 bits: two in a word, which hold the products of
    /// [`parts`] words.
    const NARROW: bool = false;
    /// Adds the products of two vectors of codes of at most six bits and a word of a row to two sums.
    ///
    /// # Safety
    /// The word is readable.
    unsafe fn add_products(
        self,
        word: (*const u32, usize),
        codes: [Self::I; 2],
        sums: &mut [Self::I; 2],
    );
    /// Words of a row for each four integers that are multiplied with codes of eight bits.
    const BYTE_PARTS: usize = 1;
    /// Adds the products of two vectors of codes of eight bits and the words of a row from a word on,
    /// [`Self::BYTE_PARTS`], to two sums of 32 bits.
    ///
    /// # Safety
    /// The words are readable.
    unsafe fn add_byte_products(
        self,
        word: (*const u32, usize),
        codes: [Self::I; 2],
        sums: &mut [Self::I; 2],
    );
    /// `sum` plus the sums of [`Self::add_products`].
    fn add_sums(self, few: Self::I, sum: Self::I) -> Self::I;
    /// The signed words as f32.
    fn floats(self, x: Self::I) -> <Self::S as Simd>::F;
    /// `a * b + c`, rounded once.
    fn fused(
        self,
        a: <Self::S as Simd>::F,
        b: <Self::S as Simd>::F,
        c: <Self::S as Simd>::F,
    ) -> <Self::S as Simd>::F;
}

/// Products of four integers of a row, which are broadcast to all lanes.
pub(super) trait Broadcast: Integers {
    /// Four integers of a row in all lanes, in the form that `multiply` takes.
    type Row: Copy;

    /// Four signed bytes of a row, of -127 to 127.
    fn row(self, word: u32) -> Self::Row;
    /// `sum` plus the products of four codes of at most seven bits and four integers.
    fn multiply(self, codes: Self::I, row: Self::Row, sum: Self::I) -> Self::I;
    /// As [`Self::multiply`]; the codes are unsigned bytes.
    #[inline(always)]
    fn multiply_bytes(self, codes: Self::I, row: Self::Row, sum: Self::I) -> Self::I {
        self.multiply(codes, row, sum)
    }
}

/// The products of [`Integers`] and [`Broadcast`].
macro_rules! products_by_broadcast {
    () => {
        products_by_broadcast!(add_products by multiply);
        products_by_broadcast!(add_byte_products by multiply_bytes);
    };
    ($name:ident by $multiply:ident) => {
        #[inline(always)]
        unsafe fn $name(
            self,
            (row, at): (*const u32, usize),
            codes: [Self::I; 2],
            sums: &mut [Self::I; 2],
        ) {
            // SAFETY: the caller's promise.
            let x = self.row(unsafe { *row.wrapping_add(at) });
            sums[0] = self.$multiply(codes[0], x, sums[0]);
            sums[1] = self.$multiply(codes[1], x, sums[1]);
        }
    };
}
pub(super) use products_by_broadcast;

/// Words of a row whose products with codes of `bits` bits [`Integers::add_products`] sums: all of a
/// group, or as many as 16 bits hold.
pub(super) const fn parts<U: Integers>(bits: usize) -> usize {
    if !U::NARROW {
        return 8;
    }
    // Two products for each word.
    let most = 2 * 127 * ((1 << bits) - 1);
    match i16::MAX as usize / most {
        8.. => 8,
        4.. => 4,
        _ => 2,
    }
}
