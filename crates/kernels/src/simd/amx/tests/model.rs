//! A software model of the tile unit.

use crate::simd::amx::{ROWS, TileUnit, WORDS};
#[cfg(target_arch = "x86_64")]
use crate::simd::is_avx2;

/// A tile: rows of words.
type Register = [[u32; WORDS]; ROWS];
/// One word of each of 16 columns.
type Line = [u32; WORDS];

/// The tile unit in software: operation by operation what Intel's manual defines.
pub(crate) struct Model {
    registers: [Register; 8],
    /// Rows of the registers of sums and rows.
    rows: usize,
}

impl Model {
    /// A unit whose registers of sums and rows have `rows` rows, `1..=16`.
    pub(crate) fn new(rows: usize) -> Self {
        Self { registers: [[[0; WORDS]; ROWS]; 8], rows }
    }

    fn rows_of(&self, register: u8) -> usize {
        match register {
            4 | 5 => WORDS,
            _ => self.rows,
        }
    }

    /// Replaces each row of sums `C` by `multiply(row of A, B, row of C)`.
    fn multiply(&mut self, [c, a, b]: [u8; 3], multiply: impl Fn(&Line, &Register, &mut Line)) {
        let columns = self.registers[usize::from(b)];
        let rows = self.registers[usize::from(a)];
        let sums = &mut self.registers[usize::from(c)][..self.rows];
        for (row, sums) in rows.iter().zip(sums) {
            multiply(row, &columns, sums);
        }
    }
}

impl TileUnit for Model {
    fn zero<const T: u8>(&mut self) {
        self.registers[usize::from(T)] = [[0; WORDS]; ROWS];
    }

    unsafe fn load<const T: u8>(&mut self, source: *const u32, stride: usize) {
        let rows = self.rows_of(T);
        for (i, row) in self.registers[usize::from(T)][..rows].iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *row = unsafe { source.add(i * stride).cast::<Line>().read_unaligned() };
        }
    }

    unsafe fn store<const T: u8>(&mut self, destination: *mut u32, stride: usize) {
        let rows = self.rows_of(T);
        for (i, row) in self.registers[usize::from(T)][..rows].iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { destination.add(i * stride).cast::<Line>().write_unaligned(*row) };
        }
    }

    fn multiply_bf16<const C: u8, const A: u8, const B: u8>(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if is_avx2() {
            // SAFETY: the processor has AVX2 and FMA.
            self.multiply([C, A, B], |row, columns, sums| unsafe {
                bf16_avx2(row, columns, sums);
            });
            return;
        }
        self.multiply([C, A, B], bf16);
    }

    fn multiply_bytes<const C: u8, const A: u8, const B: u8>(&mut self) {
        self.multiply([C, A, B], |row, columns, sums| {
            for (word, column) in row.iter().zip(columns) {
                let row = word.to_le_bytes().map(i32::from);
                for (sum, word) in sums.iter_mut().zip(column) {
                    let column = word.to_le_bytes().map(|byte| i32::from(byte.cast_signed()));
                    let products = row.iter().zip(column).map(|(row, column)| row * column);
                    *sum = sum.wrapping_add(products.sum::<i32>().cast_unsigned());
                }
            }
        });
    }

    fn prefetch(&self, _p: *const u32) {}

    fn prefetch_to_write(&self, _p: *const u32) {}
}

/// [`bf16`], compiled for processors with a fused multiply-add.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn bf16_avx2(row: &Line, columns: &Register, sums: &mut Line) {
    bf16(row, columns, sums);
}

/// One row of sums of `tdpbf16ps`.
#[inline(always)]
fn bf16(row: &Line, columns: &Register, sums: &mut Line) {
    let (mut even, mut odd) = ([0.0f32; WORDS], [0.0f32; WORDS]);
    for (&word, column) in row.iter().zip(columns) {
        let (low, high) = pair(word);
        for i in 0..WORDS {
            let (a, b) = pair(column[i]);
            even[i] = flush(low.mul_add(a, even[i]));
            odd[i] = flush(high.mul_add(b, odd[i]));
        }
    }
    for i in 0..WORDS {
        let sum = flush(f32::from_bits(sums[i]));
        sums[i] = flush(sum + flush(even[i] + odd[i])).to_bits();
    }
}

/// The two numbers of a word, the lower first. Denormal numbers are zero.
#[inline(always)]
fn pair(word: u32) -> (f32, f32) {
    (flush(f32::from_bits(word << 16)), flush(f32::from_bits(word & 0xFFFF_0000)))
}

/// `x`, or a zero of its sign if `x` is denormal.
#[inline(always)]
fn flush(x: f32) -> f32 {
    let bits = x.to_bits();
    match bits & 0x7F80_0000 {
        0 => f32::from_bits(bits & 0x8000_0000),
        _ => x,
    }
}
