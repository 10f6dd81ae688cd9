//! Random decoders and budgets.

use std::sync::Arc;

use asynclane_decode::{
    AsyncLaneConfig, Boundary, CommitConfig, DecoderConfig, Filter, NumericPeriod, ScheduleConfig,
    Value, Weights,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::bench::{blocks, commit, lanes, schedule};
use super::grammar::Toy;
use super::model::Model;

/// One random sequence: all inputs of a walk.
#[derive(Clone, Debug)]
pub struct Setup {
    pub config: DecoderConfig,
    pub budget: u32,
    pub code_prompt: bool,
    pub model: Model,
    pub grammar: Option<Toy>,
}

impl Setup {
    /// Most steps: every step commits a token, and an edit rule may take further passes of a block.
    pub fn most_steps(&self) -> u32 {
        let (commit, schedule) = (&self.config.commit, &self.config.schedule);
        let count = |of: Option<Value<'_>>| of.and_then(|of| of.as_count());
        let passes = count(commit.settings().get("edit_passes"));
        let length = count(schedule.settings().get("block_length"));
        match (passes, length) {
            (Some(passes), Some(length)) => self.budget + self.budget.div_ceil(length) * passes,
            _ => self.budget,
        }
    }
}

/// A filter whose logits are `8 c - 4` of the confidences c.
pub fn filter(size: usize) -> Arc<Filter> {
    let identity = |scale: f32| -> Vec<f32> {
        let one = |at: usize| {
            if at.is_multiple_of(size + 1) {
                scale
            } else {
                0.0
            }
        };
        (0..size * size).map(one).collect()
    };
    let weights = Weights {
        first: identity(1.0),
        first_bias: vec![0.0; size],
        second: identity(8.0),
        second_bias: vec![-4.0; size],
    };
    Arc::new(Filter::new(weights).expect("square layers"))
}

/// The same cases in every run, no files.
pub fn cases() -> ProptestConfig {
    ProptestConfig {
        cases: 1024,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x00A5_71CA),
        ..ProptestConfig::default()
    }
}

/// Any schedule.
pub fn setup() -> impl Strategy<Value = Setup> {
    prop_oneof![
        4 => asynclane_setup(),
        1 => block_wise_setup(),
        1 => other_setup(),
        1 => block_rule_setup(),
    ]
}

/// Any schedule under a grammar.
pub fn guarded_setup() -> impl Strategy<Value = Setup> {
    (setup(), any::<u64>()).prop_map(|(setup, seed)| Setup {
        grammar: Some(Toy::new(seed)),
        ..setup
    })
}

/// AsyncLane with any of its options.
pub fn asynclane_setup() -> impl Strategy<Value = Setup> {
    (
        asynclane_schedule(),
        any::<bool>(),
        rest(),
        prop::option::weighted(0.2, nested_drafts()),
    )
        .prop_map(|(schedule, prune, mut rest, nested)| {
            rest.commit = nested.unwrap_or(rest.commit);
            // The engine refuses the one with the other.
            let lane_budget = schedule.lane_budget && !is_joint(&rest.commit);
            let schedule = AsyncLaneConfig {
                lane_budget,
                ..schedule
            };
            rest.with(lanes(&schedule), prune, true)
        })
}

/// BlockWise, also in its published form that fills the whole canvas.
pub fn block_wise_setup() -> impl Strategy<Value = Setup> {
    let stops = prop_oneof![
        Just((true, true)),
        Just((false, true)),
        Just((false, false))
    ];
    (1..40u32, stops, rest()).prop_map(|(block_length, (prune, early_stop), rest)| {
        rest.with(blocks(block_length), prune, early_stop)
    })
}

/// BlockWise with the rules that work with no other schedule.
pub fn block_rule_setup() -> impl Strategy<Value = Setup> {
    (block_wise_setup(), block_commit()).prop_map(|(setup, commit)| with_commit(setup, commit))
}

fn with_commit(setup: Setup, commit: CommitConfig) -> Setup {
    let config = DecoderConfig {
        commit,
        ..setup.config
    };
    Setup { config, ..setup }
}

