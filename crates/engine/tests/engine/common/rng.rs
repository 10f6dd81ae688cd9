//! Reproducible random numbers, and the seed in the message of a failure.

/// splitmix64.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A sequence of its own per seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xD134_2543_DE82_EF95))
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `start..end`.
    pub fn range(&mut self, start: u32, end: u32) -> u32 {
        start + (self.any() % u64::from(end - start)) as u32
    }

    /// True in `percent` of all cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.any() % 100 < percent
    }

    /// One of a few.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[(self.any() % choices.len() as u64) as usize]
    }
}

/// The seeds of a simulation: `0..count`, or the one in `ASYNCLANE_SIM_SEED` to replay it.
pub fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("ASYNCLANE_SIM_SEED") {
        Ok(seed) => vec![seed.parse().expect("ASYNCLANE_SIM_SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}

/// Prints the seed if the test panics.
#[derive(Debug)]
pub struct ShowSeed(pub u64);

impl Drop for ShowSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed at seed {0}; replay it with ASYNCLANE_SIM_SEED={0}", self.0);
        }
    }
}
