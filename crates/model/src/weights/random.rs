//! Random tensors for benchmarks.

use super::rows::each_row;

/// A tensor in row-major order: matrices with variance 1 / columns, a vector of ones. The values depend
/// on the seed, the name and the shape alone.
pub(super) fn random(seed: u64, name: &str, shape: &[usize]) -> Vec<f32> {
    let count = shape.iter().product();
    let &[_, .., columns] = shape else {
        return vec![1.0; count];
    };
    // FNV-1a over the name.
    let start = name.bytes().fold(seed ^ 0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    let mut numbers = vec![0.0; count];
    each_row(&mut numbers, columns, |row, numbers| fill_row(start, row, numbers));
    numbers
}

fn fill_row(start: u64, row: usize, numbers: &mut [f32]) {
    // splitmix64 gives the row's state, xorshift64 its numbers.
    let mut state = start.wrapping_add((row as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    state = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    state = (state ^ state >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    state = (state ^ state >> 31) | 1;
    // A uniform variable in -1..1 has variance 1/3.
    let scale = (3.0 / numbers.len() as f32).sqrt();
    for number in numbers {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *number = ((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * scale;
    }
}
