//! The software model against its definition, and against the instructions where they exist.

mod model;

pub(crate) use model::Model;

use super::{TileKernel, TileSupport, TileUnit, Tiles, WORDS, dispatch_tiles};
use crate::gemm::tests::noise;

/// A word of two numbers, which `bf16` holds exactly.
fn word(low: f32, high: f32) -> u32 {
    assert!(low.to_bits() & 0xFFFF == 0 && high.to_bits() & 0xFFFF == 0);
    high.to_bits() | low.to_bits() >> 16
}

/// Multiplies random tiles and returns the sums.
struct Random {
    rows: usize,
    bytes: bool,
}

impl TileKernel for Random {
    type Output = Vec<u32>;

    fn run<U: TileUnit>(self, unit: &mut U) -> Vec<u32> {
        let numbers = |seed| -> Vec<u32> {
            let noise = noise(seed, WORDS * WORDS);
            noise.iter().map(|x| x.to_bits().rotate_left(7)).collect()
        };
        let finite = |words: Vec<u32>| -> Vec<u32> {
            // An exponent below 2^127 in both halves.
            words.into_iter().map(|word| word & 0xBFFF_BFFF).collect()
        };
        let mut sums: Vec<u32> = noise(3, WORDS * WORDS).iter().map(|x| x.to_bits()).collect();
        let (rows, columns) = (finite(numbers(1)), finite(numbers(2)));
        // SAFETY: each slice holds 16 rows of 16 words.
        unsafe {
            unit.load::<0>(sums.as_ptr(), WORDS);
            unit.load::<6>(rows.as_ptr(), WORDS);
            unit.load::<4>(columns.as_ptr(), WORDS);
            match self.bytes {
                true => unit.multiply_bytes::<0, 6, 4>(),
                false => unit.multiply_bf16::<0, 6, 4>(),
            }
            unit.store::<0>(sums.as_mut_ptr(), WORDS);
        }
        sums.truncate(self.rows * WORDS);
        sums
    }
}

#[test]
fn the_model_and_the_instructions_give_the_same_bits() {
    if TileSupport::detect() != TileSupport::Ready {
        println!("no tile unit here: only the model is tested");
        return;
    }
    for bytes in [false, true] {
        for rows in 1..=WORDS {
            let [model, processor] = [Tiles::Model, Tiles::Processor]
                .map(|tiles| dispatch_tiles(tiles, rows, Random { rows, bytes }));
            assert_eq!(model, processor, "{rows} rows, bytes: {bytes}");
        }
    }
}

/// The model's sum for one row and one column, from a start value.
fn sum_of(start: f32, row: &[u32], column: &[u32]) -> f32 {
    let mut unit = Model::new(1);
    let mut sums = [0u32; WORDS];
    let mut rows = [0u32; WORDS];
    rows[..row.len()].copy_from_slice(row);
    let mut columns = [[0u32; WORDS]; WORDS];
    for (line, word) in columns.iter_mut().zip(column) {
        line[5] = *word;
    }
    sums[5] = start.to_bits();
    // SAFETY: one row of sums and of the product's rows, 16 words of the columns.
    unsafe {
        unit.load::<1>(sums.as_ptr(), WORDS);
        unit.load::<7>(rows.as_ptr(), WORDS);
        unit.load::<5>(columns.as_ptr().cast(), WORDS);
        unit.multiply_bf16::<1, 7, 5>();
        unit.store::<1>(sums.as_mut_ptr(), WORDS);
    }
    assert!(sums.iter().enumerate().all(|(i, &sum)| i == 5 || sum == 0));
    f32::from_bits(sums[5])
}

#[test]
fn even_and_odd_products_are_summed_apart_and_then_added_to_the_sum() {
    // The even sum is 2^24 + 1 - 2^24 = 0 with rounding in order, the odd one 1.
    let big = (1u32 << 24) as f32;
    let row = [word(big, 0.5), word(1.0, 0.5), word(-big, 0.0)];
    let ones = [word(1.0, 1.0); 3];
    assert_eq!(sum_of(0.0, &row, &ones), 1.0);
    // Added one after the other to 2^24, both ones would be lost; added first they are two.
    assert_eq!(sum_of(big, &[word(1.0, 1.0)], &ones), big + 2.0);
}

#[test]
fn denormal_numbers_count_as_zero() {
    let denormal = f32::from_bits(0x0040_0000);
    let (one, smallest) = (word(1.0, 1.0), f32::MIN_POSITIVE);
    assert_eq!(sum_of(0.0, &[word(denormal, denormal)], &[one]), 0.0);
    assert_eq!(sum_of(denormal, &[word(1.0, 0.0)], &[one]), 1.0);
    assert_eq!(sum_of(0.0, &[word(smallest, 0.0)], &[word(0.5, 0.0)]), 0.0);
    assert_eq!(sum_of(0.0, &[word(smallest, 0.0)], &[word(2.0, 0.0)]), 2.0 * smallest);
}

#[test]
fn bytes_are_unsigned_times_signed() {
    let mut unit = Model::new(2);
    let mut sums = [[7u32; WORDS]; 2];
    let rows = [[u32::from_le_bytes([255, 1, 0, 2]); WORDS]; 2];
    let columns = [[u32::from_le_bytes([128, 127, 255, 254]); WORDS]; WORDS];
    // SAFETY: two rows of sums and rows, 16 words of the columns.
    unsafe {
        unit.load::<0>(sums.as_ptr().cast(), WORDS);
        unit.load::<6>(rows.as_ptr().cast(), WORDS);
        unit.load::<4>(columns.as_ptr().cast(), WORDS);
        unit.multiply_bytes::<0, 6, 4>();
        unit.store::<0>(sums.as_mut_ptr().cast(), WORDS);
    }
    let want = 7 + 16 * (255 * -128 + 127 + 2 * -2);
    assert!(sums.iter().flatten().all(|&sum| sum.cast_signed() == want));
}

#[test]
fn a_listed_unit_without_permission_is_refused() {
    assert_eq!(TileSupport::decide(false, || true), TileSupport::Absent);
    assert_eq!(TileSupport::decide(true, || false), TileSupport::Refused);
    assert_eq!(TileSupport::decide(true, || true), TileSupport::Ready);
}
