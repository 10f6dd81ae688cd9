//! Where the time of a forward pass goes.

use std::time::{Duration, Instant};

/// What a forward pass is made of, in the order of its first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Checking the batch and flattening it, copies of pages.
    Inputs,
    /// The embedding table.
    Embedding,
    /// RMS norms.
    Norm,
    /// Matrix products of the layers.
    Linear,
    /// Rotary positions.
    Rope,
    /// Writes of keys and values.
    Write,
    /// Attention.
    Attention,
    /// Matrix products of the LM head.
    Head,
    /// Logits to candidates.
    Score,
}

impl Part {
    /// All parts.
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

    /// Its name in tables.
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

/// Wall time by part, summed over forward passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Forward passes.
    pub passes: u64,
    times: [Duration; Part::ALL.len()],
}

impl Profile {
    /// Time of a part, all passes together.
    #[must_use]
    pub fn time(&self, part: Part) -> Duration {
        self.times[part as usize]
    }

    /// Time of all parts.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.times.iter().sum()
    }

    /// A part's share of the total, `0.0..=1.0`; 0 of no time.
    #[must_use]
    pub fn share(&self, part: Part) -> f64 {
        self.time(part).as_secs_f64() / self.total().as_secs_f64().max(1e-12)
    }
}

/// Books the time since the last lap; without a profile it does nothing, not even look.
pub(crate) struct Clock<'a>(Option<(&'a mut Profile, Instant)>);

impl<'a> Clock<'a> {
    /// Starts now.
    pub(crate) fn start(profile: Option<&'a mut Profile>) -> Self {
        Self(profile.map(|profile| (profile, Instant::now())))
    }

    /// Books what passed since the last lap on `part`.
    pub(crate) fn lap(&mut self, part: Part) {
        if let Some((profile, last)) = &mut self.0 {
            let now = Instant::now();
            profile.times[part as usize] += now - *last;
            *last = now;
        }
    }

    /// Counts a finished pass.
    pub(crate) fn pass(&mut self) {
        if let Some((profile, _)) = &mut self.0 {
            profile.passes += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps_add_up_and_an_idle_clock_books_nothing() {
        let mut profile = Profile::default();
        let mut clock = Clock::start(Some(&mut profile));
        clock.lap(Part::Linear);
        clock.lap(Part::Score);
        clock.lap(Part::Linear);
        clock.pass();
        assert_eq!(profile.passes, 1);
        let known = profile.time(Part::Linear) + profile.time(Part::Score);
        assert_eq!(profile.total(), known);
        assert_eq!(profile.time(Part::Norm), Duration::ZERO);
        let shares: f64 = Part::ALL.iter().map(|&part| profile.share(part)).sum();
        assert!(known.is_zero() || (shares - 1.0).abs() < 1e-9);
        let mut idle = Clock::start(None);
        idle.lap(Part::Linear);
        idle.pass();
    }

    #[test]
    fn parts_are_listed_in_their_own_order_under_different_names() {
        for (index, part) in Part::ALL.into_iter().enumerate() {
            assert_eq!(part as usize, index);
            let same = Part::ALL.iter().filter(|other| other.name() == part.name());
            assert_eq!(same.count(), 1);
        }
    }
}
