//! Unique ids and random seeds, from one process-wide random key and a counter.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

/// The odd constant of the splitmix64 generator.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Makes ids that are unique in this process and rarely repeat across processes.
#[derive(Debug)]
pub struct Ids {
    key: u64,
    counter: AtomicU64,
}

impl Ids {
    /// A source with a random key from the operating system.
    pub fn new() -> Self {
        Self { key: RandomState::new().hash_one("ids"), counter: AtomicU64::new(0) }
    }

    /// 64 bits, unique per source: a bijection of a counter.
    pub fn next(&self) -> u64 {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        mix(self.key.wrapping_add(count.wrapping_mul(GOLDEN)))
    }

    /// A random seed below 2^53, which every JSON reader represents exactly.
    pub fn seed(&self) -> i64 {
        (self.next() >> 11) as i64
    }
}

/// The seed that choice `choice` of every prompt draws from; choice 0 draws from `seed` itself.
pub fn choice_seed(seed: i64, choice: u32) -> u64 {
    let seed = seed.cast_unsigned();
    if choice == 0 { seed } else { mix(seed.wrapping_add(u64::from(choice).wrapping_mul(GOLDEN))) }
}

/// The finisher of splitmix64, a bijection.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
