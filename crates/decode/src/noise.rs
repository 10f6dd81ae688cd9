//! Noise as a pure function of what it is for.

/// One step of the splitmix64 generator.
pub const fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A number in `0.0..1.0` for a place in a step of a sequence, from its seed: each of 2^24 values is as
/// likely as any other.
pub(crate) fn uniform(seed: u64, step: u32, place: u32) -> f32 {
    let key = u64::from(step) << 32 | u64::from(place);
    // Another constant than that of sampled tokens, so that order and tokens do not depend on each
    // other.
    let bits = mix(mix(seed).wrapping_add(mix(key ^ 0x3C3C_C3C3_5A5A_3C3C)));
    let high = u32::try_from(bits >> 40).unwrap_or_default();
    crate::numbers::to_single(f64::from(high) / f64::from(1u32 << 24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_evenly_over_the_unit() {
        let mut tenths = [0u32; 10];
        for place in 0..20_000 {
            let number = uniform(7, place / 100, place % 100);
            assert!((0.0..1.0).contains(&number));
            for (tenth, count) in (1u8..).zip(&mut tenths) {
                *count += u32::from(number < f32::from(tenth) / 10.0);
            }
        }
        for (tenth, count) in (1u32..).zip(tenths) {
            let expected = tenth * 2000;
            assert!(count.abs_diff(expected) < 300, "{count} below 0.{tenth}");
        }
    }
}
