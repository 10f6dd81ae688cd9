//! Counter-based hashing: the same words give the same number on every machine.

/// Mixes a word into a state, with the finalizer of splitmix64.
pub(crate) fn mix(state: u64, word: u64) -> u64 {
    let mut z = state.rotate_left(23) ^ word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Mixes several words into a state, in order.
pub(crate) fn mix_all(state: u64, words: &[u64]) -> u64 {
    words.iter().fold(state, |state, &word| mix(state, word))
}

/// A hash as a number in the open interval (0, 1).
pub(crate) fn unit(hash: u64) -> f64 {
    ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// A number in `0..choices`, `choices >= 1`.
pub(crate) fn below(hash: u64, choices: u32) -> u32 {
    let number = hash % u64::from(choices);
    u32::try_from(number).expect("less than `choices`")
}
