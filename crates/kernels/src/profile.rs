//! The time of a forward pass by stage.

use std::cell::RefCell;
use std::time::{Duration, Instant};

/// A stage of a forward pass, in the order of first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Checking and flattening the batch, copying pages.
    Inputs,
    /// Lookup in the embedding table.
    Embedding,
    /// RMS norms.
    Norm,
    /// Matrix products of the layers.
    Linear,
    /// Rotation of queries and keys.
    Rope,
    /// Writing keys and values.
    Write,
    /// Attention.
    Attention,
    /// Matrix product of the LM head.
    Head,
    /// Reducing logits to candidates.
    Score,
}

impl Stage {
    /// All stages.
    pub const ALL: [Self; 9] = [
        Self::Inputs,
        Self::Embedding,
        Self::Norm,
        Self::Linear,
        Self::Rope,
        Self::Write,
        Self::Attention,
        Self::Head,
        Self::Score,
    ];

    /// Name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inputs => "inputs",
            Self::Embedding => "embedding",
            Self::Norm => "norm",
            Self::Linear => "linear",
            Self::Rope => "rope",
            Self::Write => "write",
            Self::Attention => "attention",
            Self::Head => "head",
            Self::Score => "score",
        }
    }
}

/// Wall time by stage, summed over forward passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Number of forward passes.
    pub passes: u64,
    times: [Duration; Stage::ALL.len()],
}

impl Profile {
    /// Time of a stage in all passes.
    #[must_use]
    pub fn time(&self, stage: Stage) -> Duration {
        self.times[stage as usize]
    }

    /// Time of all stages.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.times.iter().sum()
    }

    /// A stage's share of the total, `0.0..=1.0`; 0 if the total is 0.
    #[must_use]
    pub fn share(&self, stage: Stage) -> f64 {
        self.time(stage).as_secs_f64() / self.total().as_secs_f64().max(1e-12)
    }
}

/// Adds times to a profile; without a profile it does not read the system clock.
pub struct Clock(Option<RefCell<(Profile, Instant)>>);

impl Clock {
    /// Starts now.
    #[must_use]
    pub fn start(profile: Option<Profile>) -> Self {
        Self(profile.map(|profile| RefCell::new((profile, Instant::now()))))
    }

    /// Adds the time since the last lap to `stage`.
    pub fn lap(&self, stage: Stage) {
        if let Some(running) = &self.0 {
            let (profile, last) = &mut *running.borrow_mut();
            let now = Instant::now();
            profile.times[stage as usize] += now - *last;
            *last = now;
        }
    }

    /// The profile with the added times.
    #[must_use]
    pub fn stop(self) -> Option<Profile> {
        self.0.map(|running| running.into_inner().0)
    }

    /// Counts a finished pass.
    pub fn pass(&self) {
        if let Some(running) = &self.0 {
            running.borrow_mut().0.passes += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps_add_up_and_a_clock_without_a_profile_does_nothing() {
        let clock = Clock::start(Some(Profile::default()));
        clock.lap(Stage::Linear);
        clock.lap(Stage::Score);
        clock.lap(Stage::Linear);
        clock.pass();
        let profile = clock.stop().unwrap();
        assert_eq!(profile.passes, 1);
        let known = profile.time(Stage::Linear) + profile.time(Stage::Score);
        assert_eq!(profile.total(), known);
        assert_eq!(profile.time(Stage::Norm), Duration::ZERO);
        let shares: f64 = Stage::ALL.iter().map(|&stage| profile.share(stage)).sum();
        assert!(known.is_zero() || (shares - 1.0).abs() < 1e-9);
        let idle = Clock::start(None);
        idle.lap(Stage::Linear);
        idle.pass();
        assert_eq!(idle.stop(), None);
    }

    #[test]
    fn stages_are_listed_in_order_with_distinct_names() {
        for (index, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, index);
            let same = Stage::ALL
                .iter()
                .filter(|other| other.name() == stage.name());
            assert_eq!(same.count(), 1);
        }
    }
}
