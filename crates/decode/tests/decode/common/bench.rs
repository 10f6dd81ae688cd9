//! A decoder driven by hand: every step gives the model's proposals.

use asynclane_decode::{
    AsyncLaneConfig, Boundary, COMMITS, CommitConfig, Constraint, Decoder, DecoderConfig, Effect,
    Input, NumericPeriod, Proposal, SCHEDULES, ScheduleConfig,
};

use super::{STOPS, at, branches, candidate, classes, filter, id, text, wanted};

/// AsyncLane with blocks of 8, no lookahead, no drafts, forks at full stops from the first step.
pub fn asynclane() -> AsyncLaneConfig {
    AsyncLaneConfig {
        block_length: 8,
        lookahead: 0,
        draft_threshold: None,
        fork: Some(Boundary::Sentence(NumericPeriod::Next)),
        min_fill: 0.0,
        min_clock: 0,
        fork_when_complete: true,
        fork_entropy: None,
        lane_budget: true,
        max_lanes: 4,
        coupled: false,
    }
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

/// The schedule of these parameters.
pub fn lanes(of: &AsyncLaneConfig) -> ScheduleConfig {
    let (fork, numeric) = match of.fork {
        None => ("off", NumericPeriod::Next),
        Some(Boundary::Sentence(numeric)) => ("sentence", numeric),
        Some(Boundary::Newline) => ("newline", NumericPeriod::Next),
        Some(Boundary::Prose(numeric)) => ("prose", numeric),
        Some(Boundary::Auto(numeric)) => ("auto", numeric),
    };
    let numeric = match numeric {
        NumericPeriod::Next => "next",
        NumericPeriod::Strict => "strict",
    };
    // No probability reaches a threshold above 1.
    let drafts = of.draft_threshold.unwrap_or(2.0);
    let config = schedule("asynclane")
        .with("block_length", of.block_length)
        .with("lookahead", of.lookahead)
        .with("draft_threshold", drafts)
        .with("fork", fork)
        .with("numeric", numeric)
        .with("min_fill", of.min_fill)
        .with("min_clock", of.min_clock)
        .with("fork_when_complete", of.fork_when_complete)
        .with("max_lanes", of.max_lanes)
        .with("lane_budget", of.lane_budget)
        .with("coupled", of.coupled);
    let config = match of.fork_entropy {
        Some(most) => config.with("fork_entropy", most),
        None => config,
    };
    assert_eq!(AsyncLaneConfig::read(config.settings()), *of);
    config
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
    }
}

impl From<AsyncLaneConfig> for Bench {
    /// A budget of 24.
    fn from(config: AsyncLaneConfig) -> Self {
        Self::new(&with_schedule(lanes(&config)), 24)
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
        Self::after(config, budget, false)
    }

    /// A decoder before its first step.
    pub fn after(config: &DecoderConfig, budget: u32, code_prompt: bool) -> Self {
        Self::born(config, budget, (code_prompt, 0, None), None)
    }

    /// A decoder under a grammar, before its first step.
    pub fn under(grammar: impl Constraint + 'static, config: &DecoderConfig, budget: u32) -> Self {
        Self::born(config, budget, (false, 0, None), Some(Box::new(grammar)))
    }

    /// A decoder before its first step, `phase` positions into a block of the model.
    pub fn in_phase(config: &DecoderConfig, budget: u32, phase: u32) -> Self {
        Self::born(config, budget, (false, phase, None), None)
    }

    /// As [`Self::in_phase`], for a model that predicts the first position of its block before the
    /// rest.
    pub fn led(config: &DecoderConfig, budget: u32, (phase, length): (u32, u32)) -> Self {
        Self::born(config, budget, (false, phase, Some(length)), None)
    }

    fn born(
        config: &DecoderConfig,
        budget: u32,
        (code_prompt, phase, lead): (bool, u32, Option<u32>),
        constraint: Option<Box<dyn Constraint>>,
    ) -> Self {
        let mut born = Vec::new();
        let input = Input {
            budget,
            stops: STOPS,
            classes: classes(),
            code_prompt,
            phase,
            lead,
            constraint,
            filter: Some(filter(8)),
            seed: 11,
        };
        let decoder = Decoder::new(config, input, &mut born);
        Self { decoder, born }
    }

    /// One step. The model proposes the given texts with the given probabilities, and "a" with
    /// probability 0.1 everywhere else.
    pub fn step(&mut self, said: &[(u32, &str, f64)]) -> Vec<Effect> {
        let wanted = wanted(&self.decoder).into_iter();
        let offsets: Vec<u32> = wanted.map(|(offset, _)| offset.get()).collect();
        for (offset, ..) in said {
            assert!(
                offsets.contains(offset),
                "nobody asks for {offset}, only for {offsets:?}"
            );
        }
        let says = |offset| {
            let (_, text, probability) = *said
                .iter()
                .find(|(at, ..)| *at == offset)
                .unwrap_or(&(offset, "a", 0.1));
            Proposal {
                offset: at(offset),
                candidate: candidate(id(text), probability),
            }
        };
        let mut proposals: Vec<Proposal> = offsets.iter().copied().map(says).collect();
        for guesses in branches(&self.decoder) {
            let is_open = |offset: &&u32| guesses.iter().all(|guess| guess.offset != at(**offset));
            proposals.extend(offsets.iter().filter(is_open).copied().map(says));
        }
        let mut effects = Vec::new();
        self.decoder.apply(&proposals, &mut effects);
        self.decoder
            .tree()
            .validate()
            .expect("the lane tree is sound");
        effects
    }

    /// The canvas as text, `_` for masks.
    pub fn canvas(&self) -> String {
        let canvas = self.decoder.canvas();
        canvas
            .span()
            .iter()
            .map(|offset| canvas.get(offset).map_or("_", text))
            .collect()
    }
}
