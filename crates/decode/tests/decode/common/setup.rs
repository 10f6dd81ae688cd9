//! Random decoders and budgets.

use std::sync::Arc;

use asynclane_decode::{
    AttentionKind, COMMITS, Capability, CommitConfig, CommitInfo, CommitInput, DecoderConfig,
    Filter, ScheduleConfig, Scope, SettingDefault, SettingInfo, SettingKind, Settings, Value,
    Weights,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::bench::{blocks, commit, schedule};
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
        let longest = self.config.schedule.longest_lane(self.budget).max(1);
        let idle = self.config.commit.idle(longest);
        self.budget + self.budget.div_ceil(longest) * idle
    }
}

/// A filter whose logits are `8 c - 4` of the confidences c.
pub fn filter(size: usize) -> Arc<Filter> {
    let identity = |scale: f32| -> Vec<f32> {
        let one = |index: usize| {
            if index.is_multiple_of(size + 1) { scale } else { 0.0 }
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
        2 => block_wise_setup(),
        1 => other_setup(),
    ]
}

/// Any schedule under a grammar.
pub fn guarded_setup() -> impl Strategy<Value = Setup> {
    (setup(), any::<u64>())
        .prop_map(|(setup, seed)| Setup { grammar: Some(Toy::new(seed)), ..setup })
}

/// AsyncLane with any of its options.
pub fn asynclane_setup() -> impl Strategy<Value = Setup> {
    (asynclane_schedule(), any::<bool>(), rest("asynclane")).prop_map(|(schedule, prune, rest)| {
        // The engine refuses the one with the other.
        let schedule = match is_joint(&rest.commit) {
            true => schedule.with("lane_budget", false),
            false => schedule,
        };
        rest.with(schedule, prune, true)
    })
}

/// BlockWise with any rule, also in its published form that fills the whole canvas.
pub fn block_wise_setup() -> impl Strategy<Value = Setup> {
    let stops = prop_oneof![Just((true, true)), Just((false, true)), Just((false, false))];
    (1..40u32, stops, rest("block_wise")).prop_map(|(block_length, (prune, early_stop), rest)| {
        rest.with(blocks(block_length), prune, early_stop)
    })
}

/// Blocks whose committed tokens may be rewritten until the block is settled.
pub fn edit_setup() -> impl Strategy<Value = Setup> {
    let edit = (probability(), probability(), 1..6u32);
    (block_wise_setup(), edit).prop_map(|(mut setup, (threshold, edit_threshold, passes))| {
        setup.config.commit = commit("edit")
            .with("threshold", threshold)
            .with("edit_threshold", edit_threshold)
            .with("edit_passes", passes);
        setup
    })
}

/// True if the rule makes one choice for all lanes.
pub fn is_joint(commit: &CommitConfig) -> bool {
    let rule = commit.build(&CommitInput::default());
    rule.reads().scope == Scope::Sequence
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
    (schedule, any::<bool>(), rest("streaming"))
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
        let Self { commit, budget, code_prompt, model } = self;
        let config = DecoderConfig {
            schedule,
            commit,
            prune,
            early_stop,
            lone_stops: self.budget.is_multiple_of(2),
            max_steps: None,
            expected: 0,
        };
        Setup { config, budget, code_prompt, model, grammar: None }
    }
}

/// The inputs of a sequence under a schedule.
fn rest(schedule: &'static str) -> impl Strategy<Value = Rest> {
    let budget = prop_oneof![1 => 1..=12u32, 3 => 1..=200u32];
    let model = (any::<u64>(), prop::sample::select(vec![0, 5, 50, 200]), 2..20u64);
    let model = model.prop_map(|(seed, stop_every, levels)| Model { seed, stop_every, levels });
    (any_commit(schedule), budget, any::<bool>(), model).prop_map(
        |(commit, budget, code_prompt, model)| Rest { commit, budget, code_prompt, model },
    )
}

