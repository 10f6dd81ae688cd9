//! Instructions of extensions whose intrinsics are not stable in Rust.

use std::arch::aarch64::*;
use std::arch::asm;

/// An instruction that adds products of two registers to a third.
macro_rules! instruction {
    ($(#[$doc:meta])* $name:ident, $features:literal, $sum:ty, $text:literal) => {
        $(#[$doc])*
        #[target_feature(enable = $features)]
        #[inline]
        pub(in crate::simd) fn $name(sum: $sum, a: uint32x4_t, b: uint32x4_t) -> $sum {
            let mut sum = sum;
            // SAFETY: the instruction reads and writes these registers only; the processor has it.
            unsafe {
                asm!(
                    $text,
                    sum = inout(vreg) sum,
                    a = in(vreg) a,
                    b = in(vreg) b,
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
            sum
        }
    };
}

instruction!(
    /// Adds the products of four signed bytes of `a` and four signed bytes of `b` to each of four
    /// sums.
    sdot, "neon,dotprod", int32x4_t, "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b"
);
instruction!(
    /// As [`sdot`]; the bytes of `a` are unsigned.
    usdot, "neon,dotprod,i8mm", int32x4_t, "usdot {sum:v}.4s, {a:v}.16b, {b:v}.16b"
);
instruction!(
    /// Adds the product of two rows of eight unsigned bytes, `a`, and two columns of eight signed
    /// bytes, `b`. The sums are those of the first row, then of the second.
    usmmla, "neon,dotprod,i8mm", int32x4_t, "usmmla {sum:v}.4s, {a:v}.16b, {b:v}.16b"
);
instruction!(
    /// As [`usmmla`], of four `bf16` in a row or column. Pairs of products are rounded to odd, added
    /// and rounded to odd, then added to the sum and rounded to odd. Denormal numbers count as zero.
    bfmmla, "neon,bf16", float32x4_t, "bfmmla {sum:v}.4s, {a:v}.8h, {b:v}.8h"
);