/// Blocks whose committed tokens may be rewritten until the block is settled.
pub fn edit_setup() -> impl Strategy<Value = Setup> {
    let edit = (probability(), probability(), 1..6u32);
    (block_wise_setup(), edit).prop_map(|(setup, (threshold, edit_threshold, most_passes))| {
        let commit = commit("edit")
            .with("threshold", threshold)
            .with("edit_threshold", edit_threshold)
            .with("edit_passes", most_passes);
        with_commit(setup, commit)
    })
}

/// Whether the rule makes one choice for all lanes.
pub fn is_joint(commit: &CommitConfig) -> bool {
    ["joint_bound", "nested_drafts"].contains(&commit.name())
}

fn nested_drafts() -> impl Strategy<Value = CommitConfig> {
    (probability(), 1..8u32).prop_map(|(threshold, levels)| {
        commit("nested_drafts")
            .with("entropy_threshold", 2.0 * threshold)
            .with("draft_levels", levels)
            .with("draft_floor", 1.0 - threshold)
    })
}

/// The rules that work with BlockWise alone, and guesses on it.
fn block_commit() -> impl Strategy<Value = CommitConfig> {
    let sizes = (1..=3u32, 0..60u32, 1..8u32);
    (0..4u32, probability(), sizes).prop_map(|(rule, threshold, sizes)| {
        let (tokens_per_step, start, len) = sizes;
        match rule {
            0 => commit("early_commit")
                .with("tokens_per_step", tokens_per_step)
                .with("answer_start", start)
                .with("answer_length", len),
            1 if len < 4 => commit("learned_filter")
                .with("filter_threshold", threshold)
                .with("end_threshold", 0.25 * f64::from(tokens_per_step)),
            1 => commit("learned_filter").with("filter_threshold", threshold),
            2 => commit("nested_drafts")
                .with("entropy_threshold", threshold)
                .with("draft_levels", len)
                .with("draft_floor", 1.0 - threshold),
            _ => commit("draft_verify")
                .with("tokens_per_step", tokens_per_step)
                .with("draft_steps", len),
        }
    })
}

/// The schedules of one lane other than BlockWise.
pub fn other_setup() -> impl Strategy<Value = Setup> {
    let sizes = (1..40u32, 0..60u32, 1..12u32);
    let schedule = (0..4u32, sizes, probability()).prop_map(|(kind, sizes, threshold)| {
        let (block_length, more, cycle) = sizes;
        match kind {
            0 => schedule("adaptive_block")
                .with("block_length", block_length)
                .with("delimiters", ["newline", "sentence"][more as usize % 2])
                .with("delimiter_threshold", threshold),
            1 => schedule("multi_block")
                .with("block_length", block_length)
                .with("add_block_threshold", threshold),
            2 => schedule("streaming").with("window", block_length),
            _ => schedule("window")
                .with("block_length", block_length)
                .with("window", block_length + more)
                .with("refresh", cycle - 1),
        }
    });
    (schedule, any::<bool>(), rest())
        .prop_map(|(schedule, prune, rest)| rest.with(schedule, prune, true))
}

/// The inputs that do not depend on the schedule.
#[derive(Clone, Debug)]
struct Rest {
    commit: CommitConfig,
    budget: u32,
    code_prompt: bool,
    model: Model,
}

impl Rest {
    fn with(self, schedule: ScheduleConfig, prune: bool, early_stop: bool) -> Setup {
        let Self {
            commit,
            budget,
            code_prompt,
            model,
        } = self;
        let config = DecoderConfig {
            schedule,
            commit,
            prune,
            early_stop,
            lone_stops: self.budget.is_multiple_of(2),
        };
        Setup {
            config,
            budget,
            code_prompt,
            model,
            grammar: None,
        }
    }
}