/// Every rule that goes with a schedule and takes plain candidates, with any settings. Rules that have
/// guesses checked, rewrite tokens or read noise have properties of their own.
fn any_commit(schedule: &'static str) -> impl Strategy<Value = CommitConfig> {
    let is_plain = |info: &&&'static CommitInfo| {
        let requires = &info.requires;
        let needs = (requires.needs)(&Settings::defaults(info.settings));
        requires.schedules.admits(schedule)
            && requires.attention.contains(&AttentionKind::Full)
            && needs != Some(Capability::Edits)
    };
    let rules: Vec<_> = COMMITS.iter().filter(is_plain).copied().collect();
    prop_oneof![
        1 => any_settings(commit("top_k").info()),
        1 => any_settings(commit("threshold").info()),
        4 => prop::sample::select(rules).prop_flat_map(any_settings),
    ]
}

/// A rule with any value for each of its settings.
fn any_settings(info: &'static CommitInfo) -> impl Strategy<Value = CommitConfig> {
    let values: Vec<_> = info.settings.iter().map(any_value).collect();
    values.prop_map(move |values| {
        let pairs = info.settings.iter().zip(values);
        pairs.fold(CommitConfig::new(info), |rule, (setting, value)| match value {
            Some(value) => rule.with(setting.name, value),
            None => rule,
        })
    })
}

/// A value of a setting, or none where it is derived; large ones are rare.
fn any_value(setting: &SettingInfo) -> BoxedStrategy<Option<Value<'static>>> {
    let value = match setting.kind {
        SettingKind::Name(names) => prop::sample::select(names).prop_map(Value::Name).boxed(),
        SettingKind::Integer(min, max) | SettingKind::NameOrInteger(_, min, max) => {
            let up_to = |more: i64| min..=max.min(min + more);
            prop_oneof![up_to(2), up_to(40)].prop_map(Value::Integer).boxed()
        }
        SettingKind::Number(min, max) => probability()
            .prop_map(move |share| Value::Number(min + share * (max.min(min + 2.0) - min)))
            .boxed(),
        SettingKind::Flag => any::<bool>().prop_map(Value::Flag).boxed(),
    };
    match setting.default {
        SettingDefault::Value(_) => value.prop_map(Some).boxed(),
        SettingDefault::Derived(_) => prop::option::of(value).boxed(),
    }
}

/// A probability that is often one of the model's own, so that `>=` and `>` differ.
fn probability() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..=1.0f64, Just(0.0), Just(0.5), Just(1.0)]
}

fn asynclane_schedule() -> impl Strategy<Value = ScheduleConfig> {
    let sizes = (1..40u32, prop_oneof![Just(0), 0..40u32], 1..=6u32);
    let drafts = prop_oneof![1 => Just(2.0), 3 => probability()];
    let forks = prop_oneof![
        1 => Just("off"),
        6 => prop::sample::select(vec!["sentence", "newline", "prose", "auto"]),
    ];
    let numeric = prop::sample::select(vec!["next", "strict"]);
    // Early forks leave work to refine lanes.
    let min_fill = prop_oneof![3 => 0.0..0.3f64, 1 => probability()];
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.25));
    let entropy = prop::option::weighted(0.2, 0.0..20.0f64);
    let when = (min_fill, 0..4u32, flags, entropy);
    (sizes, drafts, forks, numeric, when).prop_map(|(sizes, drafts, fork, numeric, when)| {
        let (min_fill, min_clock, (complete, budget, coupled), entropy) = when;
        let schedule = schedule("asynclane")
            .with("block_length", sizes.0)
            .with("lookahead", sizes.1)
            .with("max_lanes", sizes.2)
            .with("draft_threshold", drafts)
            .with("fork", fork)
            .with("numeric", numeric)
            .with("min_fill", min_fill)
            .with("min_clock", min_clock)
            .with("fork_when_complete", complete)
            .with("lane_budget", budget)
            .with("coupled", coupled);
        match entropy {
            Some(most) => schedule.with("fork_entropy", most),
            None => schedule,
        }
    })
}
