//! A decoder driven by hand: every step gives the model's proposals.

use asynclane_decode::{
    COMMITS, Candidate, CommitConfig, Constraint, Decoder, DecoderConfig, Effect, Input, Offset,
    Proposal, Role, SCHEDULES, ScheduleConfig,
};

use super::{STOPS, branches, candidate, classes, filter, id, text, wanted};

/// AsyncLane with blocks of 8, no lookahead, no drafts, forks at full stops from the first step.
pub fn asynclane() -> ScheduleConfig {
    schedule("asynclane")
        .with("block_length", 8u32)
        .with("lookahead", 0u32)
        // No probability reaches a threshold above 1.
        .with("draft_threshold", 2.0)
        .with("fork", "sentence")
        .with("min_fill", 0.0)
        .with("min_clock", 0u32)
        .with("lane_budget", true)
        .with("max_lanes", 4u32)
}

/// The commit rule `name` with its defaults.
pub fn commit(name: &str) -> CommitConfig {
    CommitConfig::find(COMMITS, name).unwrap_or_else(|| panic!("no commit rule {name}"))
}

/// The schedule `name` with its defaults.
pub fn schedule(name: &str) -> ScheduleConfig {
    ScheduleConfig::find(SCHEDULES, name).unwrap_or_else(|| panic!("no schedule {name}"))
}

/// The block-wise schedule.
pub fn blocks(block_length: u32) -> ScheduleConfig {
    schedule("block_wise").with("block_length", block_length)
}

/// Blocks one after the other.
pub fn block_wise(block_length: u32) -> DecoderConfig {
    with_schedule(blocks(block_length))
}

/// A threshold of 0.9, pruning and early stop.
pub fn with_schedule(schedule: ScheduleConfig) -> DecoderConfig {
    DecoderConfig {
        schedule,
        commit: commit("threshold"),
        prune: true,
        early_stop: true,
        lone_stops: true,
        max_steps: None,
        expected: 0,
    }
}

impl From<ScheduleConfig> for Bench {
    /// A budget of 24.
    fn from(schedule: ScheduleConfig) -> Self {
        Self::new(&with_schedule(schedule), 24)
    }
}

/// A decoder under test.
#[derive(Debug)]
pub struct Bench {
    pub decoder: Decoder,
    /// Effects of its creation.
    pub born: Vec<Effect>,
}

impl Bench {
    /// A decoder before its first step, after a prompt that is not code.
    pub fn new(config: &DecoderConfig, budget: u32) -> Self {
        Self::born(config, Input::new(budget, STOPS))
    }

    /// A decoder under a grammar, before its first step.
    pub fn under(grammar: impl Constraint + 'static, config: &DecoderConfig, budget: u32) -> Self {
        let input = Input { constraint: Some(Box::new(grammar)), ..Input::new(budget, STOPS) };
        Self::born(config, input)
    }

    /// A decoder before its first step, `phase` positions into a block of the model.
    pub fn in_phase(config: &DecoderConfig, budget: u32, phase: u32) -> Self {
        let input = Input { phase, ..Input::new(budget, STOPS) };
        Self::born(config, input)
    }

    /// A decoder before its first step.
    pub fn born(config: &DecoderConfig, input: Input<'_>) -> Self {
        let mut born = Vec::new();
        let input = Input { classes: classes(), filter: Some(filter(8)), seed: 11, ..input };
        let decoder = Decoder::new(config, input, &mut born);
        Self { decoder, born }
    }

    /// One step. The model proposes the given texts with the given probabilities, and "a" with
    /// probability 0.1 everywhere else.
    pub fn step(&mut self, said: &[(u32, &str, f64)]) -> Vec<Effect> {
        let wanted = wanted(&self.decoder).into_iter();
        let offsets: Vec<u32> = wanted.map(|(offset, _)| offset.get()).collect();
        for (offset, ..) in said {
            assert!(offsets.contains(offset), "nobody asks for {offset}, only for {offsets:?}");
        }
        self.step_by(|offset| {
            let found = said.iter().find(|(place, ..)| *place == offset);
            let (_, text, probability) = *found.unwrap_or(&(offset, "a", 0.1));
            candidate(id(text), probability)
        })
    }

    /// One step with these candidates by offset, the same on all branches.
    pub fn step_by(&mut self, says: impl Fn(u32) -> Candidate) -> Vec<Effect> {
        let propose =
            |(offset, _): (Offset, Role)| Proposal { offset, candidate: says(offset.get()) };
        let mut proposals: Vec<_> = wanted(&self.decoder).into_iter().map(propose).collect();
        for guesses in branches(&self.decoder) {
            let open = wanted(&self.decoder).into_iter();
            let open =
                open.filter(|(offset, _)| guesses.iter().all(|guess| guess.offset != *offset));
            proposals.extend(open.map(propose));
        }
        let mut effects = Vec::new();
        self.decoder.apply(&proposals, &mut effects);
        let sound = self.decoder.tree().validate();
        sound.expect("the lane tree is sound");
        effects
    }

    /// The canvas as text, `_` for masks.
    pub fn canvas(&self) -> String {
        let canvas = self.decoder.canvas();
        canvas.span().iter().map(|offset| canvas.get(offset).map_or("_", text)).collect()
    }
}
