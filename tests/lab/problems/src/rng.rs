//! A small seeded random number generator: a seed gives the same problems on every platform.

/// SplitMix64: 64 bits of state, one multiply-xorshift finalizer per draw.
#[derive(Debug, Clone)]
pub(crate) struct Rng {
    state: u64,
}

impl Rng {
    /// A stream that depends on the seed alone.
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: mix(seed) }
    }

    /// Uniform in `0..bound`; `bound` must be positive.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        // The high half of a 32 x 32 bit product maps the draw to the bound without a modulo.
        let high = u64::from((mix(self.state) >> 32) as u32);
        ((high * u64::from(bound)) >> 32) as u32
    }

    /// Uniform in `low..=high`.
    pub(crate) fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    /// One of the items, all equally likely; `items` must not be empty.
    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u32) as usize]
    }

    /// An index into `weights`, drawn in proportion to them; their sum must be positive.
    pub(crate) fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut draw = self.below(weights.iter().sum());
        for (index, &weight) in weights.iter().enumerate() {
            if draw < weight {
                return index;
            }
            draw -= weight;
        }
        weights.len() - 1
    }
}

/// A 64-bit hash of a text (FNV-1a, then the finalizer), stable across platforms and releases.
pub(crate) fn hash(text: &str) -> u64 {
    mix(text.bytes().fold(0xCBF2_9CE4_8422_2325, |state, byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    }))
}

/// The finalizer of SplitMix64: every input bit reaches every output bit.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}
