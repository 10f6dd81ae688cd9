//! Random tensors for benchmarks.

use std::num::NonZero;
use std::thread;

/// Elements below which one thread is as fast.
const SERIAL: usize = 1 << 20;

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
    let threads = match count < SERIAL {
        true => 1,
        false => thread::available_parallelism().map_or(1, NonZero::get),
    };
    let columns = columns.max(1);
    let rows = (count / columns).div_ceil(threads).max(1);
    thread::scope(|scope| {
        for (part, numbers) in numbers.chunks_mut(rows * columns).enumerate() {
            let mut fill = move || {
                for (row, numbers) in numbers.chunks_mut(columns).enumerate() {
                    fill_row(start, part * rows + row, numbers);
                }
            };
            match threads {
                1 => fill(),
                _ => drop(scope.spawn(fill)),
            }
        }
    });
    numbers
}

/// Fills row number `row`.
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
