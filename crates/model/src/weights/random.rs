//! Random tensors for benchmarks.

/// A tensor in row-major order: matrices with variance 1 / columns, a vector of ones.
pub(super) fn random(seed: u64, name: &str, shape: &[usize]) -> Vec<f32> {
    let count = shape.iter().product();
    let &[_, .., columns] = shape else {
        return vec![1.0; count];
    };
    // FNV-1a over the name, then xorshift64.
    let mut state = name
        .bytes()
        .fold(seed ^ 0xCBF2_9CE4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        })
        | 1;
    // A uniform variable in -1..1 has variance 1/3.
    let scale = (3.0 / columns as f32).sqrt();
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * scale
        })
        .collect()
}