fn rest() -> impl Strategy<Value = Rest> {
    let budget = prop_oneof![1 => 1..=12u32, 3 => 1..=200u32];
    let model = (
        any::<u64>(),
        prop::sample::select(vec![0, 5, 50, 200]),
        2..20u64,
    );
    let model = model.prop_map(|(seed, stop_every, levels)| Model {
        seed,
        stop_every,
        levels,
    });
    (any_commit(), budget, any::<bool>(), model).prop_map(|(commit, budget, code_prompt, model)| {
        Rest {
            commit,
            budget,
            code_prompt,
            model,
        }
    })
}

fn any_commit() -> impl Strategy<Value = CommitConfig> {
    prop_oneof![
        2 => prop_oneof![1..=2u32, 1..=5u32]
            .prop_map(|count| commit("top_k").with("tokens_per_step", count)),
        3 => (prop_oneof![probability(), 0.8..1.0f64], 1..3u32)
            .prop_map(|(threshold, fewest)| commit("threshold")
                .with("threshold", threshold)
                .with("min_tokens_per_step", fewest)),
        4 => other_commit(),
    ]
}

fn other_commit() -> impl Strategy<Value = CommitConfig> {
    (0..10u32, probability(), 1..6u32).prop_map(|(rule, number, most)| match rule {
        0 => commit("factor").with("factor", 2.0 * number + 0.1),
        1 => commit("entropy")
            .with("entropy_threshold", 2.0 * number)
            .with("position_penalty", 0.02 * f64::from(most - 1))
            .with("below", most % 2 == 0),
        2 => commit("entropy_bound").with("entropy_threshold", 4.0 * number),
        9 => commit("joint_bound").with("entropy_threshold", 2.0 * number),
        3 => commit("margin").with("margin_threshold", number),
        8 => {
            let rank = ["confidence", "margin", "entropy", "origin"][most as usize % 4];
            let rule = commit("scheduled").with("rank", rank);
            match most < 4 {
                true => rule.with("denoising_steps", 7 * most),
                false => rule,
            }
        }
        4 => commit("capped")
            .with("threshold", number)
            .with("tokens_per_step", most)
            .with("stop_after", 0.2 * f64::from(most - 1)),
        5 => commit("local_leap").with("threshold", number),
        6 => commit("hierarchy").with("threshold", number),
        _ => commit("credit").with("threshold", number),
    })
}

/// A probability that is often one of the model's own, so that `>=` and `>` differ.
fn probability() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..=1.0f64, Just(0.0), Just(0.5), Just(1.0)]
}

fn boundary() -> impl Strategy<Value = Boundary> {
    let numeric = prop_oneof![Just(NumericPeriod::Next), Just(NumericPeriod::Strict)];
    numeric.prop_flat_map(|numeric| {
        prop_oneof![
            Just(Boundary::Sentence(numeric)),
            Just(Boundary::Newline),
            Just(Boundary::Prose(numeric)),
            Just(Boundary::Auto(numeric))
        ]
    })
}

fn asynclane_schedule() -> impl Strategy<Value = AsyncLaneConfig> {
    let sizes = (1..40u32, prop_oneof![Just(0), 0..40u32], 1..=6u32);
    let drafts = prop_oneof![1 => Just(None), 3 => probability().prop_map(Some)];
    let forks = prop_oneof![1 => Just(None), 6 => boundary().prop_map(Some)];
    // Early forks leave work to refine lanes.
    let min_fill = prop_oneof![3 => 0.0..0.3f64, 1 => probability()];
    let ends = (any::<bool>(), any::<bool>());
    let entropy = prop::option::weighted(0.2, 0.0..20.0f64);
    let waits = (prop::bool::weighted(0.25), entropy);
    let when = (min_fill, 0..4u32, ends, waits);
    (sizes, drafts, forks, when).prop_map(|(sizes, draft_threshold, fork, when)| {
        let (block_length, lookahead, max_lanes) = sizes;
        let (min_fill, min_clock, (fork_when_complete, lane_budget), waits) = when;
        let (coupled, fork_entropy) = waits;
        AsyncLaneConfig {
            block_length,
            lookahead,
            draft_threshold,
            fork,
            min_fill,
            min_clock,
            fork_when_complete,
            fork_entropy,
            lane_budget,
            max_lanes,
            coupled,
        }
    })
}
